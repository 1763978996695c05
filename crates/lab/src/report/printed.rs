//! The numbers that the papers' texts print of their figures, and what each is of. A figure of the page that has no
//! points of the paper's shows those of the same figure of the paper that can be read on its axis.

use crate::results::{Figure, Paper};

/// What a sentence of a paper prints, in our words.
struct Number {
    paper: Paper,
    /// The paper's figures that it is of: "figure 2" has all parts of that.
    of: &'static [&'static str],
    /// The axes that it is about: what they are called, or how that begins.
    y: &'static [&'static str],
    /// One of these has to be in the title, or among series and places; none: any figure will do.
    among: &'static [&'static str],
    says: &'static str,
}

const fn number(
    paper: Paper,
    of: &'static [&'static str],
    y: &'static [&'static str],
    among: &'static [&'static str],
    says: &'static str,
) -> Number {
    Number { paper, of, y, among, says }
}

impl Number {
    fn is_of(&self, paper: Paper, f: &Figure) -> bool {
        let is_there = |word: &&str| {
            let mut names = f.series.iter().map(|s| &s.name).chain(&f.places).chain([&f.title]);
            names.any(|name| name.contains(*word))
        };
        self.paper == paper
            && parts(&f.of).iter().any(|part| self.of.iter().any(|of| is_same(of, part)))
            && self.y.iter().any(|y| f.y.strip_prefix(*y).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')))
            && (self.among.is_empty() || self.among.iter().any(is_there))
    }
}

const TIME: &[&str] = &["ms a transaction"];
const SLOWER: &[&str] = &["ms a transaction", "times ext4-none"];
const BOTH: &[&str] = &["figure 2", "figure 3"];
const PROTECTION: &[&str] = &["ms a transaction", "full / none"];
const WRITES: &[&str] = &["writes/s"];
const TPC: &[&str] = &["tpmC", "transactions/s"];

/// All that the texts print, but for cells of tables, which are drawn as points.
const NUMBERS: &[Number] = &[
    number(
        Paper::Joj,
        &["figure 2"],
        TIME,
        &["joj"],
        "on the Nexus 7 file-adaptive journaling is 4 % faster than no journal on average",
    ),
    number(Paper::Joj, &["figure 3"], TIME, &["joj"], "on the Intel 311 it is 9 % faster on average"),
    number(Paper::Joj, BOTH, TIME, &["joj"], "on both together it is 7 % faster on average"),
    number(
        Paper::Joj,
        BOTH,
        SLOWER,
        &["joj"],
        "file-adaptive journaling is at most 6 % slower than no journal in all of 24 cases but one",
    ),
    number(
        Paper::Joj,
        &["figure 2"],
        SLOWER,
        &["rollback journal, 1 operation", "small updates with a rollback journal"],
        "in that one, small updates with a rollback journal on the Nexus 7, it is 14 % slower",
    ),
    number(Paper::Joj, BOTH, SLOWER, &["stock ordered"], "ordered journaling is about 20 % slower in the worst case"),
    number(
        Paper::Joj,
        &["figure 2"],
        SLOWER,
        &["stock journal"],
        "data journaling is up to 73 % slower on the Nexus 7",
    ),
    number(
        Paper::Joj,
        &["figure 3"],
        SLOWER,
        &["stock journal"],
        "data journaling is up to 58 % slower on the Intel 311",
    ),
    number(Paper::Joj, BOTH, SLOWER, &["single-io"], "single-I/O journaling is 38 % slower in the worst case"),
    number(
        Paper::Joj,
        &["figure 4"],
        PROTECTION,
        &["costs, 1 operation", "small, mean"],
        "protection makes small transactions almost an order of magnitude slower",
    ),
    number(
        Paper::Joj,
        &["figure 4"],
        PROTECTION,
        &["costs, 1000 operation", "large, worst"],
        "protection makes large transactions slower by less than a factor of two",
    ),
    number(
        Paper::Djfs,
        &["figure 2a"],
        WRITES,
        &["ext4-journal", "kernel journal"],
        "full journaling loses up to 43.6 % of the writes of no journal",
    ),
    number(
        Paper::Djfs,
        &["figure 3a"],
        WRITES,
        &["never"],
        "without fsyncs an external journal improves the writes of full journaling by 46.1 %",
    ),
    number(
        Paper::Djfs,
        &["figure 3a"],
        WRITES,
        &["nvj"],
        "a journal in NVRAM is up to 2.2 times as fast as an external one",
    ),
    number(
        Paper::Djfs,
        &["figure 7"],
        WRITES,
        &["never"],
        "without fsyncs DJFS is up to 1.7 times as fast as full journaling",
    ),
    number(
        Paper::Djfs,
        &["figure 7"],
        WRITES,
        &["64"],
        "with fsyncs DJFS is up to 5.1 times as fast as ordered and full journaling, 4.0 times as external journaling, \
         and 1.8 times as journaling in NVRAM alone",
    ),
    number(Paper::Djfs, &["figure 8"], TPC, &["PERSIST"], "DJFS is up to 64.2 times as fast as a journal on a device"),
    number(Paper::Djfs, &["figure 8"], TPC, &["WAL"], "DJFS is up to 26.5 times as fast as a journal on a device"),
    number(
        Paper::Djfs,
        &["figure 9"],
        &["times external journaling", "times kernel external"],
        &["djfs"],
        "DJFS is up to 3.52 times as fast as journaling in NVRAM alone; at worst DJFS is 38.89 and journaling in NVRAM \
         alone 11.06 times as fast as full journaling on the disk",
    ),
    number(
        Paper::Okeanos,
        &["figure 4a"],
        &["MB/s"],
        &[],
        "data journaling writes up to 27 MB/s to the journal, wasteless and selective up to about 4 MB/s",
    ),
    number(
        Paper::Okeanos,
        &["figure 4a"],
        &["MB/s", "KB"],
        &[],
        "data journaling writes an order of magnitude more to the journal than the other modes",
    ),
    number(
        Paper::Okeanos,
        &["figure 4c"],
        &["ms", "times the higher of"],
        &[],
        "ordered's and selective's latency is orders of magnitude above that of the other modes",
    ),
    number(
        Paper::Okeanos,
        &["section 6"],
        &["ms", "times"],
        &["asynchronous"],
        "asynchronously, selective and wasteless shorten the latency of ordered and data journaling by up to two orders \
         of magnitude",
    ),
    number(
        Paper::Okeanos,
        &["section 6, recovery"],
        &["ms"],
        &["power loss"],
        "selective and wasteless recover in more than 20 % less time than data journaling in some cases",
    ),
    number(
        Paper::Okeanos,
        &["figure 5a"],
        &["transactions/s"],
        &["wasteless"],
        "wasteless gets as high as 738 transactions a second",
    ),
    number(
        Paper::Okeanos,
        &["figure 5b"],
        &["s"],
        &[],
        "at high load wasteless takes up to tens of seconds to flush the log, ordered hundreds as the instances approach \
         or exceed 64",
    ),
    number(Paper::Okeanos, &["figure 5c"], &["MB/s"], &[], "wasteless almost doubles the throughput of ordered"),
    number(
        Paper::Okeanos,
        &["figure 5d"],
        &["MB"],
        &["to the journal"],
        "wasteless writes 42 % less to the journal than data journaling",
    ),
    number(
        Paper::Rfj,
        &["figure 8"],
        &["operations/s", "times as fast"],
        &["rfj"],
        "RFJ is almost 5 times as fast as journal",
    ),
];

/// What the page says below a figure without points of the paper's.
pub(super) fn sentence(paper: Paper, f: &Figure) -> String {
    let says: Vec<&str> = said(paper, f).collect();
    match &says[..] {
        [] => "The paper prints no number of what this shows.".into(),
        _ => format!("The paper: {}.", says.join("; ")),
    }
}

fn said(paper: Paper, f: &Figure) -> impl Iterator<Item = &'static str> {
    NUMBERS.iter().filter(move |number| number.is_of(paper, f)).map(|number| number.says)
}

/// The figures of "figures 2, 3 and 7", or the place that is named alone.
fn parts(of: &str) -> Vec<String> {
    let first = of.split(" on mounts").next().unwrap_or(of);
    match first.strip_prefix("figures ") {
        Some(numbers) => numbers.replace(" and ", ", ").split(", ").map(|number| format!("figure {number}")).collect(),
        None => vec![first.to_owned()],
    }
}

/// Whether two places are one, or one is a part of the other, as figure 2a is of figure 2.
fn is_same(one: &str, other: &str) -> bool {
    let is_part = |part: &str, whole: &str| {
        part.strip_prefix(whole).is_some_and(|letters| letters.chars().all(|c| c.is_ascii_lowercase()))
    };
    is_part(one, other) || is_part(other, one)
}

#[cfg(test)]
mod tests;
