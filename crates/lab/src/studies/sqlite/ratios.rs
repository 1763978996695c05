//! Ratios of JoJ's cases to those without a journal, which its claims are of.

use super::cases::ratio;
use super::plan::{KERNEL_JOURNAL, STOCK_JOURNAL, STOCK_ORDERED};
use crate::mounter::Mounter;

/// The worst of these ratios.
pub(super) fn worst(ratios: &[f64]) -> f64 {
    ratios.iter().copied().fold(0.0, f64::max)
}

/// The means of a mounter, if it ran.
pub(super) fn of<'m>(mounters: &[Mounter], means: &'m [Vec<f64>], name: &str) -> Option<&'m [f64]> {
    mounters.iter().zip(means).find(|(m, _)| m.to_string() == name).map(|(_, means)| &means[..])
}

/// Ratios to `ext4-none`, case by case.
#[derive(Clone, Default)]
pub(super) struct Ratios {
    pub ordered: Vec<f64>,
    pub journal: Vec<f64>,
    pub single: Vec<f64>,
    pub joj: Vec<f64>,
}

impl Ratios {
    /// Of those mounters that ran, or empty.
    pub(super) fn of_mounters(mounters: &[Mounter], means: &[Vec<f64>]) -> Ratios {
        let quire = |options: &str| format!("quire:{options}");
        Self::of_baselines(mounters, means, ["profile=ext4-none", STOCK_ORDERED, STOCK_JOURNAL].map(quire))
    }

    /// The same with the kernel's ext4 for ext4 on Quire, as far as that ran.
    pub(super) fn beside_kernel(mounters: &[Mounter], means: &[Vec<f64>]) -> Ratios {
        let kernel = ["kernel:none", "kernel:data=ordered", KERNEL_JOURNAL];
        Self::of_baselines(mounters, means, kernel.map(str::to_owned))
    }

    /// To the first of these.
    fn of_baselines(mounters: &[Mounter], means: &[Vec<f64>], [none, ordered, journal]: [String; 3]) -> Ratios {
        let times = |name: &str| of(mounters, means, name).unwrap_or_default();
        let of = |name: &str| ratio(times(name), times(&none));
        Ratios {
            ordered: of(&ordered),
            journal: of(&journal),
            single: of("quire:profile=single-io"),
            joj: of("quire:profile=joj"),
        }
    }

    /// Those of the cases in which the log does not grow; `growing` are those of one device.
    pub(super) fn without(&self, growing: &[bool]) -> Ratios {
        let of = |ratios: &Vec<f64>| not_growing(ratios, growing);
        Ratios { ordered: of(&self.ordered), journal: of(&self.journal), single: of(&self.single), joj: of(&self.joj) }
    }

    /// These cases and those of another device.
    pub(super) fn and(&self, other: &Ratios) -> Ratios {
        let both = |a: &[f64], b: &[f64]| [a, b].concat();
        Ratios {
            ordered: both(&self.ordered, &other.ordered),
            journal: both(&self.journal, &other.journal),
            single: both(&self.single, &other.single),
            joj: both(&self.joj, &other.joj),
        }
    }
}

/// Of the cases of one device after the other, those in which the log does not grow.
pub(super) fn not_growing(values: &[f64], growing: &[bool]) -> Vec<f64> {
    let all = values.iter().zip(growing.iter().cycle());
    all.filter(|(_, grows)| !**grows).map(|(value, _)| *value).collect()
}
