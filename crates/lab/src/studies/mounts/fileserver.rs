//! RFJ's file server on mounts (figures 2 and 8, section 4.3): 50 threads create and write whole files, append, read,
//! delete and stat, and ask for nothing to be durable. The kernel may keep as much dirty data of each mount as falls to
//! so many files of the paper's machine: with more, all of it dies in memory before it is written, and no journal
//! matters.

mod load;

use std::time::Duration;

use anyhow::Result;

use self::load::{fill, serve};
use super::super::fileserver::Server;
use super::bed::{Bed, Measured, Rounds};
use super::{JOURNAL, ORDERED, OWN_JOURNAL, SCATTER, WRITEBACK, assume, mounters, only, rounds_of};
use crate::mounter::{Mounter, Who};
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, Swept, shown, with_one_value};
use crate::stats::{float, mib};

/// RFJ's third baseline beside [`super::KERNEL`].
const THIRD: &str = "kernel:data=writeback";
const QUIRE: [&str; 4] = ["profile=ext4-ordered", "profile=ext4-journal", "profile=rfj", "profile=auto"];
const RFJ: &str = "quire rfj";
/// What is measured where every turn overwrites.
const OF_OVERWRITES: [&str; 3] = [JOURNAL, RFJ, OWN_JOURNAL];
/// What claims are of.
const OF_CLAIMS: [&str; 5] = [ORDERED, JOURNAL, WRITEBACK, RFJ, OWN_JOURNAL];

/// Filebench's files, of which the study has a part, and the same part of the paper's machine (section 4).
const PAPER_FILES: u64 = 10_000;

/// What may be dirty: of 8 GiB of memory the middle of the kernel's limits, 15 %.
const fn dirty_bytes(files: u64) -> u64 {
    (8 << 30) * 15 / 100 / PAPER_FILES * files
}

/// Quire's mounts may have as much dirty: three eighths of their cache. FUSE hands them a file's pages at its close,
/// so they hardly lie in the kernel's page cache.
fn cache_size(dirty: u64) -> String {
    format!("cache_size={}", dirty / 3 * 8)
}

/// The mounter, which may keep so many dirty bytes.
fn which_may_keep(mounter: &Mounter, dirty: u64) -> Mounter {
    if mounter.who == Who::Quire { mounter.with(&cache_size(dirty)) } else { mounter.clone() }
}

/// MiB of the journal on filebench's disk, which mke2fs makes by itself.
const PAPER_JOURNAL_MIB: u64 = 128;

/// How many quarters of what the study lets be dirty may be so in the calibration.
const QUARTERS: [u64; 4] = [1, 2, 8, 16];

/// The journal that mke2fs makes on a disk, 128 MiB, and at least what is sure to be large enough.
fn journal_mib(files: u64) -> u64 {
    (PAPER_JOURNAL_MIB * files / PAPER_FILES).max(8)
}

/// The mounter, where ext4 gives a block to data at the write, as ext3 did, instead of when it is written back.
fn as_ext3(mounter: &Mounter) -> Mounter {
    if mounter.who == Who::Kernel { mounter.with("nodelalloc") } else { mounter.clone() }
}

/// Figures 2 and 8.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let files = effort.pick(100, 600, 2000);
    let server = Server {
        files,
        before: Duration::from_secs(effort.pick(1, 5, 35)),
        ..Server::new(Duration::from_secs(effort.pick(1, 10, 60)))
    };
    let dirty = dirty_bytes(files);
    let run = |rounds: usize, mounters: &[Mounter], dirty: u64, journal_mib: u64| {
        let mut bed = Bed::new("hdd7200", server.mib + journal_mib, journal_mib)?;
        bed.limit_dirty(dirty);
        let of = |server: Server, rounds: usize, mounters: Vec<Mounter>| {
            let mounters: Vec<_> = mounters.iter().map(|m| which_may_keep(m, dirty)).collect();
            bed.rounds(rounds, &mounters, |dir| fill(dir, server), &[()], |dir, ()| serve(dir, server))
        };
        let usual = of(server, rounds, mounters.to_vec())?;
        let overwriting = of(Server { rewrites: 100, ..server }, 1, only(mounters, &OF_OVERWRITES))?;
        anyhow::Ok(Served { usual, overwriting })
    };
    let journal = journal_mib(files);
    let mut mounters = mounters(&QUIRE)?;
    mounters.push(THIRD.parse()?);
    let measured = run(rounds_of(effort), &mounters, dirty, journal)?;
    let of_claims = only(&mounters, &OF_CLAIMS);
    let with_blocks: Vec<Mounter> = of_claims.iter().map(as_ext3).collect();
    let quarters = effort.pick(&QUARTERS[..0], &QUARTERS, &QUARTERS);
    let by_memory = quarters.iter().map(|n| Ok((float(*n) / 4.0, run(1, &of_claims, dirty / 4 * n, journal)?)));
    let by_memory: Vec<_> = by_memory.collect::<Result<_>>()?;
    let assumed = [
        (AS_EXT3, &with_blocks, journal, rounds_of(effort)),
        (LARGE, &of_claims, PAPER_JOURNAL_MIB, 1),
        (BOTH, &with_blocks, PAPER_JOURNAL_MIB, 1),
    ];
    let assumed = effort.pick(&assumed[..1], &assumed, &assumed);
    let otherwise = assumed.iter();
    let otherwise = otherwise.map(|(what, mounters, mib, rounds)| Ok((*what, run(*rounds, mounters, dirty, *mib)?)));
    let otherwise: Vec<_> = otherwise.collect::<Result<_>>()?;
    let rate = |m: &Measured<u64>| float(m.of) / server.time.as_secs_f64();
    let title = format!("A file server of {} threads, {} s, mounts", server.threads, server.time.as_secs());
    let figure = Figure::bars("rfj-8-mounts", "figures 2 and 8", title, "mount", "operations/s");
    let figure = measured.usual.drawn(figure.logarithmic().of_series(["operations/s"]), &[0], rate);
    let rates = Rates::of(&measured, &by_memory, &otherwise, rate);
    let figures = vec![figure, rates.by_memory(), rates.otherwise(), rates.by_overwrites()];
    let mut f = Findings { figures, claims: rates.claims(), ..Findings::default() };
    assume(&mut f, effort, "hdd7200");
    assume_server(&mut f, server, dirty);
    Ok(f)
}

fn assume_server(f: &mut Findings, server: Server, dirty: u64) {
    let files = server.files;
    f.assume(format!(
        "disk: model hdd7200; {files} files for filebench's 10,000, and as small a part of a journal of 128 MB ({} MiB) \
         and of what may be dirty in 8 GB, the paper's memory in figure 8 (16 GB in figure 2): the page cache may hold \
         {:.0} MiB of dirty data of each mount \
         (max_bytes, strict_limit), and so may Quire's own cache ({}); {} s go before what is measured",
        journal_mib(files),
        mib(dirty),
        cache_size(dirty),
        server.before.as_secs()
    ));
    f.assume(
        "ext4 of today gives blocks to data when it is written back, so its ordered mode does not flush other files' \
         data as ext3's did; \"much better\": twice; \"faster\": by more than a tenth, as rounds differ; \"almost 5 times\": 4.5 to 5; \"almost the same\": a tenth more or \
         less",
    );
    f.assume(format!(
        "ext4 commits every 5 s and writes data back when it is 30 s old; {} s before and {} s measured hold that many \
         commits, and no data grows as old with less than 30 s",
        server.before.as_secs(),
        server.time.as_secs()
    ));
}

/// Why ratios of modes may be others than the paper's.
const ASSUMED: &str = "how much data dies in memory before it is written, and when writers are slowed down, follows from \
     how much may be dirty; ext4 of today gives a block to data when it is written back, so that a commit of ordered \
     flushes no other file's data as ext3's did; how many writers share a commit of data journaling follows from how \
     large the journal is";
/// What else may be assumed.
const AS_EXT3: &str = "blocks at the write (nodelalloc)";
const LARGE: &str = "the paper's whole journal of 128 MB";
const BOTH: &str = "both";

/// Rounds of the server, and one in which every turn overwrites.
struct Served {
    usual: Rounds<u64>,
    overwriting: Rounds<u64>,
}

/// Operations a second.
#[derive(Clone, Copy, Debug)]
struct Each {
    /// In the order of [`OF_CLAIMS`].
    usual: [f64; OF_CLAIMS.len()],
    /// Where every turn overwrites, in the order of [`OF_OVERWRITES`].
    overwriting: [f64; OF_OVERWRITES.len()],
}

/// Two of [`OF_CLAIMS`].
type Two = (&'static str, &'static str);

/// What RFJ is compared with where every turn overwrites.
const BASELINES: [&str; 2] = [JOURNAL, OWN_JOURNAL];
/// What the figures of a sweep draw, beside RFJ's factors where every turn overwrites.
const RATIOS: [Two; 4] = [(WRITEBACK, ORDERED), (RFJ, WRITEBACK), (RFJ, OWN_JOURNAL), (RFJ, JOURNAL)];

impl Each {
    fn of(served: &Served, rate: impl Fn(&Measured<u64>) -> f64) -> Self {
        Each {
            usual: OF_CLAIMS.map(|name| served.usual.median(name, 0, &rate)),
            overwriting: OF_OVERWRITES.map(|name| served.overwriting.median(name, 0, &rate)),
        }
    }

    fn ratio(&self, (a, b): Two) -> f64 {
        let of = |name| self.usual[OF_CLAIMS.iter().position(|n| *n == name).expect("a name of OF_CLAIMS")];
        of(a) / of(b)
    }

    /// How many times as fast RFJ is as a baseline where every turn overwrites.
    fn overwriting(&self, baseline: &str) -> f64 {
        let of =
            |name| self.overwriting[OF_OVERWRITES.iter().position(|n| *n == name).expect("a name of OF_OVERWRITES")];
        of(RFJ) / of(baseline)
    }

    /// What every turn's overwriting leaves of RFJ's factor.
    fn left(&self, baseline: &'static str) -> f64 {
        self.overwriting(baseline) / self.ratio((RFJ, baseline))
    }

    fn ratios(&self) -> impl IntoIterator<Item = f64> {
        RATIOS.map(|two| self.ratio(two)).into_iter().chain(BASELINES.map(|name| self.overwriting(name)))
    }
}

struct Rates {
    measured: Each,
    /// With so many times as much that may be dirty.
    swept: Vec<(f64, Each)>,
    /// With other blocks, another journal.
    otherwise: Vec<(&'static str, Each)>,
}

impl Rates {
    fn of(
        measured: &Served,
        swept: &[(f64, Served)],
        otherwise: &[(&'static str, Served)],
        rate: impl Fn(&Measured<u64>) -> f64,
    ) -> Self {
        let of = |served: &Served| Each::of(served, &rate);
        Rates {
            measured: of(measured),
            swept: swept.iter().map(|(times, served)| (*times, of(served))).collect(),
            otherwise: otherwise.iter().map(|(what, served)| (*what, of(served))).collect(),
        }
    }

    /// What a claim says it is of, and what it was.
    fn measured(&self, two: Two) -> (String, f64) {
        (format!("{} / {}", two.0, two.1), self.measured.ratio(two))
    }

    /// The same with what else may be assumed, then by what may be dirty: of two that serve as many claims the first is
    /// the cause, and an option of the kernel's has a mechanism of its own.
    fn swept(&self, two: Two) -> Vec<f64> {
        let own = [two.0, two.1].iter().all(|name| name.starts_with("quire "));
        self.swept_by(own, |rates| rates.ratio(two))
    }

    /// The same of any figure. Of Quire's own series, which an option of the kernel's ext4 does not touch, the figure
    /// without it stands: that of another run is noise.
    fn swept_by(&self, own: bool, figure: impl Fn(&Each) -> f64) -> Vec<f64> {
        let with = |wanted: &str| self.otherwise.iter().find(|(what, _)| *what == wanted).map(|(_, rates)| rates);
        let without = |what: &str, rates| match what {
            AS_EXT3 if own => &self.measured,
            BOTH if own => with(LARGE).unwrap_or(&self.measured),
            _ => rates,
        };
        let by_memory = self.swept.iter().map(|(_, rates)| rates);
        let otherwise = self.otherwise.iter().map(|(what, rates)| without(what, rates));
        otherwise.chain(by_memory).map(figure).collect()
    }

    /// An empty figure of what is swept.
    fn of_ratios(id: &str, title: &str, x: &str) -> Figure {
        let figure = Figure::lines(id, "figures 2 and 8, section 4.3", title, x, "times as fast").logarithmic();
        let usual = RATIOS.map(|(a, b)| format!("{a} / {b}"));
        let overwriting = BASELINES.map(|name| format!("{RFJ} / {name}, every turn overwrites"));
        let names: Vec<&str> = usual.iter().chain(&overwriting).map(|name| &**name).collect();
        figure.of_series(names)
    }

    fn otherwise(&self) -> Figure {
        let title = "by when a block is given to data, and by the journal (calibration)";
        let mut figure = Self::of_ratios("rfj-8-mounts-otherwise", title, "with");
        let all = [("as measured", self.measured)].into_iter().chain(self.otherwise.iter().copied());
        all.for_each(|(what, rates)| figure.place(what, rates.ratios()));
        figure
    }

    fn by_memory(&self) -> Figure {
        let title = "by what may be dirty (calibration)";
        let mut figure = Self::of_ratios("rfj-8-mounts-memory", title, "times as much dirty");
        let mut all = self.swept.clone();
        all.push((1.0, self.measured));
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.iter().for_each(|(times, rates)| figure.place(shown(*times), rates.ratios()));
        figure
    }

    fn by_overwrites(&self) -> Figure {
        let title = "by how many turns overwrite a file in place instead of making one, mounts";
        let (id, x) = ("rfj-8-overwrites-mounts", "turns that overwrite, %");
        let names = BASELINES.map(|name| format!("{RFJ} / {name}"));
        let figure = Figure::bars(id, "section 4.3", title, x, "times as fast");
        let mut figure = figure.of_series(names.each_ref().map(|name| &**name));
        figure.place("0", BASELINES.map(|name| self.measured.ratio((RFJ, name))));
        figure.place("100", BASELINES.map(|name| self.measured.overwriting(name)));
        figure
    }

    fn claims(&self) -> Vec<Claim> {
        let by_memory =
            self.swept.iter().map(|(times, _)| format!("{} times as much that may be dirty", shown(*times)));
        let values: Vec<String> = self.otherwise.iter().map(|(what, _)| (*what).to_owned()).chain(by_memory).collect();
        with_one_value(ASSUMED, &values, self.by_claim())
    }

    /// Each claim with its figures by what is assumed.
    fn by_claim(&self) -> Vec<Swept> {
        let (two, eight) = ("figure 2, on mounts", "figure 8, on mounts");
        let above = |at, says, of: Two| {
            let (what, measured) = self.measured(of);
            let what = format!("{what}, by more than rounds differ");
            Claim::above(at, says, what, measured, 1.0 + SCATTER).swept(self.swept(of))
        };
        let what = format!("the slower of {ORDERED} and {WRITEBACK} / {JOURNAL}");
        let slower = |rates: &Each| rates.ratio((ORDERED, JOURNAL)).min(rates.ratio((WRITEBACK, JOURNAL)));
        let (of_journal, times) = self.measured((RFJ, JOURNAL));
        let (of_own, beside_own) = self.measured((RFJ, OWN_JOURNAL));
        let (of_writeback, same) = self.measured((RFJ, WRITEBACK));
        let fivefold = "RFJ is almost 5 times as fast as journal";
        let overwriting = BASELINES.map(|name| {
            let (at, says) = ("section 4.3, on mounts", "with many overwrites RFJ gains less");
            let what = format!("{RFJ} / {name}: every turn overwrites / none does");
            let swept = self.swept_by(name == OWN_JOURNAL, |rates| rates.left(name));
            Claim::below(at, says, what, self.measured.left(name), 1.0).swept(swept)
        });
        let usual = vec![
            Claim::at_least(
                two,
                "ordered and writeback are much better than journal",
                what,
                slower(&self.measured),
                2.0,
            )
            .swept(self.swept_by(false, slower)),
            above(two, "writeback is the fastest of the three", (WRITEBACK, ORDERED)),
            Claim::between(eight, fivefold, of_journal, times, (4.5, 5.0)).swept(self.swept((RFJ, JOURNAL))),
            Claim::between(eight, fivefold, of_own, beside_own, (4.5, 5.0)).swept(self.swept((RFJ, OWN_JOURNAL))),
            above(eight, "RFJ is faster than ordered", (RFJ, ORDERED)),
            Claim::about(eight, "RFJ has almost the same throughput as writeback", of_writeback, same, (1.0, ABOUT))
                .swept(self.swept((RFJ, WRITEBACK))),
        ];
        usual.into_iter().chain(overwriting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;

    /// Ordered, journal, writeback, RFJ, Quire's journal; where every turn overwrites, RFJ has no factor.
    fn each(usual: [f64; 5]) -> Each {
        Each { usual, overwriting: [100.0; 3] }
    }

    const MEASURED: [f64; 5] = [1000.0, 100.0, 900.0, 1500.0, 250.0];
    /// Writeback is fastest, and RFJ a little faster than it.
    const PAPERS: [f64; 5] = [1000.0, 100.0, 1150.0, 1200.0, 245.0];

    fn rates(swept: Each, otherwise: &[(&'static str, Each)]) -> Rates {
        Rates { measured: each(MEASURED), swept: vec![(4.0, swept)], otherwise: otherwise.to_vec() }
    }

    fn verdicts(swept: Each) -> Vec<Verdict> {
        rates(swept, &[]).claims().into_iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn what_may_be_dirty_is_the_cause_where_another_amount_of_it_has_the_papers_number() {
        use Verdict::{Differs, Held, NotHeld};
        let none = [Held, NotHeld, NotHeld, NotHeld, Held, NotHeld, Held, Held];
        assert_eq!(verdicts(each(MEASURED)), none);
        assert_eq!(verdicts(each(PAPERS)), [Held, Differs, NotHeld, Differs, Held, Differs, Held, Held]);
        let by_blocks = rates(each(MEASURED), &[(AS_EXT3, each(PAPERS))]);
        assert_eq!(by_blocks.claims().iter().filter(|claim| claim.verdict == Differs).count(), 2);
        assert_eq!(by_blocks.claims()[3].verdict, NotHeld, "neither of Quire's two series has the option");
        assert_eq!(by_blocks.otherwise().count(), 12);
        let loses = [1000.0, 900.0, 1150.0, 1200.0, 245.0];
        assert_eq!(verdicts(each(loses)), none, "ordered is not much faster with it");
        let gains = Each { overwriting: [100.0, 1300.0, 100.0], ..each(PAPERS) };
        assert_eq!(verdicts(gains), none, "RFJ gains more with overwrites");
    }

    #[test]
    fn rfj_gains_less_with_overwrites_where_its_factor_is_smaller_by_more_than_a_tie() {
        let rounds = |names: &[&str], of: &[u64]| {
            let measured = |n: u64| vec![vec![Measured { of: n, asked: Asked::default(), seconds: 1.0 }]];
            Rounds::of(names.iter().zip(of).map(|(name, n)| ((*name).to_owned(), measured(*n))).collect())
        };
        let served = Served {
            usual: rounds(&OF_CLAIMS, &[1000, 100, 900, 500, 250]),
            overwriting: rounds(&OF_OVERWRITES, &[100, 400, 200]),
        };
        let rates = Rates::of(&served, &[], &[], |m| float(m.of));
        let claims = rates.claims();
        assert_eq!([6, 7].map(|n: usize| claims[n].verdict), [Verdict::Held, Verdict::NotHeld]);
        assert_eq!((rates.by_overwrites().places.len(), rates.by_overwrites().count()), (2, 4));
    }

    #[test]
    fn only_the_kernel_is_told_when_to_give_blocks() {
        let of = |text: &str| as_ext3(&text.parse().unwrap()).to_string();
        assert_eq!((of(THIRD), of("quire:profile=rfj")), (format!("{THIRD},nodelalloc"), "quire:profile=rfj".into()));
    }

    #[test]
    fn only_quires_mounts_are_told_what_they_may_keep() {
        let kept = |text: &str| which_may_keep(&text.parse().unwrap(), 3000).to_string();
        assert_eq!(
            (kept("quire:profile=rfj"), kept("kernel:none")),
            ("quire:profile=rfj,cache_size=8000".into(), "kernel:none".into())
        );
    }
}
