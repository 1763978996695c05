//! The claims of all devices with one cause: what is assumed of the models of all of them at once.
//!
//! *Guarantees*: a claim's cause in what is assumed is one model of each device and one size of SQLite's pages, with
//! which no claim is lost that holds with the study's ([`with_one_value`]).

use super::calibration::Other;
use super::cases::{PROTECTIONS, cases, growing};
use super::claims::{self, ByRatios, Others};
use super::logs;
use super::plan::{On, Plan};
use super::ratios::Ratios;
use crate::results::{Claim, with_one_value};
use crate::served::Kind;

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
    /// To `ext4-none`.
    pub ratios: Ratios,
    /// To the kernel's ext4 without a journal, as far as that ran.
    pub beside_kernel: Ratios,
    /// To `ext4-none`, on other models of the device.
    pub on_others: Vec<Other>,
}

impl OnDevice {
    /// The ratios, or those of another model.
    fn with(&self, other: Option<usize>) -> &Ratios {
        other.map_or(&self.ratios, |n| &self.on_others[n].ratios)
    }
}

/// The claims of each device and those of all cases, with the models of all devices together as their one cause; on
/// mounts with those of the paper's.
pub(super) fn claims(plan: &Plan, devices: &[OnDevice], of_paper: &Others<'_>) -> Vec<Claim> {
    let (cases, on) = (cases(&PROTECTIONS), plan.on());
    let all = |choice: &[Option<usize>]| {
        let each = devices.iter().zip(choice).map(|(device, own)| device.with(*own));
        each.fold(Ratios::default(), |all, of| all.and(of))
    };
    let measured = all(&vec![None; devices.len()]);
    let of_all = claims::of_all(&measured, on);
    let of_each = devices.iter().map(|device| logs::of_device(&device.kind, &cases, &device.ratios, on));
    let of_each: Vec<_> = of_each.collect();
    if on == On::Mounts {
        let of_all = claims::on_mounts(of_all, &measured, &growing(&cases, plan));
        let of_all = claims::on_devices(of_all, of_paper);
        return of_each.into_iter().flat_map(claims::alone).chain(of_all).collect();
    }
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
    with_one_value(claims::ASSUMED, &choices.iter().map(named).collect::<Vec<_>>(), group)
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
}
