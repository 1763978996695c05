//! A bit that flips in the log must be noticed: the image is not replayed as if nothing were wrong.

use crate::explore::Config;
use crate::mixes::generate;
use crate::run::{mount, run};
use quire_device::sync::Arc;
use quire_fs::{Devices, Error, recovery};
use quire_layout::superblock::{self, Superblock, state};
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions, VirtualClock};

/// Runs a workload, flips a bit of an image in its log, and mounts what is there.
///
/// # Errors
/// The damage went unnoticed, or something else failed. `Ok(false)`: the log held nothing to damage.
pub fn flipped_log_is_noticed(config: &Config, base: &Image, seed: u64) -> Result<bool, String> {
    let mut image = worked_on(config, base, seed)?;
    let Some(at) = an_image_in_the_log(&image, seed)? else { return Ok(false) };
    let mut byte = [0];
    image.read(at, &mut byte);
    image.write(at, &[byte[0] ^ 0x40]);
    let device = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    match mount(device.clone(), Arc::new(VirtualClock::default()), config.how) {
        Err(Error::Corrupt(_) | Error::Journal(_)) => return Ok(true),
        Err(e) => return Err(format!("mounting: {e}")),
        Ok(_) => {}
    }
    let mut raw = vec![0; superblock::SIZE];
    device.live().read(superblock::OFFSET, &mut raw);
    let sb = Superblock::decode(&raw).map_err(|e| e.to_string())?;
    if sb.state() & state::ERROR == 0 {
        return Err(format!("byte {at} of the log was flipped, and the file system says that it has no errors"));
    }
    Ok(true)
}

/// What a workload leaves that nobody unmounted.
fn worked_on(config: &Config, base: &Image, seed: u64) -> Result<Image, String> {
    let device = Arc::new(PowerLossDevice::from_image(base.clone(), PowerLossOptions::default()));
    drop(run(&device, config.how, &generate(config.mix, seed, 60))?);
    Ok(device.live())
}

/// The byte offset of some byte of an image that a replay would write home.
fn an_image_in_the_log(image: &Image, seed: u64) -> Result<Option<u64>, String> {
    let (sb, found) = journal(image)?;
    let plan = recovery::scan(&found.log, &sb, &mut |_| {}).map_err(|e| e.to_string())?;
    let n = plan.images().len() as u64;
    if n == 0 {
        return Ok(None);
    }
    let planned = &plan.images()[usize::try_from(seed % n).expect("an index")];
    let block = found.log.geometry().locate(planned.log).ok_or("outside the log")?;
    let bs = sb.block_size();
    Ok(Some(bs.offset(block) + seed.wrapping_mul(31) % bs.bytes64()))
}

/// Runs a workload on a log of Quire's, changes a byte at home of each block that has records, and looks what recovery
/// would make of it: the image that was logged, or an error. `Ok(true)`: an error.
///
/// # Errors
/// Something else.
pub fn a_changed_home_is_noticed(config: &Config, base: &Image, seed: u64) -> Result<bool, String> {
    let image = worked_on(config, base, seed)?;
    let (sb, found) = journal(&image)?;
    let plan = recovery::scan(&found.log, &sb, &mut |_| {}).map_err(|e| e.to_string())?;
    let mut noticed = false;
    for (n, p) in (seed..).zip(plan.images()) {
        let at = sb.block_size().offset(p.home) + n.wrapping_mul(37) % sb.block_size().bytes64();
        if (superblock::OFFSET..superblock::OFFSET + 1024).contains(&at) {
            continue;
        }
        let mut changed = image.clone();
        let mut byte = [0];
        changed.read(at, &mut byte);
        changed.write(at, &[byte[0] ^ 0x10]);
        let expected = found.log.image(&plan, p).map_err(|e| e.to_string())?;
        let (sb, found) = journal(&changed)?;
        let plan = recovery::scan(&found.log, &sb, &mut |_| {}).map_err(|e| e.to_string())?;
        if plan.is_damaged() {
            noticed = true;
            continue;
        }
        let p = plan.image_of(p.home).ok_or("a block has no records any more")?;
        if found.log.image(&plan, p).map_err(|e| e.to_string())? != expected {
            return Err(format!("byte {at} of {} was changed, and recovery goes on with it", p.home));
        }
    }
    Ok(noticed)
}

/// Runs a workload and looks at the images in its log: none may begin with the log's magic, or it could pose as one of
/// the log's own blocks when the log is next read.
///
/// # Errors
/// One does.
pub fn no_image_poses_as_log_block(config: &Config, base: &Image, seed: u64) -> Result<(), String> {
    let image = worked_on(config, base, seed)?;
    let (sb, found) = journal(&image)?;
    let plan = recovery::scan(&found.log, &sb, &mut |_| {}).map_err(|e| e.to_string())?;
    for planned in plan.images() {
        let block = found.log.geometry().locate(planned.log).ok_or("outside the log")?;
        let mut head = [0; 4];
        image.read(sb.block_size().offset(block), &mut head);
        if u32::from_be_bytes(head) == quire_layout::jbd2::MAGIC {
            return Err(format!("the image of {} in {} begins with the magic", planned.home, planned.log));
        }
    }
    Ok(())
}

fn journal(image: &Image) -> Result<(Superblock, recovery::FoundJournal), String> {
    let device = Arc::new(PowerLossDevice::from_image(image.clone(), PowerLossOptions::default()));
    let mut raw = vec![0; superblock::SIZE];
    image.read(superblock::OFFSET, &mut raw);
    let sb = Superblock::decode(&raw).map_err(|e| e.to_string())?;
    let clock: Arc<dyn quire_device::Clock> = Arc::new(VirtualClock::default());
    let found = recovery::find_journal(&Devices::one(device), &clock, &sb).map_err(|e| e.to_string())?;
    Ok((sb, found.ok_or("the image has no journal")?))
}
