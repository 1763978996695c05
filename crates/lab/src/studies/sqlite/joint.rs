//! The claims of all devices with one cause: what is assumed of the models of all of them at once.
//!
//! *Guarantees*: a claim's cause in what is assumed is one model of each device and one size of SQLite's pages, with
//! which no claim is lost that holds with the study's ([`with_one_value`]).

use super::calibration::{COMPUTING, Other, computing};
use super::cases::{PROTECTIONS, cases, growing};
use super::claims::{self, ByRatios, Others};
use super::logs;
use super::plan::{On, Plan};
use super::ratios::Ratios;
use crate::mounter::Mounter;
use crate::results::{Claim, shown, with_one_row, with_one_value};
use crate::served::Kind;
use crate::work::sqlite::Protection;

/// Of each device the place of another model among its own, or nothing for what the study has.
type Choice = Vec<Option<usize>>;

/// What may be assumed of all devices at once: pages are of one size.
fn together(of: &[&[Other]], page: u32) -> Vec<Choice> {
    let mut all = vec![Vec::new()];
    for others in of {
        let with = |so_far: &Choice| {
            let choices = std::iter::once(None).chain((0..others.len()).map(Some));
            choices.map(|own| [&so_far[..], &[own]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let page_of = |n: usize, own: &Option<usize>| own.map_or(page, |own| of[n][own].page);
    all.retain(|own| {
        let mut pages = own.iter().enumerate().map(|(n, own)| page_of(n, own));
        let first = pages.next();
        own.iter().any(Option::is_some) && pages.all(|page| Some(page) == first)
    });
    all
}

/// What came of the cases on one device.
pub(super) struct OnDevice {
    pub kind: Kind,
    /// Milliseconds of a transaction: of each mounter, each case.
    pub means: Vec<Vec<f64>>,
    /// To `ext4-none`.
    pub ratios: Ratios,
    /// To the kernel's ext4 without a journal, as far as that ran.
    pub beside_kernel: Ratios,
    /// To `ext4-none`, on other models of the device.
    pub on_others: Vec<Other>,
    /// Figure 4, if it ran.
    pub figure4: Option<Figure4>,
}

/// Figure 4 on one device.
pub(super) struct Figure4 {
    /// Milliseconds of a transaction in each case with a write-ahead log: full protection, the database's, none.
    pub times: Vec<Vec<f64>>,
    /// The same with the kernel's ext4 without a journal for Quire's, if that ran.
    pub beside_kernel: Option<Vec<Vec<f64>>>,
}

impl OnDevice {
    /// The ratios, or those of another model.
    fn with(&self, other: Option<usize>) -> &Ratios {
        other.map_or(&self.ratios, |n| &self.on_others[n].ratios)
    }

    /// The cases' times if an operation takes so many milliseconds more.
    fn longer(&self, ms: f64) -> Vec<Vec<f64>> {
        let all = cases(&PROTECTIONS);
        self.means.iter().map(|times| computing(&all, times, ms)).collect()
    }

    /// Figure 4's claims if an operation takes so many milliseconds more, without causes: by Quire's ext4 without a
    /// journal, then by the kernel's; each with the figure of its first in the cases in which the log takes no new
    /// blocks.
    fn figure4(&self, ms: f64, grows: &[bool]) -> Vec<([Claim; 3], f64)> {
        let of_log = cases(&[Protection::Wal]);
        let claims = |times: &Vec<Vec<f64>>| {
            let longer: Vec<Vec<f64>> = times.iter().map(|times| computing(&of_log, times, ms)).collect();
            let claims = claims::of_figure4(&self.kind, claims::figures4(&of_log, &longer));
            (claims, claims::minor_without_flushes(&longer, grows))
        };
        let Some(Figure4 { times, beside_kernel }) = &self.figure4 else { return Vec::new() };
        let kernels = beside_kernel.as_ref().map(claims);
        let kernels = kernels.map(|(claims, without)| (claims.map(claims::of_kernel), without));
        std::iter::once(claims(times)).chain(kernels).collect()
    }
}

/// All claims about these times, without causes.
fn unjudged(plan: &Plan, mounters: &[Mounter], times: &[(&Kind, Vec<Vec<f64>>)]) -> Vec<Claim> {
    let (cases, on) = (cases(&PROTECTIONS), plan.on());
    let mut claims = Vec::new();
    let [mut own, mut kernel] = [Ratios::default(), Ratios::default()];
    for (kind, means) in times {
        let of = [Ratios::of_mounters(mounters, means), Ratios::beside_kernel(mounters, means)];
        claims.extend(logs::of_protections(kind, &cases, means, on));
        claims.extend(claims::alone(logs::of_device(kind, &cases, &of[0], on)));
        if on == On::Mounts {
            claims.extend(logs::of_logs_on_mounts(kind, &cases, of.each_ref()));
        }
        (own, kernel) = (own.and(&of[0]), kernel.and(&of[1]));
    }
    claims.extend([own, kernel].iter().flat_map(|of| claims::alone(claims::of_all(of, on))));
    claims
}

/// Figure 4's claims on each device. Their cause is one guess of what an operation computes on all devices, if all
/// other claims about its time hold with it that hold without; that of what full protection adds is the flush of a
/// growing log, where a flush takes time.
pub(super) fn of_figure4(plan: &Plan, mounters: &[Mounter], devices: &[OnDevice]) -> Vec<[Claim; 3]> {
    let grows = growing(&cases(&[Protection::Wal]), plan);
    let all = |ms: f64| -> Vec<Claim> {
        let of_figure4 = devices.iter().flat_map(|device| device.figure4(ms, &grows)).flat_map(|(claims, _)| claims);
        let times: Vec<_> = devices.iter().map(|device| (&device.kind, device.longer(ms))).collect();
        of_figure4.chain(unjudged(plan, mounters, &times)).collect()
    };
    let row = |ms: f64| all(ms).iter().map(|claim| claim.measured.unwrap_or(f64::NAN)).collect::<Vec<_>>();
    let values = COMPUTING.map(|ms| format!("{} ms more to an operation on all devices", shown(ms)));
    let judged = with_one_row(claims::COMPUTES, &values, all(0.0), &COMPUTING.map(row));
    let here = devices.iter().flat_map(|device| {
        let takes_time = device.kind.flush_takes_time();
        device.figure4(0.0, &grows).into_iter().map(move |([minor, ..], without)| match takes_time {
            true => claims::by_flushes(minor, without),
            false => minor,
        })
    });
    here.zip(judged.chunks_exact(3)).map(|(minor, of)| [minor, of[1].clone(), of[2].clone()]).collect()
}

/// Figure 4's claims, those of each device and those of all cases, with the models of all devices together as their one
/// cause; on mounts with those of the paper's.
pub(super) fn claims(plan: &Plan, mounters: &[Mounter], devices: &[OnDevice], of_paper: &Others<'_>) -> Vec<Claim> {
    let (cases, on) = (cases(&PROTECTIONS), plan.on());
    let all = |choice: &[Option<usize>]| {
        let each = devices.iter().zip(choice).map(|(device, own)| device.with(*own));
        each.fold(Ratios::default(), |all, of| all.and(of))
    };
    let measured = all(&vec![None; devices.len()]);
    let of_each: Vec<_> =
        devices.iter().map(|device| logs::of_device(&device.kind, &cases, &device.ratios, on)).collect();
    let mut of_figure4: Vec<Claim> = of_figure4(plan, mounters, devices).into_iter().flatten().collect();
    if on == On::Mounts {
        let grows = growing(&cases, plan);
        let of_all = claims::without_flushes(claims::of_all(&measured, on), &measured, &grows);
        let of_all = claims::on_devices(of_all, of_paper);
        return of_figure4.into_iter().chain(of_each.into_iter().flat_map(claims::alone)).chain(of_all).collect();
    }
    // On models a claim's cause is in what is assumed.
    let of_all = claims::of_all(&measured, on);
    let others: Vec<&[Other]> = devices.iter().map(|device| &device.on_others[..]).collect();
    let choices = together(&others, plan.page);
    let mut group = Vec::new();
    for (n, of_device) in of_each.into_iter().enumerate() {
        let with = |choice: &Choice| devices[n].with(choice[n]);
        let swept = |ByRatios { claim, figure, .. }| claim.swept(choices.iter().map(|choice| figure(with(choice))));
        group.extend(of_device.into_iter().map(swept));
    }
    let combined: Vec<Ratios> = choices.iter().map(|choice| all(choice)).collect();
    group.extend(of_all.into_iter().map(|ByRatios { claim, figure, .. }| claim.swept(combined.iter().map(figure))));
    let named = |choice: &Choice| {
        let each = devices
            .iter()
            .zip(choice)
            .filter_map(|(device, own)| own.map(|own| format!("{}: {}", device.kind, device.on_others[own].name)));
        each.collect::<Vec<_>>().join(", ")
    };
    of_figure4.extend(with_one_value(claims::ASSUMED, &choices.iter().map(named).collect::<Vec<_>>(), group));
    of_figure4
}

#[cfg(test)]
mod tests {
    use super::super::cases::Case;
    use super::*;
    use crate::results::Verdict::{self, Differs, Held, NotHeld};

    #[test]
    fn models_of_all_devices_are_tried_together_with_pages_of_one_size() {
        let other = |name: &str, page| Other { name: name.into(), page, ratios: Ratios::default() };
        let one = [other("a flush of 1 ms", 1024), other("pages of 4096 B", 4096)];
        let choices = together(&[&one, &one], 1024);
        // Another flush of the first, of the second, of both; large pages on both.
        assert_eq!(choices, [vec![None, Some(0)], vec![Some(0), None], vec![Some(0), Some(0)], vec![Some(1), Some(1)]]);
    }

    /// An operation of 0.3 ms, ten of 1000, which joj does in these parts of the time; what SQLite computes besides is
    /// what would make figure 4 the paper's.
    fn device(name: &str, joj: f64) -> OnDevice {
        let all = cases(&PROTECTIONS);
        let mounters: Vec<Mounter> = super::super::calibration::mounters().into();
        let of = |parts: f64| all.iter().map(|case| if case.operations == 1 { 0.3 } else { 10.0 } * parts).collect();
        let means: Vec<Vec<f64>> = [1.0, 1.0, 1.0, 1.0, joj].map(of).into();
        let times = [[0.3, 4.0], [0.3, 4.0], [0.005, 1.1]].map(|[small, large]| {
            let of = |case: &Case| if case.operations == 1 { small } else { large };
            cases(&[Protection::Wal]).iter().map(of).collect::<Vec<f64>>()
        });
        OnDevice {
            kind: name.parse().unwrap(),
            ratios: Ratios::of_mounters(&mounters, &means),
            means,
            beside_kernel: Ratios::default(),
            on_others: Vec::new(),
            figure4: Some(Figure4 { times: times.into(), beside_kernel: None }),
        }
    }

    fn judged(devices: &[OnDevice]) -> Vec<[Claim; 3]> {
        let plan = Plan {
            kinds: Vec::new(),
            mounters: Vec::new(),
            rounds: 1,
            small: 2000,
            large: 10_000,
            page: 1024,
            of_paper: Vec::new(),
            figure4: true,
            on_library: true,
            work: std::env::temp_dir(),
        };
        of_figure4(&plan, &super::super::calibration::mounters(), devices)
    }

    fn verdicts(devices: &[OnDevice]) -> Vec<[Verdict; 3]> {
        judged(devices).iter().map(|of| of.each_ref().map(|claim| claim.verdict)).collect()
    }

    #[test]
    fn what_an_operation_computes_is_a_cause_only_if_no_other_claim_is_lost_with_it() {
        assert_eq!(verdicts(&[device("intel311", 1.0)]), [[Held, Differs, Differs]]);
        assert_eq!(
            verdicts(&[device("intel311", 0.91)]),
            [[Held, NotHeld, NotHeld]],
            "joj is 9 % faster, and not then"
        );
    }

    #[test]
    fn one_guess_of_what_an_operation_computes_is_for_all_devices() {
        let two = |joj| verdicts(&[device("intel311", 1.0), device("emmc", joj)]);
        assert_eq!(two(1.0), [[Held, Differs, Differs]; 2]);
        assert_eq!(two(0.96), [[Held, NotHeld, NotHeld]; 2], "joj is 4 % faster on the other, and not with the guess");
    }

    #[test]
    fn figure_4_beside_the_kernel_has_the_causes_of_figure_4() {
        let mut slow = device("intel311", 1.0);
        let of = slow.figure4.as_mut().unwrap();
        let mut times = of.times.clone();
        // The database's own takes a tenth less than full protection.
        times[1].iter_mut().for_each(|ms| *ms *= 0.9);
        of.beside_kernel = Some(times);
        let claims = judged(&[slow]);
        let [own, kernels] = &claims[..] else { panic!("two baselines") };
        assert!(own.iter().all(|claim| claim.at == "figure 4"));
        assert!(kernels.iter().all(|claim| claim.at == "figure 4, beside the kernel" && claim.why.is_some()));
        assert_eq!(kernels.each_ref().map(|claim| claim.verdict), [NotHeld, Differs, Differs]);
        assert_eq!(own[2].shared_cause(), kernels[2].shared_cause());
    }
}
