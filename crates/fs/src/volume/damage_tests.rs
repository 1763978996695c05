//! A reader that meets damage in a phase in which nothing may be written.

use crate::testing::TestVolume;
use crate::{CommitMode, Cred, New, NewKind, Options, Record, Volume, WriteFlags};
#[cfg(feature = "mutants")]
use quire_device::Mutant;
use quire_layout::Ino;
use quire_layout::features::incompat;
use quire_layout::superblock::{OnError, Superblock};
use quire_testkit::mke2fs;

const NAME: &[u8] = b"a-name-that-is-nowhere-else";

fn new(kind: NewKind<'static>) -> New<'static> {
    New { kind, mode: 0o755, umask: 0, cred: Cred { uid: 0, gid: 0 } }
}

/// An image with a directory whose checksum does not fit.
fn damaged(options: &Options) -> Vec<u8> {
    let t = TestVolume::on(mke2fs("16M", &["-t", "ext4"]), options.clone());
    let dir = t.volume.create(Ino::ROOT, b"d", &new(NewKind::Dir)).expect("a directory").ino;
    t.volume.create(dir, NAME, &new(NewKind::File)).expect("a file");
    t.check();
    let mut image = t.device.snapshot();
    // Where it is at home; the journal may hold it, too.
    let found: Vec<usize> = (0..image.len() - NAME.len()).filter(|at| image[*at..].starts_with(NAME)).collect();
    found.iter().for_each(|at| image[*at] = b'A');
    assert!(!found.is_empty());
    image
}

fn meet(v: &Volume) {
    let dir = v.lookup(Ino::ROOT, b"d").expect("it is sound").ino;
    assert!(matches!(v.lookup(dir, NAME), Err(crate::Error::Corrupt(_))));
}

fn superblock(t: &TestVolume) -> Superblock {
    Superblock::decode(&t.device.snapshot()[1024..]).expect("sound")
}

/// Jbd2's log and Quire's, with each policy.
fn all() -> Vec<Options> {
    let logs = [(Record::Block, CommitMode::Barrier), (Record::Range, CommitMode::Checksum)];
    let with =
        |on_error| logs.map(|(record, commit_mode)| Options { record, commit_mode, on_error, ..Options::default() });
    [OnError::Continue, OnError::RemountReadOnly].into_iter().flat_map(|p| with(Some(p))).collect()
}

/// L1: nothing is written behind the mark of a clean image. The error is recorded when the freeze ends, by a thaw or by
/// an unmount, and what `errors=` asks for is done then.
fn damage_on_a_frozen_volume() {
    for options in all() {
        let (image, policy) = (damaged(&options), options.on_error);
        for thaws in [true, false] {
            let t = TestVolume::on(image.clone(), options.clone());
            t.volume.create(Ino::ROOT, b"changed", &new(NewKind::File)).unwrap();
            t.volume.maintenance().freeze().unwrap();
            let frozen = t.device.snapshot();
            meet(&t.volume);
            t.volume.maintenance().step().unwrap();
            assert!(t.device.snapshot() == frozen, "{policy:?}: a frozen image was written to");
            let ends = if thaws { t.volume.maintenance().thaw() } else { t.volume.close() };
            ends.unwrap();
            if thaws {
                let written = t.volume.create(Ino::ROOT, b"later", &new(NewKind::File)).is_ok();
                assert_eq!(written, policy == Some(OnError::Continue));
                t.volume.close().unwrap();
            }
            let is_clean = !superblock(&t).features().has_incompat(incompat::RECOVER | incompat::QUIRE_LOG);
            assert_eq!(is_clean, !thaws || policy == Some(OnError::Continue), "{policy:?}");
            let again = TestVolume::on(t.device.snapshot(), options.clone());
            again
                .volume
                .write(again.volume.lookup(Ino::ROOT, b"changed").unwrap().ino, 0, b"x", WriteFlags::default())
                .unwrap();
            again.volume.close().unwrap();
            assert_eq!(superblock(&again).error_count(), 1, "{policy:?}, {thaws}");
        }
    }
}

#[test]
fn damage_that_a_reader_meets_while_frozen_is_recorded_later() {
    damage_on_a_frozen_volume();
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_errors_is_found() {
    for mutant in Mutant::OF_ERRORS {
        Mutant::set(Some(mutant));
        let found = std::panic::catch_unwind(damage_on_a_frozen_volume).is_err();
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}
