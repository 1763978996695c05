//! RFJ's file server: filebench's `fileserver` (create and write a whole file, append, read a whole file, delete, stat;
//! 50 threads, nothing synchronous) on a modelled 7,200 rpm disk, in virtual time. Reads cost nothing: as in the paper,
//! the files fit into the page cache, which lies above us.
//!
//! Commits are as stock ext3's ([`crate::stock`]): `ordered` flushes the data of all files in each commit, the other
//! modes leave it to the flusher. Files, memory and journal are to each other as in the paper's machine.

mod requests;
mod server;

use std::time::Duration;

use anyhow::Result;

use crate::results::{ABOUT, Claim, Effort, Figure, Findings, with_one_row};
use crate::stats::float;
pub(super) use server::DIRECTORIES;
use server::{BLOCK, CPU, JOURNAL, MODES, ORDERED, PAPER_FILES, RFJ, WRITEBACK, rate, serve_in};
pub use server::{Outcome, Server, run};

/// Figures 2, 5 and 8.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let server = Server {
        before: Duration::from_secs(effort.pick(2, 40, 60)),
        // Memory and journal are as much smaller than the paper's.
        files: effort.pick(700, 2000, PAPER_FILES),
        mib: effort.pick(2048, 2048, 4096),
        ..Server::new(Duration::from_secs(effort.pick(3, 20, 60)))
    };
    let here = measured(effort, server)?;
    let (by_memory, [with_memory, with_memory_and_blocks]) = by_memory(effort, server)?;
    let (by_grain, of_blocks) = by_grain(effort, server, &here)?;
    let swept: Vec<Other> = with_memory.into_iter().chain(with_memory_and_blocks).chain([of_blocks]).collect();
    let mut f = Findings { figures: of_modes(effort, server, &here)?, ..Findings::default() };
    f.figures.extend(by_memory.into_iter().chain([by_grain, by_rewrites(effort, server, &here)?]));
    assume(&mut f, server);
    f.claims = claims(&here, &swept);
    f.add(requests::study(effort, server)?);
    Ok(f)
}

/// Of the paper's modes and RFJ, in the order of [`MODES`].
type Each = [f64; RFJ + 1];

/// What the claims are of, with one set of what is assumed.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// Operations a second.
    rates: Each,
    /// How long an operation takes, without the processor's part: the mean, in ms.
    waits: Each,
    /// How many times as fast RFJ is as journal where every turn overwrites a file in place.
    overwriting: f64,
    /// New blocks of those that are written, in per cent.
    new: f64,
}

fn measured(effort: Effort, server: Server) -> Result<Measured> {
    let mut all = Measured { new: requests::new_blocks(effort, server)?, ..Measured::default() };
    for mode in 0..=RFJ {
        let outcome = serve_in(mode, server)?;
        (all.rates[mode], all.waits[mode]) = (outcome.rate(), outcome.wait());
    }
    let overwriting = Server { rewrites: 100, ..server };
    all.overwriting = rate(RFJ, overwriting)? / rate(JOURNAL, overwriting)?;
    Ok(all)
}

/// What is assumed otherwise, in words, and what was measured with it.
type Other = (String, Measured);

/// Figures 2 and 8, and what operations wait. The last mode is ours alone.
fn of_modes(effort: Effort, server: Server, here: &Measured) -> Result<Vec<Figure>> {
    let title = format!("A file server of 50 threads, {} s", server.time.as_secs());
    let mut two = Figure::bars("rfj-2", "figure 2", title.clone(), "mode", "operations/s").of_series(["operations/s"]);
    let mut eight = Figure::bars("rfj-8", "figure 8", title, "mode", "operations/s").of_series(["operations/s"]);
    let title = "How long an operation of the file server takes, without the processor's part: the mean";
    let mut one = Figure::bars("rfj-1", "section 1", title, "mode", "ms").logarithmic().of_series(["ms"]);
    let name = |mode: usize| {
        let name = MODES[mode].0.to_string();
        name.strip_prefix("ext4-").unwrap_or(&name).to_owned()
    };
    for (mode, rate) in here.rates.iter().enumerate() {
        if mode <= WRITEBACK {
            two.place(name(mode), [*rate]);
        }
        eight.place(name(mode), [*rate]);
        one.place(name(mode), [here.waits[mode]]);
    }
    for mode in RFJ + 1..effort.pick(RFJ + 1, MODES.len(), MODES.len()) {
        eight.place(name(mode), [rate(mode, server)?]);
    }
    Ok(vec![two, eight, one])
}

/// How many times as fast RFJ and writeback are as journal by how much of the memory may be dirty, with the study's
/// sizes and with whole blocks.
fn by_memory(effort: Effort, of: Server) -> Result<(Vec<Figure>, [Vec<Other>; 2])> {
    let percents: &[u64] = effort.pick(&[2], &[2, 4, 8], &[1, 2, 4, 6, 8, 10, 20]);
    // With whole blocks less is written twice, so that the paper's factors come with more memory.
    let of_whole: &[u64] = effort.pick(&[8], &[4, 8, 10, 12, 13, 14], &[4, 6, 8, 10, 11, 12, 13, 14, 20]);
    let (mut figures, mut swept) = (Vec::new(), [Vec::new(), Vec::new()]);
    let both = [
        ("rfj-8-memory", of.grain, percents, ""),
        ("rfj-8-memory-whole", BLOCK, of_whole, " and sizes of whole blocks"),
    ];
    for ((id, grain, percents, with), swept) in both.into_iter().zip(&mut swept) {
        let title = format!("rfj and writeback by what may be dirty in memory{with} (calibration)");
        let series = "rfj / journal";
        let mut figure = Figure::lines(id, "figure 8", title, "dirty, % of the memory", "times as fast")
            .of_series([series, "writeback / journal", "ordered / journal"])
            .logarithmic();
        for percent in percents {
            let with_it = measured(effort, Server { dirty_percent: *percent, grain, ..of })?;
            let rates = with_it.rates;
            figure.place(percent, [RFJ, WRITEBACK, ORDERED].map(|mode| rates[mode] / rates[JOURNAL]));
            figure.printed(percent, series, 5.0);
            swept.push((format!("{percent} % of the memory that may be dirty{with}"), with_it));
        }
        figures.push(figure);
    }
    Ok((figures, swept))
}

/// How many times as fast RFJ is as writeback and as ordered by whether writes end at blocks, and what is measured
/// where all do.
fn by_grain(effort: Effort, of: Server, here: &Measured) -> Result<(Figure, Other)> {
    let title = "rfj by what sizes are multiples of (calibration)";
    let series = "rfj / writeback";
    let mut figure = Figure::lines("rfj-8-grain", "figure 8", title, "sizes are multiples of, B", "times as fast")
        .of_series([series, "rfj / ordered"]);
    let of_blocks = measured(effort, Server { grain: BLOCK, ..of })?;
    for (grain, Measured { rates, .. }) in [(of.grain, here), (BLOCK, &of_blocks)] {
        figure.place(grain, [rates[RFJ] / rates[WRITEBACK], rates[RFJ] / rates[ORDERED]]);
        figure.printed(grain, series, 1.0);
    }
    Ok((figure, ("sizes of whole blocks".to_owned(), of_blocks)))
}

/// How many times as fast RFJ is as journal by how much is overwritten.
fn by_rewrites(effort: Effort, of: Server, here: &Measured) -> Result<Figure> {
    let title = "rfj by how many turns overwrite a file in place instead of making one";
    let figure = Figure::lines("rfj-8-overwrites", "section 4.3", title, "turns that overwrite, %", "times as fast");
    let mut figure = figure.of_series(["rfj / journal"]);
    figure.place(0, [here.rates[RFJ] / here.rates[JOURNAL]]);
    for rewrites in effort.pick(&[][..], &[50], &[25, 50, 75]) {
        let server = Server { rewrites: *rewrites, ..of };
        figure.place(rewrites, [rate(RFJ, server)? / rate(JOURNAL, server)?]);
    }
    figure.place(100, [here.overwriting]);
    Ok(figure)
}

fn assume(f: &mut Findings, server: Server) {
    f.assume(
        "disk: model hdd7200 (next track 1 ms, mean seek 8 ms, turn 8.3 ms, 100 MB/s, no write cache, no elevator); the paper's is a \
         7,200 rpm SATA disk",
    );
    f.assume(format!(
        "create and write a file of 64 to 192 KiB, append 8 to 24 KiB, read, delete, stat; 1 ms of processor to an \
         operation, reads from the page cache; {} s go before what is measured; time is virtual",
        server.before.as_secs()
    ));
    f.assume(format!(
        "{} files for filebench's {PAPER_FILES}, and as small a part of a journal of 128 MB and of 8 GB of memory, \
         which the paper's machine has in figure 8 (16 GB in figure 2; one run is for both); {} % of the memory may be \
         dirty, the middle of the kernel's background limit (10 %) and limit (20 %)",
        server.files, server.dirty_percent
    ));
    f.assume(
        "a commit every 5 s; with ordered it writes the data of all files first and waits for it, as ext3's; with \
         writeback and rfj data is written when it is 30 s old or half of what may be dirty is; with journal each write \
         joins the transaction at once",
    );
    f.assume(
        "the 5 s, the 30 s and the disk are the paper's, while files and memory are a part of it: a disk that is as fast \
         for fewer files has more of them die in memory",
    );
    f.assume(
        "files' sizes are even between half of the mean and half more, in 20 directories; filebench draws sizes from a \
         gamma distribution, and makes directories of 20 names on average",
    );
    f.assume(format!(
        "the processor serves {:.0} operations a second at most, whatever the file system: with so much memory that all data \
         dies in it before it is written, all modes are as fast as that (rfj-8-memory)",
        float(server.threads) / CPU.as_secs_f64()
    ));
    f.assume("\"much better\": twice; \"almost 5 times\": 4.5 to 5; \"almost the same\": a tenth more or less");
    f.assume(
        "\"low write latency of the ordered mode\": on average a file operation, most of which change something, takes at \
         most a tenth longer than with ordered; a write alone goes to memory with both and takes nothing but the \
         processor, and what waits is whatever joins a transaction",
    );
}

/// Why ratios of modes may be others than the paper's.
const ASSUMED: &str = "how much data dies in memory before it is written follows from how much may be dirty; writeback \
    writes the last, partly filled block of a growing file in place, a movement of the head to each append, and the \
    model has no elevator; rfj logs it";

/// What each of [`sentences`] is of.
fn figures(of: &Measured) -> [f64; 8] {
    let [journal, ordered, writeback, rfj] = [JOURNAL, ORDERED, WRITEBACK, RFJ].map(|mode| of.rates[mode]);
    [
        ordered.min(writeback) / journal,
        writeback / ordered.max(journal),
        rfj / journal,
        rfj / ordered,
        rfj / writeback,
        of.waits[RFJ] / of.waits[ORDERED],
        of.overwriting / (rfj / journal),
        of.new,
    ]
}

/// The paper's sentences.
fn sentences(here: &Measured) -> [Claim; 8] {
    let [of_modes, fastest, of_rfj, to_ordered, to_writeback, waits, left, new] = figures(here);
    [
        Claim::at_least(
            "figure 2",
            "ordered and writeback are much better than journal",
            "the slower of ordered and writeback / journal",
            of_modes,
            2.0,
        ),
        Claim::above(
            "figure 2",
            "writeback is the fastest of the three",
            "writeback / the faster of ordered and journal",
            fastest,
            1.0,
        ),
        Claim::between("figure 8", "RFJ is almost 5 times as fast as journal", "rfj / journal", of_rfj, (4.5, 5.0)),
        Claim::above("figure 8", "RFJ is faster than ordered", "rfj / ordered", to_ordered, 1.0),
        Claim::about(
            "figure 8",
            "RFJ has almost the same throughput as writeback",
            "rfj / writeback",
            to_writeback,
            (1.0, ABOUT),
        ),
        Claim::at_most(
            "section 1",
            "RFJ achieves the low write latency of the ordered mode",
            "rfj / ordered: how long an operation takes",
            waits,
            1.0 + ABOUT,
        ),
        Claim::below(
            "section 4.3",
            "with many overwrites RFJ gains less",
            "rfj / journal: every turn overwrites / none does",
            left,
            1.0,
        ),
        Claim::above(
            "section 4.3",
            "filebench's file server has lots of new writes",
            "new blocks, % of those that are written",
            new,
            50.0,
        ),
    ]
}

/// With what is measured of other memory, and of sizes of whole blocks: both touch all of them.
fn claims(here: &Measured, swept: &[Other]) -> Vec<Claim> {
    let values: Vec<String> = swept.iter().map(|(value, _)| value.clone()).collect();
    let by_value: Vec<[f64; 8]> = swept.iter().map(|(_, with)| figures(with)).collect();
    with_one_row(ASSUMED, &values, sentences(here), &by_value)
}

#[cfg(test)]
mod tests {
    use quire_fs::Profile;

    use super::server::{DIRTY_PERCENT, DISK};
    use super::*;
    use crate::stock::Stock;

    const SMALL: Server = Server {
        threads: 50,
        files: 600,
        mean: 128 << 10,
        append: 16 << 10,
        grain: 1,
        rewrites: 0,
        mib: 1024,
        dirty_percent: DIRTY_PERCENT,
        before: Duration::from_secs(6),
        time: Duration::from_secs(11),
    };

    /// Journal, ordered, writeback and RFJ, as the paper has them; then with RFJ far ahead.
    #[test]
    fn figure_8_has_its_cause_where_one_assumption_brings_all_of_it() {
        use crate::results::Verdict::{self, Differs, Held, NotHeld};
        let of = |[journal, ordered, writeback, rfj]: [f64; 4]| {
            let mut all = Measured { waits: [1.0; RFJ + 1], overwriting: 2.0, new: 97.0, ..Measured::default() };
            [(JOURNAL, journal), (ORDERED, ordered), (WRITEBACK, writeback), (RFJ, rfj)]
                .into_iter()
                .for_each(|(mode, measured)| all.rates[mode] = measured);
            all
        };
        let (paper, ahead) = (of([10.0, 40.0, 47.0, 48.0]), of([10.0, 100.0, 200.0, 380.0]));
        let verdicts = |here, swept| -> [Verdict; 8] {
            let claims = claims(here, &[("4 %".into(), swept)]);
            std::array::from_fn(|n| claims[n].verdict)
        };
        let figure_8 = |here, swept| verdicts(here, swept)[..5].to_vec();
        assert_eq!(verdicts(&paper, paper), [Held; 8]);
        assert_eq!(figure_8(&ahead, paper), [Held, Held, Differs, Held, Differs]);
        assert_eq!(figure_8(&ahead, of([10.0, 40.0, 38.0, 48.0])), [Held, Held, NotHeld, Held, NotHeld]);
        let loses = [
            Measured { waits: [9.0, 1.0, 1.0, 1.2], ..paper },
            Measured { overwriting: 5.0, ..paper },
            Measured { new: 50.0, ..paper },
        ];
        for swept in loses {
            assert_eq!(
                figure_8(&ahead, swept),
                [Held, Held, NotHeld, Held, NotHeld],
                "another claim is lost: {swept:?}"
            );
        }
    }

    #[test]
    fn the_server_serves_and_most_blocks_are_new() {
        let server = Server { threads: 5, files: 50, mib: 256, ..Server::new(Duration::from_secs(1)) };
        let once = run(DISK(), Profile::Rfj, Stock::LeavesData, server).unwrap();
        assert!(once.operations >= 30 && once.overwritten * 10 < once.blocks, "{once:?}");
        let busy = once.waited + CPU * u32::try_from(once.operations).unwrap();
        assert!((server.time * 5..=once.time * 5).contains(&busy), "all of the threads' time: {once:?}");
        assert_eq!(run(DISK(), Profile::Rfj, Stock::LeavesData, server).unwrap().traffic, once.traffic);
    }

    #[test]
    fn turns_that_overwrite_keep_the_files_and_write_blocks_that_held_data() {
        let server = Server { rewrites: 100, threads: 5, files: 50, mib: 256, ..Server::new(Duration::from_secs(1)) };
        let all = run(DISK(), Profile::Rfj, Stock::LeavesData, server).unwrap();
        assert!(all.operations >= 30 && all.overwritten * 10 > all.blocks * 8, "{all:?}");
        let half = run(DISK(), Profile::Rfj, Stock::LeavesData, Server { rewrites: 50, ..server }).unwrap();
        assert!((3..8).contains(&(half.overwritten * 10 / half.blocks)), "{half:?}");
    }

    /// The baselines have the problem that RFJ solves: a commit of ordered waits for all data, journal writes it twice.
    #[test]
    fn writeback_is_faster_than_ordered_and_rfj_is_faster_and_journal_is_far_behind() {
        let [journal, ordered, writeback, rfj] = [JOURNAL, ORDERED, WRITEBACK, RFJ].map(|m| rate(m, SMALL).unwrap());
        let all = format!("journal {journal:.0}, ordered {ordered:.0}, writeback {writeback:.0}, rfj {rfj:.0}");
        assert!(writeback > 1.05 * ordered && ordered > 2.0 * journal, "{all}");
        assert!(rfj > 5.0 * journal && rfj > 1.1 * writeback, "{all}");
    }

    /// The last block of a file, partly filled, is what RFJ has before writeback: without it they are alike.
    #[test]
    fn rfj_is_as_fast_as_writeback_where_writes_end_at_blocks() {
        let whole = Server { grain: BLOCK, ..SMALL };
        let times = rate(RFJ, whole).unwrap() / rate(WRITEBACK, whole).unwrap();
        assert!((0.8..1.25).contains(&times), "rfj / writeback: {times}");
    }
}
