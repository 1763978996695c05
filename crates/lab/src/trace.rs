//! A disk trace's writes, classified as new or as overwriting (RFJ, figure 5).
//!
//! A disk trace has no files. A written block is new when the trace has not touched it before; otherwise it is
//! overwritten, because what a program has read was there. Two forms of line are read, those of Microsoft's traces at
//! SNIA; other lines (headers, other events) are passed over:
//!
//! ```text
//! 128166372003061629,usr,0,Write,7014609920,24576,41286          disk, type, bytes from the start, bytes
//! DiskWrite, 5150034, System ( 4), 4, 0xfffffa80, 0x0a17000, 0x00001000, 543, 0, ...       place, size, time, disk
//! ```

use std::collections::HashSet;
use std::fmt;
use std::io::BufRead;

use anyhow::{Context, Result, ensure};

use crate::stats::float;

/// Bytes of a block.
const BLOCK: u64 = 4096;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    disk: String,
    write: bool,
    at: u64,
    len: u64,
}

impl Request {
    /// The request of a line; `None` for a line that is none.
    fn parse(line: &str) -> Option<Request> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (kind, disk, at, len) = match fields[..] {
            [kind @ ("DiskWrite" | "DiskRead"), _, _, _, _, at, len, _, disk, ..] => (kind, disk.to_owned(), at, len),
            [_, host, disk, kind @ ("Write" | "Read"), at, len, _] => (kind, format!("{host}/{disk}"), at, len),
            _ => return None,
        };
        Some(Request { disk, write: kind.ends_with("Write"), at: number(at)?, len: number(len)? })
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// How many blocks of a trace's writes are what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classified {
    pub new: u64,
    pub overwritten: u64,
}

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = float((self.new + self.overwritten).max(1));
        let percent = |n: u64| float(n) * 100.0 / all;
        let (new, overwritten) = (percent(self.new), percent(self.overwritten));
        write!(f, "{} new ({new:.1} %), {} overwritten ({overwritten:.1} %)", self.new, self.overwritten)
    }
}

/// Classifies the blocks that a trace writes.
///
/// # Errors
/// The trace cannot be read, has a request beyond the largest address, or has no request at all.
pub fn classify(trace: impl BufRead) -> Result<Classified> {
    let mut touched: HashSet<(String, u64)> = HashSet::new();
    let (mut sum, mut requests) = (Classified::default(), 0u64);
    for line in trace.lines() {
        let line = line.context("the trace")?;
        let Some(r) = Request::parse(&line) else { continue };
        requests += 1;
        let end = r.at.checked_add(r.len).with_context(|| format!("beyond the largest address: {line}"))?;
        for block in r.at / BLOCK..end.div_ceil(BLOCK) {
            let first = touched.insert((r.disk.clone(), block));
            match (r.write, first) {
                (true, true) => sum.new += 1,
                (true, false) => sum.overwritten += 1,
                (false, _) => {}
            }
        }
    }
    ensure!(requests > 0, "no line is a request of a trace in a known form");
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_write_of_a_block_is_new_and_what_was_written_or_read_before_is_overwritten() {
        let csv = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
                   1,usr,0,Write,8192,8192,9\n1,usr,0,Write,8192,512,9\n1,usr,1,Write,8192,512,9\n\
                   1,usr,0,Read,40960,4096,9\n1,usr,0,Write,40960,8192,9\n";
        // Two, none, one of another disk, and one of the last two.
        assert_eq!(classify(csv.as_bytes()).unwrap(), Classified { new: 4, overwritten: 2 });
    }

    #[test]
    fn events_of_windows_are_read_and_others_are_passed_over() {
        let etw = "BeginHeader\nDiskWrite,  TimeStamp,  Process Name ( PID),  ThreadID,  IrpPtr,  ByteOffset,  IOSize, ElapsedTime,  DiskNum\n\
                   EndHeader\n  DiskWrite,  70, System (   4), 4, 0xfffffa80, 0x000a17000, 0x00002000, 543, 0, 0x060043\n\
                   FileIoCreate, 71, x\n  DiskWrite,  72, System (   4), 4, 0xfffffa80, 0x000a18000, 0x00001000, 543, 0, 0x060043\n";
        let sum = classify(etw.as_bytes()).unwrap();
        assert_eq!(sum, Classified { new: 2, overwritten: 1 });
        assert_eq!(sum.to_string(), "2 new (66.7 %), 1 overwritten (33.3 %)");
        assert!(classify("nothing\n".as_bytes()).is_err());
        assert!(classify("1,usr,0,Write,18446744073709551615,8192,9\n".as_bytes()).is_err());
    }
}
