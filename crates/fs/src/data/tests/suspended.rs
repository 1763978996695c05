//! Reads whose callers do not wait for the device.

use super::{file, image, options};
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Devices, ReadBegun, Volume, begin_read};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{BlockDevice, Buf, DeviceError, DeviceInfo, Done, Io, ReadDone, Region, SystemClock, Ticket};
use quire_testkit::MemDevice;
use std::sync::mpsc;
use std::time::Duration;

/// Keeps the reads that no caller waits for until it is told to do them.
struct Keeps {
    inner: MemDevice,
    kept: Mutex<Vec<(u64, Buf, ReadDone)>>,
}

impl Keeps {
    fn mount(route: Route) -> (Arc<Keeps>, Volume) {
        let inner = MemDevice::new(image("16M", &["-t", "ext4", "-b", "4096"], 2));
        let device = Arc::new(Keeps { inner, kept: Mutex::default() });
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options(route)).unwrap();
        (device, v)
    }

    /// Does what it has kept; returns how many reads that were.
    fn do_kept(&self) -> usize {
        let kept = std::mem::take(&mut *lock(&self.kept));
        let count = kept.len();
        kept.into_iter().for_each(|(at, buf, then)| self.inner.read_then(at, buf, Region::Data, then));
        count
    }
}

impl BlockDevice for Keeps {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        self.inner.submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.inner.wait(ticket)
    }
    fn can_suspend_reads(&self) -> bool {
        true
    }
    fn read_then(&self, at: u64, buf: Buf, _: Region, then: ReadDone) {
        lock(&self.kept).push((at, buf, then));
    }
}

/// F2, F4: the file's blocks stay its own until the device has read; then nothing of the file is in use.
#[test]
fn a_truncate_waits_for_a_read_whose_caller_does_not() {
    let (device, v) = Keeps::mount(Route::Ordered);
    v.write(file(0), 0, &[7; 5000], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let (tell, told) = mpsc::channel();
    let ReadBegun::OnDevice(read) = begin_read(&v, file(0), 0, &mut [0; 8192]).unwrap() else {
        panic!("two blocks side by side, and nothing is pending");
    };
    read.then(move |outcome| tell.send(outcome.unwrap().to_vec()).unwrap());
    assert!(v.data().files.has(file(0)), "a file with a reader");
    let other = v.clone();
    let truncates = thread::spawn(move || other.truncate(file(0), 0).unwrap());
    thread::sleep(Duration::from_millis(200));
    assert!(!truncates.is_finished() && told.try_recv().is_err());
    assert_eq!(device.do_kept(), 1);
    assert_eq!(told.recv().unwrap(), [7; 5000], "up to the end of the file");
    truncates.join().unwrap();
    v.sync().unwrap();
    assert!(!v.data().files.has(file(0)), "nobody uses the file");
}

/// What memory has, wholly or in part, is read at once; so are holes.
#[test]
fn only_what_lies_in_one_run_of_the_device_is_left_to_it() {
    let (device, v) = Keeps::mount(Route::Ordered);
    let read = |at, len| {
        let mut buf = vec![9; len];
        match begin_read(&v, file(0), at, &mut buf).unwrap() {
            ReadBegun::Done(n) => buf[..n].to_vec(),
            ReadBegun::OnDevice(_) => panic!("{len} bytes at {at} are left to the device"),
        }
    };
    assert!(read(0, 4096).is_empty(), "an empty file");
    v.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    assert_eq!(read(0, 8192), [1; 8192], "pending");
    v.sync().unwrap();
    v.write(file(0), 4096, &[2; 10], WriteFlags::default()).unwrap();
    assert_eq!(read(0, 4200)[4090..], [[1; 6].as_slice(), &[2; 10], &[1; 94]].concat(), "pending in part");
    v.sync().unwrap();
    v.truncate(file(0), 20_000).unwrap();
    assert_eq!(read(12_288, 4096), [0; 4096], "a hole");
    assert_eq!(read(4096, 8192), [[2; 10].as_slice(), &[1; 4086], &[0; 4096]].concat(), "a hole in part");
    assert_eq!(read(100, 200), [1; 200], "not from the beginning of a block");
    assert!(read(20_000, 4096).is_empty() && read(u64::MAX - 8, 8).is_empty(), "behind the end");
    assert_eq!(device.do_kept(), 0);
}

#[test]
fn an_error_of_the_device_is_told() {
    let (device, v) = Keeps::mount(Route::Ordered);
    v.write(file(0), 0, &[7; 4096], WriteFlags::default()).unwrap();
    v.sync().unwrap();
    let (tell, told) = mpsc::channel();
    let ReadBegun::OnDevice(read) = begin_read(&v, file(0), 0, &mut [0; 4096]).unwrap() else {
        panic!("one block, and nothing is pending");
    };
    read.then(move |outcome| tell.send(outcome.map(<[u8]>::len)).unwrap());
    let (at, _, then) = lock(&device.kept).pop().unwrap();
    let kind = quire_device::ErrorKind::Io;
    then(Err(DeviceError { op: quire_device::IoOp::Read, at, len: 4096, kind, errno: 5 }));
    assert!(matches!(told.recv().unwrap(), Err(crate::Error::Device(_))));
    assert!(!v.data().files.has(file(0)));
}
