//! Operations on a mounted volume: all or nothing, on each kind of image.

use crate::data::drop_pages;
use crate::engine::lifecycle::{Event, Phase};
use crate::error::Error;
use crate::names::evict;
use crate::records;
use crate::testing::TestVolume;
use crate::{Choices, Cred, Devices, New, NewKind, Options, Route, Volume, WriteFlags};
use quire_device::sync::{Arc, thread};
use quire_device::{ErrorKind, IoOp, Region, SystemClock};
use quire_layout::Ino;
use quire_layout::inode::Time;
use quire_testkit::{
    Fault, FaultKind, Faulty, Image, MemDevice, Model, Modelled, PowerLossDevice, PowerLossOptions, mke2fs,
};
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn an_operation_joins_or_leaves_no_trace() {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    let before = t.volume.run(|op| records::inode(op, Ino::ROOT)).unwrap();
    let refused = t.volume.run(|op| {
        let mut i = records::inode(op, Ino::ROOT)?;
        i.set_mode(0o40_700);
        records::put_inode(op, Ino::ROOT, &mut i)?;
        Err::<(), _>(Error::NoSpace)
    });
    assert!(matches!(refused, Err(Error::NoSpace)));
    assert_eq!(t.volume.run(|op| records::inode(op, Ino::ROOT)).unwrap(), before);
    let at = t.volume.run(|op| {
        let mut i = records::inode(op, Ino::ROOT)?;
        i.set_mode(0o40_700);
        i.set_time(Time::Change, op.now());
        records::put_inode(op, Ino::ROOT, &mut i)?;
        Ok(op.now())
    });
    t.check();
    let again = TestVolume::on(t.device.snapshot(), crate::Options::default());
    let i = again.volume.run(|op| records::inode(op, Ino::ROOT)).unwrap();
    assert_eq!((i.mode(), i.time(Time::Change)), (0o40_700, Some(at.unwrap())));
}

/// Small batches, one after the other, do not fill a transaction together.
#[test]
fn a_batch_has_a_transaction_of_its_own() {
    let t = TestVolume::new("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let new = New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred: Cred::default() };
    for n in 0..300 {
        let _batch = t.volume.begin_batch().unwrap();
        let created = t.volume.create(Ino::ROOT, format!("d{n}").as_bytes(), &new);
        created.unwrap_or_else(|e| panic!("batch {n}: {e}"));
    }
    t.check();
}

/// L1: the write that marks the image clean fails after its flags have arrived, and so does the one that takes that
/// back. What is acknowledged afterwards survives a crash.
#[test]
fn a_freeze_that_cannot_be_taken_back_leaves_no_writable_volume_on_a_clean_image() {
    let device = Arc::new(Faulty::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"]))));
    let open = |device| Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).expect("mount");
    let volume = open(device.clone());
    let torn = Fault::once(IoOp::Write, FaultKind::Torn { sectors: 1 });
    device.inject(torn.in_region(Region::Superblock));
    device.inject(Fault::always(IoOp::Write, FaultKind::Error(ErrorKind::Io)).in_region(Region::Superblock));
    assert!(volume.maintenance().freeze().is_err() && device.hits() >= 2, "{} faults", device.hits());
    device.heal();
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let acknowledged = volume.create(Ino::ROOT, b"after", &new).is_ok() && volume.fsync(Ino::ROOT, false).is_ok();
    let left = Arc::new(MemDevice::new(device.inner().snapshot()));
    let found = open(left).lookup(Ino::ROOT, b"after").is_ok();
    assert!(found || !acknowledged, "what was synced on an image marked clean is lost");
}

/// L1: a suspended fsync of data in place whose flush fails is told so without the journal's leadership. A freeze waits
/// for it all the same.
#[test]
fn a_freeze_waits_until_a_failed_suspended_fsync_was_told() {
    let device = Arc::new(Faulty::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"]))));
    let options = Options::default().with(Choices::of_route(Route::Ordered));
    let volume = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).expect("mount");
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let ino = volume.create(Ino::ROOT, b"f", &new).expect("create").ino;
    let write = || volume.write(ino, 0, &[7; 4096], crate::WriteFlags::default()).expect("write");
    write();
    volume.sync().expect("a sound device");
    write();
    device.inject(Fault::once(IoOp::Flush, FaultKind::Error(ErrorKind::Io)));
    let (tell, told) = std::sync::mpsc::channel();
    let freezer = volume.clone();
    crate::fsync_then(&volume, &[ino], true, crate::Lead::Once, move |outcome| {
        let (frozen, ended) = std::sync::mpsc::channel();
        let freezes = std::thread::spawn(move || frozen.send(freezer.maintenance().freeze().is_ok()));
        let early = ended.recv_timeout(std::time::Duration::from_millis(100)).is_ok();
        tell.send((outcome.is_err(), early, freezes)).expect("the test waits");
    });
    let (failed, early, freezes) = told.recv().expect("it is told once");
    // Nobody listens any more.
    freezes.join().expect("the freeze returns").ok();
    assert!(failed, "the flush failed");
    assert!(!early, "the freeze ended while the caller was being told");
}

/// L2: an fsync, or a sync, that comes while the volume is being frozen or thawed returns at once, and is told when
/// that has ended.
#[test]
fn an_fsync_during_a_freeze_or_thaw_goes_on_at_its_end_without_a_thread() {
    let image = mke2fs("16M", &["-t", "ext4"]);
    let open = Volume::open(Devices::one(Arc::new(MemDevice::new(image))), Arc::new(SystemClock), Options::default());
    let volume = open.expect("mount");
    let (tell, told) = std::sync::mpsc::channel();
    let ask = || {
        let (of_file, of_all) = (tell.clone(), tell.clone());
        let lead = crate::Lead::UntilNobodyWaits;
        crate::fsync_then(&volume, &[Ino::ROOT], false, lead, move |o| of_file.send(o.is_ok()).expect("heard"));
        crate::sync_then(&volume, lead, move |o| of_all.send(o.is_ok()).expect("heard"));
    };
    let lifecycle = &volume.inner.engine.lifecycle;
    for (event, done, phase) in [
        (Event::Freeze, false, Phase::Running),
        (Event::Freeze, true, Phase::Frozen),
        (Event::Thaw, false, Phase::Frozen),
        (Event::Thaw, true, Phase::Running),
    ] {
        lifecycle.begin(event).expect("the table allows it");
        ask();
        assert!(told.try_recv().is_err(), "told during {:?}", lifecycle.phase());
        lifecycle.end(lifecycle.drain(), done);
        assert_eq!((lifecycle.phase(), told.try_recv(), told.try_recv()), (phase, Ok(true), Ok(true)));
    }
    volume.close().expect("close");
}

/// Writes and syncs a file again whenever it is told that the last sync succeeded, until it is refused.
fn sync_again_and_again(v: Volume, ino: Ino, refused: mpsc::Sender<Error>) {
    let again = v.clone();
    let written = v.write(ino, 0, &[1; 100], WriteFlags::default());
    if let Err(e) = written {
        return refused.send(e).expect("the test hears it");
    }
    crate::fsync_then(&v, &[ino], true, crate::Lead::Once, move |outcome| match outcome {
        Ok(()) => sync_again_and_again(again, ino, refused),
        Err(e) => refused.send(e).expect("the test hears it"),
    });
}

/// A caller that syncs again as soon as it is told keeps the thread that commits for it busy. A close refuses it, and
/// then that thread ends; before, it does not.
#[test]
fn a_close_beside_a_steady_load_of_syncs_ends() {
    let model = Model { flush: Duration::from_millis(2), ..Model::default() };
    let device = Modelled::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"])), model, Arc::new(SystemClock));
    let open = Volume::open(Devices::one(Arc::new(device)), Arc::new(SystemClock), Options::default());
    let volume = open.expect("mount");
    let background = volume.maintenance().spawn_background();
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let ino = volume.create(Ino::ROOT, b"f", &new).expect("create").ino;
    let (refuse, refused) = mpsc::channel();
    sync_again_and_again(volume.clone(), ino, refuse);
    assert!(refused.recv_timeout(Duration::from_millis(100)).is_err(), "it goes on");
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        volume.close().expect("close");
        drop(background);
        end.send(()).expect("the test hears it");
    });
    ended.recv_timeout(Duration::from_secs(20)).expect("the close, and the background's end");
    assert!(matches!(refused.try_recv(), Ok(Error::ReadOnly(_))));
}

/// The thread that commits for others frees nothing: where a transaction is full, it would wait for its own commit.
#[test]
fn what_is_given_back_while_a_caller_is_told_is_freed_later() {
    let image = mke2fs("16M", &["-t", "ext4"]);
    let open = Volume::open(Devices::one(Arc::new(MemDevice::new(image))), Arc::new(SystemClock), Options::default());
    let volume = open.expect("mount");
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let names: Vec<_> = (0..40).map(|n| format!("f{n}")).collect();
    let inos: Vec<_> =
        names.iter().map(|n| volume.create(Ino::ROOT, n.as_bytes(), &new).expect("create").ino).collect();
    volume.sync().expect("sync");
    names.iter().for_each(|n| volume.unlink(Ino::ROOT, n.as_bytes()).expect("unlink"));
    let before = volume.statfs().free_inodes;
    let (theirs, given) = (volume.clone(), inos.clone());
    let (tell, told) = std::sync::mpsc::channel();
    crate::fsync_then(&volume, &[Ino::ROOT], false, crate::Lead::Once, move |outcome| {
        given.iter().for_each(|ino| theirs.forget(*ino, 1));
        tell.send((outcome.is_ok(), theirs.inner.engine.tables().pending_evictions.len())).expect("the test waits");
    });
    assert_eq!(told.recv(), Ok((true, inos.len())), "they wait");
    volume.sync().expect("sync");
    volume.maintenance().step().expect("a step");
    assert_eq!(volume.statfs().free_inodes, before + 40);
}

/// N3: a thread has claimed an inode to free it, and is interrupted before it drops the pages. A thaw leaves the inode
/// to that thread, so that no new file has the number when the pages are dropped. An error ends the claim.
fn a_thaw_beside_a_thread_that_frees_an_inode() {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    let (v, engine) = (&t.volume, &*t.volume.inner.engine);
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let old = v.create(Ino::ROOT, b"old", &new).unwrap().ino;
    v.unlink(Ino::ROOT, b"old").unwrap();
    v.maintenance().freeze().unwrap();
    v.forget(old, 1);
    assert!(evict::claim_unused(engine, old).unwrap());
    v.maintenance().thaw().unwrap();
    let ino = v.create(Ino::ROOT, b"beside", &new).unwrap().ino;
    v.write(ino, 0, &[7; 5000], WriteFlags::default()).unwrap();
    drop_pages(&v.inner.data, old);
    assert!(v.maintenance().unwritten_bytes() >= 5000, "nothing of the new file is dropped");
    assert_ne!(ino, old);
    evict::free_or_warn(engine, old);
    assert!(engine.tables().evicting.is_empty());
    assert_eq!(v.create(Ino::ROOT, b"behind", &new).unwrap().ino, old, "its number is free again");
    t.check();
}

#[test]
fn a_thaw_leaves_an_inode_to_the_thread_that_frees_it() {
    a_thaw_beside_a_thread_that_frees_an_inode();
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_evictions_is_found() {
    use quire_device::Mutant;
    for mutant in Mutant::OF_EVICTION {
        Mutant::set(Some(mutant));
        let found = std::panic::catch_unwind(a_thaw_beside_a_thread_that_frees_an_inode).is_err();
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}

/// An inode that could not be freed is claimed by nobody: the next thaw frees it.
#[test]
fn what_could_not_be_freed_is_tried_again_at_the_next_thaw() {
    let device = Arc::new(Faulty::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"]))));
    let open = || Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), Options::default()).unwrap();
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let volume = open();
    let ino = volume.create(Ino::ROOT, b"f", &new).unwrap().ino;
    volume.write(ino, 0, &[7; 5000], WriteFlags::default()).unwrap();
    volume.close().unwrap();
    let volume = open();
    let ino = volume.lookup(Ino::ROOT, b"f").unwrap().ino;
    volume.unlink(Ino::ROOT, b"f").unwrap();
    device.inject(Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io)));
    volume.forget(ino, 1);
    let tables = || volume.inner.engine.tables();
    assert!(tables().orphans.contains(ino) && tables().evicting.is_empty());
    device.heal();
    volume.maintenance().freeze().unwrap();
    volume.maintenance().thaw().unwrap();
    assert!(!tables().orphans.contains(ino));
}

/// F15: the same as `Volume::sync`, for a caller without a thread.
#[test]
fn a_suspended_sync_is_told_when_everything_is_durable_or_has_failed() {
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    for fails in [false, true] {
        let image = Image::from_bytes(&mke2fs("16M", &["-t", "ext4"]));
        let disk = PowerLossDevice::from_image(image, PowerLossOptions::default());
        let device = Arc::new(Faulty::new(disk));
        let open = |device| Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default());
        let volume = open(device.clone()).expect("mount");
        let ino = volume.create(Ino::ROOT, b"f", &new).expect("create").ino;
        volume.write(ino, 0, &[7; 5000], crate::WriteFlags::default()).expect("write");
        if fails {
            device.inject(Fault::always(IoOp::Flush, FaultKind::Error(ErrorKind::Io)));
        }
        let (tell, told) = std::sync::mpsc::channel();
        crate::sync_then(&volume, crate::Lead::Once, move |outcome| {
            tell.send(outcome.is_ok()).expect("the test waits")
        });
        assert_eq!(told.recv(), Ok(!fails), "it is told once");
        assert!(told.recv().is_err(), "and not again");
        if !fails {
            let left = PowerLossDevice::from_image(device.inner().crash(1).image, PowerLossOptions::default());
            let after = open(Arc::new(Faulty::new(left))).expect("recovers");
            let mut read = [0; 5000];
            let ino = after.lookup(Ino::ROOT, b"f").expect("its name was synced").ino;
            assert_eq!((after.read(ino, 0, &mut read).expect("read"), read), (5000, [7; 5000]));
        }
    }
}

#[test]
fn every_descriptor_and_inode_of_a_fresh_image_is_read() {
    for args in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-b", "1024", "-I", "128"], &["-t", "ext2"]] {
        let t = TestVolume::new("48M", args);
        let sb = t.volume.superblock();
        for g in 0..sb.group_count() {
            t.volume.run(|op| records::group(op, quire_layout::GroupNo(g))).unwrap();
        }
        for n in 1..=sb.inodes_count().min(64) {
            t.volume.run(|op| records::inode(op, Ino(n))).unwrap();
        }
    }
}
