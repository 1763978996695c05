//! Logs in NVRAM whose labels, heads and records say anything, with checksums that match: only typed errors may come of
//! it (V5, V7, Q9).

use super::history;
use super::watch::WatchedDevice;
use quire_device::Clock;
use quire_device::sync::Arc;
use quire_fs::recovery::{OnDamage, discard_nvram, recover};
use quire_fs::{Checkpoint, Choices, CommitMode, Devices, Error, Options, Record, Route, Volume, first_superblock};
use quire_journal::recover::list_nvram;
use quire_layout::checksum::crc32c;
use quire_layout::nvlog::{Head, Label, SLOTS, TxnSeed, commit_word, head, label};
use quire_layout::{BlockSize, Ino, Tid};
use quire_testkit::{Image, MemDevice, NvramModel, VirtualClock};

/// An image whose log in NVRAM has not been recovered, and that memory.
pub struct NvramHostile {
    image: Image,
    stored: Vec<u8>,
    options: Options,
    label: Label,
    heads: Vec<Head>,
}

/// Bytes of the memory: two regions that hold a transaction each of 32 blocks, at least.
const MEMORY: usize = 8192 + 2 * (76 << 10);
/// Bytes that say one edit.
const EDIT: usize = 6;
/// Edits that one input may have.
const MOST: usize = 48;

impl NvramHostile {
    /// A log with records of this kind, in two regions of which one is left, or in one that goes round.
    ///
    /// # Panics
    /// If mke2fs is missing, or the sound image makes trouble.
    #[must_use]
    pub fn new(record: Record, checkpoint: Checkpoint) -> Self {
        let args = ["-t", "ext4", "-b", "1024", "-N", "256", "-J", "size=1"];
        let device = Arc::new(MemDevice::new(quire_testkit::mke2fs("8M", &args)));
        let memory = Arc::new(NvramModel::new(vec![0; MEMORY]));
        let choices = Choices { record, commit: CommitMode::Nvram, checkpoint, ..Choices::of_route(Route::Journal) };
        let options = Options::default().with(choices);
        let devices = Devices::one(device.clone()).with_nvram(memory.clone());
        let v = Volume::open(devices, clock(), options.clone()).expect("mount");
        history::make(&v, 9, 3500, 3);
        drop(v);
        let stored = memory.live();
        let (label, found, damaged) = list_nvram(&*memory, 1000).expect("a label");
        let at = |position| usize::try_from(label.place(position)).expect("small");
        let decode = |position| {
            let b = stored[at(position)..][..head::LEN].try_into().expect("a head");
            Head::decode(&label, position, b).expect("a head")
        };
        let heads: Vec<Head> = found.iter().map(|t| decode(t.position)).collect();
        assert!(!damaged && heads.len() > 8, "{} transactions", heads.len());
        NvramHostile { image: Image::from_bytes(&device.snapshot()), stored, options, label, heads }
    }

    /// One of each kind of record and of reclaiming.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let two = Checkpoint::Regions(2);
        let kinds =
            [(Record::Block, two), (Record::Range, two), (Record::Delta, two), (Record::Delta, Checkpoint::Lazy)];
        kinds.into_iter().map(|(record, checkpoint)| NvramHostile::new(record, checkpoint)).collect()
    }

    /// Edits the memory as `input` says, mends its checksums, and recovers.
    ///
    /// # Errors
    /// Something else came of it than success or a typed error.
    pub fn recover_edited(&self, input: &[u8]) -> Result<(), String> {
        let stored = self.edited(input);
        let device = Arc::new(WatchedDevice::new(self.image.clone(), Vec::new()));
        let memory = Arc::new(NvramModel::new(stored.clone()));
        let _ = list_nvram(&*memory, 100);
        let devices = Devices::one(device.clone()).with_nvram(memory.clone());
        let sb = first_superblock(&devices, &clock()).map_err(|e| e.to_string())?;
        match recover(&devices, &clock(), &sb, OnDamage::Refuse, &mut |_| {}) {
            Ok(_) => {}
            Err(e) if device.writes() > 0 || memory.live() != stored => {
                return Err(format!("written before it was refused: {e}"));
            }
            Err(Error::Corrupt(_) | Error::Unsupported { .. } | Error::Journal(_)) => {
                typed(discard_nvram(&devices, &clock(), &sb).map(drop))?;
            }
            Err(e) => return Err(e.to_string()),
        }
        // What was replayed may be anything, and so is the memory that the next use begins with.
        let Ok(v) = Volume::open(devices, clock(), self.options.clone()) else { return Ok(()) };
        typed(v.readdir(Ino::ROOT, 0, &mut |_| true).map(drop))?;
        typed(v.close())
    }

    fn edited(&self, input: &[u8]) -> Vec<u8> {
        let (mut stored, mut label, mut heads) = (self.stored.clone(), self.label, self.heads.clone());
        for edit in input.chunks_exact(EDIT).take(MOST) {
            let which = usize::from(edit[0]) % heads.len();
            let at = u16::from_be_bytes([edit[1], edit[2]]);
            let (value, head) = (edit[3], &mut heads[which]);
            match edit[4] % 12 {
                0 => head.records = u32::from(value),
                1 => head.packed = resized(head.packed, edit[5], value),
                2 => head.images = resized(head.images, edit[5], value % 8),
                3 => head.bytes = resized(head.bytes, edit[5], value),
                4 => head.tid = Tid(resized(head.tid.0, edit[5], value)),
                5 => relabel(&mut label, at, value, edit[5]),
                6 => stored[usize::from(at) * 3 % MEMORY] = value,
                _ => {
                    let packed = usize::try_from(self.heads[which].packed).expect("32 bits").max(1);
                    let place = usize::try_from(self.label.place(head.position)).expect("small") + head::LEN;
                    stored[place + usize::from(at) % packed] = value;
                }
            }
            // Else nothing of it would be believed.
            if matches!(edit[4] % 12, 1 | 2) {
                let total = Head::total(head.packed, head.images, label.block_size.bytes64(), label.granule);
                head.bytes = u32::try_from(total).unwrap_or(u32::MAX);
            }
        }
        heads.iter().for_each(|h| seal(&mut stored, &label, h));
        let slot = (0..2).max_by_key(|n| slot(&self.stored, *n).map(|l| l.sequence)).expect("two");
        let at = usize::try_from(SLOTS[slot]).expect("small");
        stored[at..at + label::LEN].copy_from_slice(&label.encode());
        stored
    }
}

fn slot(stored: &[u8], n: usize) -> Option<Label> {
    let at = usize::try_from(SLOTS[n]).expect("small");
    Label::decode(stored[at..at + label::LEN].try_into().expect("a slot"))
}

/// A little more, or less, or (rarely) anything.
fn resized(n: u32, how: u8, by: u8) -> u32 {
    match how % 8 {
        0..=3 => n.wrapping_add(by.into()),
        4..=6 => n.wrapping_sub(by.into()),
        _ => u32::from_be_bytes([by, how, by, how]),
    }
}

fn relabel(label: &mut Label, at: u16, value: u8, how: u8) {
    let wide = |n: u64| match how % 4 {
        0 => n.wrapping_add(u64::from(value) << (at % 48)),
        1 => n.wrapping_sub(u64::from(value)),
        2 => u64::from(value) << (at % 64),
        _ => n ^ u64::from(value),
    };
    match at / 64 % 9 {
        0 => label.tail = wide(label.tail),
        1 => label.tail = (wide(label.tail / 64) << 6) % (1 << 62),
        2 => label.size = wide(label.size),
        3 => label.regions = u32::from(value),
        4 => label.tid = Tid(resized(label.tid.0, how, value)),
        5 => label.granule = [64, 1024, 4096, 128][usize::from(value % 4)],
        6 => label.block_size = [BlockSize::K1, BlockSize::K4][usize::from(value % 2)],
        7 => label.sequence = wide(label.sequence),
        _ => label.incompat = u32::from(value),
    }
}

/// Writes a head with the sum of what follows it, and the word that commits it, as far as that lies in the memory.
fn seal(stored: &mut [u8], label: &Label, head: &Head) {
    if label.regions == 0 || label.region_len() == 0 || head.bytes < label.granule {
        return;
    }
    let place = usize::try_from(label.place(head.position)).unwrap_or(usize::MAX);
    let commit = usize::try_from(head.commit_at(label.granule).wrapping_add(place as u64)).unwrap_or(usize::MAX);
    let seed = TxnSeed::at(label, head.position);
    let Some(body) = place.checked_add(head::LEN).and_then(|from| stored.get(from..commit)) else { return };
    let b = Head { body: crc32c(seed.start(), body), ..*head }.encode(seed);
    stored[place..place + head::LEN].copy_from_slice(&b);
    if let Some(word) = commit.checked_add(8).and_then(|end| stored.get_mut(commit..end)) {
        word.copy_from_slice(&commit_word(head.tid, &b));
    }
}

fn typed(said: quire_fs::Result<()>) -> Result<(), String> {
    match said {
        Err(e @ (Error::Miss(_) | Error::NoSpaceYet(_) | Error::Frozen)) => {
            Err(format!("an internal error came out: {e:?}"))
        }
        _ => Ok(()),
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(VirtualClock::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    static LOGS: LazyLock<Vec<NvramHostile>> = LazyLock::new(NvramHostile::all);

    #[test]
    fn what_is_sound_is_recovered_and_sealing_changes_nothing() {
        for log in LOGS.iter() {
            assert_eq!(log.edited(&[]), log.stored);
            log.recover_edited(&[]).expect("recovered");
        }
    }

    /// What was once not survived.
    const KNOWN: &[(&[u8], &str)] = &[(
        b"\x2b\xc7\xc7\xf9\x02\xf5\x8d\x99\x8d\x99\x6d",
        "a label with the last of all sequence numbers: there was no next one",
    )];

    #[test]
    fn what_was_found_is_survived() {
        for (input, what) in KNOWN {
            let log = &LOGS[usize::from(input[0]) % LOGS.len()];
            assert_eq!(log.recover_edited(&input[1..]), Ok(()), "{what}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(80))]
        #[test]
        fn any_log_in_nvram_is_refused_or_replayed(input in prop::collection::vec(any::<u8>(), 0..60)) {
            for log in LOGS.iter() {
                prop_assert_eq!(log.recover_edited(&input), Ok(()));
            }
        }
    }
}
