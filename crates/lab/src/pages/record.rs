//! The database works on a device that records. Only other processes touch the mounts: what serves them must never
//! wait for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use quire_device::BlockDevice;
use quire_device::sync::{Arc, thread};
use quire_mount::expose::{Counters, expose};
use quire_mount::{Mount, MountOptions};
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions, Recording};

use super::place::{DATA, Place};
use super::plan::Plan;
use crate::cmd::{run_tool, text, wait_until};
use crate::mounter::{Mounter, Who};
use crate::served::Looped;

const IMAGE_BYTES: u64 = 384 << 20;
/// How long a device may take to be let go.
const LIMIT: Duration = Duration::from_secs(20);

/// What the device did, and between which steps the database worked.
pub(super) struct Recorded {
    pub recording: Recording,
    pub from: u64,
    pub to: u64,
}

/// Makes the database on a fresh file system, by the kernel's ext4 in memory.
pub(super) fn prepare(dir: &Path, plan: &Plan) -> Result<Image> {
    let (file, mnt) = (dir.join("image"), dir.join("mnt"));
    crate::image::Image::make(&file, IMAGE_BYTES, &["-b", "4096", "-J", "size=16"])?;
    let mounted = Mounter::kernel("").mount(&file, &mnt)?;
    run_tool("chmod", ["0755", text(&mnt)])?;
    let made = plan.database.make(Place { data: &mnt.join(DATA), sockets: &dir.join("sockets") });
    mounted.unmount()?;
    made?;
    let image = Image::load(&file)?;
    fs::remove_file(&file)?;
    Ok(image)
}

/// Lets the database work on this image, and records.
pub(super) fn record(dir: &Path, plan: &Plan, start: Image) -> Result<Recorded> {
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(start, options));
    let mnt = dir.join("mnt");
    let mut marks = Vec::new();
    let work = || {
        let place = Place { data: &mnt.join(DATA), sockets: &dir.join("sockets") };
        plan.database.work(place, plan.seconds, plan.seed, &mut || marks.push(device.completed()))
    };
    match plan.mounter.who {
        Who::Quire => on_quire(&plan.mounter.options, &mnt, device.clone(), work)?,
        _ => on_kernel(&plan.mounter, dir, &mnt, device.clone(), work)?,
    }
    let [from, to] = marks[..] else { return Err(anyhow!("{} marks", marks.len())) };
    ensure!(to > from, "the database wrote nothing");
    Ok(Recorded { recording: device.recording().context("it records")?, from, to })
}

/// Quire in a thread of this process, on the device itself.
fn on_quire(options: &str, mnt: &Path, device: Arc<PowerLossDevice>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mount = Mount { image: "recording".into(), dir: mnt.to_owned(), options: MountOptions::parse(options)? };
    let (ready, is_ready) = std::sync::mpsc::channel();
    let device: Arc<dyn BlockDevice> = device;
    let serving = thread::spawn(move || quire_mount::run_on(&mount, device, || ready.send(()).expect("awaited")));
    if is_ready.recv().is_err() {
        return match serving.join() {
            Ok(Err(e)) => Err(e.into()),
            _ => Err(anyhow!("the mount did not come about")),
        };
    }
    let worked = work();
    let unmounted = unmount(mnt);
    worked?;
    unmounted?;
    serving.join().map_err(|_| anyhow!("the mount panicked"))??;
    Ok(())
}

/// The kernel's file system on a loop device over the device, which this process serves as a file.
fn on_kernel(
    mounter: &Mounter,
    dir: &Path,
    mnt: &Path,
    device: Arc<PowerLossDevice>,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let served: PathBuf = dir.join("served");
    fs::create_dir_all(&served)?;
    let counters: Counters = Arc::new(String::new);
    let exposed = expose(device, counters, &served)?;
    let worked = (|| {
        let looped = Looped::direct(&exposed.disk())?;
        let mounted = mounter.mount(looped.device(), mnt)?;
        let worked = work();
        mounted.unmount()?;
        worked
    })();
    // The loop device lets go a moment after it is detached.
    let gone = wait_until(LIMIT, || run_tool("umount", [text(&served)]).is_ok());
    worked?;
    ensure!(gone, "{} is in use", served.display());
    Ok(exposed.wait()?)
}

/// A server that was just killed may hold the mount for a moment.
fn unmount(mnt: &Path) -> Result<()> {
    let mut last = Ok(());
    wait_until(LIMIT, || {
        last = run_tool("umount", [text(mnt)]).map(drop);
        last.is_ok()
    });
    last
}
