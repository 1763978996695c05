//! `quire info`: what an image is.

use super::at::At;
use crate::exit;
use crate::text::printable;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Clock, OpenOptions, SystemClock};
use quire_fs::Devices;
use quire_layout::features::Access;
use quire_layout::superblock::{OnError, Superblock, default_opts, state};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show an image's superblock, features and journal.
///
/// Nothing is written, and the image may be in use.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire info disk.img
  quire info --json disk.img | jq -r .features[]

Exit codes: 0 shown, 1 wrong usage, 32 not an ext4 file system, its superblock is damaged, or it cannot be read.")]
pub(crate) struct Args {
    /// The image file or block device
    image: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: At,
}

const NAME: &str = "info";

#[derive(Serialize)]
struct Info {
    label: String,
    uuid: String,
    last_mounted_on: String,
    features: Vec<String>,
    /// "read-write", "read-only: ..." or "refused: ...".
    quire_mounts_it: String,
    state: Vec<&'static str>,
    on_error: &'static str,
    default_mount_options: Vec<&'static str>,
    block_size: usize,
    blocks: u64,
    free_blocks: u64,
    reserved_blocks: u64,
    first_data_block: u64,
    blocks_per_group: u32,
    groups: u32,
    descriptor_size: usize,
    inodes: u32,
    free_inodes: u32,
    inodes_per_group: u32,
    inode_size: usize,
    flex_group_size: u32,
    created: u64,
    mounted: u64,
    written: u64,
    mount_count: u16,
    errors: u32,
    kib_written: u64,
    last_orphan: u32,
    journal: Option<super::journal::JournalInfo>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let how = OpenOptions { read_only: true, lock: false, direct: false, ..OpenOptions::default() };
    let device = match args.at.device(&args.image, how) {
        Ok(device) => Arc::new(device) as Arc<dyn BlockDevice>,
        Err(e) => return exit::fail(NAME, exit::FAILURE, e),
    };
    let fail = |what: String| exit::fail(NAME, exit::FAILURE, format_args!("{}: {what}", args.image.display()));
    let sb = match read(&device) {
        Ok(sb) => sb,
        Err(what) => return fail(what),
    };
    let journal = super::journal::info(device, &sb);
    let info = collect(&sb, journal);
    let text = if args.json {
        match serde_json::to_string_pretty(&info) {
            Ok(text) => text + "\n",
            Err(e) => return fail(e.to_string()),
        }
    } else {
        text(&info)
    };
    exit::print(NAME, &text, 0, exit::FAILURE)
}

/// The superblock; one that is torn is shown as it will be mended, also from the journal.
pub(crate) fn read(device: &Arc<dyn BlockDevice>) -> Result<Superblock, String> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    quire_fs::first_superblock(&Devices::one(device.clone()), &clock).map_err(|e| e.to_string())
}

fn collect(sb: &Superblock, journal: Option<super::journal::JournalInfo>) -> Info {
    let words = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let f = sb.features();
    Info {
        label: words(sb.label()),
        uuid: quire::uuid_text(&sb.uuid()),
        last_mounted_on: words(sb.last_mounted()),
        features: f.names(),
        quire_mounts_it: match f.access() {
            Ok(Access::ReadWrite) => "read-write".to_owned(),
            Ok(Access::ReadOnly(why)) => format!("read-only: {}", why.join(", ")),
            Err(e) => format!("refused: {e}"),
        },
        state: states(sb),
        on_error: match sb.on_error() {
            OnError::Continue => "continue",
            OnError::RemountReadOnly => "remount-ro",
            OnError::Panic => "panic",
        },
        default_mount_options: default_options(sb.default_mount_opts()),
        block_size: sb.block_size().bytes(),
        blocks: sb.blocks_count(),
        free_blocks: sb.free_blocks(),
        reserved_blocks: sb.reserved_blocks(),
        first_data_block: sb.first_data_block().0,
        blocks_per_group: sb.blocks_per_group(),
        groups: sb.group_count(),
        descriptor_size: sb.desc_size(),
        inodes: sb.inodes_count(),
        free_inodes: sb.free_inodes(),
        inodes_per_group: sb.inodes_per_group(),
        inode_size: sb.inode_size(),
        flex_group_size: sb.flex_bg_size(),
        created: sb.created(),
        mounted: sb.mount_time(),
        written: sb.write_time(),
        mount_count: sb.mount_count(),
        errors: sb.error_count(),
        kib_written: sb.kbytes_written(),
        last_orphan: sb.last_orphan().0,
        journal,
    }
}

fn states(sb: &Superblock) -> Vec<&'static str> {
    let s = sb.state();
    let names = [(state::VALID, "clean"), (state::ERROR, "with errors"), (state::ORPHAN, "orphans being recovered")];
    let mut out: Vec<_> = names.iter().filter(|(bit, _)| s & bit != 0).map(|(_, name)| *name).collect();
    if s & state::VALID == 0 {
        out.push("not clean");
    }
    out
}

fn default_options(bits: u32) -> Vec<&'static str> {
    let names = [
        (default_opts::DEBUG, "debug"),
        (default_opts::BSDGROUPS, "bsdgroups"),
        (default_opts::XATTR_USER, "user_xattr"),
        (default_opts::ACL, "acl"),
        (default_opts::UID16, "uid16"),
        (default_opts::NOBARRIER, "nobarrier"),
        (default_opts::BLOCK_VALIDITY, "block_validity"),
        (default_opts::DISCARD, "discard"),
        (default_opts::NODELALLOC, "nodelalloc"),
    ];
    let mut out: Vec<_> = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    match bits & default_opts::JMODE {
        default_opts::JMODE_DATA => out.push("journal_data"),
        default_opts::JMODE_ORDERED => out.push("journal_data_ordered"),
        default_opts::JMODE_WBACK => out.push("journal_data_writeback"),
        _ => {}
    }
    out
}

fn text(i: &Info) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&format!("{:<24}{value}\n", format!("{name}:")));
    let or_none = |s: &str| if s.is_empty() { "(none)".to_owned() } else { printable(s) };
    line("Volume name", or_none(&i.label));
    line("UUID", i.uuid.clone());
    line("Last mounted on", or_none(&i.last_mounted_on));
    line("Features", i.features.join(" "));
    line("Quire mounts it", i.quire_mounts_it.clone());
    line("State", i.state.join(", "));
    line("Errors behavior", i.on_error.to_owned());
    line("Errors seen", i.errors.to_string());
    line("Default mount options", or_none(&i.default_mount_options.join(" ")));
    line("Block size", i.block_size.to_string());
    line("Blocks", format!("{} ({} free, {} reserved)", i.blocks, i.free_blocks, i.reserved_blocks));
    line("Groups", format!("{} of {} blocks, first at {}", i.groups, i.blocks_per_group, i.first_data_block));
    line("Inodes", format!("{} ({} free), {} to a group", i.inodes, i.free_inodes, i.inodes_per_group));
    line("Inode size", i.inode_size.to_string());
    line("Descriptor size", i.descriptor_size.to_string());
    line("Flex group size", i.flex_group_size.to_string());
    line("Created", time(i.created));
    line("Last mount", time(i.mounted));
    line("Last write", time(i.written));
    line("Mount count", i.mount_count.to_string());
    line("Lifetime writes", format!("{} KiB", i.kib_written));
    if i.last_orphan != 0 {
        line("First orphan", i.last_orphan.to_string());
    }
    match &i.journal {
        Some(j) => j.lines().into_iter().for_each(|(name, value)| line(name, value)),
        None => line("Journal", "(none)".to_owned()),
    }
    out
}

/// Seconds since 1970 as a date, in UTC.
fn time(secs: u64) -> String {
    if secs == 0 {
        return "never".to_owned();
    }
    let (days, rest) = (secs / 86400, secs % 86400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The date of a day since 1970-01-01, by the Gregorian calendar.
fn date(mut days: u64) -> (u64, u64, u64) {
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(time(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(time(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(time(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
