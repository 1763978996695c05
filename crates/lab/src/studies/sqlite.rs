//! JoJ (FAST '14): SQLite's transactions under different journals, on one device in one run. Rounds rotate; each
//! competitor gets a fresh file system; ratios are of means. With the machine's own disk or a modelled device under a
//! loop device: 12 cases on each, the paper's 24 on two. `quire:vfs` has the file system in SQLite's process. Or all on
//! the library, in virtual time.

mod aims;
mod calibration;
mod cases;
mod claims;
mod devices;
mod figure4;
mod in_process;
mod joint;
mod logs;
mod on_library;
mod plan;
mod ratios;
mod rounds;
mod sets;

use cases::{Case, PROTECTIONS, cases, of_paper};
use claims::Others;
use devices::Both;
use joint::OnDevice;
use plan::{IMAGE_MIB, On, Series};
pub use plan::{KERNEL_JOURNAL, Plan, STOCK_JOURNAL, STOCK_ORDERED, Wanted};
use ratios::Ratios;
use rounds::{Disk, Times, means, rounds};

use anyhow::{Result, ensure};

use super::device::of_model;
use crate::interrupt::Folder;
use crate::mounter::Mounter;
use crate::results::{ABOUT, Claim, Figure, Findings, Point};
use crate::served::{Asked, Kind, Looped};
use crate::stats::{Spread, float};
use crate::work::sqlite::{Protection, STEPS};

/// The cases on each device, and what JoJ says of them.
///
/// # Errors
/// Not root; a file system failed.
pub fn study(plan: &Plan) -> Result<Findings> {
    ensure!(plan.rounds > 0 && !plan.kinds.is_empty(), "at least one round and device");
    let mounters = if plan.on_library { plan.mounters.clone() } else { plan::available(&plan.mounters)? };
    let mut f = Findings::default();
    f.assume(format!(
        "each transaction's average of {} rounds, each on a fresh file system (the paper: at least five); {} rows by \
             one operation, {} by a thousand (the paper: 10,000 each); SQLite bundled with rusqlite (the paper: \
             3.8.0.2) with pages of {} bytes (the default of 3.8: 1,024), fdatasync, synchronous=FULL, noatime, ext4 of \
             4 KiB blocks",
        plan.rounds, plan.small, plan.large, plan.page
    ));
    f.assume(
        "joj's modes by SQLite's names of files, set when a file is made: the database and a rollback journal are \
             journaled, a write-ahead log is ordered (the paper sets them by ioctl, and does not say the database's)",
    );
    f.assume("averages over cases are arithmetic means; those of Quire's own aims are geometric");
    f.assume(
        "printed per cent: a tenth of them more or less; \"almost an order of magnitude\": 9 to 10 times; \"almost always\": \
         in all cases but one in ten; \"minor\": 6 %, the paper's figure",
    );
    f.assume(format!(
        "all journals of Quire commit by a checksum, as the paper's mounts (journal_async_commit): stock ordered is \
             {STOCK_ORDERED}, stock journal {STOCK_JOURNAL}, where an fsync writes home what earlier transactions hold \
             of the file; a commit that names data in place flushes that first, which the paper's kernel did not"
    ));
    assume_devices(plan, &mut f);
    let devices = plan.kinds.iter().map(|kind| on_device(plan, kind, &mounters, &mut f)).collect::<Result<Vec<_>>>()?;
    let growing = cases::growing(&cases(&PROTECTIONS), plan);
    let of_paper = devices::Devices::measured(plan)?;
    f.figures.extend(of_paper.figure(&devices));
    let (names, others) = of_paper.choices();
    let [own, kernel] = [|both: &Both| both.own.clone(), |both: &Both| both.kernel.clone()]
        .map(|of| Others { names: &names, ratios: others.iter().map(of).collect() });
    f.claims.extend(joint::claims(plan, &mounters, &devices, &own));
    let beside = devices.iter().fold(Ratios::default(), |all, device| all.and(&device.beside_kernel));
    f.claims.extend(claims::of_all_beside_kernel(&beside, &growing, &kernel));
    if !plan.on_library {
        f.claims.extend(devices.iter().flat_map(|device| {
            let of = [&device.ratios, &device.beside_kernel];
            logs::of_logs_on_mounts(&device.kind, &cases(&PROTECTIONS), of)
        }));
    }
    Ok(f)
}

/// What its devices are, and what a flush is on them.
fn assume_devices(plan: &Plan, f: &mut Findings) {
    if !plan.on_library {
        f.assume("ext4-none flushes at fdatasync, as ext4 does today; the paper's kernel did not without a journal");
        f.assume(
            "devices: the machine's own, and a modelled SSD (the paper: a tablet's eMMC, an Intel 311, whose models are \
             tried as well: joj-mounts-devices)",
        );
        f.assumptions.extend(["intel311", "emmc"].into_iter().filter_map(of_model));
    }
    f.assumptions.extend(plan.kinds.iter().filter_map(|kind| of_model(&kind.to_string())));
    if plan.on_library {
        f.assume(
            "intel311's bandwidth is its data sheet's, and no other is a cause (joj-intel311-by-bytes shows others); \
             the rest is assumed, the flush as of a drive that keeps no data in a volatile cache; emmc is assumed, its \
             flush takes no time, because Linux 3.1's driver for eMMC answers one without a command to the card",
        );
        f.assume(
            "ext4-none does not flush at fdatasync, because ext4_sync_file of Linux 3.1 does not without a journal",
        );
        f.assume(
            "time is what the device takes (virtual) and what SQLite and the file system compute \
             (measured); a page cache in between as on a mount",
        );
    }
}

fn on_device(plan: &Plan, kind: &Kind, mounters: &[Mounter], f: &mut Findings) -> Result<OnDevice> {
    let dir = Folder::new(&plan.work, "quire-sqlite-")?;
    let disk = if plan.on_library {
        Disk::Library(on_library::device(kind)?)
    } else {
        Disk::Looped(Looped::new(kind, IMAGE_MIB << 20, dir.path())?)
    };
    let series: Vec<Series> =
        mounters.iter().map(|m| Series { mounter: m.clone(), protections: PROTECTIONS.to_vec() }).collect();
    let measured = rounds(plan, &series, &disk, dir.path())?;
    let cases = cases(&PROTECTIONS);
    f.figures.extend(figures(kind, &series, &cases, &measured.times));
    f.figures.extend(traffic(kind, &series, &measured.traffic));
    let means: Vec<Vec<f64>> = (0..mounters.len()).map(|who| means(&measured.times, who)).collect();
    let swept = match &disk {
        Disk::Library(model) => {
            let (figures, swept) = calibration::of_device(plan, kind, *model)?;
            f.figures.extend(figures);
            Some(swept)
        }
        Disk::Looped(_) => None,
    };
    f.claims.extend(stable(kind, &measured.times, plan.rounds, plan.on()));
    f.claims.extend(claims::of_quire(kind, mounters, &cases, &means));
    f.claims.extend(logs::of_protections(kind, &cases, &means, plan.on()));
    let figure4 = if plan.figure4 { Some(figure4::measured(plan, kind, &disk, dir.path(), f)?) } else { None };
    Ok(OnDevice {
        kind: kind.clone(),
        ratios: Ratios::of_mounters(mounters, &means),
        beside_kernel: Ratios::beside_kernel(mounters, &means),
        on_others: swept.unwrap_or_default(),
        means,
        figure4,
    })
}

/// The error bars of figures 2 and 3: most tests show stable results. One round has none.
fn stable(kind: &Kind, times: &Times, rounds: usize, on: On) -> Option<Claim> {
    let all: Vec<Spread> = times.iter().flatten().map(|rounds| Spread::of(rounds.clone())).collect();
    let stable = all.iter().filter(|of| of.deviation <= of.mean * ABOUT).count();
    let at = if on == On::Models { "figures 2 and 3, error bars" } else { "figures 2 and 3, error bars, on mounts" };
    let what = format!("{kind}: tests whose standard deviation is at most a tenth of the mean, parts of {}", all.len());
    let part = float(stable as u64) / float(all.len() as u64);
    (rounds > 1).then(|| Claim::above(at, "most tests show stable results", what, part, 0.5))
}

/// A series' name in figures.
fn label(mounter: &Mounter) -> String {
    match mounter.options.as_str() {
        STOCK_ORDERED => return "stock ordered".into(),
        STOCK_JOURNAL => return "stock journal".into(),
        _ if mounter.to_string() == KERNEL_JOURNAL => return "kernel journal, async".into(),
        _ => {}
    }
    let name = mounter.to_string();
    match name.strip_prefix("quire:profile=") {
        Some(profile) => profile.to_owned(),
        None => name.replace("kernel:", "kernel ").replace("data=", ""),
    }
}

/// One for each protection and size, as in the paper.
fn figures(kind: &Kind, series: &[Series], cases: &[Case], measured: &Times) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        if case.step == 0 {
            let mode = if case.protection == Protection::Wal { "write-ahead log" } else { "rollback journal" };
            let size = if case.operations == 1 { "1 operation" } else { "1000 operations" };
            let id = format!("joj-{kind}-{}-{}", case.protection.name(), case.operations);
            let title = format!("{kind}: {mode}, {size} a transaction");
            let names = series.iter().map(|s| label(&s.mounter));
            figures.push(Figure::bars(&id, of_paper(kind), title, "step", "ms a transaction").of_series(names));
        }
        let points = measured.iter().map(|of| Point::from(&Spread::of(of[n].clone())));
        figures.last_mut().expect("begun above").place(STEPS[case.step], points);
    }
    figures
}

/// What a round asked of a modelled device, mke2fs, mount and unmount included.
fn traffic(kind: &Kind, series: &[Series], traffic: &[Option<Asked>]) -> Option<Figure> {
    traffic.iter().any(Option::is_some).then(|| {
        let title = format!("{kind}: what a round asked of the device");
        let mut figure = Figure::bars(&format!("joj-{kind}-asked"), of_paper(kind), title, "series", "requests")
            .of_series(["writes to the journal", "writes elsewhere", "flushes"]);
        for (s, asked) in series.iter().zip(traffic).filter_map(|(s, asked)| Some((s, (*asked)?))) {
            let elsewhere = asked.writes - asked.journal_writes;
            figure.place(label(&s.mounter), [asked.journal_writes, elsewhere, asked.flushes].map(float));
        }
        figure
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    #[test]
    fn more_than_half_of_the_tests_have_to_be_stable() {
        let times = |unstable: usize| -> Times {
            let of = |n: usize| if n < unstable { vec![1.0, 2.0] } else { vec![1.0, 1.05] };
            vec![(0..6).map(of).collect()]
        };
        let verdict = |unstable, rounds| stable(&Kind::Own, &times(unstable), rounds, On::Mounts).map(|c| c.verdict);
        assert_eq!(verdict(2, 2), Some(Verdict::Held));
        assert_eq!((verdict(3, 2), verdict(0, 1)), (Some(Verdict::NotHeld), None));
    }

    #[test]
    fn twelve_cases_to_a_device_and_their_means_by_size() {
        let cases = cases(&PROTECTIONS);
        let last = Case { protection: Protection::Delete, operations: 1000, step: 2 };
        assert_eq!((cases.len(), cases[11]), (12, last));
        let values: Vec<f64> = cases.iter().map(|c| if c.operations == 1 { 2.0 } else { 8.0 }).collect();
        assert!(
            (cases::mean_of(&cases, &values, 1) - 2.0).abs() < 1e-9
                && (cases::mean_of(&cases, &values, 1000) - 8.0).abs() < 1e-9
        );
    }
}
