//! JoJ's worst cases on mounts, on models of the paper's own devices: the machine's disk and a modelled SSD stand for
//! them in the study (calibration).

use anyhow::Result;

use super::cases::PROTECTIONS;
use super::joint::OnDevice;
use super::plan::{self, IMAGE_MIB, KERNEL_JOURNAL, Plan, STOCK_JOURNAL, Series};
use super::ratios::{Ratios, worst};
use super::rounds::{Disk, means, rounds};
use crate::interrupt::Folder;
use crate::mounter::Mounter;
use crate::results::Figure;
use crate::served::{Kind, Looped};

/// What the figure shows of a device, and the paper's numbers.
const SERIES: [(&str, &str); 4] = [
    ("stock journal / ext4-none", "1.73"),
    ("single-io / ext4-none", "1.38"),
    ("kernel journal, async / kernel none", "1.73"),
    ("single-io / kernel none", "1.38"),
];

/// The most rows of a case of small transactions: enough that a write-ahead log grows in the inserts alone, as with the
/// paper's 10,000 (SQLite begins it anew after 1,000 pages), and a fifth of what these take.
const ROWS: u64 = 2000;

/// Ratios to `ext4-none`, and to the kernel's ext4 without a journal.
#[derive(Clone, Default)]
pub(super) struct Both {
    pub own: Ratios,
    pub kernel: Ratios,
}

impl Both {
    fn and(&self, other: &Both) -> Both {
        Both { own: self.own.and(&other.own), kernel: self.kernel.and(&other.kernel) }
    }

    fn worst(&self) -> [f64; SERIES.len()] {
        let Both { own, kernel } = self;
        [&own.journal, &own.single, &kernel.journal, &kernel.single].map(|ratios| worst(ratios))
    }
}

/// Models of the paper's devices, and what was measured on each.
pub(super) struct Devices(Vec<(String, Both)>);

impl Devices {
    /// One round of the series that the worst cases are of.
    ///
    /// # Errors
    /// A file system failed.
    pub(super) fn measured(plan: &Plan) -> Result<Self> {
        if plan.of_paper.is_empty() {
            return Ok(Devices(Vec::new()));
        }
        let quire = ["profile=ext4-none", STOCK_JOURNAL, "profile=single-io"].map(|p| Ok(Mounter::quire(p)));
        let kernel = ["kernel:none", KERNEL_JOURNAL].map(str::parse);
        let mounters: Vec<Mounter> = quire.into_iter().chain(kernel).collect::<Result<_>>()?;
        let mounters = plan::available(&mounters)?;
        let series: Vec<Series> =
            mounters.iter().map(|m| Series { mounter: m.clone(), protections: PROTECTIONS.to_vec() }).collect();
        let once = Plan { rounds: 1, small: plan.small.min(ROWS), ..plan.without_mounters() };
        let on = |kind: &Kind| {
            let dir = Folder::new(&plan.work, "quire-sqlite-")?;
            let disk = Disk::Looped(Looped::new(kind, IMAGE_MIB << 20, dir.path())?);
            let times = rounds(&once, &series, &disk, dir.path())?.times;
            let means: Vec<Vec<f64>> = (0..mounters.len()).map(|who| means(&times, who)).collect();
            let both =
                Both { own: Ratios::of_mounters(&mounters, &means), kernel: Ratios::beside_kernel(&mounters, &means) };
            Ok((kind.to_string(), both))
        };
        plan.of_paper.iter().map(on).collect::<Result<_>>().map(Devices)
    }

    /// Each device and all of them together, by name.
    pub(super) fn choices(&self) -> (Vec<String>, Vec<Both>) {
        let mut choices: Vec<(String, Both)> =
            self.0.iter().map(|(name, both)| (format!("cases on a modelled {name}"), both.clone())).collect();
        if self.0.len() > 1 {
            let names = self.0.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(" and ");
            let all = self.0.iter().fold(Both::default(), |all, (_, both)| all.and(both));
            choices.push((format!("cases on a modelled {names}"), all));
        }
        choices.into_iter().unzip()
    }

    /// The worst cases of each device, with those of the study; none if no other was measured.
    pub(super) fn figure(&self, measured: &[OnDevice]) -> Option<Figure> {
        let own = |device: &OnDevice| {
            (device.kind.to_string(), Both { own: device.ratios.clone(), kernel: device.beside_kernel.clone() })
        };
        let mut figure = Figure::bars(
            "joj-mounts-devices",
            "section 3.1",
            "worst cases by the device, mounts (calibration)",
            "device",
            "times no journal",
        )
        .of_series(SERIES.map(|(name, _)| name));
        for (device, both) in measured.iter().map(own).chain(self.0.iter().cloned()) {
            figure.place(&device, both.worst());
            SERIES.iter().for_each(|(name, printed)| {
                figure.printed(&device, name, printed.parse::<f64>().expect("a printed number"));
            });
        }
        (!self.0.is_empty()).then_some(figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(single: f64) -> Both {
        let of = |times: f64| Ratios { single: vec![times; 12], journal: vec![2.0; 12], ..Ratios::default() };
        Both { own: of(single), kernel: of(single / 2.0) }
    }

    #[test]
    fn the_papers_devices_are_tried_alone_and_together() {
        let devices = Devices(vec![("intel311".into(), both(1.4)), ("emmc".into(), both(1.2))]);
        let (names, all) = devices.choices();
        assert!(names[2].ends_with("intel311 and emmc") && names.len() == 3, "{names:?}");
        let single: Vec<f64> = all.iter().map(|both| both.worst()[1]).collect();
        assert_eq!((single, all[2].own.single.len()), (vec![1.4, 1.2, 1.4], 24));
        let measured = OnDevice {
            kind: Kind::Own,
            means: Vec::new(),
            ratios: both(3.0).own,
            beside_kernel: both(3.0).kernel,
            on_others: Vec::new(),
            figure4: None,
        };
        let figure = devices.figure(std::slice::from_ref(&measured)).unwrap();
        assert_eq!(figure.places, ["own", "intel311", "emmc"]);
        assert_eq!(figure.printed_at("emmc", "single-io / kernel none"), Some(1.38));
        assert!(Devices(Vec::new()).figure(&[measured]).is_none());
    }
}
