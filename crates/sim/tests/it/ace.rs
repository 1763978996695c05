//! Every sequence of one and two calls within CrashMonkey's bounds, and the crashes of each: see `quire_sim::ace`.
//!
//! Sequences of one are explored whole, of those of two a sample that `QUIRE_ACE_SEED` chooses; `QUIRE_ACE=whole`
//! explores all of them, `QUIRE_ACE=whole QUIRE_ACE_SLICE=2/5` the third fifth (each fifth compares states with its own
//! only, so that the sum of distinct states is a little more). A failure prints the calls, and the command that repeats
//! it.

use quire_fs::{CommitMode, Record};
use quire_sim::ace::{Before, Enumeration, Sequence, core_calls, of_one, of_two};
use quire_sim::campaign::{SMALL, number};
use quire_sim::explore::{Config, Effort, fresh_image};
use quire_sim::mixes::Mix;
use quire_sim::run::{How, Route};
use std::sync::OnceLock;

const EFFORT: Effort =
    Effort { calls: 0, moments: 0, outcomes: 2, all: 32, fsck_every: 40, double_every: 40, every_cut: false };
/// A sample takes one in so many sequences of two.
const ONE_IN: u64 = 4001;
const STARTS: [Before; 3] = [Before::Nothing, Before::Synced, Before::AtHome];

/// Which sequences are explored.
#[derive(Clone, Copy)]
struct Wanted {
    only: Option<u64>,
    whole: bool,
    /// Of the whole, every `slice.1`-th sequence, from number `slice.0` on.
    slice: (u64, u64),
    seed: u64,
}

/// `K/N` of the environment: number K of N slices, counted from 0.
fn slice_of_environment() -> (u64, u64) {
    let Ok(text) = std::env::var("QUIRE_ACE_SLICE") else { return (0, 1) };
    let slice = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    slice.filter(|(k, n): &(u64, u64)| k < n).unwrap_or_else(|| panic!("QUIRE_ACE_SLICE={text}: K/N, K below N"))
}

impl Wanted {
    fn of_environment() -> Self {
        let whole = std::env::var("QUIRE_ACE").is_ok_and(|v| v == "whole");
        let (only, seed) = (number("QUIRE_ACE_ONLY"), number("QUIRE_ACE_SEED").unwrap_or(1));
        Wanted { only, whole, slice: slice_of_environment(), seed }
    }

    /// True for sequence `n`, of one call or of two.
    fn takes(self, n: u64, of_two: bool) -> bool {
        match self.only {
            Some(only) => n == only,
            None if self.whole => n % self.slice.1 == self.slice.0,
            None => !of_two || (n + self.seed).is_multiple_of(ONE_IN),
        }
    }
}

/// The sequences that are wanted, numbered among all. Those of one come first; those of two begin with nothing, or with
/// what a sync has made durable.
fn sequences() -> &'static [(u64, Sequence)] {
    static CHOSEN: OnceLock<Vec<(u64, Sequence)>> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let wanted = Wanted::of_environment();
        let ones = STARTS.into_iter().flat_map(of_one).map(|s| (false, s));
        let firsts = STARTS[..2].iter().flat_map(|s| (0..core_calls(1).len()).map(move |f| (*s, f)));
        let twos = firsts.flat_map(|(start, first)| of_two(start, first)).map(|s| (true, s));
        let mut all = [0, 0];
        let mut chosen = Vec::new();
        for (n, (of_two, sequence)) in (0..).zip(ones.chain(twos)) {
            all[usize::from(of_two)] += 1;
            if wanted.takes(n, of_two) {
                chosen.push((n, sequence));
            }
        }
        println!("{} sequences of one call, {} of two; {} are explored", all[0], all[1], chosen.len());
        chosen
    })
}

fn explore(name: &'static str, how: How) {
    let config = Config { name, how, mix: Mix::General, leave: None, mke2fs: SMALL, size: "8M" };
    let base = fresh_image(&config);
    let mut enumeration = Enumeration::new(&config, &base, EFFORT).expect("a fresh image");
    for (n, sequence) in sequences() {
        enumeration.explore(sequence, *n).unwrap_or_else(|why| {
            panic!("{why}\nrepeat: QUIRE_ACE_ONLY={n} cargo test -p quire-sim --test it ace::{name}")
        });
    }
    println!("{name}: {:?}", enumeration.report);
}

macro_rules! profiles {
    ($($name:ident: $route:ident, $record:ident, $commit:ident;)+) => {
        $(#[test]
        fn $name() {
            let how = How::lazy(Route::$route, Record::$record, CommitMode::$commit);
            explore(stringify!($name), how);
        })+
    };
}

// The profiles on a block device, but for ext4-none, which promises nothing to look for.
profiles! {
    ext4_writeback: Writeback, Block, Barrier;
    ext4_ordered: Ordered, Block, Barrier;
    ext4_journal: Journal, Block, Barrier;
    single_io: Journal, Block, Checksum;
    joj: Adaptive, Block, Checksum;
    wasteless: Journal, RangeData, Checksum;
    selective: Selective, RangeData, Checksum;
    rfj: Overwrite, Block, Barrier;
    auto: Auto, Range, Checksum;
}
