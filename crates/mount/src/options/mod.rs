//! Mount options (`-o`): ext4's names for ext4's options, mount(8)'s for what every file system has, and a few of ours.
//!
//! [`known::OPTIONS`] says what becomes of each: honoured, ignored with one line that says so, or refused. mount(8)'s
//! own (`noauto`, `x-*`) pass without a word. An unknown name is refused, with the known one that is most like it.

pub mod known;
mod parse;
mod remount;
#[cfg(test)]
mod tests;
mod values;

use crate::sandbox::SandboxChoice;
use crate::transport_choice::TransportChoice;
use crate::updates::AtomicWrites;
use crate::without::Without;
use quire_device::nvram::NvramOptions;
use quire_fs::{Atime, BatchTime, Checkpoint, Choices, CommitMode, JournalingMode, ModeRule, Profile, Record, Route};
use quire_layout::superblock::{OnError, Superblock, default_opts};
use std::path::PathBuf;
use std::time::Duration;

/// The profile of mounts for databases: `auto`, and each write(2) is one request to the engine.
const DATABASE: &str = "database";

/// How what programs write reaches the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePath {
    /// Past the kernel's page cache: each write(2) of up to the atomic unit is one request.
    Direct,
    /// Through the kernel's page cache, which keeps nothing back: each write(2) is one request if its pages are whole
    /// and the caller's memory is at hand.
    Through,
    /// The kernel's page cache keeps what was written, and makes requests of its own.
    Back,
}

impl WritePath {
    /// As `quire stats --json` has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WritePath::Direct => "direct",
            WritePath::Through => "writethrough",
            WritePath::Back => "writeback",
        }
    }
}

/// What `-o` says. What it does not say follows from the superblock, then from ext4's own defaults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountOptions {
    pub read_only: bool,
    /// A mount is changed, and none is made.
    pub remount: bool,
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
    pub adaptive_default: Option<JournalingMode>,
    pub journal_rules: Option<Vec<ModeRule>>,
    pub on_error: Option<OnError>,
    /// Data that could not be written turns the mount read-only.
    pub data_error_aborts: bool,
    pub atime: Option<Atime>,
    /// Reading a directory does not count as access.
    pub no_dir_atime: bool,
    pub commit: Option<Duration>,
    /// Zero: nothing goes home for its age.
    pub checkpoint_age: Option<Duration>,
    /// For how long a commit may wait for callers that are about to come, at least and at most.
    pub min_batch_time: Option<Duration>,
    pub max_batch_time: Option<Duration>,
    /// Bytes of memory for blocks and pages.
    pub cache_bytes: Option<u64>,
    pub grpid: Option<bool>,
    pub discard: Option<bool>,
    pub user_xattr: Option<bool>,
    /// User and group that may take reserved blocks.
    pub reserve_uid: Option<u32>,
    pub reserve_gid: Option<u32>,
    pub acl: Option<bool>,
    /// What the file system itself takes counts as space.
    pub minix_df: bool,
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
    /// Each caller acts as root inside the image.
    pub fake_root: bool,
    /// The user and group that all files seem to belong to.
    pub shown_uid: Option<u32>,
    pub shown_gid: Option<u32>,
    /// A file that is made for the time of the mount, and must not be there before.
    pub lock_file: Option<PathBuf>,
    pub no_dev: bool,
    pub no_suid: bool,
    pub no_exec: bool,
    pub no_symfollow: bool,
    /// Every write is durable when it returns.
    pub sync: bool,
    /// Every change of a directory is durable when it returns.
    pub dir_sync: bool,
    /// `profile=database`: what is not said besides follows from it.
    pub for_databases: bool,
    /// The kernel keeps no dirty pages; `None`: with `profile=database`, and where the choices go by a write's size.
    pub write_through: Option<bool>,
    /// Which files bypass the kernel's cache, so that they can be updated atomically; `None`: with `profile=database`
    /// all, else those that programs ask about.
    pub atomic_writes: Option<AtomicWrites>,
    /// Requests that take so long are logged.
    pub slow: Option<Duration>,
    /// Which way requests come.
    pub transport: TransportChoice,
    /// Workers that take requests from /dev/fuse at once, at most; `None`: one for two CPUs.
    pub readers: Option<usize>,
    /// Whether the daemon confines itself.
    pub sandbox: SandboxChoice,
    /// Settings of the host may be changed while the mount is served.
    pub tune_host: bool,
    /// Heuristics that are off.
    pub without: Without,
    /// Options without effect, each with the reason; the mount says so.
    pub ignored: Vec<(String, &'static str)>,
}

/// A refused option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    #[error("unknown mount option \"{option}\"{}", nearest.map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    Unknown { option: String, nearest: Option<&'static str> },
    #[error("mount option \"{option}\": {why}")]
    Bad { option: String, why: String },
}

impl MountOptions {
    /// The four choices; `route` is the default of `data=`, and unset options default from the route.
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

    /// How writes reach the engine. On [`WritePath::Direct`] each write(2) of up to the atomic unit, less a page where
    /// it is not aligned, is one request (F24).
    #[must_use]
    pub fn write_path(&self, choices: Choices) -> WritePath {
        let through = self.write_through.unwrap_or(self.for_databases || choices.follows_writes());
        match (self.bypass(), through) {
            (AtomicWrites::All, true) => WritePath::Direct,
            (_, true) => WritePath::Through,
            (_, false) => WritePath::Back,
        }
    }

    /// Which files bypass the kernel's cache.
    #[must_use]
    pub fn bypass(&self) -> AtomicWrites {
        let usual = if self.for_databases { AtomicWrites::All } else { AtomicWrites::default() };
        self.atomic_writes.unwrap_or(usual)
    }

    /// The name of these choices, as [`Choices::label`]; `database` where the mount keeps what that profile promises.
    #[must_use]
    pub fn label(&self, choices: Choices) -> String {
        let kept = self.for_databases && choices == Profile::Auto.choices();
        if kept && self.write_path(choices) == WritePath::Direct { DATABASE.to_owned() } else { choices.label() }
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

    /// Whoever acts as root inside the image gets no device and no set-user-ID program out of it.
    fn check_fake_root(&self) -> Result<(), OptionError> {
        let privileged = self.fake_root && !(self.no_dev && self.no_suid);
        if privileged { Err(bad("fakeroot", "it implies nodev and nosuid")) } else { Ok(()) }
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
            data_error_aborts: self.data_error_aborts,
            atime: self.atime.unwrap_or(Atime::Relative),
            commit_interval: self.commit.unwrap_or(fallback.commit_interval),
            checkpoint_age: self.checkpoint_age,
            batch_time: BatchTime {
                least: self.min_batch_time.unwrap_or(fallback.batch_time.least),
                most: self.max_batch_time.unwrap_or(fallback.batch_time.most),
            },
            cache_bytes: self.cache_bytes.unwrap_or(fallback.cache_bytes),
            grpid: self.grpid.unwrap_or(has(default_opts::BSDGROUPS)),
            discard: self.discard.unwrap_or(has(default_opts::DISCARD)),
            // On since Linux 3.x whatever the superblock says.
            user_xattr: self.user_xattr.unwrap_or(true),
            reserve_uid: self.reserve_uid,
            reserve_gid: self.reserve_gid,
            acl: self.acl.unwrap_or(true),
            minix_df: self.minix_df,
            without: self.without.engine,
            mounted_on: mounted_on.to_owned(),
            ..fallback
        };
        Ok(options.with(self.choices(stored_route)?))
    }
}

fn bad(option: &str, why: impl Into<String>) -> OptionError {
    OptionError::Bad { option: option.to_owned(), why: why.into() }
}
