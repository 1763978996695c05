//! Several reads for one caller that does not wait.

use crate::io::{BlockDevice, DeviceError, Region};
use crate::read_buf::ReadBuf;
use crate::sync::{Arc, Mutex, lock};

/// Told what was read, run by run, or the first error.
type Then = Box<dyn FnOnce(Result<Vec<ReadBuf>, DeviceError>) + Send>;

struct Reading {
    /// By run.
    read: Vec<Option<ReadBuf>>,
    failed: Option<DeviceError>,
    left: usize,
    then: Option<Then>,
}

/// Reads runs of whole sectors, each from a byte offset into its memory. `then` is called once, when all have been
/// read or tried, as [`BlockDevice::read_then`] calls its own. Without runs it is called at once.
pub fn read_all_then(
    device: &Arc<dyn BlockDevice>,
    runs: Vec<(u64, ReadBuf)>,
    region: Region,
    then: impl FnOnce(Result<Vec<ReadBuf>, DeviceError>) + Send + 'static,
) {
    if runs.is_empty() {
        return then(Ok(Vec::new()));
    }
    let read = runs.iter().map(|_| None).collect();
    let reading = Reading { read, failed: None, left: runs.len(), then: Some(Box::new(then)) };
    let reading = Arc::new(Mutex::new(reading));
    for (n, (at, buf)) in runs.into_iter().enumerate() {
        let reading = reading.clone();
        let done = move |outcome: Result<ReadBuf, DeviceError>| {
            let mut r = lock(&reading);
            match outcome {
                Ok(buf) => r.read[n] = Some(buf),
                Err(e) => drop(r.failed.get_or_insert(e)),
            }
            r.left -= 1;
            if r.left > 0 {
                return;
            }
            let (then, read, failed) = (r.then.take(), std::mem::take(&mut r.read), r.failed.take());
            drop(r);
            let read = read.into_iter().flatten().collect();
            then.expect("the last run is one")(failed.map_or(Ok(read), Err));
        };
        device.read_then(at, buf, region, Box::new(done));
    }
}
