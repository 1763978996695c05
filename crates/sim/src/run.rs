//! A workload on a volume: calls, what they returned, and how far the device was then.

use crate::model::{History, Outcome, dir_name, group_of, target, time_of, xattr_name, xattr_value};
use crate::ops::{PAGE, Place, SimOp, pattern};
use quire_device::sync::{Arc, Condvar, Mutex, lock, wait};
use quire_device::{BlockDevice, Clock};
use quire_fs::{
    Checkpoint, CommitMode, Cred, Devices, Error, Falloc, FilePlace, FileUpdate, JournalingMode, Lead, ModeRule, New,
    NewKind, Options, Privileges, Record, RenameFlags, Result, SetAttr, SetTime, Volume, WriteFlags, XattrFlags,
    fsync_then, read_to_change,
};
use quire_layout::Ino;
use quire_testkit::{PowerLossDevice, VirtualClock};
use std::time::Duration;

/// How file data becomes durable, as the checker sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    Writeback,
    Ordered,
    Journal,
    Overwrite,
    Auto,
    /// Files are ordered, but for those with the flag `j` and those whose name has a rule ([`crate::model::has_rule`]).
    Adaptive,
    Selective,
}

impl Route {
    #[must_use]
    pub fn option(self) -> quire_fs::Route {
        match self {
            Route::Writeback => quire_fs::Route::Writeback,
            Route::Ordered => quire_fs::Route::Ordered,
            Route::Journal => quire_fs::Route::Journal,
            Route::Overwrite => quire_fs::Route::Overwrite,
            Route::Auto => quire_fs::Route::Auto,
            Route::Adaptive => quire_fs::Route::Adaptive,
            Route::Selective => quire_fs::Route::Selective,
        }
    }
}

/// What a simulation chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    pub route: Route,
    pub record: Record,
    pub commit_mode: CommitMode,
    pub checkpoint: Checkpoint,
}

impl How {
    /// With a log on the device that is reclaimed lazily.
    #[must_use]
    pub const fn lazy(route: Route, record: Record, commit_mode: CommitMode) -> Self {
        How { route, record, commit_mode, checkpoint: Checkpoint::Lazy }
    }
}

impl From<Route> for How {
    /// With jbd2's log.
    fn from(route: Route) -> Self {
        How::lazy(route, Record::Block, CommitMode::Barrier)
    }
}

/// A run's calls and the number of device steps that were complete when each had returned.
pub struct Run {
    pub history: History,
    /// `returned_at[i]`: steps complete when call `i` returned.
    pub returned_at: Vec<u64>,
}

/// New data that is logged with its commit with `auto`, in bytes.
const AUTO_THRESHOLD: u64 = 5 << 10;

/// Mounts a device for a simulation.
///
/// # Errors
/// As [`Volume::open`].
pub fn mount(device: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, how: impl Into<How>) -> Result<Volume> {
    Volume::open(Devices::one(device), clock, mount_options(how.into()))
}

/// The options of a simulation.
pub(crate) fn mount_options(how: How) -> Options {
    let How { route, record, commit_mode, checkpoint } = how;
    // So that some of what is written goes either way.
    let auto_threshold = Some(AUTO_THRESHOLD);
    Options {
        route: route.option(),
        record,
        commit_mode,
        checkpoint,
        cache_bytes: 1 << 20,
        auto_threshold,
        direct_bytes: 6 << 10,
        adaptive_default: JournalingMode::Ordered,
        journal_rules: vec![ModeRule::new("f2*", JournalingMode::Journal)],
        ..Options::default()
    }
}

const CRED: Cred = Cred { uid: 0, gid: 0 };

/// Looks a place up; the caller holds no reference afterwards, which a single-threaded run may do.
fn find(v: &Volume, top: Ino, p: Place) -> Result<Ino> {
    let dir = find_dir(v, top, p.dir)?;
    let a = v.lookup(dir, &p.bytes())?;
    v.forget(a.ino, 1);
    Ok(a.ino)
}

fn find_file(v: &Volume, top: Ino, p: Place) -> Result<Ino> {
    let ino = find(v, top, p)?;
    let a = v.getattr(ino)?;
    if a.mode & quire_layout::inode::mode::FMT == quire_layout::inode::mode::REG { Ok(ino) } else { Err(Error::IsDir) }
}

fn find_dir(v: &Volume, top: Ino, dir: u8) -> Result<Ino> {
    if dir == 0 {
        return Ok(top);
    }
    let a = v.lookup(top, &dir_name(dir))?;
    v.forget(a.ino, 1);
    Ok(a.ino)
}

fn create(v: &Volume, dir: Ino, name: &[u8], kind: NewKind<'_>, mode: u16) -> Result<()> {
    let a = v.create(dir, name, &New { kind, mode, umask: 0, cred: CRED })?;
    v.forget(a.ino, 1);
    Ok(())
}

fn range(v: &Volume, top: Ino, place: Place, how: Falloc, offset: u32, len: u32) -> Result<()> {
    v.fallocate(find_file(v, top, place)?, how, u64::from(offset), u64::from(len))
}

/// A file without a name is made and written, and then gets one; if it cannot, nothing of it is left.
fn unnamed(v: &Volume, dir: Ino, name: &[u8], bytes: &[u8]) -> Result<()> {
    let ino = v.create_unnamed(dir, &New { kind: NewKind::File, mode: 0o644, umask: 0, cred: CRED })?.ino;
    let fill = || if bytes.is_empty() { Ok(0) } else { v.write(ino, 0, bytes, WriteFlags::default()) };
    let named = fill().and_then(|_| v.link(ino, dir, name)).map(|a| v.forget(a.ino, 1));
    v.forget(ino, 1);
    named
}

/// A write that was cut short has found no space for the rest.
fn whole(len: u32) -> impl Fn(usize) -> Result<()> {
    move |n| if n < len as usize { Err(Error::NoSpace) } else { Ok(()) }
}

/// Does one call. `held` are the inodes that are in use without a name.
///
/// # Errors
/// What the volume says.
pub fn call(v: &Volume, held: &mut Vec<Ino>, op: &SimOp) -> Result<()> {
    call_below(v, Ino::ROOT, held, op)
}

/// Does one call in a tree that begins at the directory `top`.
///
/// # Errors
/// What the volume says.
pub fn call_below(v: &Volume, top: Ino, held: &mut Vec<Ino>, op: &SimOp) -> Result<()> {
    match *op {
        SimOp::Create(p) => create(v, find_dir(v, top, p.dir)?, &p.bytes(), NewKind::File, 0o644),
        SimOp::Symlink(p, n) => create(v, find_dir(v, top, p.dir)?, &p.bytes(), NewKind::Symlink(&target(n)), 0o777),
        SimOp::Mknod(p) => {
            let kind = NewKind::Node { file_type: quire_layout::inode::mode::FIFO, device: (0, 0) };
            create(v, find_dir(v, top, p.dir)?, &p.bytes(), kind, 0o600)
        }
        SimOp::Mkdir(d) => create(v, top, &dir_name(d), NewKind::Dir, 0o755),
        SimOp::Rmdir(d) => v.rmdir(top, &dir_name(d)),
        SimOp::Unlink(p) => v.unlink(find_dir(v, top, p.dir)?, &p.bytes()),
        SimOp::UnlinkOpen(p) => unlink_open(v, top, held, p),
        SimOp::Release => {
            held.drain(..).for_each(|ino| v.forget(ino, 1));
            Ok(())
        }
        SimOp::JournalData(p, on) => journal_data(v, top, p, on),
        SimOp::Rename(a, b) => {
            let (da, db) = (find_dir(v, top, a.dir)?, find_dir(v, top, b.dir)?);
            v.rename(da, &a.bytes(), db, &b.bytes(), RenameFlags::default())
        }
        SimOp::Exchange(a, b) => {
            let (da, db) = (find_dir(v, top, a.dir)?, find_dir(v, top, b.dir)?);
            v.rename(da, &a.bytes(), db, &b.bytes(), RenameFlags { exchange: true, ..RenameFlags::default() })
        }
        SimOp::Link(a, b) => link(v, top, a, b),
        SimOp::Write { place, offset, len, fill, sync } => write(v, top, place, (offset, len), fill, sync),
        SimOp::MapWrite { place, page, at, len, fill } => write_page(v, top, place, page, (at, len), fill),
        SimOp::Append { place, len, fill, sync } => append(v, top, place, len, fill, sync),
        SimOp::Update { place, first, second, fill, commits } => {
            update(v, find_file(v, top, place)?, &[first, second], fill, commits)
        }
        SimOp::Truncate(p, size) => v.truncate(find_file(v, top, p)?, u64::from(size)),
        SimOp::Punch { place, offset, len } => range(v, top, place, Falloc::PunchHole, offset, len),
        SimOp::Allocate { place, offset, len } => {
            range(v, top, place, Falloc::Allocate { keep_size: false }, offset, len)
        }
        SimOp::Reserve { place, offset, len } => {
            range(v, top, place, Falloc::Allocate { keep_size: true }, offset, len)
        }
        SimOp::Zero { place, offset, len } => range(v, top, place, Falloc::ZeroRange { keep_size: false }, offset, len),
        SimOp::Collapse { place, offset, len } => range(v, top, place, Falloc::Collapse, offset, len),
        SimOp::Insert { place, offset, len } => range(v, top, place, Falloc::Insert, offset, len),
        SimOp::Copy { from, at, to, offset, len } => copy(v, top, (from, at), (to, offset), len),
        SimOp::Unnamed { place, len, fill } => {
            unnamed(v, find_dir(v, top, place.dir)?, &place.bytes(), &pattern(fill, 0, len))
        }
        SimOp::RenameDir(a, b) => v.rename(top, &dir_name(a), top, &dir_name(b), RenameFlags::default()),
        SimOp::Chmod(p, mode) => {
            let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
            v.setattr(find_file(v, top, p)?, &change).map(drop)
        }
        SimOp::Chown(p, id) => {
            let change = SetAttr { uid: Some(id), gid: Some(group_of(id)), ..SetAttr::default() };
            v.setattr(find_file(v, top, p)?, &change).map(drop)
        }
        SimOp::Utimes(p, n) => utimes(v, find_file(v, top, p)?, n),
        SimOp::SetXattr(p, which, len) => {
            v.xattrs().set(find_file(v, top, p)?, &xattr_name(which), &xattr_value(which, len), XattrFlags::Any)
        }
        SimOp::RemoveXattr(p, which) => v.xattrs().remove(find_file(v, top, p)?, &xattr_name(which)),
        SimOp::Fsync(p) => fsync(v, find_file(v, top, p)?, false),
        SimOp::Fdatasync(p) => fsync(v, find_file(v, top, p)?, true),
        SimOp::Checkpoint => v.maintenance().checkpoint(),
        SimOp::FsyncDir(d) => fsync(v, find_dir(v, top, d)?, false),
        SimOp::Sync => v.sync(),
        SimOp::Freeze => v.maintenance().freeze(),
        SimOp::Thaw => v.maintenance().thaw(),
        SimOp::Remount => Err(Error::Invalid("only a run mounts again")),
        SimOp::Step => v.maintenance().step().map(drop),
        SimOp::WriteBack => v.maintenance().write_back(),
    }
}

/// Of every other inode as a mount does it, by a caller that is told ([`fsync_then`]); of the others as the library.
fn fsync(v: &Volume, ino: Ino, data_only: bool) -> Result<()> {
    if ino.0.is_multiple_of(2) {
        return v.fsync(ino, data_only);
    }
    let told = Arc::new((Mutex::new(None), Condvar::new()));
    let tells = told.clone();
    fsync_then(v, &[ino], data_only, Lead::UntilNobodyWaits, move |outcome| {
        *lock(&tells.0) = Some(outcome);
        tells.1.notify_all();
    });
    let mut outcome = lock(&told.0);
    loop {
        match outcome.take() {
            Some(outcome) => return outcome,
            None => outcome = wait(&told.1, outcome),
        }
    }
}

fn utimes(v: &Volume, ino: Ino, n: u32) -> Result<()> {
    let time = Some(SetTime::At(time_of(n)));
    v.setattr(ino, &SetAttr { atime: time, mtime: time, ..SetAttr::default() }).map(drop)
}

/// Takes the name of a file that stays in use.
fn unlink_open(v: &Volume, top: Ino, held: &mut Vec<Ino>, p: Place) -> Result<()> {
    let dir = find_dir(v, top, p.dir)?;
    let a = v.lookup(dir, &p.bytes())?;
    held.push(a.ino);
    v.unlink(dir, &p.bytes())
}

/// Sets or clears the file's own journaling of data (`chattr +j`).
fn journal_data(v: &Volume, top: Ino, p: Place, on: bool) -> Result<()> {
    let ino = find_file(v, top, p)?;
    let old = v.inode_flags().get(ino)?;
    let flag = quire_layout::inode::flags::JOURNAL_DATA;
    v.inode_flags().set(ino, if on { old | flag } else { old & !flag })
}

fn link(v: &Volume, top: Ino, a: Place, b: Place) -> Result<()> {
    let (ino, dir) = (find(v, top, a)?, find_dir(v, top, b.dir)?);
    let a = v.link(ino, dir, &b.bytes())?;
    v.forget(a.ino, 1);
    Ok(())
}

fn write(v: &Volume, top: Ino, place: Place, (offset, len): (u32, u32), fill: u8, sync: bool) -> Result<()> {
    let ino = find_file(v, top, place)?;
    let flags = WriteFlags { sync, ..WriteFlags::default() };
    v.write(ino, u64::from(offset), &pattern(fill, offset, len), flags).and_then(whole(len))
}

fn update(v: &Volume, ino: Ino, ranges: &[(u32, u32)], fill: u8, commits: bool) -> Result<()> {
    let mut update = FileUpdate::begin(v, ino)?;
    for (offset, len) in ranges {
        update.write(u64::from(*offset), &pattern(fill, *offset, *len), Privileges::Keep)?;
    }
    if commits { update.commit() } else { Ok(()) }
}

/// Changes a mapped page, as the kernel writes it back: whole, up to the end of the file.
fn write_page(v: &Volume, top: Ino, place: Place, page: u32, (at, len): (u32, u32), fill: u8) -> Result<()> {
    let ino = find_file(v, top, place)?;
    let (size, start) = (v.getattr(ino)?.size, u64::from(page) * u64::from(PAGE));
    let inside = size.saturating_sub(start).min(u64::from(PAGE));
    if inside == 0 {
        return Err(Error::Invalid("a page behind the end is not mapped"));
    }
    let mut bytes = vec![0; usize::try_from(inside).expect("a page")];
    // As for a part of a page that the kernel does not have.
    read_to_change(v, ino, start, &mut bytes)?;
    for (n, b) in pattern(fill, page * PAGE + at, len).into_iter().enumerate() {
        if let Some(byte) = bytes.get_mut(at as usize + n) {
            *byte = b;
        }
    }
    v.write(ino, start, &bytes, WriteFlags::default()).map(drop)
}

fn append(v: &Volume, top: Ino, place: Place, len: u32, fill: u8, sync: bool) -> Result<()> {
    let ino = find_file(v, top, place)?;
    let end = u32::try_from(v.getattr(ino)?.size).map_err(|_| Error::TooLarge)?;
    let flags = WriteFlags { sync, append: true, ..WriteFlags::default() };
    v.write(ino, 0, &pattern(fill, end, len), flags).and_then(whole(len))
}

fn copy(v: &Volume, top: Ino, (from, at): (Place, u32), (to, offset): (Place, u32), len: u32) -> Result<()> {
    let (from, to) = (find_file(v, top, from)?, find_file(v, top, to)?);
    let there = v.getattr(from)?.size.saturating_sub(at.into()).min(len.into());
    let n = {
        let source = FilePlace { ino: from, offset: u64::from(at) };
        let target = FilePlace { ino: to, offset: u64::from(offset) };
        v.copy_range(source, target, u64::from(len))?
    };
    if n < there { Err(Error::NoSpace) } else { Ok(()) }
}

/// A volume that calls are made on, and what a run must know about it.
pub(crate) struct Rig<'a> {
    pub(crate) volume: Volume,
    /// Mounts the volume again.
    pub(crate) mount: &'a dyn Fn() -> Result<Volume>,
    /// How many steps of the devices are complete.
    pub(crate) steps: &'a dyn Fn() -> u64,
    pub(crate) clock: &'a VirtualClock,
}

/// Mounts a device, and runs calls on the volume and on the model; they must agree on every call. Returns the volume,
/// too, and the device's completed steps when it was mounted first.
///
/// # Errors
/// The call at which they did not, and what each said.
pub fn run(device: &Arc<PowerLossDevice>, how: impl Into<How>, ops: &[SimOp]) -> Result<(Volume, Run, u64), String> {
    let (clock, how) = (Arc::new(VirtualClock::default()), how.into());
    let mount = || mount(device.clone(), clock.clone(), how);
    let volume = mount().map_err(|e| format!("mount: {e}"))?;
    let mounted_at = device.completed();
    let mut rig = Rig { volume, mount: &mount, steps: &|| device.completed(), clock: &clock };
    let done = rig.run(ops)?;
    Ok((rig.volume, done, mounted_at))
}

impl Rig<'_> {
    /// As [`run`], on a volume that is mounted.
    pub(crate) fn run(&mut self, ops: &[SimOp]) -> Result<Run, String> {
        let mut history = History::default();
        let mut returned_at = Vec::with_capacity(ops.len());
        let mut held = Vec::new();
        for (i, op) in ops.iter().enumerate() {
            let outcome = history.apply(op);
            let said = self.call(&mut held, op);
            if said.is_ok() != (outcome != Outcome::Refused) {
                return Err(format!("call {i}, {op:?}: the volume says {said:?}, the model {outcome:?}"));
            }
            returned_at.push((self.steps)());
            self.clock.sleep(Duration::from_millis(700));
        }
        held.drain(..).for_each(|ino| self.volume.forget(ino, 1));
        Ok(Run { history, returned_at })
    }

    /// Does a call, or mounts again. What would wait for a thaw is refused instead: there is nobody else to thaw.
    fn call(&mut self, held: &mut Vec<Ino>, op: &SimOp) -> Result<()> {
        if *op != SimOp::Remount {
            let _admitted = op.waits_when_frozen().then(|| self.volume.try_admit()).transpose()?;
            return call(&self.volume, held, op);
        }
        self.volume.close()?;
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: CRED };
        match self.volume.create(Ino::ROOT, b"late", &new) {
            Err(Error::ReadOnly(_)) => {}
            late => return late.map(drop).and(Err(Error::Invalid("a closed volume was changed"))),
        }
        held.clear();
        self.volume = (self.mount)()?;
        Ok(())
    }
}
