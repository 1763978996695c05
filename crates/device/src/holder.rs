//! Who else uses an image or a disk, as far as the host tells.
//!
//! Only asked when something is in use (or, for loop devices, once at open): it reads `/proc` and `/sys`. What an
//! ordinary user may not look at stays [`Holder::Unknown`].

use crate::busy::retry_while_busy;
use rustix::fs::{FileType, Mode, OFlags, Stat, makedev};
use rustix::io::Errno;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Who uses an image file or a block device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A process that has it locked or open.
    Process {
        pid: u32,
        name: String,
    },
    /// The kernel, through this loop device.
    LoopDevice(PathBuf),
    /// The kernel: it is mounted here.
    Mount(PathBuf),
    /// The kernel: it is swap space.
    Swap,
    /// A device built on top of it (device mapper, md).
    Device(String),
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid, name } => write!(f, "{name} (process {pid})"),
            Holder::LoopDevice(dev) => write!(f, "the kernel, through {}", dev.display()),
            Holder::Mount(at) => write!(f, "a mount at {}", at.display()),
            Holder::Swap => f.write_str("the kernel, as swap space"),
            Holder::Device(name) => write!(f, "the device {name}"),
            Holder::Unknown => f.write_str("someone else"),
        }
    }
}

/// Who holds an flock on the file.
pub(crate) fn lock_holder(file: &Stat) -> Holder {
    let holds = |pid: &str, fd: &str| {
        fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))
            .is_ok_and(|info| info.lines().any(|l| l.starts_with("lock:") && l.contains("FLOCK")))
    };
    let same = |s: &Stat| (s.st_dev, s.st_ino) == (file.st_dev, file.st_ino);
    open_files(same).find(|(pid, fd)| holds(pid, fd)).map_or_else(|| listed_lock(file), |(pid, _)| process(&pid))
}

/// The process that `/proc/locks` names for the file; it may have passed its lock on and gone.
fn listed_lock(file: &Stat) -> Holder {
    let place =
        format!("{:02x}:{:02x}:{}", rustix::fs::major(file.st_dev), rustix::fs::minor(file.st_dev), file.st_ino);
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    // "1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF"
    locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|f| f.len() > 5 && f[1] == "FLOCK" && f[5] == place)
        .map_or(Holder::Unknown, |f| process(f[4]))
}

fn process(pid: &str) -> Holder {
    match (pid.parse(), fs::read_to_string(format!("/proc/{pid}/comm"))) {
        (Ok(pid), Ok(name)) => Holder::Process { pid, name: name.trim_end().to_owned() },
        _ => Holder::Unknown,
    }
}

/// Open files of all processes (that we may look at) that `wanted` accepts: process and descriptor.
fn open_files(wanted: impl Fn(&Stat) -> bool) -> impl Iterator<Item = (String, String)> {
    let names = |dir: String| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().into_string().ok())
    };
    names("/proc".to_owned())
        .filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        .flat_map(move |pid| names(format!("/proc/{pid}/fd")).map(move |fd| (pid.clone(), fd)))
        .filter(move |(pid, fd)| rustix::fs::stat(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|s| wanted(&s)))
}

/// The loop device that the kernel has on this image file.
pub(crate) fn loop_device(file: &Stat) -> Option<Holder> {
    loop_devices(file).next().map(Holder::LoopDevice)
}

/// All of them.
fn loop_devices(file: &Stat) -> impl Iterator<Item = PathBuf> {
    let file = (file.st_dev, file.st_ino);
    fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(move |entry| {
        let backing = fs::read(entry.path().join("loop/backing_file")).ok()?;
        let backing = String::from_utf8_lossy(&backing);
        let stat = rustix::fs::stat(backing.trim_end_matches('\n')).ok()?;
        ((stat.st_dev, stat.st_ino) == file).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Who may be writing to an image file or a block device and has no lock on it: the kernel that has it mounted for
/// writing, itself or through a loop device, or whatever else has claimed the device. Mounts of other namespaces are
/// seen only by their claim on the device, which only those see who may open it.
///
/// # Errors
/// The file cannot be looked at.
pub fn kernel_writer(path: &Path) -> io::Result<Option<Holder>> {
    let stat = rustix::fs::stat(path)?;
    let writer = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => writer_of_device(path),
        _ => loop_devices(&stat).find_map(|device| writer_of_device(&device)),
    };
    Ok(writer)
}

fn writer_of_device(device: &Path) -> Option<Holder> {
    let rdev = rustix::fs::stat(device).ok()?.st_rdev;
    match claimed_devices(rdev).into_iter().find_map(mounted) {
        Some(mount) => mount.is_writable.then_some(Holder::Mount(mount.at)),
        None => is_claimed(device).then(|| device_holder(rdev)),
    }
}

/// Somebody has opened the device with `O_EXCL`, as mounts do.
fn is_claimed(device: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    retry_while_busy(|| rustix::fs::open(device, flags, Mode::empty())).is_err_and(|e| e == Errno::BUSY)
}

/// The file behind a loop device, or behind the one that a partition is of.
pub(crate) fn backing_file(rdev: u64) -> Option<PathBuf> {
    let sys = format!("/sys/dev/block/{}", numbers(rdev));
    let text = ["loop", "../loop"].iter().find_map(|at| fs::read(format!("{sys}/{at}/backing_file")).ok())?;
    let text = text.strip_suffix(b"\n").unwrap_or(&text);
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(text)))
}

/// Who has claimed the block device with device number `rdev`.
pub(crate) fn device_holder(rdev: u64) -> Holder {
    let devices = claimed_devices(rdev);
    if let Some(mount) = devices.iter().find_map(|d| mounted(*d)) {
        return Holder::Mount(mount.at);
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap = |path: &str| rustix::fs::stat(path).is_ok_and(|s| devices.contains(&s.st_rdev));
    if swaps.lines().skip(1).filter_map(|l| l.split_whitespace().next()).any(swap) {
        return Holder::Swap;
    }
    if let Some(above) = fs::read_dir(directory(rdev).join("holders")).into_iter().flatten().flatten().next() {
        return Holder::Device(above.file_name().to_string_lossy().into_owned());
    }
    open_files(|s| s.st_rdev == rdev && rustix::fs::FileType::from_raw_mode(s.st_mode).is_block_device())
        .next()
        .map_or(Holder::Unknown, |(pid, _)| process(&pid))
}

/// What the kernel knows of a device.
fn directory(rdev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}", numbers(rdev)))
}

/// The devices whose claim is one on this device: a claimed partition claims its disk, too.
fn claimed_devices(rdev: u64) -> Vec<u64> {
    let partitions = fs::read_dir(directory(rdev)).into_iter().flatten().flatten();
    [rdev].into_iter().chain(partitions.filter_map(|e| device_number(&e.path()))).collect()
}

fn numbers(dev: u64) -> String {
    format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev))
}

/// The device number that a directory of `/sys` stands for.
fn device_number(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

struct Mounted {
    at: PathBuf,
    /// The file system is, whatever the mount point is.
    is_writable: bool,
}

/// Where a device is mounted, by our own `/proc/self/mountinfo`.
fn mounted(dev: u64) -> Option<Mounted> {
    let wanted = numbers(dev);
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    // "36 35 98:0 /root /mount/point options [fields] - type source options"; blanks in names are \040.
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.find(|f| f.len() > 4 && f[2] == wanted)?;
    let at = PathBuf::from(found[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\"));
    let of_file_system = found.iter().skip_while(|field| **field != "-").nth(3);
    Some(Mounted { at, is_writable: of_file_system.is_none_or(|options| options.split(',').all(|o| o != "ro")) })
}
