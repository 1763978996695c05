//! The list after `-o`, option by option.

use super::known::{Fate, fate, name_of, nearest};
use super::values::{
    atomic_writes, bytes, cache_size, choice, data_error, journal, number, nvram_size, on_error, readers, sandbox,
    transport, tunes_host,
};
use super::{DATABASE, MountOptions, OptionError, bad};
use crate::without::Without;
use quire_fs::{Atime, Choices, ModeRule, Profile, Route};
use std::time::Duration;

impl MountOptions {
    /// Reads a list of options, separated by commas; a later one wins.
    ///
    /// # Errors
    /// The first option that is unknown or that cannot be had.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = MountOptions::default();
        options.add(list)?;
        options.check_fake_root()?;
        options.choices(Route::Auto)?;
        options.check_nvram()?;
        Ok(options)
    }

    /// Reads further options.
    ///
    /// # Errors
    /// As [`MountOptions::parse`].
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        let mut rules = false;
        for option in list.split(',').filter(|o| !o.is_empty()) {
            // A list of rules has commas of its own.
            if rules && option.contains('=') && self.add_rule(option) {
                continue;
            }
            rules = name_of(option) == "journal_rule";
            match fate(option) {
                Some(Fate::Honoured(_)) => self.honour(option)?,
                Some(Fate::Quiet(_)) => {}
                Some(Fate::Ignored(why)) => self.ignored.push((option.to_owned(), why)),
                Some(Fate::Refused(why)) => return Err(bad(option, why)),
                None => return Err(OptionError::Unknown { option: option.to_owned(), nearest: nearest(option) }),
            }
        }
        Ok(())
    }

    fn honour(&mut self, option: &str) -> Result<(), OptionError> {
        match option.split_once('=') {
            // mount(8) notes who mounted.
            Some(("user", _)) => self.set("user"),
            Some((name, value)) => return self.set_value(option, name, value),
            None => self.set(option),
        }
        Ok(())
    }

    fn set(&mut self, option: &str) {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "remount" => self.remount = true,
            "noload" | "norecovery" => self.no_load = true,
            "noatime" => self.atime = Some(Atime::No),
            "relatime" | "atime" | "norelatime" | "nostrictatime" => self.atime = Some(Atime::Relative),
            "strictatime" => self.atime = Some(Atime::Strict),
            "nodiratime" => self.no_dir_atime = true,
            "diratime" => self.no_dir_atime = false,
            "grpid" | "bsdgroups" => self.grpid = Some(true),
            "nogrpid" | "sysvgroups" => self.grpid = Some(false),
            "discard" => self.discard = Some(true),
            "nodiscard" => self.discard = Some(false),
            "user_xattr" => self.user_xattr = Some(true),
            "nouser_xattr" => self.user_xattr = Some(false),
            "minixdf" => self.minix_df = true,
            "bsddf" => self.minix_df = false,
            "acl" => self.acl = Some(true),
            "noacl" => self.acl = Some(false),
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" | "no_allow_other" => self.allow_other = Some(false),
            "fakeroot" => {
                self.fake_root = true;
                (self.no_dev, self.no_suid) = (true, true);
                self.allow_other = self.allow_other.or(Some(false));
            }
            "kernel" => {
                self.allow_other = Some(true);
                (self.no_dev, self.no_suid) = (false, false);
            }
            "dev" => self.no_dev = false,
            "nodev" => self.no_dev = true,
            "suid" => self.no_suid = false,
            "nosuid" => self.no_suid = true,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "user" | "users" => (self.no_dev, self.no_suid, self.no_exec) = (true, true, true),
            "owner" | "group" => (self.no_dev, self.no_suid) = (true, true),
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dir_sync = true,
            "symfollow" => self.no_symfollow = false,
            "nosymfollow" => self.no_symfollow = true,
            "nvram_simulated" => self.nvram_simulated = true,
            "writethrough" => self.write_through = Some(true),
            "writeback" | "writeback_cache" => self.write_through = Some(false),
            _ => unreachable!("the table of options names {option}, which nothing sets"),
        }
    }

    /// One more rule, if it is one: options that have a mode as their value stay what they are.
    fn add_rule(&mut self, option: &str) -> bool {
        if option.starts_with("data=") || option.starts_with("adaptive_default=") {
            return false;
        }
        let (Ok(more), Some(rules)) = (ModeRule::parse(option), &mut self.journal_rules) else { return false };
        rules.extend(more);
        true
    }

    fn set_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), OptionError> {
        match name {
            "data" => self.data = Some(choice(option, value)?),
            "record" => self.record = Some(choice(option, value)?),
            "commit_mode" => self.commit_mode = Some(choice(option, value)?),
            "checkpoint" => self.checkpoint = Some(choice(option, value)?),
            "profile" => self.set_profile(option, value)?,
            "write_threshold" => self.write_threshold = Some(bytes(option, value)?),
            "auto_threshold" => self.auto_threshold = Some(bytes(option, value)?),
            "adaptive_default" => self.adaptive_default = Some(value.parse().map_err(|why: &str| bad(option, why))?),
            "journal_rule" => self.journal_rules = Some(ModeRule::parse(value).map_err(|why| bad(option, why))?),
            "errors" => self.on_error = Some(on_error(option, value)?),
            "data_err" => self.data_error_aborts = data_error(option, value)?,
            // As in ext4, 0 is the default.
            "commit" => {
                let secs = number(option, value)?;
                self.commit = (secs > 0).then(|| Duration::from_secs(secs.into()));
            }
            "checkpoint_age" => self.checkpoint_age = Some(Duration::from_secs(number(option, value)?.into())),
            "min_batch_time" => self.min_batch_time = Some(Duration::from_micros(number(option, value)?.into())),
            "max_batch_time" => self.max_batch_time = Some(Duration::from_micros(number(option, value)?.into())),
            "atomic_writes" => self.atomic_writes = Some(atomic_writes(option, value)?),
            "slow_ms" => {
                let millis = number(option, value)?;
                self.slow = (millis > 0).then(|| Duration::from_millis(millis.into()));
            }
            "transport" => self.transport = transport(option, value)?,
            "readers" => self.readers = Some(readers(option, value)?),
            "sandbox" => self.sandbox = sandbox(option, value)?,
            "without" => self.without = Without::parse(value).map_err(|why| bad(option, why))?,
            "tune" => self.tune_host = tunes_host(option, value)?,
            "cache_size" => self.cache_bytes = Some(cache_size(option, value)?),
            "resuid" => self.reserve_uid = Some(number(option, value)?),
            "resgid" => self.reserve_gid = Some(number(option, value)?),
            "journal_path" | "journal_dev" => self.journal_path = Some(journal(name, option, value)?),
            "nvram" if value.is_empty() => return Err(bad(option, "a path is expected")),
            "nvram" => self.nvram = Some(value.into()),
            "nvram_size" => self.nvram_size = Some(nvram_size(option, value)?),
            "nvram_latency_ns" => self.nvram_latency = number(option, value)?,
            "uid" => self.shown_uid = Some(number(option, value)?),
            "gid" => self.shown_gid = Some(number(option, value)?),
            "lockfile" if value.is_empty() => return Err(bad(option, "a path is expected")),
            "lockfile" => self.lock_file = Some(value.into()),
            "offset" => self.offset = bytes(option, value)?,
            "sizelimit" => self.size_limit = Some(bytes(option, value)?),
            _ => unreachable!("the table of options names {option}, which nothing sets"),
        }
        Ok(())
    }

    fn set_profile(&mut self, option: &str, value: &str) -> Result<(), OptionError> {
        self.for_databases = value == DATABASE;
        let profile = match value {
            DATABASE => Profile::Auto,
            _ => choice::<Profile>(option, value).map_err(with_database)?,
        };
        self.set_choices(profile.choices());
        Ok(())
    }

    fn set_choices(&mut self, c: Choices) {
        self.data = Some(c.route);
        self.record = Some(c.record);
        self.commit_mode = Some(c.commit);
        self.checkpoint = Some(c.checkpoint);
    }
}

/// The names of profiles, with the one that the engine does not know.
fn with_database(error: OptionError) -> OptionError {
    match error {
        OptionError::Bad { option, why } => OptionError::Bad { option, why: format!("{why}, or {DATABASE}") },
        other => other,
    }
}
