//! Calls and ioctls that the kernel's FUSE module passes on, answers itself, or refuses.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxAttributes, StatxFlags};

use super::told::told;
use crate::cmd::{command, run, say};

const LABEL_BYTES: usize = 256;

/// FS_IOC_SETFSLABEL and FS_IOC_GETFSLABEL.
pub(super) fn label(dir: &Path) -> Result<String> {
    const GET: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<[u8; LABEL_BYTES]>(0x94, 49);
    const SET: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<[u8; LABEL_BYTES]>(0x94, 50);
    let dir = File::open(dir)?;
    let set = |label: &[u8]| {
        let mut text = [0; LABEL_BYTES];
        text[..label.len()].copy_from_slice(label);
        // SAFETY: the command reads as many bytes as it encodes, 256.
        told(unsafe { rustix::ioctl::ioctl(&dir, rustix::ioctl::Setter::<SET, _>::new(text)) })
    };
    let get = || {
        // SAFETY: the command writes as many bytes as it encodes, 256.
        let got = unsafe { rustix::ioctl::ioctl(&dir, rustix::ioctl::Getter::<GET, [u8; LABEL_BYTES]>::new()) };
        got.map(|text| String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    };
    let mut seen = Vec::new();
    for label in [&b"sixteen letters!"[..], b"seventeen letters", b"", b"short"] {
        seen.push(format!("{} {:?}", set(label), get()?));
    }
    Ok(seen.join(", "))
}

/// What must be refused, and how.
pub(super) fn odd_arguments(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    file.write_all_at(&[1; 10_000], 0)?;
    let mut seen = vec![told(file.write_at(b"x", u64::MAX / 2)), told(file.set_len(1 << 62))];
    let allocate = |flags, at, len| told(rustix::fs::fallocate(&file, flags, at, len));
    seen.push(allocate(FallocateFlags::empty(), 0, 0));
    seen.push(allocate(FallocateFlags::PUNCH_HOLE, 0, 4096));
    seen.push(allocate(FallocateFlags::empty(), 1 << 62, 4096));
    seen.push(allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 40, 4096));
    let overlap = rustix::fs::copy_file_range(&file, Some(&mut 0), &file, Some(&mut 10), 100);
    seen.push(told(overlap));
    seen.push(told(fs::rename(dir, dir.join("below"))));
    seen.push(told(fs::hard_link(dir, dir.join("link"))));
    seen.push(told(fs::remove_dir(dir)));
    seen.push(told(rustix::fs::unlinkat(CWD, dir, AtFlags::empty())));
    seen.push(told(File::open(path.join("below"))));
    seen.push(format!("{} bytes", file.metadata()?.len()));
    Ok(seen.join(", "))
}

/// mount -o remount,ro and rw.
pub(super) fn remounted(dir: &Path) -> Result<String> {
    let mount = dir.parent().context("a mount point")?;
    let become_ = |how: &str| say(command("mount").args(["-o", how]).arg(mount)).map(|said| said.code);
    let path = dir.join("file");
    fs::write(&path, "before")?;
    let read_only = become_("remount,ro")?;
    let mut seen = vec![told(fs::write(&path, "x")), told(fs::create_dir(dir.join("d"))), fs::read_to_string(&path)?];
    let writable = become_("remount,rw")?;
    seen.push(told(fs::write(&path, "after")));
    let busy = {
        let _writer = File::options().append(true).open(&path)?;
        become_("remount,ro")?
    };
    Ok(format!("{read_only} {writable} {busy}, {}, {}", seen.join(", "), fs::read_to_string(&path)?))
}

pub(super) fn fiemap(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    let mut file = File::create(&path)?;
    file.write_all(&[1; 10_000])?;
    file.sync_all()?;
    // Where FIEMAP is refused filefrag asks for each block, which FUSE answers for block devices only.
    let listed = run(command("filefrag").arg(&path))?;
    Ok(if listed.contains("1 extent found") { "listed" } else { "nothing" }.to_owned())
}

pub(super) fn freeze(dir: &Path) -> Result<String> {
    let mount = dir.parent().context("a mount point")?;
    if say(command("fsfreeze").arg("-f").arg(mount))?.code != 0 {
        return Ok("refused".to_owned());
    }
    run(command("fsfreeze").arg("-u").arg(mount))?;
    Ok("frozen".to_owned())
}

pub(super) fn collapse(dir: &Path) -> Result<String> {
    let file = File::create(dir.join("file"))?;
    file.write_all_at(&[1; 5 * 4096], 0)?;
    let change = |flags| told(rustix::fs::fallocate(&file, flags, 4096, 4096));
    Ok(format!("{}, {}", change(FallocateFlags::COLLAPSE_RANGE), change(FallocateFlags::INSERT_RANGE)))
}

pub(super) fn statx_attributes(dir: &Path) -> Result<String> {
    let path = dir.join("file");
    fs::write(&path, "x")?;
    run(command("chattr").arg("+d").arg(&path))?;
    let seen = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    Ok(if seen.stx_attributes.contains(StatxAttributes::NODUMP) { "no dump" } else { "none" }.to_owned())
}
