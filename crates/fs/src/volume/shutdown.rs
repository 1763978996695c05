//! Stopping a volume that stays mounted, as the ioctl FS_IOC_SHUTDOWN asks for it.
//!
//! *Guarantees* L4: after a shutdown no call changes the volume and nothing becomes durable any more. What was durable
//! before is found by the next mount: the log stays as it is, or was emptied by the freeze that came first.

use super::maintenance::Maintenance;
use crate::error::{Error, Result};
use quire_device::sync::lock;

/// What becomes of what is not durable yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// It is written first, as by a freeze: the image is clean afterwards.
    Clean,
    /// What operations have changed is committed. Data in pages is lost; the next mount recovers.
    LogFlushed,
    /// It is lost, as by a loss of power; the next mount recovers.
    AtOnce,
}

impl Maintenance<'_> {
    /// Shuts the volume down. A second shutdown waits for the first and does nothing. A freeze ends: its waiting
    /// callers are refused.
    ///
    /// # Errors
    /// As [`Maintenance::freeze`] or [`Maintenance::commit`]. After a failed freeze the volume runs on; after a failed
    /// commit it is shut down all the same.
    pub fn shut_down(&self, how: Shutdown) -> Result<()> {
        let (engine, lifecycle) = (&self.volume.inner.engine, &self.volume.inner.engine.lifecycle);
        let _one_at_a_time = lock(&self.volume.inner.shutting_down);
        if engine.write_gate.is_shut_down() {
            return Ok(());
        }
        if how == Shutdown::Clean {
            match self.freeze() {
                // A volume that is frozen already is clean, and one that cannot be written to stays as it is.
                Ok(()) | Err(Error::ReadOnly(_)) => {}
                Err(Error::Busy(_)) if lifecycle.phase() == super::Phase::Frozen => {}
                Err(e) => return Err(e),
            }
        }
        engine.write_gate.shut_down();
        let committed = match how {
            Shutdown::LogFlushed => engine.journal.commit_all(),
            _ => Ok(()),
        };
        engine.journal.shut_down();
        match self.thaw() {
            // It was not frozen, or is unmounted meanwhile.
            Ok(()) | Err(Error::Invalid(_) | Error::ReadOnly(_)) => Ok(committed?),
            Err(e) => Err(e),
        }
    }

    /// True after [`Maintenance::shut_down`].
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.volume.inner.engine.write_gate.is_shut_down()
    }
}

#[cfg(test)]
mod tests {
    use super::Shutdown;
    use crate::testing::TestVolume;
    use crate::{CommitMode, Cred, New, NewKind, Options, Record, Volume, WriteFlags};
    use quire_layout::Ino;
    use quire_layout::features::incompat;
    use quire_layout::superblock::Superblock;
    use quire_testkit::{fsck, mke2fs};

    const ALL: [Shutdown; 3] = [Shutdown::Clean, Shutdown::LogFlushed, Shutdown::AtOnce];

    fn file(v: &Volume, name: &[u8], content: &[u8]) -> Ino {
        let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred { uid: 0, gid: 0 } };
        let ino = v.create(Ino::ROOT, name, &new).expect("a file").ino;
        v.write(ino, 0, content, WriteFlags::default()).expect("a write");
        ino
    }

    fn content(v: &Volume, name: &[u8]) -> Option<Vec<u8>> {
        let attr = v.lookup(Ino::ROOT, name).ok()?;
        let mut bytes = vec![0; usize::try_from(attr.size).expect("small")];
        let n = v.read(attr.ino, 0, &mut bytes).expect("readable");
        bytes.truncate(n);
        Some(bytes)
    }

    fn profiles() -> Vec<Options> {
        let jbd2 = Options::default();
        let quire = Options { record: Record::Range, commit_mode: CommitMode::Checksum, ..Options::default() };
        vec![jbd2, quire]
    }

    /// L4: in each case what was synced is there, and what each kind promises of the rest.
    #[test]
    fn what_was_durable_before_a_shutdown_is_found_by_the_next_mount() {
        for (options, how) in profiles().into_iter().flat_map(|o| ALL.map(|how| (o.clone(), how))) {
            let t = TestVolume::on(mke2fs("16M", &["-t", "ext4"]), options.clone());
            let synced = file(&t.volume, b"synced", &[1; 9000]);
            t.volume.fsync(synced, false).unwrap();
            file(&t.volume, b"new", &[2; 9000]);
            t.volume.maintenance().shut_down(how).unwrap();
            assert!(t.volume.write(synced, 0, b"x", WriteFlags::default()).is_err(), "{how:?}");
            assert!(t.volume.fsync(synced, false).is_err(), "{how:?}");
            t.volume.maintenance().step().unwrap();
            t.volume.maintenance().shut_down(Shutdown::AtOnce).unwrap();
            t.volume.close().unwrap();
            let image = t.device.snapshot();
            let dirty = Superblock::decode(&image[1024..]).unwrap().features().has_incompat(incompat::RECOVER);
            assert_eq!(dirty, how != Shutdown::Clean, "{how:?}");
            let again = TestVolume::on(image, options.clone());
            assert_eq!(content(&again.volume, b"synced"), Some(vec![1; 9000]), "{how:?}");
            let new = content(&again.volume, b"new");
            match how {
                Shutdown::Clean => assert_eq!(new, Some(vec![2; 9000])),
                Shutdown::LogFlushed => assert!(new.is_some_and(|c| c.is_empty() || c == [2; 9000])),
                Shutdown::AtOnce => assert_eq!(new, None),
            }
            again.check();
        }
    }

    /// Each waits for the other; neither finds the other's freeze in its way.
    #[test]
    fn two_shutdowns_at_once_both_succeed() {
        for round in 0..20 {
            let t = TestVolume::new("16M", &["-t", "ext4"]);
            file(&t.volume, b"f", &[3; 5000]);
            let together = std::sync::Barrier::new(2);
            let outcomes = std::thread::scope(|scope| {
                let shuts_down = || {
                    together.wait();
                    t.volume.maintenance().shut_down(Shutdown::Clean)
                };
                [scope.spawn(shuts_down), scope.spawn(shuts_down)].map(|t| t.join().expect("no panic"))
            });
            assert!(outcomes.iter().all(Result::is_ok), "round {round}: {outcomes:?}");
            t.volume.close().unwrap();
            fsck(&t.device.snapshot());
        }
    }

    #[test]
    fn a_shutdown_of_a_frozen_volume_ends_the_freeze_and_leaves_it_clean() {
        for how in ALL {
            let t = TestVolume::new("16M", &["-t", "ext4"]);
            let ino = file(&t.volume, b"f", &[3; 5000]);
            t.volume.maintenance().freeze().unwrap();
            t.volume.maintenance().shut_down(how).unwrap();
            assert!(t.volume.write(ino, 0, b"x", WriteFlags::default()).is_err(), "refused, and no wait for a thaw");
            t.volume.close().unwrap();
            fsck(&t.device.snapshot());
            let again = TestVolume::on(t.device.snapshot(), Options::default());
            assert_eq!(content(&again.volume, b"f"), Some(vec![3; 5000]));
        }
    }
}
