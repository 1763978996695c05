//! What the log has held for long goes home, by a clock of the test's own.

use crate::config::Profile;
use crate::data::WriteFlags;
use crate::policy::CHECKPOINT_AGE;
use crate::volume::Step;
use crate::{Cred, Devices, New, NewKind, Options, Volume};
use quire_device::sync::Arc;
use quire_layout::Ino;
use quire_testkit::{MemDevice, NvramModel, VirtualClock, fsck, mke2fs};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

struct Mounted {
    clock: Arc<VirtualClock>,
    device: Arc<MemDevice>,
    volume: Volume,
    ino: Ino,
}

fn mounted(profile: Profile, checkpoint_age: Option<Duration>) -> Mounted {
    let device = Arc::new(MemDevice::new(mke2fs("64M", &["-t", "ext4", "-b", "4096"])));
    let clock = Arc::new(VirtualClock::default());
    let in_nvram = matches!(profile, Profile::Nvj | Profile::Djfs);
    let memory = in_nvram.then(|| Arc::new(NvramModel::new(vec![0; 16 << 20])) as Arc<_>);
    let devices = Devices { nvram: memory, ..Devices::one(device.clone()) };
    let options = Options { checkpoint_age, ..Options::default() }.with(profile.choices());
    let volume = Volume::open(devices, clock.clone(), options).unwrap();
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
    let ino = volume.create(Ino::ROOT, b"f", &new).unwrap().ino;
    Mounted { clock, device, volume, ino }
}

impl Mounted {
    /// Less than a block: selective journaling logs that, too.
    fn write(&self, fill: u8) {
        self.volume.write(self.ino, u64::from(fill) * 4096, &[fill; 400], WriteFlags::default()).unwrap();
        self.volume.fsync(self.ino, false).unwrap();
    }

    /// Does the background's work that is due now. Returns how long it may rest.
    fn work(&self) -> Duration {
        loop {
            if let Step::Idle(pause) = self.volume.maintenance().step().unwrap() {
                return pause;
            }
        }
    }

    fn oldest(&self) -> Option<Duration> {
        self.volume.engine().journal.oldest_closed()
    }

    fn check(self) {
        self.volume.close().unwrap();
        fsck(&self.device.snapshot());
    }
}

/// Neither the fill of the log nor memory asks for a checkpoint here.
#[test]
fn what_is_old_in_the_log_goes_home() {
    for profile in [
        Profile::Ext4Journal,
        Profile::SingleIo,
        Profile::Auto,
        Profile::Nvj,
        Profile::Djfs,
        Profile::Wasteless,
        Profile::Selective,
    ] {
        let m = mounted(profile, None);
        m.clock.advance(100 * SECOND);
        m.work();
        m.write(1);
        let first = m.oldest().unwrap();
        m.clock.advance(CHECKPOINT_AGE / 2 + SECOND);
        m.work();
        m.write(2);
        m.clock.advance(CHECKPOINT_AGE / 2 - 2 * SECOND);
        assert!(m.work() <= SECOND, "{profile}: the thread comes back when the first is due");
        assert_eq!(m.oldest(), Some(first), "{profile}: nothing is old yet");
        let before = m.volume.maintenance().journal_stats();
        m.clock.advance(SECOND);
        m.work();
        let after = m.volume.maintenance().journal_stats();
        assert!(after.home_blocks > before.home_blocks, "{profile}");
        assert_eq!(after.checkpoints, before.checkpoints + 1, "{profile}: one for all that is old");
        match profile {
            Profile::Djfs => assert_eq!(m.oldest(), None, "a region goes home whole"),
            _ => assert!(m.oldest().is_some_and(|t| t > first), "{profile}: what is younger stays"),
        }
        m.write(3);
        m.clock.advance(CHECKPOINT_AGE);
        m.work();
        assert_eq!(m.oldest(), None, "{profile}");
        m.write(4);
        m.check();
    }
}

#[test]
fn with_an_age_of_zero_nothing_goes_home_because_it_is_old() {
    for profile in [Profile::Ext4Journal, Profile::Djfs] {
        let m = mounted(profile, Some(Duration::ZERO));
        m.write(1);
        let first = m.oldest().unwrap();
        m.clock.advance(100 * CHECKPOINT_AGE);
        m.work();
        assert_eq!(m.oldest(), Some(first), "{profile}");
        m.check();
    }
}
