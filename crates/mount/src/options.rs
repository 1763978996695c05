//! Mount options (`-o`): ext4's names for ext4's options, mount(8)'s for what every file system has, and a few of ours.
//!
//! What an option asks for and we cannot give is refused by its name, never ignored. Options that only tune the
//! kernel's implementation are accepted and change nothing; so are mount(8)'s own (`user`, `noauto`, `x-*`).

use quire_device::nvram::{NvramMap, NvramOptions};
use quire_fs::choices::{Checkpoint, Choices, CommitMode, Profile, Record};
use quire_fs::options::{Atime, Route};
use quire_fs::{FileMode, ModeRule};
use quire_layout::superblock::{OnError, Superblock, default_opts};
use std::path::PathBuf;
use std::time::Duration;

/// What `-o` says. What it does not say follows from the superblock, then from ext4's own defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountOptions {
    pub read_only: bool,
    /// Leave the journal alone; the mount is read-only then, asked for or not.
    pub no_load: bool,
    pub data: Option<Route>,
    pub record: Option<Record>,
    pub commit_mode: Option<CommitMode>,
    pub checkpoint: Option<Checkpoint>,
    /// Bytes.
    pub auto_threshold: Option<u64>,
    /// Bytes.
    pub write_threshold: Option<u64>,
    pub adaptive_default: Option<FileMode>,
    pub journal_rules: Option<Vec<ModeRule>>,
    pub on_error: Option<OnError>,
    pub atime: Option<Atime>,
    /// Reading a directory does not count as access.
    pub no_dir_atime: bool,
    pub commit: Option<Duration>,
    /// Bytes of memory for blocks and pages.
    pub cache_bytes: Option<u64>,
    pub grpid: Option<bool>,
    pub discard: Option<bool>,
    pub user_xattr: Option<bool>,
    /// User and group that may take reserved blocks.
    pub reserve_uid: Option<u32>,
    pub reserve_gid: Option<u32>,
    pub acl: Option<bool>,
    /// The journal's device.
    pub journal_path: Option<PathBuf>,
    /// The memory that holds the journal.
    pub nvram: Option<PathBuf>,
    /// Any file may stand for it.
    pub nvram_simulated: bool,
    /// Bytes of it to use.
    pub nvram_size: Option<u64>,
    /// Added to each cache line that is stored, in nanoseconds.
    pub nvram_latency: u32,
    /// Where the file system starts in the image, in bytes.
    pub offset: u64,
    /// Its size, if less than the rest of the image, in bytes.
    pub size_limit: Option<u64>,
    /// Others than the user who mounts may use it; `None`: when root mounts.
    pub allow_other: Option<bool>,
    pub no_dev: bool,
    pub no_suid: bool,
    pub no_exec: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// Every change of a directory is durable when it returns.
    pub dir_sync: bool,
    /// Each write(2) reaches the file system as a request of its own.
    pub write_through: bool,
    /// Idle CPUs of a virtual machine may halt between requests.
    pub no_halt_poll: bool,
}

/// A refused option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    #[error("unknown mount option \"{0}\"")]
    Unknown(String),
    #[error("mount option \"{option}\": {why}")]
    Bad { option: String, why: String },
}

/// Accepted, and nothing to do: the kernel's own tuning, what holds anyway, what mount(8) keeps for itself.
const NOTHING_TO_DO: &[&str] = &[
    "defaults",
    "rw",
    "auto",
    "noauto",
    "nofail",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "loop",
    "async",
    "exec",
    "suid",
    "dev",
    "nolazytime",
    "lazytime",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "symfollow",
    "default_permissions",
    "delalloc",
    "nodelalloc",
    "auto_da_alloc",
    "noauto_da_alloc",
    "barrier",
    "block_validity",
    "noblock_validity",
    "dioread_lock",
    "dioread_nolock",
    "init_itable",
    "noinit_itable",
    "journal_checksum",
    "nojournal_checksum",
    "mblk_io_submit",
    "nomblk_io_submit",
    "orlov",
    "oldalloc",
    "bsddf",
    "quiet",
    "i_version",
    "noquota",
    "mb_optimize_scan",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
];
/// The same, with a value.
const NOTHING_TO_DO_WITH_VALUE: &[&str] = &[
    "journal_ioprio",
    "stripe",
    "inode_readahead_blks",
    "max_batch_time",
    "min_batch_time",
    "init_itable",
    "comment",
    "mb_optimize_scan",
    "auto_da_alloc",
    "fsname",
    "subtype",
    "uhelper",
    "helper",
];

impl MountOptions {
    /// Reads a list of options, separated by commas; a later one wins.
    ///
    /// # Errors
    /// The first option that is unknown or that cannot be had.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = MountOptions::default();
        options.add(list)?;
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
            rules = match option.split_once('=') {
                // A list of rules has commas of its own.
                Some(_) if rules && self.add_rule(option) => true,
                Some((name, value)) => {
                    self.set_value(option, name, value)?;
                    name == "journal_rule"
                }
                None => {
                    self.set(option)?;
                    false
                }
            };
        }
        Ok(())
    }

    fn set(&mut self, option: &str) -> Result<(), OptionError> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
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
            "acl" => self.acl = Some(true),
            "noacl" => self.acl = Some(false),
            "allow_other" => self.allow_other = Some(true),
            "noallow_other" | "no_allow_other" => self.allow_other = Some(false),
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
            "nvram_simulated" => self.nvram_simulated = true,
            "writethrough" => self.write_through = true,
            "halt_poll" => self.no_halt_poll = false,
            "nohalt_poll" => self.no_halt_poll = true,
            "writeback" | "writeback_cache" => self.write_through = false,
            "nobarrier" => return Err(bad(option, NO_BARRIER)),
            "journal_async_commit" => return Err(bad(option, "asynchronous commits are read, never written")),
            "remount" => return Err(bad(option, "a mounted image keeps its options; unmount and mount again")),
            "minixdf" => return Err(bad(option, "only bsddf is supported")),
            "quota" | "usrquota" | "grpquota" | "prjquota" => return Err(bad(option, "quotas are not supported")),
            "dax" => return Err(bad(option, "a file system in user space cannot map the device")),
            "debug" => return Err(bad(option, "set QUIRE_LOG=debug and use --log or -f instead")),
            _ if NOTHING_TO_DO.contains(&option) || is_comment(option) => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
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
            "profile" => self.set_choices(choice::<Profile>(option, value)?.choices()),
            "write_threshold" => self.write_threshold = Some(bytes(option, value)?),
            "auto_threshold" => self.auto_threshold = Some(bytes(option, value)?),
            "adaptive_default" => self.adaptive_default = Some(value.parse().map_err(|why: &str| bad(option, why))?),
            "journal_rule" => self.journal_rules = Some(ModeRule::parse(value).map_err(|why| bad(option, why))?),
            "errors" => self.on_error = Some(on_error(option, value)?),
            "data_err" => only(option, value, "ignore")?,
            "dax" => only(option, value, "never")?,
            // As in ext4, 0 is the default.
            "commit" => {
                let secs = number(option, value)?;
                self.commit = (secs > 0).then(|| Duration::from_secs(secs.into()));
            }
            "barrier" if value == "0" => return Err(bad(option, NO_BARRIER)),
            "barrier" => only(option, value, "1")?,
            "cache_size" => self.cache_bytes = Some(cache_size(option, value)?),
            "resuid" => self.reserve_uid = Some(number(option, value)?),
            "resgid" => self.reserve_gid = Some(number(option, value)?),
            "journal_path" | "journal_dev" => self.journal_path = Some(journal(name, option, value)?),
            "nvram" if value.is_empty() => return Err(bad(option, "a path is expected")),
            "nvram" => self.nvram = Some(value.into()),
            "nvram_size" => self.nvram_size = Some(nvram_size(option, value)?),
            "nvram_latency_ns" => self.nvram_latency = number(option, value)?,
            "offset" => self.offset = bytes(option, value)?,
            "sizelimit" => self.size_limit = Some(bytes(option, value)?),
            "sb" => {
                let why = "only the primary superblock is used; if it is damaged, repair it with e2fsck -b first";
                return Err(bad(option, why));
            }
            _ if NOTHING_TO_DO_WITH_VALUE.contains(&name) || is_comment(name) => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    fn set_choices(&mut self, c: Choices) {
        self.data = Some(c.route);
        self.record = Some(c.record);
        self.commit_mode = Some(c.commit);
        self.checkpoint = Some(c.checkpoint);
    }

    /// The four choices; `route` is taken where `data=` says nothing, and what is not said goes with the route.
    ///
    /// # Errors
    /// They do not go together, or the memory of a journal in NVRAM is not named.
    pub fn choices(&self, route: Route) -> Result<Choices, OptionError> {
        let usual = Choices::of_route(self.data.unwrap_or(route));
        let chosen = Choices {
            route: usual.route,
            record: self.record.unwrap_or(usual.record),
            commit: self.commit_mode.unwrap_or(usual.commit),
            checkpoint: self.checkpoint.unwrap_or(usual.checkpoint),
        };
        let refused = |why: String| bad(&chosen.to_string(), why);
        chosen.log().map_err(|illegal| refused(illegal.to_string()))?;
        if chosen.commit == CommitMode::Nvram && self.nvram.is_none() {
            return Err(refused("a journal in NVRAM needs the memory: nvram=PATH".to_owned()));
        }
        Ok(chosen)
    }

    /// Options of the memory make sense with one only.
    fn check_nvram(&self) -> Result<(), OptionError> {
        let said = [
            ("nvram_simulated", self.nvram_simulated),
            ("nvram_size", self.nvram_size.is_some()),
            ("nvram_latency_ns", self.nvram_latency > 0),
        ];
        match said.into_iter().find(|(_, said)| *said && self.nvram.is_none()) {
            Some((option, _)) => Err(bad(option, "the memory is not named: nvram=PATH")),
            None => Ok(()),
        }
    }

    /// How the memory of the journal is opened.
    #[must_use]
    pub fn nvram_options(&self) -> NvramOptions {
        NvramOptions {
            simulated: self.nvram_simulated,
            size: self.nvram_size,
            latency: Duration::from_nanos(self.nvram_latency.into()),
            read_only: false,
        }
    }

    /// True if nothing may be written with these options, whatever the image is.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.read_only || self.no_load
    }

    /// The engine's options for an image with this superblock, mounted on `mounted_on`.
    ///
    /// # Errors
    /// As [`MountOptions::choices`].
    pub fn for_volume(&self, sb: &Superblock, mounted_on: &str) -> Result<quire_fs::Options, OptionError> {
        let stored = sb.default_mount_opts();
        let has = |bit| stored & bit != 0;
        let stored_route = match stored & default_opts::JMODE {
            default_opts::JMODE_DATA => Route::Journal,
            default_opts::JMODE_WBACK => Route::Writeback,
            default_opts::JMODE_ORDERED => Route::Ordered,
            _ => Route::Auto,
        };
        let fallback = quire_fs::Options::default();
        let options = quire_fs::Options {
            read_only: self.read_only,
            no_load: self.no_load,
            auto_threshold: self.auto_threshold,
            write_threshold: self.write_threshold,
            adaptive_default: self.adaptive_default.unwrap_or(fallback.adaptive_default),
            journal_rules: self.journal_rules.clone().unwrap_or_else(|| fallback.journal_rules.clone()),
            on_error: self.on_error,
            atime: self.atime.unwrap_or(Atime::Relative),
            commit_interval: self.commit.unwrap_or(fallback.commit_interval),
            cache_bytes: self.cache_bytes.unwrap_or(fallback.cache_bytes),
            grpid: self.grpid.unwrap_or(has(default_opts::BSDGROUPS)),
            discard: self.discard.unwrap_or(has(default_opts::DISCARD)),
            // On since Linux 3.x whatever the superblock says.
            user_xattr: self.user_xattr.unwrap_or(true),
            reserve_uid: self.reserve_uid,
            reserve_gid: self.reserve_gid,
            acl: self.acl.unwrap_or(true),
            mounted_on: mounted_on.to_owned(),
            ..fallback
        };
        Ok(options.with(self.choices(stored_route)?))
    }
}

const NO_BARRIER: &str = "without flushes nothing that fsync promises would hold";

fn bad(option: &str, why: impl Into<String>) -> OptionError {
    OptionError::Bad { option: option.to_owned(), why: why.into() }
}

/// mount(8)'s comments for itself and others.
fn is_comment(name: &str) -> bool {
    ["x-", "X-", "comment"].iter().any(|p| name.starts_with(p))
}

fn only(option: &str, value: &str, have: &str) -> Result<(), OptionError> {
    if value == have { Ok(()) } else { Err(bad(option, format!("this version has only \"{have}\""))) }
}

/// A value of one of the four choices, or a profile.
fn choice<T: std::str::FromStr<Err = quire_fs::choices::UnknownValue>>(
    option: &str,
    value: &str,
) -> Result<T, OptionError> {
    value.parse().map_err(|e: quire_fs::choices::UnknownValue| bad(option, e.to_string()))
}

fn on_error(option: &str, value: &str) -> Result<OnError, OptionError> {
    Ok(match value {
        "continue" => OnError::Continue,
        "remount-ro" => OnError::RemountReadOnly,
        "panic" => OnError::Panic,
        _ => return Err(bad(option, "continue, remount-ro or panic is expected")),
    })
}

fn number(option: &str, value: &str) -> Result<u32, OptionError> {
    value.parse().map_err(|_| {
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        bad(option, if digits { "the number is too large" } else { "a number is expected" })
    })
}

/// A number of bytes: plain, or with K, M, G or T (KiB, MiB, ...).
fn bytes(option: &str, value: &str) -> Result<u64, OptionError> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match value[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(bad(option, "a size such as 64M is expected")),
    };
    let n: u64 = digits.parse().map_err(|_| bad(option, "a size such as 64M is expected"))?;
    n.checked_mul(1 << shift).ok_or_else(|| bad(option, "the size is too large"))
}

fn nvram_size(option: &str, value: &str) -> Result<u64, OptionError> {
    let n = bytes(option, value)?;
    if n < NvramMap::MIN { Err(bad(option, "at least 1M is needed")) } else { Ok(n) }
}

/// The least memory with which the largest operations still fit.
const MIN_CACHE: u64 = 4 << 20;

fn cache_size(option: &str, value: &str) -> Result<u64, OptionError> {
    let n = bytes(option, value)?;
    if n < MIN_CACHE { Err(bad(option, "at least 4M is needed")) } else { Ok(n) }
}

/// The journal's device: a path, or ext4's device number (hexadecimal or decimal, `major << 8 | minor`).
fn journal(name: &str, option: &str, value: &str) -> Result<PathBuf, OptionError> {
    if name == "journal_path" {
        return Ok(value.into());
    }
    let number = match value.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => value.parse(),
    };
    let n = number.map_err(|_| bad(option, "a device number is expected; for a path use journal_path="))?;
    let (major, minor) = crate::wire::reply::decode_device(n);
    Ok(format!("/dev/block/{major}:{minor}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> MountOptions {
        MountOptions::parse(list).unwrap_or_else(|e| panic!("{list}: {e}"))
    }

    #[test]
    fn nothing_said_means_defaults() {
        assert_eq!(parse(""), MountOptions::default());
        assert_eq!(parse("defaults,rw,delalloc,x-systemd.automount,comment=a"), MountOptions::default());
    }

    #[test]
    fn ext4_names_are_understood() {
        let o = parse("data=journal,errors=remount-ro,commit=30,noatime,nodiratime,grpid,nodiscard,noacl,nouser_xattr");
        assert_eq!(
            (o.data, o.on_error, o.commit),
            (Some(Route::Journal), Some(OnError::RemountReadOnly), Some(Duration::from_secs(30)))
        );
        assert_eq!((o.atime, o.no_dir_atime, o.grpid), (Some(Atime::No), true, Some(true)));
        assert_eq!((o.discard, o.acl, o.user_xattr), (Some(false), Some(false), Some(false)));
        assert_eq!(parse("commit=0").commit, None);
        let o = parse(
            "data=adaptive,record=block,commit_mode=barrier,journal_rule=*.db=journal,*-wal=ordered,adaptive_default=ordered,ro",
        );
        assert_eq!(o.journal_rules.unwrap().len(), 2);
        assert!(o.read_only && o.adaptive_default == Some(FileMode::Ordered));
        assert_eq!(parse("profile=ext4-writeback").data, Some(Route::Writeback));
        assert_eq!(parse("journal_dev=0x0801").journal_path, Some("/dev/block/8:1".into()));
        assert!(parse("noload,rw").only_reads(), "without the journal nothing may be written");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse("offset=1048576").offset, 1 << 20);
        assert_eq!(parse("offset=1M,cache_size=1G").cache_bytes, Some(1 << 30));
        for wrong in ["offset=", "offset=x", "offset=1Q", "offset=99999999999T", "cache_size=1K"] {
            assert!(matches!(MountOptions::parse(wrong), Err(OptionError::Bad { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_later_option_wins() {
        let o = parse("ro,noexec,sync,rw,exec,async,noatime,strictatime");
        assert_eq!((o.read_only, o.no_exec, o.sync, o.atime), (false, false, false, Some(Atime::Strict)));
        let o = parse("user,exec");
        assert_eq!((o.no_dev, o.no_suid, o.no_exec), (true, true, false));
    }

    #[test]
    fn the_four_choices_go_together_or_are_refused_with_the_nearest() {
        let o = parse("profile=ext4-journal,data=writeback");
        assert_eq!(o.choices(Route::Ordered), Ok(Choices::of_route(Route::Writeback)));
        assert_eq!(parse("data=writeback,profile=ext4-journal").data, Some(Route::Journal));
        assert_eq!(parse("").choices(Route::Journal).unwrap().route, Route::Journal);
        let refused = |list| match MountOptions::parse(list) {
            Err(OptionError::Bad { option, why }) => format!("{option}: {why}"),
            other => panic!("{list}: {other:?}"),
        };
        assert!(refused("data=none,record=range").contains("the nearest combination is data=none,record=block"));
        assert!(refused("data=journal,checkpoint=regions:2").contains("checkpoint=lazy"));
        assert!(refused("profile=djfs").contains("nvram=PATH"));
        let o = parse("profile=djfs4,nvram=/dev/shm/n,nvram_simulated,nvram_size=128M,nvram_latency_ns=40");
        assert_eq!(o.choices(Route::Auto).unwrap().checkpoint, Checkpoint::Regions(4));
        let n = o.nvram_options();
        assert_eq!((n.simulated, n.size, n.latency), (true, Some(128 << 20), Duration::from_nanos(40)));
        assert!(refused("nvram_simulated").contains("nvram=PATH") && refused("nvram=/x,nvram_size=4K").contains("1M"));
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        assert_eq!(MountOptions::parse("rw,frobnicate"), Err(OptionError::Unknown("frobnicate".into())));
        assert_eq!(MountOptions::parse("size=4"), Err(OptionError::Unknown("size=4".into())));
        for wrong in [
            "nobarrier",
            "barrier=0",
            "data=fast",
            "record=all",
            "checkpoint=regions",
            "profile=fast",
            "errors=ignore",
            "sb=32768",
            "journal_async_commit",
            "resuid=x",
            "commit=x",
            "usrquota",
            "remount",
            "journal_dev=/dev/sdb",
        ] {
            match MountOptions::parse(wrong) {
                Err(OptionError::Bad { option, why }) => assert!(option == wrong && !why.is_empty()),
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }
}
