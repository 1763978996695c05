//! A device that loses power on demand, under programs that run for real: an image file is loaded into memory and
//! served over FUSE with a volatile write cache. A cut comes at one of the next writes or flushes, so that some are in
//! flight; it keeps what was flushed and any part of the rest, writes that back to the image file, and fails every
//! later operation.
//!
//! ```text
//! program ── mount ── loop (direct I/O) ── DIR/disk: FUSE ── PowerLossDevice: memory
//!                       standard input: "cut SEED" ──────────┘  └── what survives ──> the image file
//! ```

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use quire_device::sync::{Arc, thread};
use quire_mount::expose::{Counters, expose};
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions};

use crate::cmd::{is_root, wait_until};

/// A cut comes within so many writes and flushes, chosen by the seed.
const STEPS_AHEAD: u64 = 16;
/// How long a cut waits for them; on an idle device it comes then.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Serves `image` as `dir`/disk until `dir` is unmounted, and follows the lines of `commands`. Without a cut the image
/// file then holds everything that was written.
///
/// # Errors
/// Not root, no FUSE, or the image file cannot be read or written.
pub fn serve(image: &Path, dir: &Path, commands: impl BufRead + Send + 'static) -> Result<()> {
    ensure!(is_root(), "a device is served to the kernel by root only");
    std::fs::create_dir_all(dir)?;
    let contents = Image::load(image).with_context(|| format!("cannot load {}", image.display()))?;
    let device = Arc::new(PowerLossDevice::from_image(contents, PowerLossOptions::default()));
    let counted = device.clone();
    let counters: Counters = Arc::new(move || {
        let (writes, flushes) = counted.writes_and_flushes();
        format!("writes {writes}\nflushes {flushes}\n")
    });
    let exposed = expose(device.clone(), counters, dir).with_context(|| format!("cannot serve {}", dir.display()))?;
    let (theirs, file) = (device.clone(), image.to_owned());
    // Not joined: it reads until the other end closes, which may be after the unmount.
    drop(thread::spawn(move || {
        for line in commands.lines().map_while(Result::ok) {
            match follow(&theirs, &file, &line, LONGEST_WAIT) {
                Ok(said) => println!("{said}"),
                Err(error) => println!("error: {error:#}"),
            }
            let _ = std::io::stdout().flush();
        }
    }));
    exposed.wait()?;
    if !device.is_cut() {
        device.live().save(image).with_context(|| format!("cannot save {}", image.display()))?;
    }
    Ok(())
}

/// Does what one line asks, and says what happened.
fn follow(device: &PowerLossDevice, image: &Path, line: &str, longest: Duration) -> Result<String> {
    let seed = line.strip_prefix("cut ").ok_or_else(|| anyhow!("want: cut SEED, got {line:?}"))?;
    let seed = seed.trim().parse::<u64>().with_context(|| format!("no seed: {line:?}"))?;
    ensure!(!device.is_cut(), "the power is off already");
    device.cut_at(device.steps() + 1 + seed % STEPS_AHEAD);
    if !wait_until(longest, || device.is_cut()) {
        device.cut();
    }
    let crash = device.crash(seed);
    crash.image.save(image).with_context(|| format!("cannot save {}", image.display()))?;
    Ok(format!("cut: {} writes lost, {} torn, {} reordered", crash.lost, crash.torn, crash.reordered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::{BlockDevice, Buf, Io, Region};

    fn write(device: &PowerLossDevice, at: u64, byte: u8) -> bool {
        let data = vec![Arc::new(Buf::copy_of(&[byte; 512]))];
        device.run(vec![Io::Write { at, data, region: Region::Data, fua: false }]).is_ok()
    }

    #[test]
    fn cut_keeps_what_was_flushed_and_fails_what_comes_later() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        for seed in 0..32 {
            let device = PowerLossDevice::from_bytes(&[0; 4096]);
            assert!(write(&device, 0, 1) && device.run(vec![Io::Flush]).is_ok() && write(&device, 512, 2));
            let said = follow(&device, &file, &format!("cut {seed}"), Duration::ZERO).unwrap();
            assert!(said.starts_with("cut: "), "{said}");
            let left = std::fs::read(&file).unwrap();
            assert!(left[..512] == [1; 512], "a flushed write is lost with seed {seed}");
            assert!(left[512] == 0 || left[512] == 2, "seed {seed}: {}", left[512]);
            assert!(!write(&device, 1024, 3), "a write after the cut succeeds");
        }
    }

    #[test]
    fn cut_of_a_busy_device_comes_at_one_of_its_next_steps() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        let device = Arc::new(PowerLossDevice::from_bytes(&[0; 4096]));
        let theirs = device.clone();
        let writer = thread::spawn(move || while write(&theirs, 0, 1) {});
        let said = follow(&device, &file, "cut 5", Duration::from_secs(600)).unwrap();
        writer.join().unwrap();
        assert!(device.is_cut() && said.starts_with("cut: "), "{said}");
    }

    #[test]
    fn unknown_command_or_second_cut_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        let device = PowerLossDevice::from_bytes(&[0; 4096]);
        assert!(
            follow(&device, &file, "cut", Duration::ZERO).is_err()
                && follow(&device, &file, "cut x", Duration::ZERO).is_err()
        );
        assert!(!device.is_cut() && !file.exists());
        follow(&device, &file, "cut 1", Duration::ZERO).unwrap();
        assert!(follow(&device, &file, "cut 1", Duration::ZERO).unwrap_err().to_string().contains("already"));
    }
}
