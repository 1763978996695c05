//! DJFS, figures 8 and 9, with other values of what the studies assume: what a flush of the drive takes, how long
//! computing takes, and what a store to NVRAM costs.
//!
//! Figure 8's 64.2 and three numbers of figure 9 are of the same runs of SQLite with PERSIST. So they have one cause in
//! what is assumed only if one guess, of computing, of a store and of what an fsync of NVJ writes home, brings all four
//! to the paper's: [`Common`].

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::super::ways::{self, Way};
use super::loaded::{Loaded, Machine, Plan};
use crate::results::{Claim, Figure, Verdict, shown};
use crate::stats::{float, median};
use crate::turns::turns;
use crate::work::tpcc::Journal;

/// What a flush of the modelled drive takes in a calibration, in microseconds.
const FLUSHES: [u64; 4] = [50, 250, 1000, 2000];
/// What a flush takes where figure 7 has the paper's factor: see its calibration.
const FLUSH_OF_FIGURE_7: Duration = Duration::from_micros(2500);
/// "Up to" and "at worst" in figures 8 and 9, on either side: a baseline that costs more than the paper's flatters
/// DJFS.
pub(super) const WITHIN: f64 = 0.1;
/// Guesses of either NVJ to a round: each shows how far off the estimates are.
const GUESSES: usize = 2;
/// The highest latency of figure 9.
pub(super) const SLOWEST: Duration = Duration::from_nanos(40);

impl Plan {
    /// Enough for a ratio.
    pub(in crate::studies) fn for_calibration(&self) -> Plan {
        Plan { transactions: self.transactions.div_ceil(4), on_devices: self.on_devices.div_ceil(3), ..self.clone() }
    }
}

impl Loaded {
    /// How many times as fast `djfs` is by what a flush takes.
    pub(super) fn by_flush(&self, journal: Journal, plan: &Plan, printed: &str) -> Result<Figure> {
        let (mode, series) = (journal.name(), "djfs / external");
        let title = format!("{mode}: djfs by what a flush takes, computing as here (calibration)");
        let id = format!("djfs-8-{}-flush", mode.to_lowercase());
        let mut figure =
            Figure::lines(&id, "figure 8", title, "flush, ms", "times as fast").of_series([series]).logarithmic();
        let plan = plan.for_calibration();
        for us in FLUSHES {
            let flush_ns_per_dirty_kib = if us < 1000 { 0 } else { Model::samsung_840().flush_ns_per_dirty_kib };
            let model = Model { flush: Duration::from_micros(us), flush_ns_per_dirty_kib, ..Model::samsung_840() };
            let tpm_c =
                |way| Ok::<_, anyhow::Error>(self.run(way, Machine::with(model), journal, &plan)?.report.tpm_c());
            let place = shown(Duration::from_micros(us).as_secs_f64() * 1e3);
            figure.place(&place, [tpm_c(ways::DJFS)? / tpm_c(ways::EXTERNAL)?]);
            figure.printed(&place, series, printed.parse()?);
        }
        Ok(figure)
    }
}

/// Values of what is assumed of the paper's machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Guess {
    /// How many times as long computing takes as here.
    computing: f64,
    /// Nanoseconds that a store of a cache line costs beside its latency: its flush, and its share of a fence.
    store: u64,
    /// An fsync of `nvj` writes home what earlier transactions hold of the file, as `ext4_sync_file` of the paper's
    /// kernel does with data journaling; the paper does not say whether NVJ has it otherwise.
    nvj_goes_home: bool,
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let home = if self.nvj_goes_home { ", NVJ goes home" } else { "" };
        write!(f, "x {}, + {} ns{home}", self.computing, self.store)
    }
}

impl Guess {
    /// As here.
    const HERE: Guess = Guess { computing: 1.0, store: 0, nvj_goes_home: false };

    fn nvj(self) -> Way {
        if self.nvj_goes_home { ways::NVJ_HOME } else { ways::NVJ }
    }

    fn machine(self) -> Machine {
        let drive = Model { flush: FLUSH_OF_FIGURE_7, ..Model::samsung_840() };
        let line = Duration::from_nanos(self.store);
        Machine { line, computing: self.computing, ..Machine::with(drive) }
    }
}

/// Four guesses, from which the time of a transaction with any other follows.
const FAR: Guess = Guess { computing: 10.0, store: 400, ..Guess::HERE };
const CORNERS: [Guess; 4] =
    [Guess::HERE, Guess { computing: FAR.computing, ..Guess::HERE }, Guess { store: FAR.store, ..Guess::HERE }, FAR];

/// The four numbers, as the paper prints them, and what they are of.
const FOUR: [(&str, &str); 4] = [
    ("64.2", "figure 8: djfs / external"),
    ("3.52", "+40 ns: djfs / nvj"),
    ("38.89", "+40 ns: djfs / ext4-journal"),
    ("11.06", "+40 ns: nvj / ext4-journal"),
];
/// Their places.
pub(super) const FIGURE_8: usize = 0;
pub(super) const DJFS_TO_NVJ: usize = 1;
pub(super) const DJFS_TO_JOURNAL: usize = 2;
pub(super) const NVJ_TO_JOURNAL: usize = 3;

/// Seconds of a transaction: `external` and `ext4-journal`; `djfs`; `djfs` and `nvj` with [`SLOWEST`].
type Takes = [f64; 5];

/// The four numbers, in parts of the paper's.
fn parts([external, journal, djfs, slow_djfs, slow_nvj]: Takes) -> [f64; 4] {
    let factors = [external / djfs, slow_nvj / slow_djfs, journal / slow_djfs, journal / slow_nvj];
    std::array::from_fn(|n| factors[n] / FOUR[n].0.parse::<f64>().expect("a printed number"))
}

/// The part that is farthest from the paper's, as a factor.
fn farthest(parts: [f64; 4]) -> f64 {
    parts.iter().map(|part| part.max(part.recip())).fold(1.0, f64::max)
}

/// What a transaction takes with a guess, by what it takes with [`CORNERS`]: both values add their share to the virtual
/// time, and a part of the checkpoints that waits for the device goes on meanwhile.
fn estimated(corners: &[Takes; 4], guess: Guess) -> Takes {
    let along = (guess.computing - 1.0) / (FAR.computing - 1.0);
    let up = float(guess.store) / float(FAR.store);
    let weights = [(1.0 - along) * (1.0 - up), along * (1.0 - up), (1.0 - along) * up, along * up];
    std::array::from_fn(|n| corners.iter().zip(weights).map(|(takes, weight)| takes[n] * weight).sum())
}

/// The guess that is estimated to come nearest to all four numbers: computing in steps of a tenth, a store in such
/// of 20 ns. What is estimated is off by these factors.
fn nearest(corners: &[Takes; 4], off: Takes, nvj_goes_home: bool) -> Guess {
    let computing = (10..=400).map(|tenth| float(tenth) / 10.0);
    let all = computing.flat_map(|computing| (0..=100).map(move |n| Guess { computing, store: n * 20, nvj_goes_home }));
    let takes = |guess: &Guess| product(estimated(corners, *guess), off);
    let how_far = |guess: &Guess| farthest(parts(takes(guess)));
    let possible = all.filter(|guess| takes(guess).iter().all(|takes| *takes > 0.0));
    possible.min_by(|a, b| how_far(a).total_cmp(&how_far(b))).unwrap_or(Guess::HERE)
}

/// By how much estimates are off, as all guesses have shown it; they are taken as they are before the first.
fn medians(off: &[Takes]) -> Takes {
    if off.is_empty() {
        return [1.0; 5];
    }
    std::array::from_fn(|n| median(&off.iter().map(|off| off[n]).collect::<Vec<_>>()))
}

/// All four numbers are the paper's.
fn are_the_papers(parts: [f64; 4]) -> bool {
    parts.iter().all(|part| (1.0 - WITHIN..=1.0 + WITHIN).contains(part))
}

fn product(takes: Takes, factors: Takes) -> Takes {
    std::array::from_fn(|n| takes[n] * factors[n])
}

/// The four numbers by computing, by a store, and by what an fsync of NVJ does.
pub(super) struct Common {
    pub figure: Figure,
    /// The nearest guess, as it was measured.
    guess: Guess,
    parts: [f64; 4],
    /// The numbers with each guess.
    tried: Vec<[f64; 4]>,
}

/// What is assumed.
const ASSUMED: &str =
    "how long computing takes and what a store's flush and fence cost on the paper's machine is not known";
/// Why no guess may have all numbers.
const APART: &str = "no guess has all four numbers: 64.2 is 1.65 times 38.89, so either DJFS loses two fifths by the \
     latency of NVRAM, or the journal that is slowest in figure 8 is as much slower than full journaling in figure 9, and \
     here all three on a device are alike";

impl Common {
    /// Measures the corners and, of either NVJ, the guess that they say is nearest, then the one that all guesses so
    /// far say is nearer, until one has all four numbers. What the processor bounds is a median.
    pub(super) fn measured(loaded: &Loaded, plan: &Plan) -> Result<Self> {
        let plan = plan.for_calibration();
        let takes = |way: Way, on: Machine| {
            Ok::<_, anyhow::Error>(loaded.run(way, on, Journal::Persist, &plan)?.report.rate().recip())
        };
        let on_devices = |computing: f64| {
            let on = Guess { computing, ..Guess::HERE }.machine();
            Ok::<_, anyhow::Error>([takes(ways::EXTERNAL, on)?, takes(ways::JOURNAL, on)?])
        };
        // With each of these for `nvj`.
        let all = |[external, journal]: [f64; 2], guess: Guess, nvjs: &[Way]| {
            let fast = guess.machine();
            let slow = Machine { line: fast.line + SLOWEST, ..fast };
            let mut runs = vec![(ways::DJFS, fast), (ways::DJFS, slow)];
            runs.extend(nvjs.iter().map(|nvj| (*nvj, slow)));
            let mut each = vec![Vec::new(); runs.len()];
            for (_, n) in turns(plan.rounds, runs.len()) {
                let (way, on) = runs[n];
                each[n].push(takes(way, on)?);
            }
            let each: Vec<f64> = each.iter().map(|rounds| median(rounds)).collect();
            let with = |nvj: &f64| [external, journal, each[0], each[1], *nvj];
            Ok::<_, anyhow::Error>(each[2..].iter().map(with).collect::<Vec<Takes>>())
        };
        let devices = [on_devices(Guess::HERE.computing)?, on_devices(FAR.computing)?];
        // Of either NVJ.
        let mut corners = [[[0.0; 5]; 4]; 2];
        for (n, guess) in CORNERS.into_iter().enumerate() {
            let either = all(devices[n % 2], guess, &[ways::NVJ, ways::NVJ_HOME])?;
            corners.iter_mut().zip(either).for_each(|(corners, takes)| corners[n] = takes);
        }
        let mut tried: Vec<(Guess, Takes)> = Vec::new();
        'search: for (nvj_goes_home, corners) in [false, true].into_iter().zip(&corners) {
            let mut off = Vec::new();
            for _ in 0..GUESSES * plan.rounds {
                let guess = nearest(corners, medians(&off), nvj_goes_home);
                if tried.iter().any(|(before, _)| *before == guess) {
                    break;
                }
                let takes = all(on_devices(guess.computing)?, guess, &[guess.nvj()])?[0];
                off.push(product(takes, estimated(corners, guess).map(f64::recip)));
                tried.push((guess, takes));
                if are_the_papers(parts(takes)) {
                    break 'search;
                }
            }
        }
        Ok(Common::of(corners, tried))
    }

    /// Of the guesses that were tried the nearest, and the figure of all.
    fn of([corners, home]: [[Takes; 4]; 2], tried: Vec<(Guess, Takes)>) -> Self {
        let shares = |(guess, takes): (Guess, Takes)| (guess, parts(takes));
        let home = (Guess { nvj_goes_home: true, ..Guess::HERE }, home[0]);
        let tried: Vec<_> = tried.into_iter().map(shares).collect();
        let title = format!(
            "PERSIST, by how long computing takes, what a store costs and whether NVJ goes home at fsync, flush \
             {FLUSH_OF_FIGURE_7:?} (calibration)"
        );
        let (x, y) = ("computing, a store of a cache line", "parts of the paper's number");
        let mut figure =
            Figure::bars("djfs-9-common", "figures 8 and 9", title, x, y).of_series(FOUR.map(|f| f.1)).logarithmic();
        for (guess, parts) in CORNERS.into_iter().zip(corners).chain([home]).map(shares).chain(tried.iter().copied()) {
            figure.place(guess, parts);
            FOUR.iter().for_each(|(_, name)| figure.printed(guess, name, 1.0));
        }
        let numbers = tried.iter().map(|(_, parts)| *parts).collect();
        let (guess, parts) =
            tried.into_iter().min_by(|a, b| farthest(a.1).total_cmp(&farthest(b.1))).expect("one is tried");
        Common { figure, guess, parts, tried: numbers }
    }

    /// The guess has all four numbers, each within a tenth.
    fn is_cause(&self) -> bool {
        are_the_papers(self.parts)
    }

    fn why(&self) -> String {
        let Guess { computing, store, nvj_goes_home } = self.guess;
        let home = if nvj_goes_home { ", an NVJ that goes home at fsync as ext4's data journaling does" } else { "" };
        format!(
            "{ASSUMED}; with {computing} times the computing, {store} ns more to a store{home} and a flush of \
             {FLUSH_OF_FIGURE_7:?} figure 8's factor and all three of figure 9 are the paper's within a tenth"
        )
    }

    /// A claim about one of the four numbers, which has the guess as its cause if the guess is one.
    pub(super) fn judged(&self, claim: Claim, n: usize) -> Claim {
        let number = FOUR[n].0.parse::<f64>().expect("a printed number");
        let tried: Vec<f64> = self.tried.iter().map(|parts| parts[n] * number).collect();
        self.judged_of(claim, self.parts[n] * number, &tried)
    }

    /// A claim about another figure, which is so much with the guess.
    pub(super) fn judged_with(&self, claim: Claim, with_guess: f64) -> Claim {
        self.judged_of(claim, with_guess, &[with_guess])
    }

    fn judged_of(&self, claim: Claim, with_guess: f64, tried: &[f64]) -> Claim {
        let is_within = claim.upper.is_some_and(|upper| (claim.limit..=upper).contains(&with_guess));
        match claim.measured {
            Some(here) if self.is_cause() && is_within => {
                claim.because_within(here.min(with_guess)..=here.max(with_guess), &self.why())
            }
            _ if claim.verdict == Verdict::NotHeld && !self.is_cause() => {
                claim.calibrated_in_vain(tried, &format!("{ASSUMED}; {APART}"))
            }
            _ => claim,
        }
    }

    /// How many times as fast `djfs` is as `external` with the guess, with another of SQLite's journals.
    pub(super) fn factor_of(&self, loaded: &Loaded, journal: Journal, plan: &Plan) -> Result<f64> {
        let plan = plan.for_calibration();
        let rate = |way| Ok::<_, anyhow::Error>(loaded.run(way, self.guess.machine(), journal, &plan)?.report.rate());
        let djfs: Vec<f64> = (0..plan.rounds).map(|_| rate(ways::DJFS)).collect::<Result<_>>()?;
        Ok(median(&djfs) / rate(ways::EXTERNAL)?)
    }

    /// The guess's name in figures.
    pub(super) fn place(&self) -> String {
        self.guess.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine where a transaction has so many milliseconds of computing and so many thousand lines.
    fn corners(device: [f64; 2], [djfs, nvj]: [[f64; 2]; 2]) -> [Takes; 4] {
        CORNERS.map(|guess| {
            let takes = |[ms, lines]: [f64; 2], latency: f64| {
                ms * guess.computing / 1e3 + lines * (float(guess.store) + latency) / 1e6
            };
            let on_device = device.map(|ms| (ms + djfs[0] * guess.computing) / 1e3);
            [on_device[0], on_device[1], takes(djfs, 0.0), takes(djfs, 40.0), takes(nvj, 40.0)]
        })
    }

    fn common(guess: Guess, parts: [f64; 4]) -> Common {
        Common { figure: Figure::bars("", "", "", "", ""), guess, parts, tried: vec![parts] }
    }

    #[test]
    fn estimates_are_as_far_off_as_the_middle_of_all_guesses() {
        assert_eq!(medians(&[]), [1.0; 5]);
        assert_eq!(medians(&[[1.0; 5], [4.0; 5], [1.5; 5]]), [1.5; 5]);
    }

    #[test]
    fn the_nearest_guess_is_that_of_which_the_numbers_come() {
        let corners = corners([440.0, 300.0], [[0.7, 1.0], [0.75, 22.0]]);
        let nearest = nearest(&corners, [1.0; 5], false);
        assert!((8.0..=11.0).contains(&nearest.computing) && (600..=1200).contains(&nearest.store), "{nearest}");
        let exact = estimated(&corners, Guess { computing: 5.0, store: 100, ..Guess::HERE });
        assert!((exact[4] - (5.0 * 0.75 / 1e3 + 22.0 * 140.0 / 1e6)).abs() < 1e-9, "{exact:?}");
    }

    /// What the devices wait for at each fsync of an NVJ that goes home brings its number; no store does.
    #[test]
    fn an_nvj_that_goes_home_is_the_guess_where_that_makes_it_slow() {
        let mut corners = [corners([440.0, 266.3], [[0.7, 1.0], [0.75, 1.0]]); 2];
        corners[1].iter_mut().for_each(|takes| takes[4] += 17.0 / 1e3);
        let of = |guess: Guess| estimated(&corners[usize::from(guess.nvj_goes_home)], guess);
        let [lazy, home] = [false, true].map(|goes| nearest(&corners[usize::from(goes)], [1.0; 5], goes));
        let how_far = |guess: Guess| farthest(parts(of(guess)));
        assert!(how_far(home) < 1.1 && how_far(lazy) > 2.0, "{home} {} {lazy} {}", how_far(home), how_far(lazy));
        let tried = [lazy, home].map(|guess| (guess, of(guess))).to_vec();
        let common = Common::of(corners, tried);
        assert!(common.guess.nvj_goes_home && common.is_cause() && common.why().contains("goes home"));
    }

    /// One number off by more than a tenth: no cause of any.
    #[test]
    fn a_guess_is_the_cause_of_all_four_numbers_or_of_none() {
        let guess = Guess { computing: 9.5, store: 800, ..Guess::HERE };
        let (all, three) = (common(guess, [0.95, 1.05, 1.0, 1.0]), common(guess, [0.95, 1.05, 1.0, 0.8]));
        let claim = |measured: f64| Claim::about("figure 8", "", "", measured, ("64.2", WITHIN));
        let verdict = |common: &Common, measured| common.judged(claim(measured), FIGURE_8).verdict;
        assert_eq!([verdict(&all, 412.0), verdict(&three, 412.0)], [Verdict::Differs, Verdict::NotHeld]);
        assert_eq!([verdict(&all, 20.0), verdict(&three, 64.0)], [Verdict::Differs, Verdict::Held]);
        let wal = |with_guess| all.judged_with(claim(412.0), with_guess).verdict;
        assert_eq!([wal(66.0), wal(30.0)], [Verdict::Differs, Verdict::NotHeld]);
        assert!(three.judged(claim(412.0), FIGURE_8).why.unwrap().contains("no guess has all four"));
        assert!(all.judged(claim(412.0), FIGURE_8).why.unwrap().contains("9.5 times the computing, 800 ns more"));
    }
}
