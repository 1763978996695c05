//! RFJ, figure 5: which of the blocks that programs write are new, and which held data before. The paper's traces are
//! of Microsoft's servers; these are of programs that this laboratory has: the file server, and what InnoDB did to its
//! log (recorded by `scripts/innodb-trace.sh`), by the rule of [`crate::trace`].

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use super::server::{DISK, MODES, RFJ, Server, run};
use crate::results::{Effort, Figure, Findings};
use crate::stats::float;
use crate::trace::{Classified, classify};

/// With `innodb_flush_log_at_trx_commit=1`.
const LOG: &str = include_str!("../okeanos/innodb-log-1.trace");

/// Of 100 turns of the file server, so many overwrite a file in place.
const TURNS: [(u64, &str); 3] =
    [(0, "file server"), (50, "file server, half of the turns overwrite"), (100, "file server, all turns overwrite")];

/// Shares of new and of overwritten blocks by workload.
pub(super) fn study(effort: Effort, of: Server) -> Result<Findings> {
    let title = "What programs of this laboratory write";
    let mut figure = Figure::bars("rfj-5", "figure 5", title, "workload", "% of the blocks that are written")
        .of_series(["new", "overwritten"]);
    for (rewrites, name) in TURNS {
        figure.place(name, shares_with(effort, Server { rewrites, ..of })?);
    }
    figure.place("InnoDB's log", shares(of_log(LOG)?));
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    f.assume(
        "figure 5: blocks count by what the file held, not by their place on the disk, so what a deleted file leaves to \
         another is new; InnoDB's log (MariaDB's, flushed at each commit) is made whole before it is used; \"lots of new \
         writes\": more than half of the blocks",
    );
    Ok(f)
}

/// New blocks of those that the file server writes, in per cent.
pub(super) fn new_blocks(effort: Effort, of: Server) -> Result<f64> {
    Ok(shares_with(effort, Server { rewrites: 0, ..of })?[0])
}

fn shares_with(effort: Effort, of: Server) -> Result<[f64; 2]> {
    let time = Duration::from_secs(effort.pick(1, 5, 10));
    Ok(shares(of_server(Server { before: Duration::ZERO, time, ..of })?))
}

/// In per cent: new, overwritten.
fn shares(of: Classified) -> [f64; 2] {
    let all = float(of.new + of.overwritten);
    [of.new, of.overwritten].map(|blocks| float(blocks) * 100.0 / all)
}

fn of_server(server: Server) -> Result<Classified> {
    let (profile, stock) = MODES[RFJ];
    let o = run(DISK(), profile, stock, server)?;
    Ok(Classified { new: o.blocks - o.overwritten, overwritten: o.overwritten })
}

/// Of the writes of a log's trace. All of the log was there before them, as if it had been read.
fn of_log(trace: &str) -> Result<Classified> {
    let write = |line: &str| -> Option<(u64, u64)> {
        let (at, len) = line.split_once(" write ")?.1.split_once(' ')?;
        Some((at.parse().ok()?, len.parse().ok()?))
    };
    let writes: Vec<(u64, u64)> = trace.lines().filter_map(write).collect();
    let size = writes.iter().map(|(at, len)| at + len).max().unwrap_or(0);
    let mut requests = format!("0,log,0,Read,0,{size},0\n");
    for (at, len) in writes {
        let _ = writeln!(requests, "0,log,0,Write,{at},{len},0");
    }
    classify(requests.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_server_writes_new_blocks_unless_it_overwrites_and_a_log_is_overwritten() {
        let server = Server { threads: 5, files: 50, mib: 256, ..Server::new(Duration::from_secs(1)) };
        let f = study(Effort::Quick, server).unwrap();
        let of = |n: usize| [0, 1].map(|series: usize| f.figures[0].series[series].points[n].unwrap().value);
        let [none, half, all, log] = [0, 1, 2, 3].map(of);
        assert!(none[0] > 90.0 && half[0] < none[0] - 20.0 && all[0] < 20.0, "{none:?}, {half:?}, {all:?}");
        assert_eq!(log, [0.0, 100.0]);
        assert!((none[0] + none[1] - 100.0).abs() < 0.1, "{none:?}");
        assert!((new_blocks(Effort::Quick, server).unwrap() - none[0]).abs() < 1e-3, "{none:?}");
    }

    #[test]
    fn only_writes_of_a_log_count_block_by_block() {
        let trace = "# a comment\n0 write 0 512\n5 flush\n9 write 4000 200\n12 end\n";
        assert_eq!(of_log(trace).unwrap(), Classified { new: 0, overwritten: 3 });
    }
}
