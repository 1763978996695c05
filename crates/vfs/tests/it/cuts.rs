//! A run of transactions on a disk with a write cache, and the databases that power cuts at its moments leave.

use crate::common::{Mode, Named, check_bank, image_bytes, make_bank, transfer};
use quire_testkit::{Image, MemDevice, PowerLossDevice, PowerLossOptions, Rng};
use quire_vfs::FileSystem;
use std::sync::Arc;

/// Cuts of each mode: `QUIRE_POWER_CUTS` sets another number.
fn cuts() -> u64 {
    std::env::var("QUIRE_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

/// The device's steps when each transfer was acknowledged.
fn work(device: &Arc<PowerLossDevice>, mode: Mode, seed: u64) -> Vec<u64> {
    let fs = FileSystem::options().quire_log(true).open_device(device.clone()).unwrap();
    let named = Named::new(fs);
    let db = named.open_in(mode, "/bank.db");
    mode.set(&db).unwrap();
    make_bank(&db).unwrap();
    let mut rng = Rng::new(seed);
    let mut acknowledged = vec![device.completed()];
    for n in 1..=40 {
        transfer(&db, n, &mut rng).unwrap();
        acknowledged.push(device.completed());
        if n == 25 {
            db.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
        }
    }
    acknowledged
}

/// Opens what a cut has left, and checks it.
fn check(image: &Image, acknowledged: i64) -> Result<i64, String> {
    let device = Arc::new(MemDevice::new(image.to_vec()));
    let fs = FileSystem::options().quire_log(true).open_device(device).map_err(|e| e.to_string())?;
    let named = Named::new(fs);
    check_bank(&named.open("/bank.db"), acknowledged)
}

/// Cuts the power before every flush of a run, and at some of the other moments. Returns what was done.
///
/// # Errors
/// What a cut has lost or left half, and the command that shows it again.
pub(crate) fn cut_everywhere(mode: Mode) -> Result<String, String> {
    let seed = std::env::var("QUIRE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&image_bytes(16)), options));
    let acknowledged = work(&device, mode, seed);
    let recording = device.recording().unwrap();
    let all = device.completed() - acknowledged[0];
    let mut rng = Rng::from_parts(&[seed, 77]);
    let (mut done, mut whole) = (0, 0);
    let wanted = |completed: u64, settles: bool| completed >= acknowledged[0] && (settles || rng.below(all) < cuts());
    for (completed, point) in recording.crash_points_at(wanted) {
        let sure = acknowledged.iter().filter(|at| **at <= completed).count() - 1;
        let crash = point.crash(seed ^ completed);
        let found = check(&crash.image, i64::try_from(sure).unwrap()).map_err(|e| {
            format!("{mode:?} after step {completed}: {e}; repeat with QUIRE_SEED={seed} cargo test -p quire-vfs power")
        })?;
        done += 1;
        whole += u64::from(found == 40);
    }
    assert!(done >= 40 && whole < done, "{mode:?}: {done} cuts, {whole} of them after the end");
    Ok(format!("{mode:?}: {done} cuts of {all} steps"))
}
