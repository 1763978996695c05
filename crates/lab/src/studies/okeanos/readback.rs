//! Okeanos, figure 4d (USENIX ATC '11): files that were written side by side are read one after the other; on the
//! modelled 15,000 rpm disk, in virtual time, from a cold cache. The paper shows that a log-structured file system
//! (NILFS) is an order of magnitude slower at this; what is here is the side of ext3's modes.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_fs::Choices;
use quire_layout::Ino;

use super::super::NILFS;
use super::super::streams::{MBIT, Streams, written};
use super::series::{APPLICATIONS, Journal, SERIES, assume_disks};
use crate::results::{Effort, Figure, Findings};
use crate::rig::Body;
use crate::stats::float;

const BLOCK: usize = 4096;

/// Writes `count` files side by side and reads them one after the other; returns the time to read a block.
///
/// # Errors
/// The file system fails.
pub fn run(choices: Choices, count: u64, time: Duration) -> Result<Duration> {
    let streams = Streams::new(count, MBIT, time);
    let (rig, names) = written(choices, streams)?;
    let rig = rig.remounted()?;
    let body: Body<'_, Result<(u64, Duration)>> = Box::new(|| {
        let (mut blocks, mut took) = (0, Duration::ZERO);
        let mut buf = vec![0; BLOCK];
        for name in &names {
            let file = rig.volume.lookup(Ino::ROOT, name.as_bytes())?;
            let began = rig.world.monotonic();
            let mut at = 0;
            while at < file.size {
                at += rig.volume.read(file.ino, at, &mut buf)? as u64;
                blocks += 1;
            }
            took += rig.world.monotonic() - began;
        }
        Ok((blocks, took))
    });
    let (blocks, took) = rig.run(vec![body]).pop().expect("one thread")?;
    Ok(took.div_f64(float(blocks.max(1))))
}

/// Figure 4d.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[1, 20], &[1, 10, 20, 40], &[1, 10, 20, 40, 60]);
    let time = Duration::from_secs(effort.pick(4, 10, 30));
    let title = format!("Time to read a block of files written side by side at 1 Mbit/s for {} s", time.as_secs());
    let mut figure = Figure::lines("okeanos-4d", "figure 4d", title, "files", "us")
        .of_series(SERIES[..APPLICATIONS].iter().map(|(name, _)| name));
    for count in counts {
        let row: Vec<f64> = SERIES[..APPLICATIONS]
            .iter()
            .map(|(_, choices)| Ok(run(*choices, *count, time)?.as_secs_f64() * 1e6))
            .collect::<Result<_>>()?;
        figure.place(count, row);
    }
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    assume_disks(&mut f, Journal::Apart);
    f.assume(
        "each file is appended to by 125,000 bytes a second, synchronously, all at once; it is mounted anew and read \
         by one thread in calls of 4 KiB, each to the disk by itself: no read-ahead stands above the library",
    );
    f.skipped.push(NILFS.into());
    Ok(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_fs::Profile;

    #[test]
    fn what_one_stream_wrote_is_read_without_moving_the_head_and_runs_are_alike() {
        let once = || run(Profile::Ext4Ordered.choices(), 2, Duration::from_secs(2)).unwrap();
        let block = once();
        assert_eq!(block, once());
        assert!(block < Duration::from_millis(2), "{block:?} to a block");
    }
}
