//! What pjdfstest and fsx do not ask: holes, fallocate, exchange, deleted files, attributes, ACLs, flags, locks, odd
//! times, limits. Each check works in a directory of its own; all of them hold on the kernel's ext4.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, RenameFlags, SeekFrom as Whence, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;

use super::context::{Context, Outcome};
use crate::cmd::{NOBODY, command, is_root, run as run_command, say};
use crate::image::Image;
use quire_testkit::rng::content;

type Check = (&'static str, fn(&Path) -> Result<()>);

const CHECKS: &[Check] = &[
    ("rename flags", rename_flags),
    ("deleted but open", deleted_but_open),
    ("holes", holes),
    ("fallocate", fallocate),
    ("copy_file_range", copy_range),
    ("O_DIRECT", direct),
    ("append and truncate", append_and_truncate),
    ("attributes", attributes),
    ("times", times),
    ("names and targets", names),
    ("most links", most_links),
    ("locks", locks),
    ("statfs", statfs),
    ("largest file", largest_file),
    ("threads in one directory", threads),
    ("deleting while listing", delete_while_listing),
    ("flags", flags),
    ("ACLs", acls),
];

/// Every check, then e2fsck; the failures are told together.
pub fn run(context: &Context) -> Result<Outcome> {
    let image = Image::make(&context.dir.join("posix.img"), 256 << 20, &["-b", "4096"])?;
    let mounted = context.mounter.mount(image.path(), &context.dir.join("mnt"))?;
    let mut failed = Vec::new();
    for (n, (name, check)) in CHECKS.iter().enumerate() {
        let dir = mounted.dir().join(format!("check{n}"));
        fs::create_dir(&dir)?;
        if let Err(error) = check(&dir) {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    mounted.unmount()?;
    image.check_clean()?;
    if !failed.is_empty() {
        bail!("{} of {} checks failed:\n{}", failed.len(), CHECKS.len(), failed.join("\n"));
    }
    Ok(Outcome::Passed)
}

fn refused<T>(what: &str, result: std::io::Result<T>, errno: Errno) -> Result<()> {
    match result {
        Ok(_) => bail!("{what} succeeded; want {errno:?}"),
        Err(error) if error.raw_os_error() == Some(errno.raw_os_error()) => Ok(()),
        Err(error) => bail!("{what} gives {error}; want {errno:?}"),
    }
}

fn rename_flags(dir: &Path) -> Result<()> {
    let (a, b) = (dir.join("a"), dir.join("b"));
    fs::write(&a, "a")?;
    fs::create_dir(&b)?;
    let rename = |flags| rustix::fs::renameat_with(CWD, &a, CWD, &b, flags);
    refused("RENAME_NOREPLACE", rename(RenameFlags::NOREPLACE).map_err(Into::into), Errno::EXIST)?;
    rename(RenameFlags::EXCHANGE)?;
    ensure!(a.is_dir() && fs::read_to_string(&b)? == "a", "EXCHANGE did not exchange");
    ensure!(dir.metadata()?.nlink() == 3, "link count of the parent is {}", dir.metadata()?.nlink());
    Ok(())
}

fn deleted_but_open(dir: &Path) -> Result<()> {
    let path = dir.join("gone");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.write_all(&content(1, 0, 100_000))?;
    fs::remove_file(&path)?;
    ensure!(fs::read_dir(dir)?.count() == 0, "the name is still there");
    file.write_all_at(&content(1, 100_000, 50_000), 100_000)?;
    file.sync_all()?;
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    ensure!(bytes == content(1, 0, 150_000), "the contents changed after the unlink");
    ensure!(file.metadata()?.nlink() == 0, "link count {}", file.metadata()?.nlink());
    Ok(())
}

fn holes(dir: &Path) -> Result<()> {
    let file = File::create_new(dir.join("sparse"))?;
    file.write_all_at(&[1; 4096], 1 << 20)?;
    file.write_all_at(&[1; 4096], 8 << 20)?;
    file.set_len(16 << 20)?;
    file.sync_all()?;
    let seek = |whence| rustix::fs::seek(&file, whence);
    ensure!(seek(Whence::Data(0))? == 1 << 20, "first data at {}", seek(Whence::Data(0))?);
    ensure!(seek(Whence::Hole(1 << 20))? == (1 << 20) + 4096, "first hole at {}", seek(Whence::Hole(1 << 20))?);
    ensure!(seek(Whence::Data((1 << 20) + 4096))? == 8 << 20, "second data");
    ensure!(seek(Whence::Hole(9 << 20))? == 9 << 20, "a hole in a hole");
    ensure!(seek(Whence::Data(9 << 20)) == Err(Errno::NXIO), "data after the last");
    ensure!(file.metadata()?.blocks() == 16, "{} blocks of 512", file.metadata()?.blocks());
    Ok(())
}

fn fallocate(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    let mut right = content(2, 0, 1 << 20);
    file.write_all_at(&right, 0)?;
    let go = |flags, at, len| rustix::fs::fallocate(&file, flags, at, len);
    go(FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20)?;
    // First this: a FUSE kernel keeps the number of blocks that it was told before it wrote back.
    file.sync_all()?;
    ensure!(file.metadata()?.len() == 1 << 20, "KEEP_SIZE changed the size");
    ensure!(file.metadata()?.blocks() >= 4096, "KEEP_SIZE allocated {} blocks of 512", file.metadata()?.blocks());
    go(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 10_000, 100_000)?;
    right[10_000..110_000].fill(0);
    go(FallocateFlags::ZERO_RANGE, 200_001, 70_000)?;
    right[200_001..270_001].fill(0);
    go(FallocateFlags::empty(), 1 << 20, 500_000)?;
    right.resize((1 << 20) + 500_000, 0);
    ensure!(fs::read(&path)? == right, "contents after fallocate");
    file.sync_all()?;
    let hole = rustix::fs::seek(&file, Whence::Hole(0))?;
    ensure!(hole == 12_288, "the punched hole begins at {hole}");
    Ok(())
}

fn copy_range(dir: &Path) -> Result<()> {
    fs::write(dir.join("from"), content(3, 0, 300_000))?;
    let (from, to) = (File::open(dir.join("from"))?, File::create_new(dir.join("to"))?);
    let (mut at, mut end) = (1000, 0);
    while end < 200_000 {
        let left = 200_000 - usize::try_from(end)?;
        let n = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut end), left)?;
        ensure!(n > 0, "copy_file_range copied nothing");
    }
    ensure!(fs::read(dir.join("to"))? == content(3, 1000, 200_000), "the copy differs");
    Ok(())
}

fn direct(dir: &Path) -> Result<()> {
    let path = dir.join("direct");
    fs::write(&path, content(4, 0, 65_536))?;
    let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits())?;
    let file = File::options().read(true).write(true).custom_flags(flags).open(&path)?;
    let mut memory = vec![0; 12_288];
    let skip = memory.as_ptr().align_offset(4096);
    let block = &mut memory[skip..skip + 4096];
    file.read_exact_at(block, 8192)?;
    ensure!(block == content(4, 8192, 4096), "O_DIRECT reads something else than was written before");
    block.copy_from_slice(&content(5, 0, 4096));
    file.write_all_at(block, 16_384)?;
    let bytes = fs::read(&path)?;
    ensure!(bytes[16_384..20_480] == content(5, 0, 4096), "an O_DIRECT write is not seen by read");
    ensure!(bytes[..16_384] == content(4, 0, 16_384), "its neighbours changed");
    Ok(())
}

fn append_and_truncate(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let mut one = File::options().append(true).create(true).open(&path)?;
    let mut two = File::options().append(true).open(&path)?;
    for n in 0..200_u64 {
        let file = if n % 2 == 0 { &mut one } else { &mut two };
        file.write_all(&content(6, n * 777, 777))?;
    }
    ensure!(fs::read(&path)? == content(6, 0, 200 * 777), "appends through two descriptors are mixed up");
    one.set_len(5000)?;
    one.set_len(20_000)?;
    let bytes = fs::read(&path)?;
    ensure!(
        bytes[..5000] == content(6, 0, 5000) && bytes[5000..].iter().all(|byte| *byte == 0),
        "old bytes after a truncate"
    );
    fs::write(&path, "")?;
    ensure!(path.metadata()?.len() == 0 && path.metadata()?.blocks() == 0, "O_TRUNC left something");
    Ok(())
}

fn attributes(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    let spaces: &[&str] = if is_root() { &["user", "trusted", "security"] } else { &["user"] };
    let value = |n: usize| content(n as u64, 0, n);
    for space in spaces {
        for n in [0, 1, 30, 700] {
            rustix::fs::setxattr(&path, format!("{space}.n{n}"), &value(n), XattrFlags::CREATE)?;
        }
    }
    let mut buffer = vec![0; 4096];
    for space in spaces {
        for n in [0, 1, 30, 700] {
            let len = rustix::fs::getxattr(&path, format!("{space}.n{n}"), &mut buffer)?;
            ensure!(buffer[..len] == value(n), "{space}.n{n} has another value");
        }
    }
    let set = |name: &str, flags| rustix::fs::setxattr(&path, name, b"new", flags).map_err(std::io::Error::from);
    refused("XATTR_CREATE of one that is there", set("user.n1", XattrFlags::CREATE), Errno::EXIST)?;
    refused("XATTR_REPLACE of one that is not", set("user.other", XattrFlags::REPLACE), Errno::NODATA)?;
    let small = rustix::fs::getxattr(&path, "user.n700", &mut buffer[..10]).map_err(std::io::Error::from);
    refused("getxattr into too little", small, Errno::RANGE)?;
    let large = rustix::fs::setxattr(&path, "user.large", &vec![1; 60_000], XattrFlags::empty());
    ensure!(large.is_err(), "an attribute of 60,000 bytes fits into a block");
    for n in [0, 1, 30, 700] {
        rustix::fs::removexattr(&path, format!("user.n{n}"))?;
    }
    let gone = rustix::fs::getxattr(&path, "user.n1", &mut buffer).map_err(std::io::Error::from);
    refused("getxattr of one that was removed", gone, Errno::NODATA)
}

fn times(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    for (seconds, nanoseconds) in
        [(0, 1), (-1, 999_999_999), (-0x8000_0000, 0), (0x7fff_ffff, 5), (0x3_7fff_fffe, 123_456_789)]
    {
        let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let both = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &both, AtFlags::empty())?;
        let meta = path.metadata()?;
        let seen = [(meta.mtime(), meta.mtime_nsec()), (meta.atime(), meta.atime_nsec())];
        ensure!(seen == [(seconds, nanoseconds); 2], "({seconds}, {nanoseconds}) comes back as {seen:?}");
    }
    let before = path.metadata()?;
    // Time in a kernel may tick as slowly as 100 times a second.
    std::thread::sleep(std::time::Duration::from_millis(30));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    let after = path.metadata()?;
    ensure!((after.mtime(), after.mtime_nsec()) == (before.mtime(), before.mtime_nsec()), "chmod changed mtime");
    ensure!((after.ctime(), after.ctime_nsec()) > (before.ctime(), before.ctime_nsec()), "chmod did not change ctime");
    Ok(())
}

fn names(dir: &Path) -> Result<()> {
    for len in [1, 59, 60, 61, 1000, 4095] {
        let target = "t".repeat(len);
        let link = dir.join(format!("link{len}"));
        symlink(&target, &link)?;
        ensure!(fs::read_link(&link)?.to_str() == Some(&target), "a target of {len} bytes comes back changed");
    }
    fs::write(dir.join("n".repeat(255)), "x")?;
    refused("a name of 256 bytes", fs::write(dir.join("n".repeat(256)), "x"), Errno::NAMETOOLONG)?;
    let odd = ["\u{1f4be} ünïcode", "new\nline", " ", "-", "a\\b"];
    for name in odd {
        fs::write(dir.join(name), name)?;
    }
    for name in odd {
        ensure!(fs::read_to_string(dir.join(name))? == name, "{name:?} is not found again");
    }
    Ok(())
}

fn most_links(dir: &Path) -> Result<()> {
    const LIMIT: u64 = 65_000;
    let path = dir.join("file");
    fs::write(&path, "x")?;
    for n in 1..LIMIT {
        fs::hard_link(&path, dir.join(n.to_string())).with_context(|| format!("link {n}"))?;
    }
    refused("a link too many", fs::hard_link(&path, dir.join("more")), Errno::MLINK)?;
    ensure!(path.metadata()?.nlink() == LIMIT, "the link count is {}", path.metadata()?.nlink());
    for n in 1..LIMIT {
        fs::remove_file(dir.join(n.to_string()))?;
    }
    ensure!(path.metadata()?.nlink() == 1, "the link count is {} in the end", path.metadata()?.nlink());
    Ok(())
}

fn locks(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    let (one, two) = (File::create(&path)?, File::create(&path)?);
    rustix::fs::flock(&one, FlockOperation::LockExclusive)?;
    let second = rustix::fs::flock(&two, FlockOperation::NonBlockingLockShared).map_err(std::io::Error::from);
    refused("flock of a locked file", second, Errno::WOULDBLOCK)?;
    rustix::fs::flock(&one, FlockOperation::Unlock)?;
    rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::fcntl_lock(&one, FlockOperation::NonBlockingLockExclusive)?;
    Ok(())
}

fn statfs(dir: &Path) -> Result<()> {
    let free = || -> Result<(u64, u64)> {
        let said = rustix::fs::statvfs(dir)?;
        Ok((said.f_bfree * said.f_frsize, said.f_ffree))
    };
    let before = free()?;
    let file = File::create(dir.join("file"))?;
    file.write_all_at(&content(7, 0, 10 << 20), 0)?;
    file.sync_all()?;
    let after = free()?;
    let used = before.0.saturating_sub(after.0);
    ensure!((10 << 20..11 << 20).contains(&used), "10 MiB used {used} bytes");
    ensure!(before.1 == after.1 + 1, "one file used {} inodes", before.1.saturating_sub(after.1));
    let said = rustix::fs::statvfs(dir)?;
    ensure!(said.f_namemax == 255 && said.f_bsize == 4096, "f_namemax {}, f_bsize {}", said.f_namemax, said.f_bsize);
    Ok(())
}

fn largest_file(dir: &Path) -> Result<()> {
    const LIMIT: u64 = 0xffff_ffff * 4096;
    let file = File::create_new(dir.join("large"))?;
    file.write_all_at(b"end", LIMIT - 4096)?;
    ensure!(file.metadata()?.len() == LIMIT - 4093, "the size is {}", file.metadata()?.len());
    let beyond = file.write_at(b"beyond", LIMIT + 4096).and_then(|_| file.sync_all());
    refused("a write beyond 16 TiB", beyond, Errno::FBIG)?;
    Ok(())
}

fn threads(dir: &Path) -> Result<()> {
    const EACH: usize = 150;
    let worker = |id: usize| -> Result<()> {
        for n in 0..EACH {
            let path = dir.join(format!("{id}-{n}"));
            fs::write(&path, content(n as u64, 0, 3000))?;
            if n % 3 == 0 {
                fs::rename(&path, dir.join(format!("renamed-{id}-{n}")))?;
            }
            if n % 3 == 1 {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|id| scope.spawn(move || worker(id))).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let n: u64 = name.rsplit('-').next().context("a name with a dash")?.parse()?;
        ensure!(fs::read(&path)? == content(n, 0, 3000), "{name} has other contents");
        count += 1;
    }
    ensure!(count == 4 * EACH / 3 * 2, "{count} names are left");
    Ok(())
}

fn delete_while_listing(dir: &Path) -> Result<()> {
    for n in 0..3000 {
        File::create_new(dir.join(format!("entry-with-a-long-name-{n:05}")))?;
    }
    let mut deleted = 0;
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
        deleted += 1;
    }
    ensure!(deleted == 3000, "a listing that deletes what it sees saw {deleted} of 3000 names");
    Ok(())
}

fn flags(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    let chattr = |flags: &str| run_command(command("chattr").arg(flags).arg(&path));
    chattr("+dAS")?;
    let listed = run_command(command("lsattr").arg("-l").arg(&path))?;
    for word in ["No_Dump", "No_Atime", "Synchronous_Updates"] {
        ensure!(listed.contains(word), "lsattr does not show {word}: {listed}");
    }
    chattr("-dAS")?;
    if !is_root() {
        return Ok(());
    }
    chattr("+i")?;
    let open = File::options().write(true).open(&path);
    let unlinked = fs::remove_file(&path);
    chattr("-i")?;
    refused("opening an immutable file for writing", open, Errno::PERM)?;
    refused("deleting an immutable file", unlinked, Errno::PERM)?;
    chattr("+a")?;
    let open = File::options().write(true).open(&path);
    let appended = File::options().append(true).open(&path).and_then(|mut file| file.write_all(b"y"));
    chattr("-a")?;
    refused("opening an append-only file for writing", open, Errno::PERM)?;
    appended.context("appending to an append-only file")?;
    ensure!(fs::read_to_string(&path)? == "xy", "the append is not there");
    Ok(())
}

fn acls(dir: &Path) -> Result<()> {
    if !is_root() {
        return Ok(());
    }
    let path = dir.join("secret");
    fs::write(&path, "x")?;
    fs::set_permissions(dir, PermissionsExt::from_mode(0o755))?;
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
    let read_as_nobody = || -> Result<bool> {
        Ok(say(Command::new("/bin/cat").arg(&path).uid(NOBODY).gid(NOBODY).current_dir("/"))?.code == 0)
    };
    ensure!(!read_as_nobody()?, "mode 0600 lets nobody read");
    run_command(command("setfacl").args(["-m", &format!("u:{NOBODY}:r")]).arg(&path))?;
    let listed = run_command(command("getfacl").args(["-n", "-p"]).arg(&path))?;
    ensure!(listed.contains(&format!("user:{NOBODY}:r--")), "getfacl does not show the entry: {listed}");
    ensure!(read_as_nobody()?, "an ACL that lets nobody read is not enforced");
    run_command(command("setfacl").args(["-b"]).arg(&path))?;
    ensure!(!read_as_nobody()?, "the ACL is still in force after it was removed");
    let shared = dir.join("shared");
    fs::create_dir(&shared)?;
    run_command(command("setfacl").args(["-d", "-m", &format!("u:{NOBODY}:rwx")]).arg(&shared))?;
    fs::create_dir(shared.join("child"))?;
    let listed = run_command(command("getfacl").args(["-n", "-p"]).arg(shared.join("child")))?;
    ensure!(listed.contains(&format!("default:user:{NOBODY}:rwx")), "a default ACL is not inherited: {listed}");
    Ok(())
}
