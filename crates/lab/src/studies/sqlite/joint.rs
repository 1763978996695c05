//! The claims of all devices with one cause: what is assumed of the models of all of them at once.
//!
//! *Guarantees*: a claim's cause in what is assumed is one model of each device and one size of SQLite's pages, with
//! which no claim is lost that holds with the study's ([`with_one_value`]).

use super::calibration::{Computing, Other, computing};
use super::cases::{PROTECTIONS, cases, growing};
use super::claims::{self, ByRatios, Others};
use super::logs;
use super::plan::{On, Plan};
use super::ratios::Ratios;
use crate::mounter::Mounter;
use crate::results::{Claim, with_one_row, with_one_value};
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
    pub computing: Vec<Computing>,
}

impl OnDevice {
    /// The ratios, or those of another model.
    fn with(&self, other: Option<usize>) -> &Ratios {
        other.map_or(&self.ratios, |n| &self.on_others[n].ratios)
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

/// Figure 4's claims on each device, with what an operation computes as a cause if all other claims about its time hold
/// with it that hold without. The first of each, of what full protection adds, is still to be judged.
pub(super) fn of_figure4(plan: &Plan, mounters: &[Mounter], devices: &[OnDevice]) -> Vec<[Claim; 3]> {
    let (all, of_log) = (cases(&PROTECTIONS), cases(&[Protection::Wal]));
    // The times of all devices if an operation on the nth takes so much longer.
    let times = |nth: usize, ms: f64| -> Vec<(&Kind, Vec<Vec<f64>>)> {
        let of = |n: usize, device: &OnDevice| {
            let longer = |times: &Vec<f64>| if n == nth { computing(&all, times, ms) } else { times.clone() };
            device.means.iter().map(longer).collect()
        };
        devices.iter().enumerate().map(|(n, device)| (&device.kind, of(n, device))).collect()
    };
    let of_device = |(n, device): (usize, &OnDevice)| {
        let of = device.figure4.as_ref()?;
        let others = unjudged(plan, mounters, &times(n, 0.0));
        let row = |with: &Computing| -> Vec<f64> {
            let Some(ms) = with.beside else { return vec![f64::NAN; 3 + others.len()] };
            let longer: Vec<Vec<f64>> = of.times.iter().map(|times| computing(&of_log, times, ms)).collect();
            let others = unjudged(plan, mounters, &times(n, ms));
            let others = others.into_iter().map(|claim| claim.measured.unwrap_or(f64::NAN));
            claims::figures4(&of_log, &longer).into_iter().chain(others).collect()
        };
        let rows: Vec<Vec<f64>> = of.computing.iter().map(row).collect();
        let [minor, small, large] = claims::of_figure4(&device.kind, claims::figures4(&of_log, &of.times));
        let values: Vec<String> = of.computing.iter().map(|with| with.value.clone()).collect();
        let group = [minor.clone(), small, large].into_iter().chain(others.iter().cloned());
        let mut judged = with_one_row(claims::COMPUTES, &values, group, &rows).into_iter().skip(1);
        Some([minor, judged.next()?, judged.next()?])
    };
    devices.iter().enumerate().filter_map(of_device).collect()
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
    let mut of_figure4 = of_flushes(plan, of_figure4(plan, mounters, devices), devices);
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

/// The first of figure 4's claims, of what full protection adds, by the flush of a growing log, where a flush takes time.
fn of_flushes(plan: &Plan, of_figure4: Vec<[Claim; 3]>, devices: &[OnDevice]) -> Vec<Claim> {
    let grows = growing(&cases(&[Protection::Wal]), plan);
    let measured = devices.iter().filter_map(|device| Some((&device.kind, device.figure4.as_ref()?)));
    let judged = |((kind, of), [minor, small, large]): ((&Kind, &Figure4), [Claim; 3])| match kind.flush_takes_time() {
        true => [claims::by_flushes(minor, claims::minor_without_flushes(&of.times, &grows)), small, large],
        false => [minor, small, large],
    };
    measured.zip(of_figure4).flat_map(judged).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn computing_of_figure4(joj: f64) -> [Claim; 3] {
        let (kind, all) = ("intel311".parse::<Kind>().unwrap(), cases(&PROTECTIONS));
        let mounters: Vec<Mounter> = super::super::calibration::mounters().into();
        let of = |parts: f64| all.iter().map(|case| if case.operations == 1 { 0.3 } else { 10.0 } * parts).collect();
        let means: Vec<Vec<f64>> = [1.0, 1.0, 1.0, 1.0, joj].map(of).into();
        let of_log = cases(&[Protection::Wal]);
        let times = [[0.3, 4.0], [0.3, 4.0], [0.005, 1.1]].map(|[small, large]| {
            of_log.iter().map(|case| if case.operations == 1 { small } else { large }).collect::<Vec<f64>>()
        });
        let full = [(String::new(), times[0].clone())];
        let (_, computing) = super::super::calibration::of_figure4(&kind, &of_log, &full, &times[2]);
        let device = OnDevice {
            kind,
            ratios: Ratios::of_mounters(&mounters, &means),
            means,
            beside_kernel: Ratios::default(),
            on_others: Vec::new(),
            figure4: Some(Figure4 { times: times.into(), computing }),
        };
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
        of_figure4(&plan, &mounters, &[device]).remove(0)
    }

    #[test]
    fn what_an_operation_computes_is_a_cause_only_if_no_other_claim_is_lost_with_it() {
        use crate::results::Verdict::{Differs, Held, NotHeld};
        let verdicts = |joj| computing_of_figure4(joj).map(|claim| claim.verdict);
        assert_eq!(verdicts(1.0), [Held, Differs, Differs]);
        assert_eq!(verdicts(0.91), [Held, NotHeld, NotHeld], "joj is 9 % faster, and not with more to compute");
    }
}
