//! Logs of Quire's whose packed bytes say anything, with checksums that match: only typed errors may come of it (Q9).

use super::history;
use super::watch::WatchedDevice;
use quire_device::Clock;
use quire_device::sync::Arc;
use quire_fs::recovery::{OnDamage, find_journal, recover};
use quire_fs::{Choices, CommitMode, Devices, Error, Options, Record, Route, Volume, first_superblock};
use quire_journal::dump::{LogDump, LogItem, Scope};
use quire_layout::checksum::crc32c;
use quire_layout::jbd2::LogSeed;
use quire_layout::qlog::{Head, head};
use quire_testkit::{Image, MemDevice, VirtualClock};

/// An image with a log of Quire's that has not been recovered, and where its transactions are.
pub struct QuireLog {
    image: Image,
    seed: LogSeed,
    block_size: usize,
    /// The head of each transaction and the places of its blocks, in bytes.
    runs: Vec<(Head, Vec<u64>)>,
}

impl QuireLog {
    /// A log with records of this kind.
    ///
    /// # Panics
    /// If mke2fs is missing, or the sound image makes trouble.
    #[must_use]
    pub fn new(record: Record) -> Self {
        let args = ["-t", "ext4", "-b", "1024", "-N", "256", "-J", "size=1"];
        let device = Arc::new(MemDevice::new(quire_testkit::mke2fs("8M", &args)));
        let choices = Choices { record, commit: CommitMode::Checksum, ..Choices::of_route(Route::Journal) };
        let options = Options::default().with(choices);
        let v = Volume::open(Devices::one(device.clone()), clock(), options).expect("mount");
        history::make(&v, 6, 1500, 2);
        drop(v);
        let devices = Devices::one(device.clone());
        let sb = first_superblock(&devices, &clock()).expect("a superblock");
        let found = find_journal(&devices, &clock(), &sb).expect("a journal").expect("a journal");
        let geometry = found.log.geometry();
        let place = |at| sb.block_size().offset(geometry.locate(at).expect("in the log"));
        let items = LogDump::new(&found.log, Scope::Live).map(|i| i.expect("a sound log"));
        let run = |item| match item {
            LogItem::Transaction { at, head, .. } => {
                Some((head, (0..head.blocks).map(|n| place(at.plus(n))).collect()))
            }
            _ => None,
        };
        let runs: Vec<_> = items.filter_map(run).collect();
        assert!(runs.len() > 8, "{} transactions", runs.len());
        QuireLog {
            seed: found.log.format().seed,
            block_size: sb.block_size().bytes(),
            runs,
            image: Image::from_bytes(&device.snapshot()),
        }
    }

    /// One of each kind of record.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Record::ALL.map(QuireLog::new).into()
    }

    /// Edits the log as `input` says, mends its checksums, and recovers it.
    ///
    /// # Errors
    /// Something else came of it than success or a typed error.
    pub fn recover_edited(&self, input: &[u8]) -> Result<(), String> {
        let mut image = self.image.clone();
        let mut heads: Vec<Head> = self.runs.iter().map(|(h, _)| *h).collect();
        for edit in input.chunks_exact(5).take(64) {
            let run = usize::from(edit[0]) % heads.len();
            let (at, value) = (usize::from(u16::from_be_bytes([edit[1], edit[2]])), edit[3]);
            match edit[4] % 8 {
                0 => heads[run].records = u32::from(value),
                1 => heads[run].packed = heads[run].packed.saturating_sub(u32::from(value)),
                _ => {
                    let packed = usize::try_from(heads[run].packed).expect("32 bits").min(self.block_size - head::LEN);
                    let place = self.runs[run].1[0] + (head::LEN + at % packed.max(1)) as u64;
                    image.write(place, &[value]);
                }
            }
        }
        for (head, (_, places)) in heads.iter().zip(&self.runs) {
            let block = |at: &u64| {
                let mut b = vec![0; self.block_size];
                image.read(*at, &mut b);
                b
            };
            let mut first = block(&places[0]);
            let rest: Vec<Vec<u8>> = places[1..].iter().map(block).collect();
            head.seal(self.seed, &mut first, |sum| rest.iter().fold(sum, |sum, b| crc32c(sum, b)));
            image.write(places[0], &first);
        }
        let device = Arc::new(WatchedDevice::new(image, Vec::new()));
        let devices = Devices::one(device.clone());
        let sb = first_superblock(&devices, &clock()).map_err(|e| e.to_string())?;
        match recover(&devices, &clock(), &sb, OnDamage::Refuse, &mut |_| {}) {
            Ok(_) => Ok(()),
            Err(e) if device.writes() > 0 => Err(format!("written before it was refused: {e}")),
            Err(Error::Corrupt(_) | Error::Unsupported { .. } | Error::Journal(_)) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
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

    static LOGS: LazyLock<[QuireLog; 2]> = LazyLock::new(|| [Record::Range, Record::Delta].map(QuireLog::new));

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_records_are_refused_or_replayed(input in prop::collection::vec(any::<u8>(), 0..60)) {
            for log in LOGS.iter() {
                prop_assert_eq!(log.recover_edited(&input), Ok(()));
            }
        }
    }
}
