//! Table 1's flushes on mounts: what a flush behind blocks that go home, and a single flush, are the cause of.

use super::super::{EXTERNAL, JOURNAL, NONE, ORDERED};
use super::{PRINTED, Printed, Rounds, Runs, flushed, flushes, number, percent};
use crate::results::{ABOUT, Claim, Figure, Verdict, with_one_value};
use crate::stats::{float, median};
use crate::work::tpcc::Report;

/// Why full journaling's flushes are more than ordered's. An fsync without a journal is one flush, which is how fsyncs
/// are counted.
const HOME_FLUSH: &str = "an fsync of today's data=journal takes a flush more than a commit of ordered, behind \
     the blocks that it writes home, and two more with the journal on another device (djfs-t1-mounts-persist-home and \
     djfs-t1-mounts-wal-home); whether the paper's kernel took them is not known";
/// What is subtracted for it, in words.
const WITHOUT_HOME_FLUSH: &str = "these flushes subtracted from each fsync";
/// The flushes of an fsync that [`HOME_FLUSH`] names, with the journal inside and on another device.
const OF_HOME: [(&str, f64); 2] = [(JOURNAL, 1.0), (EXTERNAL, 2.0)];
/// Why journals in NVRAM may have fewer flushes: how long inode times stand still is not tried on mounts.
const FULL_LATER: &str = "a journal in NVRAM flushes when its log or a region of it is full, and a transaction \
     logs fewer bytes here";
/// Why DJFS' flushes may be another part of ordered's than the paper's.
const ONE_FLUSH: &str =
    "ordered has so few flushes in as many transactions that a single one, more or less, is this part";

/// A cell of table 1's flushes.
fn of_flushes(mode: &str, (name, value): (&str, &str), measured: f64) -> Claim {
    let says = format!("flushes: {value} % of ordered's");
    Claim::about("table 1, on mounts", &says, format!("{mode}, {name}: flushes, %"), measured, (value, ABOUT))
}

/// Flushes in per cent of ordered's, as counted, and without those of [`HOME_FLUSH`] in each fsync.
fn without_home(rounds: &Rounds<Report>, name: &str, half: usize) -> [f64; 2] {
    let of = |name| median(&percent(rounds, name, half, flushes));
    let to_an_fsync = OF_HOME.iter().find(|(other, _)| *other == name).map_or(0.0, |(_, flushes)| *flushes);
    [of(name), of(name) - to_an_fsync * of(NONE)]
}

/// What [`HOME_FLUSH`] is the cause of.
pub(super) fn by_home(rounds: &Rounds<Report>, half: usize, printed: &Printed) -> Figure {
    let mode = printed.journal.name();
    let id = format!("djfs-t1-mounts-{}-home", mode.to_lowercase());
    let title = format!("{mode}: flushes to a transaction without those behind what goes home, mounts (calibration)");
    let y = "% of the kernel's data=ordered";
    let names = OF_HOME.map(|(name, _)| name);
    let mut figure = Figure::bars(&id, "table 1", title, "flushes of an fsync", y).of_series(names);
    let by_name = names.map(|name| without_home(rounds, name, half));
    for (n, place) in ["as counted", WITHOUT_HOME_FLUSH].into_iter().enumerate() {
        figure.place(place, by_name.map(|values| values[n]));
        let known = printed.flushes.iter().filter(|(name, _)| names.contains(name));
        known.for_each(|(name, value)| figure.printed(place, name, number(value)));
    }
    figure
}

/// The cells of full journaling on devices. Rates of these modes follow from their flushes, too, and are not measured
/// without some: where a claim of them holds, that flush is no cause.
pub(super) fn of_flushes_on_devices(rounds: &Rounds<Report>, of_rates: &[Claim]) -> Vec<Claim> {
    let cells = PRINTED.iter().enumerate().flat_map(|(half, printed)| {
        printed.flushes.iter().filter(|(name, _)| OF_HOME.iter().any(|(other, _)| other == name)).map(move |cell| {
            let [counted, without] = without_home(rounds, cell.0, half);
            of_flushes(printed.journal.name(), *cell, counted).swept([without])
        })
    });
    let is_of_rates = |claim: &&Claim| {
        claim.at.starts_with("figure 8") || claim.at.starts_with("figure 9") && claim.what.contains(JOURNAL)
    };
    let held = of_rates.iter().filter(is_of_rates).filter(|claim| claim.verdict == Verdict::Held);
    let unknown = held.cloned().map(|claim| claim.swept([f64::NAN]));
    let mut claims = with_one_value(HOME_FLUSH, &[WITHOUT_HOME_FLUSH.into()], cells.chain(unknown).collect());
    claims.truncate(PRINTED.len() * OF_HOME.len());
    claims
}

/// The cells of journals in NVRAM.
pub(super) fn of_flushes_in_nvram(runs: &Runs, half: usize, printed: &Printed) -> Vec<Claim> {
    let claim = |cell: &(&str, &str)| {
        let (name, value) = *cell;
        let measured = median(&flushed(runs, name, half));
        let claim = of_flushes(printed.journal.name(), *cell, measured);
        let transactions = runs.long.median(name, half, |m| float(m.of.transactions()));
        let one = 100.0 / (runs.rounds.median(ORDERED, half, flushes) * transactions);
        let by_one = claim.clone().because_within((number(value) - one).max(0.0)..=number(value) + one, ONE_FLUSH);
        let is_fewer = by_one.verdict == Verdict::NotHeld && measured < number(value);
        if is_fewer { claim.supposedly(FULL_LATER) } else { by_one }
    };
    let in_nvram = printed.flushes.iter().filter(|(name, _)| OF_HOME.iter().all(|(other, _)| other != name));
    in_nvram.map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::{DJFS, DJFS4, NVJ};
    use super::super::tests::{Run, rounds, runs, series};
    use super::*;
    use Verdict::{Differs, Held, NotHeld};

    /// Flushes of none, ordered, full journaling and an external journal in a thousand transactions.
    fn with_flushes(flushes: [u64; 4]) -> Rounds<Report> {
        let mut here = series(50.0, 30);
        here.iter_mut().zip(flushes).for_each(|((_, run), flushes)| run.2 = flushes);
        rounds(&here)
    }

    #[test]
    fn a_flush_too_many_in_nvram_differs_where_it_is_a_single_one() {
        let of = |nvj: u64, djfs: u64| {
            let mut all = runs([50.0; 3], [30; 2], &[]);
            all.rounds = with_flushes([280, 500, 490, 490]);
            let in_nvram = [(NVJ, nvj), (DJFS, djfs), (DJFS4, djfs)].map(|(name, n)| (name, Run(2000, 100.0, n, 0)));
            all.long = rounds(&in_nvram);
            of_flushes_in_nvram(&all, 0, &PRINTED[0]).iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        // 0.4 % and 0.003 % are printed, and a flush in 2,000 transactions is 0.1 %.
        assert_eq!(of(4, 0), [Held, Differs, Differs], "no flush is one less than printed");
        assert_eq!(of(3, 1), [Differs; 3], "one flush in 2,000 transactions");
        assert_eq!(of(6, 2), [NotHeld; 3], "two flushes");
    }

    #[test]
    fn the_flush_behind_what_goes_home_is_a_cause_where_the_papers_number_is_left_without_it() {
        let of = |flushes, of_rates: &[Claim]| {
            let claims = of_flushes_on_devices(&with_flushes(flushes), of_rates);
            claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        // Both halves are alike here.
        assert_eq!(of([500, 1000, 1500, 2000], &[]), [Differs; 4], "three and four flushes where ordered has two");
        assert_eq!(of([654, 1000, 1831, 1831], &[]), [NotHeld; 4], "117.7 % and 52.3 % are left");
        assert_eq!(of([500, 1000, 1000, 2000], &[]), [Held, NotHeld, Held, NotHeld], "without it the first is lost");
        let factor = |measured| Claim::about("figure 8, on mounts", "a factor", "djfs", measured, ("26.5", ABOUT));
        assert_eq!(of([500, 1000, 1500, 2000], &[factor(1.0)]), [Differs; 4]);
        assert_eq!(of([500, 1000, 1500, 2000], &[factor(26.5)]), [NotHeld; 4], "not known whether it still holds");
        assert_eq!(by_home(&with_flushes([500, 1000, 1500, 2000]), 0, &PRINTED[0]).count(), 4);
    }
}
