//! What JoJ says of its cases, and what is asked of Quire's own mode beside them.

use super::aims;
use super::cases::{Case, of_operations, of_paper, ratio};
use super::plan::{OPERATIONS, On};
use super::ratios::{Ratios, not_growing, of, worst};
use crate::mounter::Mounter;
use crate::results::{Claim, TIE, Verdict, with_one_value};
use crate::served::Kind;
use crate::stats::{float, mean};
use crate::work::sqlite::Protection;

/// Why an ordered write-ahead log may cost more here than in the paper, while it grows.
const FLUSHED_FIRST: &str = "new blocks of the write-ahead log are flushed before the commit that names them; the paper's \
     kernel, with journal_async_commit, had one flush for both and no order between them (section 2.1)";
/// What the cases without that flush say of a claim: they are not the paper's, which are all.
const TRUE_WITHOUT: &str = "the sentence is true of the cases in which the log takes no new blocks, which are not all";
const UNTRUE_WITHOUT: &str = "the sentence is not true of the cases in which the log takes no new blocks either";
/// Why a worst case may be another on a mount.
const OTHER_DEVICES: &str = "the machine's own disk and a modelled SSD stand for the paper's tablet and Intel 311";
/// Why the kernel's data journaling may cost more than the paper's.
const TWO_FLUSHES: &str = "an fsync of today's data=journal takes two flushes with journal_async_commit, with the one behind \
     the blocks that it writes home, and one without a journal takes one; the paper's kernel flushed nothing without a \
     journal, and its devices' flushes take next to nothing";
/// As many times as long where flushes are all.
const TWO_OF_ONE: f64 = 2.0;

/// What data journaling's worst case is of.
const JOURNAL_TO_NONE: &str = "stock journal / ext4-none, worst case";

/// A claim, and its figure with any ratios.
pub(super) struct ByRatios {
    pub claim: Claim,
    pub figure: Box<dyn Fn(&Ratios) -> f64>,
    /// It is about modes that write a growing log in place, which flush it before the commit.
    flushes_first: bool,
}

impl ByRatios {
    pub(super) fn new(claim: Claim, figure: impl Fn(&Ratios) -> f64 + 'static) -> Self {
        ByRatios { claim, figure: Box::new(figure), flushes_first: false }
    }

    /// One about modes that flush a growing log first.
    fn flushed_first(self) -> Self {
        ByRatios { flushes_first: true, ..self }
    }
}

/// The claims alone.
pub(super) fn alone(claims: Vec<ByRatios>) -> Vec<Claim> {
    claims.into_iter().map(|of| of.claim).collect()
}

/// A claim about modes that flush a growing log before the commit. No run has all cases without that flush, so it is a
/// supposed cause where the claim is true of the cases in which no log grows, and explains nothing where it is not.
/// `without` is the claim's figure in these cases, NaN if there are none.
pub(super) fn by_flushes(claim: Claim, without: f64) -> Claim {
    match claim.verdict {
        Verdict::Held => claim,
        _ if without.is_nan() => claim.supposedly(FLUSHED_FIRST),
        _ if claim.would_hold(without) => claim.supposedly(&format!("{FLUSHED_FIRST}; {TRUE_WITHOUT}")),
        _ => claim.calibrated_in_vain(&[without], &format!("{FLUSHED_FIRST}; {UNTRUE_WITHOUT}")),
    }
}

/// The same of all claims about such modes.
pub(super) fn without_flushes(claims: Vec<ByRatios>, of: &Ratios, growing: &[bool]) -> Vec<ByRatios> {
    let others = of.without(growing);
    let judged = |of: ByRatios| match of.flushes_first {
        true => {
            let without = (of.figure)(&others);
            ByRatios { claim: by_flushes(of.claim, without), ..of }
        }
        false => of,
    };
    claims.into_iter().map(judged).collect()
}

/// Ratios on other devices, by name.
pub(super) struct Others<'n> {
    pub names: &'n [String],
    pub ratios: Vec<Ratios>,
}

/// On mounts: which devices the cases are on is the cause of what no flush before a commit touches, if what such a
/// flush touches does not hold here: that is not measured on them.
pub(super) fn on_devices(claims: Vec<ByRatios>, others: &Others<'_>) -> Vec<Claim> {
    let swept = |ByRatios { claim, figure, flushes_first }| match (flushes_first, claim.verdict) {
        (true, Verdict::Held) => claim.swept(others.ratios.iter().map(|_| f64::NAN)),
        (true, _) => claim.into(),
        (false, _) => claim.swept(others.ratios.iter().map(figure)),
    };
    with_one_value(OTHER_DEVICES, others.names, claims.into_iter().map(swept).collect())
}

/// So many cases of this many are slower than these parts of `ext4-none`: as many of all as of those that there are.
pub(super) fn above(ratios: &[f64], limit: f64, of: usize) -> f64 {
    let slower = ratios.iter().filter(|r| **r > limit).count();
    float((slower * of) as u64) / float(ratios.len() as u64)
}

/// What the paper says of all of its 24 cases: 12 on each device in turn.
pub(super) fn of_all(of: &Ratios, on: On) -> Vec<ByRatios> {
    if of.joj.is_empty() {
        return Vec::new();
    }
    let at = if on == On::Models { "section 3.1" } else { "section 3.1, on mounts" };
    let all = of.joj.len();
    let says = "file-adaptive journaling is at most 6 % slower than no journal, in all of 24 cases but one";
    let what = format!("joj / ext4-none: cases above 1.06, of {all}");
    let slow = Claim::at_most(at, says, what, above(&of.joj, 1.06, all), 1.0);
    let says = "in that one, the worst, it is 14 % slower";
    let most = Claim::by_percent(at, says, "joj / ext4-none, worst case", worst(&of.joj), (14.0, "1.14"));
    let says = "on average it is 7 % faster than no journal";
    let average = Claim::by_percent(at, says, "joj / ext4-none, mean", mean(&of.joj), (-7.0, "0.93"));
    let mut claims = vec![
        ByRatios::new(slow, move |s| above(&s.joj, 1.06, all)).flushed_first(),
        ByRatios::new(most, |s| worst(&s.joj)).flushed_first(),
        ByRatios::new(average, |s| mean(&s.joj)).flushed_first(),
    ];
    claims.push(in_some_cases(at, "joj", |s| &s.joj, of).flushed_first());
    if !of.ordered.is_empty() {
        let says = "ordered journaling is about 20 % slower than no journal in the worst case";
        let what = "stock ordered / ext4-none, worst case";
        let ordered = Claim::by_percent(at, says, what, worst(&of.ordered), (20.0, "1.20"));
        claims.push(ByRatios::new(ordered, |s| worst(&s.ordered)).flushed_first());
    }
    if !of.journal.is_empty() && !of.single.is_empty() {
        claims.extend(of_single_io(at, of, on));
    }
    claims
}

/// What these ratios are of is faster than no journal in some cases.
fn in_some_cases(at: &str, name: &str, ratios: fn(&Ratios) -> &Vec<f64>, of: &Ratios) -> ByRatios {
    let no_tie = 1.0 - TIE;
    let faster = move |r: &Ratios| float(ratios(r).iter().filter(|r| **r < no_tie).count() as u64);
    let says = "single-I/O and file-adaptive journaling are faster than no journal in some cases";
    let what = format!("{name} / ext4-none: cases below {no_tie}, of {}", ratios(of).len());
    ByRatios::new(Claim::at_least(at, says, what, faster(of), 1.0), faster)
}

/// The same sentences with the kernel's ext4 as the baselines: ratios of [`Ratios::beside_kernel`].
pub(super) fn of_all_beside_kernel(of: &Ratios, growing: &[bool], others: &Others<'_>) -> Vec<Claim> {
    let of_flushes = |of: ByRatios| match of.claim.what == JOURNAL_TO_NONE {
        true => ByRatios { claim: of.claim.because_within(1.0..=TWO_OF_ONE, TWO_FLUSHES), ..of },
        false => of,
    };
    let claims = without_flushes(of_all(of, On::Mounts), of, growing).into_iter().map(of_flushes).collect();
    on_devices(claims, others).into_iter().map(of_kernel).collect()
}

/// A claim about ratios of [`Ratios::beside_kernel`].
pub(super) fn of_kernel(claim: Claim) -> Claim {
    let names =
        [("ext4-none", "kernel none"), ("stock ordered", "kernel ordered"), ("stock journal", "kernel journal, async")];
    let what = names.iter().fold(claim.what, |what, (ours, kernels)| what.replace(ours, kernels));
    Claim { at: format!("{}, beside the kernel", claim.at), what, ..claim }
}

/// What the paper says of single-I/O journaling, from data journaling as ext4 has it to file-adaptive journaling.
fn of_single_io(at: &str, of: &Ratios, on: On) -> Vec<ByRatios> {
    let of_journal = worst(&of.journal);
    let says = "data journaling is about 73 % slower in the worst case";
    let journal = Claim::by_percent(at, says, JOURNAL_TO_NONE, of_journal, (73.0, "1.73"));
    let says = "single-I/O journaling is still 38 % slower in the worst case";
    let single = Claim::by_percent(at, says, "single-io / ext4-none, worst case", worst(&of.single), (38.0, "1.38"));
    let says = "single-I/O is faster than data journaling as ext4 has it";
    let faster = |r: &Ratios| mean(&ratio(&r.single, &r.journal));
    let gain = Claim::below(at, says, "single-io / stock journal, mean", faster(of), 1.0);
    let says = "file-adaptive journaling avoids the worst case of single-I/O journaling";
    let avoids = |r: &Ratios| worst(&r.joj) / worst(&r.single);
    let avoided = Claim::below(at, says, "worst cases of joj / of single-io", avoids(of), 1.0);
    let mut claims = vec![
        ByRatios::new(single, |s| worst(&s.single)),
        in_some_cases(at, "single-io", |s| &s.single, of),
        ByRatios::new(gain, faster),
        ByRatios::new(avoided, avoids).flushed_first(),
    ];
    if on == On::Mounts {
        // The paper's number is that of the tablet, where the study in virtual time has it.
        claims.push(ByRatios::new(journal, |s| worst(&s.journal)));
    }
    claims
}

/// What is asked of Quire's own mode on one device.
pub(super) fn of_quire(kind: &Kind, mounters: &[Mounter], cases: &[Case], means: &[Vec<f64>]) -> Vec<Claim> {
    let mut claims = Vec::new();
    aims::own(kind, cases, &mut claims, &|name| of(mounters, means, name));
    claims
}

/// What the paper prints of its two devices.
pub(super) fn of_printed(kind: &Kind, cases: &[Case], of: &Ratios) -> Vec<ByRatios> {
    let (faster, slower) = match kind.to_string().as_str() {
        "emmc" => ((-4.0, "0.96"), (73.0, "1.73")),
        "intel311" => ((-9.0, "0.91"), (58.0, "1.58")),
        _ => return Vec::new(),
    };
    let at = of_paper(kind);
    let mut claims = Vec::new();
    if !of.joj.is_empty() {
        let says = format!("file-adaptive journaling is {} % faster than no journal on average", -faster.0);
        let what = format!("{kind}: joj / ext4-none, mean");
        let claim = Claim::by_percent(at, &says, what, mean(&of.joj), faster);
        claims.push(ByRatios::new(claim, |s| mean(&s.joj)));
    }
    for (name, ratios) in [("joj", (|s| &s.joj) as fn(&Ratios) -> &Vec<f64>), ("single-io", |s| &s.single)] {
        if !ratios(of).is_empty() {
            let says = "the gain is largest in large inserts with a rollback journal";
            let what = format!("{kind}: {name} / ext4-none there / at its best");
            let claim = Claim::at_most(at, says, what, insert_to_best(cases, ratios(of)), 1.0);
            let own = cases.to_vec();
            claims.push(ByRatios::new(claim, move |s| insert_to_best(&own, ratios(s))));
        }
    }
    if !of.journal.is_empty() {
        let says = format!("data journaling is up to {} % slower than no journal", slower.0);
        let what = format!("{kind}: stock journal / ext4-none, worst case");
        let claim = Claim::by_percent(at, &says, what, worst(&of.journal), slower);
        claims.push(ByRatios::new(claim, |s| worst(&s.journal)));
    }
    if kind.to_string() == "emmc" && !of.joj.is_empty() {
        let says = "the exception: small updates with a rollback journal are 14 % slower, as whole pages are journaled";
        let measured = small_update(cases, &of.joj);
        let claim = Claim::by_percent(at, says, "emmc: joj / ext4-none there", measured, (14.0, "1.14"));
        let own = cases.to_vec();
        claims.push(ByRatios::new(claim, move |s| small_update(&own, &s.joj)));
    }
    claims
}

/// Why a figure of a modelled memory may be another.
pub(super) const ASSUMED: &str = "what a write, a write elsewhere and a flush take of the devices is assumed, what a \
     byte takes of the eMMC (the Intel 311's data sheet says it), and how large SQLite's pages are; they weigh the \
     number of writes against the bytes (joj-emmc-sets and joj-intel311-sets: of hundreds of sets of these costs, how \
     many of a device's claims hold at once)";

/// A ratio to `ext4-none` in large inserts with a rollback journal, in parts of the least of all cases.
pub(super) fn insert_to_best(cases: &[Case], joj: &[f64]) -> f64 {
    let insert = cases.iter().position(|c| c.protection == Protection::Delete && c.operations > 1 && c.step == 0);
    let least = joj.iter().copied().fold(f64::INFINITY, f64::min);
    insert.map_or(f64::NAN, |n| joj[n] / least)
}

/// `joj / ext4-none` in small updates with a rollback journal.
pub(super) fn small_update(cases: &[Case], joj: &[f64]) -> f64 {
    let update = cases.iter().position(|c| c.protection == Protection::Delete && c.operations == 1 && c.step == 1);
    update.map_or(f64::NAN, |n| joj[n])
}

/// Of ratios of the cases: the mean of the small, and the worst of the large.
pub(super) fn of_sizes(cases: &[Case], ratios: &[f64]) -> [f64; 2] {
    let [small, large] = OPERATIONS;
    [mean(&of_operations(cases, ratios, small)), worst(&of_operations(cases, ratios, large))]
}

/// Full protection by the database's own, its worst case, and what [`of_sizes`] has.
pub(super) fn figures4(cases: &[Case], of: &[Vec<f64>]) -> [f64; 3] {
    let [small, large] = of_sizes(cases, &ratio(&of[0], &of[2]));
    [worst(&ratio(&of[0], &of[1])), small, large]
}

/// What figure 4 says of full protection, the database's alone and none.
pub(super) fn of_figure4(kind: &Kind, [minor, small, large]: [f64; 3]) -> [Claim; 3] {
    let at = "figure 4";
    [
        Claim::at_most(
            at,
            "in all cases full protection adds almost nothing to the database's own (\"minor\" is 6 % in the paper)",
            format!("{kind}: full / application (ext4-none), worst case"),
            minor,
            1.06,
        ),
        Claim::between(
            at,
            "small transactions: protection is almost an order of magnitude slower than none",
            format!("{kind}: full / none (ext4-none), mean of the small"),
            small,
            (9.0, 10.0),
        ),
        Claim::below(
            at,
            "large transactions: less than a factor of two",
            format!("{kind}: full / none (ext4-none), worst of the large"),
            large,
            2.0,
        ),
    ]
}

/// Full protection by the database's own, the worst of the cases in which the log takes no new blocks; NaN if there is
/// no such case.
pub(super) fn minor_without_flushes(of: &[Vec<f64>], growing: &[bool]) -> f64 {
    let others = not_growing(&ratio(&of[0], &of[1]), growing);
    if others.is_empty() { f64::NAN } else { worst(&others) }
}

/// Why protection costs more, beside none.
pub(super) const COMPUTES: &str = "without protection a transaction only computes, by calls of a library in one \
     process (on mounts, of today's kernel); how long it took on the paper's machines, of 1 and 2 GHz, and what a \
     flush takes there, is not known; one guess is added to the times that were measured on all devices, by arithmetic \
     and without a run";

#[cfg(test)]
mod tests {
    use super::super::plan::KERNEL_JOURNAL;
    use super::*;

    fn mounters(names: [&str; 2]) -> Vec<Mounter> {
        names.map(|m| m.parse().unwrap()).into()
    }

    fn verdicts(claims: &[ByRatios]) -> Vec<Verdict> {
        claims.iter().map(|of| of.claim.verdict).collect()
    }

    /// The inserts with a write-ahead log, small and large.
    const GROWING: [bool; 12] = [true, false, false, true, false, false, false, false, false, false, false, false];
    const HELD: Verdict = Verdict::Held;
    const DIFFERS: Verdict = Verdict::Differs;
    const NOT: Verdict = Verdict::NotHeld;

    const NO_OTHERS: Others<'static> = Others { names: &[], ratios: Vec::new() };

    fn joj(ratios: Vec<f64>) -> Ratios {
        Ratios { joj: ratios, ..Ratios::default() }
    }

    #[test]
    fn claims_are_made_of_those_who_ran() {
        let cases = super::super::cases::cases(&[Protection::Wal, Protection::Delete]);
        let mut ratios = vec![1.0; 24];
        (ratios[4], ratios[16]) = (1.12, 1.05);
        assert_eq!(verdicts(&of_all(&joj(ratios.clone()), On::Models)), [HELD, NOT, NOT, NOT]);
        ratios[4] = 1.14;
        assert_eq!(verdicts(&of_all(&joj(ratios.clone()), On::Models)), [HELD, HELD, NOT, NOT]);
        let average = &of_all(&joj(ratios.clone()), On::Models)[2];
        assert!(((average.figure)(&joj(vec![0.9; 24])) - 0.9).abs() < 1e-9, "the figure is that of other ratios");
        ratios[0..12].fill(0.84);
        ratios[4] = 1.14;
        assert_eq!(verdicts(&of_all(&joj(ratios), On::Models)), [HELD; 4]);
        assert!((above(&[1.1, 1.0], 1.06, 4) - 2.0).abs() < 1e-9, "as many of four as of two");
        let two = mounters(["quire:profile=ext4-none", "quire:profile=joj"]);
        let means = vec![vec![1.0; 12]; 2];
        assert!(of_printed(&Kind::Own, &cases, &Ratios::of_mounters(&two, &means)).is_empty());
        assert!(of_quire(&Kind::Own, &two, &cases, &means).is_empty());
        let auto = mounters(["kernel:data=ordered", "quire"]);
        let means = [vec![1.0; 12], [vec![1.2; 3], vec![0.6; 9]].concat()];
        let claims = of_quire(&Kind::Own, &auto, &cases, &means);
        assert!(claims.iter().all(|c| c.verdict == HELD) && claims.len() == 2);
        assert!(claims.iter().all(|c| c.ours && !c.at.starts_with("section")), "aims are not the paper's");
        assert!(of_all(&Ratios::of_mounters(&auto, &means), On::Mounts).is_empty());
    }

    #[test]
    fn the_kernels_ext4_is_a_baseline_of_its_own() {
        let names = ["kernel:none", "kernel:data=ordered", KERNEL_JOURNAL, "quire:profile=single-io"];
        let all: Vec<Mounter> = names.into_iter().chain(["quire:profile=joj"]).map(|m| m.parse().unwrap()).collect();
        let means = [1.0, 1.2, 1.73, 1.38, 2.5].map(|times| vec![times; 12]).to_vec();
        let of = Ratios::beside_kernel(&all, &means);
        let claims = of_all_beside_kernel(&of, &GROWING, &NO_OTHERS);
        assert!(claims.iter().all(|c| !c.what.contains("ext4-none") && !c.what.contains("stock")), "{claims:?}");
        let of = |what: &str| claims.iter().find(|c| c.what == what).unwrap();
        assert_eq!(of("kernel ordered / kernel none, worst case").verdict, HELD);
        assert_eq!(of("kernel journal, async / kernel none, worst case").verdict, HELD);
        assert_eq!(
            (of("joj / kernel none, worst case").measured, of("joj / kernel none, worst case").verdict),
            (Some(2.5), NOT)
        );
        assert!(of_all_beside_kernel(&Ratios::beside_kernel(&all[..3], &means[..3]), &GROWING, &NO_OTHERS).is_empty());
    }

    #[test]
    fn a_flush_before_the_commit_is_a_supposed_cause_of_what_is_true_of_the_cases_without_it() {
        let supposed = |of: &ByRatios| of.claim.cause().is_some_and(|why| why.ends_with(TRUE_WITHOUT));
        let of = |slow: &[usize], ordered: usize| {
            let mut ratios = Ratios { joj: vec![0.9; 24], ordered: vec![1.0; 24], ..Ratios::default() };
            slow.iter().for_each(|n| ratios.joj[*n] = 1.5);
            (ratios.ordered[10], ratios.ordered[ordered], ratios.joj[9]) = (1.2, 1.5, 1.14);
            let judged = without_flushes(of_all(&ratios, On::Mounts), &ratios, &GROWING);
            assert_eq!(verdicts(&judged), [NOT, NOT, NOT, HELD, NOT], "some of the cases are no measure of all");
            judged.iter().map(supposed).collect::<Vec<_>>()
        };
        // Small and large inserts with a write-ahead log on both devices, and ordered's worst case is one.
        let one_of_20 = "one of 20 is more than one of 24";
        assert_eq!(of(&[0, 3, 12, 15], 12), [false, true, false, false, true], "{one_of_20}");
        assert_eq!(of(&[0, 1, 3, 12, 15], 12), [false, false, false, false, true], "an update, too");
        assert!(!of(&[0, 3, 12, 15], 13)[4], "an update's log does not grow");
    }

    #[test]
    fn a_flush_before_the_commit_explains_nothing_of_what_is_untrue_without_it() {
        let cause = |without| {
            let minor = Claim::at_most("figure 4", "6 % more", "full / application", 1.08, "1.06");
            let judged = by_flushes(minor, without);
            assert_eq!(judged.verdict, NOT);
            judged.cause_in_full().unwrap()
        };
        assert!(cause(1.0).ends_with(TRUE_WITHOUT), "{}", cause(1.0));
        assert!(cause(1.07).contains("does not explain so much") && cause(1.07).contains(UNTRUE_WITHOUT));
        assert!(cause(f64::NAN).ends_with(FLUSHED_FIRST), "there is no such case");
        let held = Claim::at_most("figure 4", "6 % more", "full / application", 1.05, "1.06");
        assert_eq!(by_flushes(held, 1.0).cause(), None);
    }

    #[test]
    fn the_papers_devices_are_the_cause_of_worst_cases_if_they_have_them_and_lose_nothing() {
        let of = |journal: f64, single: f64| Ratios {
            journal: vec![journal; 12],
            single: vec![single; 12],
            joj: vec![1.0; 12],
            ..Ratios::default()
        };
        let with = |here: &Ratios, journal: f64, single: f64| {
            let others = Others { names: &["an Intel 311".to_owned()], ratios: vec![of(journal, single)] };
            let claims = on_devices(of_single_io("", here, On::Mounts), &others);
            claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        // Single-I/O's worst case, no faster case, its gain, joj's worst case, data journaling's worst case.
        let verdicts = |journal, single| with(&of(1.2, 1.0), journal, single);
        assert_eq!(verdicts(1.73, 1.38), [DIFFERS, NOT, HELD, NOT, DIFFERS]);
        assert_eq!(verdicts(1.73, 1.0), [NOT, NOT, HELD, NOT, DIFFERS]);
        assert_eq!(verdicts(1.3, 1.38), [NOT, NOT, HELD, NOT, NOT], "single-I/O would not be faster there");
        let avoids = Ratios { joj: vec![0.9; 12], ..of(1.2, 1.0) };
        assert_eq!(with(&avoids, 1.73, 1.38), [NOT, NOT, HELD, HELD, NOT], "joj is not measured there");
    }

    #[test]
    fn figure_4_is_of_the_worst_case_beside_the_database_and_of_sizes_beside_none() {
        let kind: Kind = "intel311".parse().unwrap();
        let cases = super::super::cases::cases(&[Protection::Wal]);
        let of = |full: f64, none: f64| {
            let times = [full, full, none].map(|ms| vec![ms; 6]);
            of_figure4(&kind, figures4(&cases, &times)).map(|claim| claim.verdict)
        };
        assert_eq!(of(9.5, 1.0), [HELD, HELD, NOT], "right for small transactions, much for large ones");
        assert_eq!((of(8.5, 1.0), of(1.9, 1.0)), ([HELD, NOT, NOT], [HELD, NOT, HELD]));
        let times = [vec![1.0, 2.0], vec![1.0; 2], vec![1.0; 2]];
        assert!((minor_without_flushes(&times, &[false, true]) - 1.0).abs() < 1e-9);
        assert!(minor_without_flushes(&times, &[true, true]).is_nan());
    }
}
