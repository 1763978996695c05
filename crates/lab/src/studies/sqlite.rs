//! JoJ (FAST '14): SQLite's transactions under different journals, on one device in one run. Rounds rotate; each
//! competitor gets a fresh file system; ratios are of medians. With the machine's own disk or a modelled device under a
//! loop device: 12 cases on each, the paper's 24 on two. Or on the library, in virtual time.

mod on_library;
mod plan;

pub use plan::Plan;
use plan::{IMAGE_MIB, NVRAM, OPERATIONS, Series};

use anyhow::{Context, Result, ensure};
use quire_testkit::Model;

use super::claims::{self, Claim};
use crate::cmd::{run_tool, text};
use crate::mounter::Mounter;
use crate::served::{Asked, Kind, Looped};
use crate::stats::{Spread, float, geometric_mean};
use crate::work::sqlite::{Protection, STEPS, run};

/// The competitors if none are named.
pub const DEFAULT: [&str; 9] = [
    "quire:profile=ext4-none",
    "quire:profile=ext4-ordered",
    "quire:profile=ext4-journal",
    "quire:profile=single-io",
    "quire:profile=joj",
    "quire:profile=auto",
    "quire:profile=djfs",
    "kernel:data=ordered",
    "kernel:data=journal",
];

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    protection: Protection,
    operations: u64,
    step: usize,
}

impl Case {
    fn name(self) -> String {
        format!("{}/{}/{}", self.protection.name(), self.operations, STEPS[self.step])
    }
}

fn cases(protections: &[Protection]) -> Vec<Case> {
    let mut all = Vec::new();
    for protection in protections {
        for operations in OPERATIONS {
            all.extend((0..STEPS.len()).map(|step| Case { protection: *protection, operations, step }));
        }
    }
    all
}

/// Runs it and prints; returns how many claims are not held.
///
/// # Errors
/// Not root; a file system failed.
pub fn study(plan: &Plan) -> Result<usize> {
    ensure!(plan.rounds > 0 && !plan.kinds.is_empty(), "at least one round and device");
    let mounters = if plan.on_library { plan.mounters.clone() } else { Mounter::available(&plan.mounters)? };
    let (mut missed, mut all) = (0, vec![Vec::new(); mounters.len()]);
    for kind in &plan.kinds {
        let (not_held, of_device) = on_device(plan, kind, &mounters)?;
        missed += not_held;
        all.iter_mut().zip(of_device).for_each(|(all, of_device)| all.extend(of_device));
    }
    let kinds: Vec<String> = plan.kinds.iter().map(Kind::to_string).collect();
    let title = format!("JoJ's {} cases on device {}", all.first().map_or(0, Vec::len), kinds.join(" and "));
    let claims = of_joj(&mounters, &all);
    Ok(missed + claims::print(&title, &claims))
}

/// The cases on one device: how many claims are not held, and the medians of each mounter.
fn on_device(plan: &Plan, kind: &Kind, mounters: &[Mounter]) -> Result<(usize, Vec<Vec<f64>>)> {
    let dir = tempfile::Builder::new().prefix("quire-sqlite-").tempdir_in(&plan.work)?;
    let disk = if plan.on_library {
        Disk::Library(on_library::device(kind)?)
    } else {
        Disk::Looped(Looped::new(kind, IMAGE_MIB << 20, dir.path())?)
    };
    let missed = if plan.figure4 { figure4(plan, kind, &disk, dir.path())? } else { 0 };
    let protections = [Protection::Wal, Protection::Delete];
    let series: Vec<Series> =
        mounters.iter().map(|m| Series { mounter: m.clone(), protections: protections.to_vec() }).collect();
    let measured = rounds(plan, &series, &disk, dir.path())?;
    println!(
        "\nSQLite's transactions on device {}{}: ms, median (mean +- deviation) of {} rounds; {} rows by 1, {} by 1000\n",
        kind,
        if plan.on_library { ", on the library in virtual time" } else { "" },
        plan.rounds,
        plan.small,
        plan.large
    );
    let cases = cases(&protections);
    print(&series, &cases, &measured.times);
    traffic(&series, &measured.traffic);
    let medians: Vec<Vec<f64>> = (0..mounters.len()).map(|who| medians(&measured.times, who)).collect();
    let claims = claims(kind, mounters, &cases, &medians);
    Ok((missed + claims::print(&format!("the cases on device {kind}"), &claims), medians))
}

/// What the file systems are on.
enum Disk {
    Looped(Looped),
    /// The library is mounted on such a device, in virtual time.
    Library(Model),
}

impl Disk {
    /// What a modelled device was asked for so far.
    fn asked(&self) -> Result<Option<Asked>> {
        match self {
            Disk::Looped(disk) => disk.asked(),
            Disk::Library(_) => Ok(None),
        }
    }
}

/// Of each series and case, the times of all rounds.
type Times = Vec<Vec<Vec<f64>>>;

struct Measured {
    times: Times,
    /// Of each series, what the last round asked of a modelled device.
    traffic: Vec<Option<Asked>>,
}

fn rounds(plan: &Plan, series: &[Series], disk: &Disk, dir: &std::path::Path) -> Result<Measured> {
    let times = series.iter().map(|s| vec![Vec::new(); cases(&s.protections).len()]).collect();
    let mut measured = Measured { times, traffic: vec![None; series.len()] };
    for round in 0..plan.rounds {
        for turn in 0..series.len() {
            let who = (turn + round) % series.len();
            let s = &series[who];
            eprintln!("round {}: {}", round + 1, s.mounter);
            let before = disk.asked()?;
            let times = one(plan, s, disk, dir).with_context(|| s.mounter.to_string())?;
            times.into_iter().zip(&mut measured.times[who]).for_each(|(time, all)| all.push(time));
            measured.traffic[who] = disk.asked()?.zip(before).map(|(now, then)| now.since(then));
        }
    }
    Ok(measured)
}

fn one(plan: &Plan, series: &Series, disk: &Disk, dir: &std::path::Path) -> Result<Vec<f64>> {
    match disk {
        Disk::Looped(disk) => on_mount(plan, series, disk, dir),
        Disk::Library(model) => on_library::one(plan, series, *model),
    }
}

fn on_mount(plan: &Plan, series: &Series, disk: &Looped, dir: &std::path::Path) -> Result<Vec<f64>> {
    let options = "lazy_itable_init=0,lazy_journal_init=0";
    run_tool("mke2fs", ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", options, text(disk.device())])?;
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let mut mounter = series.mounter.with("noatime");
    if NVRAM.iter().any(|profile| series.mounter.options.split(',').any(|o| o == *profile)) {
        let nvram = memory.path().join("nvram");
        mounter = mounter.with(&format!("nvram={},nvram_simulated,nvram_size=128M", text(&nvram)));
    }
    let mounted = mounter.mount(disk.device(), &dir.join("mnt"))?;
    let mut times = Vec::new();
    for protection in &series.protections {
        for (operations, rows) in OPERATIONS.into_iter().zip([plan.small, plan.large]) {
            times.extend(run(mounted.dir(), *protection, operations, rows)?);
        }
    }
    mounted.unmount()?;
    Ok(times)
}

fn medians(measured: &Times, who: usize) -> Vec<f64> {
    measured[who].iter().map(|all| Spread::of(all.clone()).median).collect()
}

fn print(series: &[Series], cases: &[Case], measured: &Times) {
    let names: Vec<String> = series.iter().map(|s| s.mounter.to_string()).collect();
    println!("| case | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for (n, case) in cases.iter().enumerate() {
        let cells = measured.iter().map(|of| {
            let s = Spread::of(of[n].clone());
            format!("{:.3} ({:.3} +- {:.3})", s.median, s.mean, s.deviation)
        });
        println!("| {} | {} |", case.name(), cells.collect::<Vec<_>>().join(" | "));
    }
    println!("\nRatios to {}, and their geometric means\n", names[0]);
    println!("| case | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    let base = medians(measured, 0);
    let ratios: Vec<Vec<f64>> = (0..series.len())
        .map(|who| medians(measured, who).iter().zip(&base).map(|(time, base)| time / base).collect())
        .collect();
    for (n, case) in cases.iter().enumerate() {
        let cells: Vec<String> = ratios.iter().map(|r| format!("{:.2}", r[n])).collect();
        println!("| {} | {} |", case.name(), cells.join(" | "));
    }
    for (size, operations) in ["small", "large"].into_iter().zip(OPERATIONS) {
        let cells: Vec<String> = ratios.iter().map(|r| format!("{:.3}", mean_of(cases, r, operations))).collect();
        println!("| **{size}** | {} |", cells.join(" | "));
    }
    println!();
}

/// What a round asked of a modelled device, mke2fs, mount and unmount included.
fn traffic(series: &[Series], traffic: &[Option<Asked>]) {
    if traffic.iter().all(Option::is_none) {
        return;
    }
    println!("| of one round | journal, writes and MB | elsewhere, writes and MB | flushes |");
    println!("|---|---|---|---|");
    for (s, stats) in series.iter().zip(traffic).filter_map(|(s, stats)| Some((s, (*stats)?))) {
        let mb = |bytes: u64| float(bytes) / 1e6;
        println!(
            "| {} | {}, {:.1} | {}, {:.1} | {} |",
            s.mounter,
            stats.journal_writes,
            mb(stats.journal_bytes),
            stats.writes - stats.journal_writes,
            mb(stats.written_bytes - stats.journal_bytes),
            stats.flushes
        );
    }
    println!();
}

/// The geometric mean over the cases of so many operations.
fn mean_of(cases: &[Case], values: &[f64], operations: u64) -> f64 {
    let of: Vec<f64> = cases.iter().zip(values).filter(|(c, _)| c.operations == operations).map(|(_, v)| *v).collect();
    geometric_mean(&of)
}

/// The medians of a mounter, if it ran.
fn of<'m>(mounters: &[Mounter], medians: &'m [Vec<f64>], name: &str) -> Option<&'m [f64]> {
    mounters.iter().zip(medians).find(|(m, _)| m.to_string() == name).map(|(_, medians)| &medians[..])
}

fn ratio(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

/// What JoJ says of all of its cases.
fn of_joj(mounters: &[Mounter], medians: &[Vec<f64>]) -> Vec<Claim> {
    let of = |name| of(mounters, medians, name);
    let mut claims = Vec::new();
    let (none, joj) = (of("quire:profile=ext4-none"), of("quire:profile=joj"));
    if let (Some(none), Some(joj)) = (none, joj) {
        let r = ratio(joj, none);
        let above = float(r.iter().filter(|r| **r > 1.06).count() as u64);
        claims.push(Claim::at_most("joj / ext4-none: cases above 1.06 (the paper: 1 of 24)", above, 1.0));
        claims.push(Claim::at_most("joj / ext4-none, geometric mean (the paper: 0.93)", geometric_mean(&r), 1.0));
    }
    let (journal, single) = (of("quire:profile=ext4-journal"), of("quire:profile=single-io"));
    if let (Some(none), Some(journal), Some(single), Some(joj)) = (none, journal, single, joj) {
        let worst = |of: &[f64]| ratio(of, none).into_iter().fold(0.0, f64::max);
        claims.push(Claim::at_least("ext4-journal / ext4-none, worst case (the paper: 1.73)", worst(journal), 1.2));
        claims.push(Claim::at_most(
            "single-io / ext4-journal, geometric mean",
            geometric_mean(&ratio(single, journal)),
            1.0,
        ));
        claims.push(Claim::at_least(
            "single-io / joj, geometric mean (the paper: single-io up to 1.38 of no journal)",
            geometric_mean(&ratio(single, joj)),
            1.0,
        ));
    }
    claims
}

/// What is asked of the cases on one device.
fn claims(kind: &Kind, mounters: &[Mounter], cases: &[Case], medians: &[Vec<f64>]) -> Vec<Claim> {
    let of = |name| of(mounters, medians, name);
    let mut claims = Vec::new();
    let auto = of("quire:profile=auto").or_else(|| of("quire"));
    let (small, large) = if *kind == Kind::Own { (0.50, 1.00) } else { (0.55, 0.70) };
    if let (Some(auto), Some(ordered)) = (auto, of("kernel:data=ordered")) {
        let r = ratio(auto, ordered);
        claims.push(Claim::at_most("auto / kernel data=ordered, small", mean_of(cases, &r, OPERATIONS[0]), small));
        claims.push(Claim::at_most("auto / kernel data=ordered, large", mean_of(cases, &r, OPERATIONS[1]), large));
    }
    if let (Some(djfs), Some(ordered)) = (of("quire:profile=djfs"), of("kernel:data=ordered")) {
        let limit = if *kind == Kind::Own { 0.12 } else { 0.03 };
        let small = mean_of(cases, &ratio(djfs, ordered), OPERATIONS[0]);
        claims.push(Claim::at_most("djfs / kernel data=ordered, small", small, limit));
    }
    if let (Some(auto), Some(journal)) = (auto, of("kernel:data=journal")) {
        let worst = ratio(auto, journal).into_iter().fold(0.0, f64::max);
        claims.push(Claim::at_most("auto / kernel data=journal, worst case", worst, 1.0));
    }
    claims
}

/// What protection costs: by the database and the file system, by the database alone, not at all.
fn figure4(plan: &Plan, kind: &Kind, disk: &Disk, dir: &std::path::Path) -> Result<usize> {
    let series: Vec<Series> =
        [("joj", Protection::Wal), ("ext4-none", Protection::Wal), ("ext4-none", Protection::None)]
            .map(|(profile, p)| Series { mounter: Mounter::quire(&format!("profile={profile}")), protections: vec![p] })
            .into();
    let measured = rounds(plan, &series, disk, dir)?;
    println!(
        "\nJoJ, figure 4, on device {kind}: ms a transaction, medians (the paper: full adds almost nothing to application-level)\n"
    );
    println!(
        "| operations, step | full: wal on joj | application: wal on ext4-none | none: no journal at all | full / application | full / none |"
    );
    println!("|---|---|---|---|---|---|");
    let of: Vec<Vec<f64>> = (0..series.len()).map(|who| medians(&measured.times, who)).collect();
    let mut ratios = Vec::new();
    for (n, case) in cases(&[Protection::Wal]).iter().enumerate() {
        let (full, application, none) = (of[0][n], of[1][n], of[2][n]);
        ratios.push(full / application);
        println!(
            "| {}, {} | {full:.3} | {application:.3} | {none:.3} | {:.2} | {:.1} |",
            case.operations,
            STEPS[case.step],
            full / application,
            full / none
        );
    }
    let claim = Claim::at_most("full / application-level protection, geometric mean", geometric_mean(&ratios), 1.06);
    Ok(claims::print(&format!("JoJ's figure 4 on device {kind}"), &[claim]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_cases_to_a_device_and_their_means_by_size() {
        let cases = cases(&[Protection::Wal, Protection::Delete]);
        assert_eq!(
            (cases.len(), cases[0].name(), cases[11].name()),
            (12, "wal/1/insert".into(), "delete/1000/delete".into())
        );
        let values: Vec<f64> = cases.iter().map(|c| if c.operations == 1 { 2.0 } else { 8.0 }).collect();
        assert!(
            (mean_of(&cases, &values, 1) - 2.0).abs() < 1e-9 && (mean_of(&cases, &values, 1000) - 8.0).abs() < 1e-9
        );
    }

    #[test]
    fn claims_are_made_of_those_who_ran() {
        let mounters = |names: [&str; 2]| -> Vec<Mounter> { names.map(|m| m.parse().unwrap()).into() };
        let held = |claims: Vec<Claim>| -> Vec<bool> { claims.iter().map(Claim::held).collect() };
        let mut medians = vec![vec![1.0; 24]; 2];
        (medians[1][4], medians[1][16]) = (1.2, 1.05);
        let joj = mounters(["quire:profile=ext4-none", "quire:profile=joj"]);
        assert_eq!(held(of_joj(&joj, &medians)), [true, false]);
        medians[1][17] = 0.7;
        assert_eq!(held(of_joj(&joj, &medians)), [true, true]);
        let cases = cases(&[Protection::Wal, Protection::Delete]);
        assert!(held(claims(&Kind::Own, &joj, &cases, &medians)).is_empty());
        let auto = mounters(["kernel:data=ordered", "quire"]);
        let medians = [vec![1.0; 12], vec![0.6; 12]];
        assert_eq!(held(claims(&Kind::Own, &auto, &cases, &medians)), [false, true]);
        assert!(of_joj(&auto, &medians).is_empty());
    }
}
