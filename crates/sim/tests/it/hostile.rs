//! Damaged images: only typed errors, bounded time and memory, no write where none belongs.
//!
//! A seeded sample of single bits, fields with bad values, and random mixtures. `QUIRE_HOSTILE_SEED` chooses another
//! sample, `QUIRE_HOSTILE_CASES` its size, `QUIRE_HOSTILE_CASE` one case (a line that a failure prints);
//! `QUIRE_HOSTILE_SWEEP=flips` or `fields` takes every single one (`QUIRE_HOSTILE_EVERY=n`: one in n, of each metadata
//! block), `QUIRE_HOSTILE_BASE` only those of one image.

use quire_sim::campaign::number;
use quire_sim::hostile::decoders::decode_all;
use quire_sim::hostile::{
    Base, Case,
    base::{RECIPES, TINY},
    field_cases, flip_count, flip_of, from_bytes,
    judge::judge,
    nvram_log::NvramHostile,
    quire_log::QuireLog,
    random_case,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A case that takes this much processor time hangs; one that waits for ever takes none of it, and this much time, on a
/// machine that does other things too.
const HANGS: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(600));
const REPEAT: &str = "cargo test -p quire-sim --test it hostile::damaged";
/// The sample ends early rather than take longer.
const MOST: Duration = Duration::from_secs(50);

/// Of this process.
fn processor_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
}

#[derive(Default)]
struct Report {
    cases: u64,
    mounted: u64,
    noticed: u64,
    failures: Vec<(Case, String)>,
}

/// Runs cases one after the other in a thread of their own.
fn run(bases: Vec<Base>, cases: impl Iterator<Item = Case> + Send + 'static, deadline: Option<Instant>) -> Report {
    let (send, receive) = channel();
    let worker = std::thread::spawn(move || {
        let known: BTreeMap<&str, &Base> = bases.iter().map(|b| (b.name, b)).collect();
        for case in cases {
            if deadline.is_some_and(|d| Instant::now() > d) || send.send((case.clone(), None)).is_err() {
                break;
            }
            let said = judge(known[case.base.as_str()], &case);
            let _ = send.send((case, Some(said)));
        }
    });
    let (mut report, mut kinds) = (Report::default(), BTreeMap::<String, u32>::new());
    let mut current = None;
    let mut began = (processor_time(), Instant::now());
    loop {
        match receive.recv_timeout(Duration::from_secs(5)) {
            Ok((case, None)) => {
                current = Some(case);
                began = (processor_time(), Instant::now());
            }
            Ok((case, Some(said))) => {
                current = None;
                report.cases += 1;
                match said {
                    Ok(said) => {
                        report.mounted += u64::from(said.mounted);
                        report.noticed += u64::from(!said.corrupt.is_empty());
                    }
                    Err(why) => {
                        // One of each kind is enough to print.
                        let kind = why.lines().take(3).collect::<String>();
                        let kind: String = kind.chars().filter(|c| !c.is_ascii_digit()).collect();
                        let n = kinds.entry(kind).or_default();
                        *n += 1;
                        if *n <= 2 {
                            println!("{case}\n  {why}");
                            report.failures.push((case, why));
                        }
                    }
                }
            }
            Err(RecvTimeoutError::Timeout)
                if processor_time().saturating_sub(began.0) < HANGS.0 && began.1.elapsed() < HANGS.1 => {}
            Err(RecvTimeoutError::Timeout) => {
                report.failures.push((current.expect("a case is under way"), "hangs".to_owned()));
                return report;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    worker.join().expect("the worker ends");
    report
}

/// All images, or those that `QUIRE_HOSTILE_BASE` names: `tiny*` are those that begin so.
fn bases() -> Vec<Base> {
    let Ok(only) = std::env::var("QUIRE_HOSTILE_BASE") else { return Base::all() };
    let wanted = |name: &str| only.strip_suffix('*').map_or(only == name, |o| name.starts_with(o));
    RECIPES.iter().chain(TINY).filter(|r| wanted(r.name)).map(Base::new).collect()
}

fn settle(what: &str, r: &Report) {
    println!("{what}: {} cases, {} mounted, {} reported corruption", r.cases, r.mounted, r.noticed);
    let lines = r.failures.iter().map(|(c, why)| format!("{why}\nrepeat: QUIRE_HOSTILE_CASE='{c}' {REPEAT}"));
    assert!(r.failures.is_empty(), "{}", lines.collect::<Vec<_>>().join("\n\n"));
}

/// A seeded mixture: half fields, some bits, some random.
fn sample(bases: &[Base], seed: u64) -> impl Iterator<Item = Case> + use<> {
    let (mut rng, bases) = (StdRng::seed_from_u64(seed), bases.to_vec());
    std::iter::repeat_with(move || {
        let base = &bases[rng.random_range(0..bases.len())];
        match rng.random_range(0..10) {
            0..3 => flip_of(base, rng.random_range(0..flip_count(base))),
            _ => random_case(base, rng.random()),
        }
    })
}

/// One in `every` field cases of all places.
fn fields(bases: &[Base], every: usize, seed: usize) -> impl Iterator<Item = Case> + use<> {
    let bases = bases.to_vec();
    let all = bases.into_iter().flat_map(|b| (0..b.places.len()).flat_map(move |p| field_cases(&b, p)));
    all.skip(seed % every).step_by(every)
}

#[test]
fn damaged() {
    let all = bases();
    if let Ok(line) = std::env::var("QUIRE_HOSTILE_CASE") {
        let case: Case = line.parse().expect("a case");
        let base = RECIPES.iter().chain(TINY).find(|r| r.name == case.base).expect("an image of that name");
        return settle("one case", &run(vec![Base::new(base)], std::iter::once(case), None));
    }
    let seed = number("QUIRE_HOSTILE_SEED").unwrap_or(1);
    let every = number("QUIRE_HOSTILE_EVERY").unwrap_or(1).max(1);
    let step = usize::try_from(every).expect("a small number");
    match std::env::var("QUIRE_HOSTILE_SWEEP").as_deref() {
        Ok("flips") => {
            let each = move |b: Base| (seed % every..flip_count(&b)).step_by(step).map(move |n| flip_of(&b, n));
            settle(&format!("one bit in {every}"), &run(all.clone(), all.into_iter().flat_map(each), None));
        }
        Ok("fields") => {
            let some = fields(&all, step, usize::try_from(seed).unwrap_or(0));
            settle(&format!("one field value in {every}"), &run(all.clone(), some, None));
        }
        _ => {
            let cases = number("QUIRE_HOSTILE_CASES");
            let deadline = cases.is_none().then(|| Instant::now() + MOST);
            let n = usize::try_from(cases.unwrap_or(2000)).expect("a small number");
            let total = fields(&all, 1, 0).count();
            let half = fields(&all, (total / (n / 2).max(1)).max(1), usize::try_from(seed).unwrap_or(0));
            // Alternating, so that a sample that ends early has some of each.
            let mixed = half.zip(sample(&all, seed)).flat_map(|(a, b)| [a, b]).take(n);
            settle(&format!("seed {seed}, of {total} fields"), &run(all, mixed, deadline));
        }
    }
}

/// Damage that was once not survived, and how it ended.
const KNOWN: &[(&str, &str)] = &[
    ("plain:1048=feffffff:seal", "s_log_block_size of almost 2^32: overflow"),
    ("dirty-ext3:1048=ffffffff:seal", "the same, with a log to replay"),
    (
        "no-log:2112=0300000006000000090000006b078d0006000000000000000000000000000000000000000000000000000000000000000000000000\
         000000000000000000,2860454=01:raw",
        "two groups with one bitmap: a file's new block was another's extent node; written back, it was missed for ever",
    ),
    ("dirty:2264088=0000000c:seal", "a damaged log, and no word where"),
    (
        "tiny:38456=08000000:seal",
        "a directory's block as an extent node: it had passed as the one, and was taken for the other",
    ),
    ("tiny:1664=08000000:seal", "the log as the orphan file: larger than the cache, it was read for ever"),
];

#[test]
fn known() {
    let mut all = bases();
    all.extend(TINY.iter().map(Base::new));
    for (line, what) in KNOWN {
        let case: Case = line.parse().expect("a case");
        let Some(base) = all.iter().find(|b| b.name == case.base) else { continue };
        judge(base, &case).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
}

/// What the fuzzers have found worth keeping: fuzz/corpus/TARGET, which is also where they begin.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|p| std::fs::read(p).expect("an input")).collect()
}

#[test]
fn the_fuzzers_corpus_is_survived() {
    let all = Base::all();
    let mut dirty: Vec<Base> = all.iter().filter(|b| b.dirty).cloned().collect();
    dirty.iter_mut().for_each(Base::keep_log_only);
    let mut cases = 0;
    for (target, bases) in [("mount_walk", &all), ("replay_journal", &dirty)] {
        for case in corpus(target).iter().filter_map(|input| from_bytes(bases, input)) {
            let base = bases.iter().find(|b| b.name == case.base).expect("one of them");
            let judged = judge(base, &case);
            judged.unwrap_or_else(|why| panic!("{why}\nrepeat: QUIRE_HOSTILE_CASE='{case}' {REPEAT}"));
            cases += 1;
        }
    }
    corpus("decode").iter().for_each(|input| decode_all(&all[0].sb, input));
    let (logs, in_nvram) = (QuireLog::all(), NvramHostile::all());
    for input in corpus("quire_log") {
        logs_input(&input, logs.len(), |n, edits| logs[n].recover_edited(edits));
        cases += 1;
    }
    for input in corpus("nvram_log") {
        logs_input(&input, in_nvram.len(), |n, edits| in_nvram[n].recover_edited(edits));
        cases += 1;
    }
    assert!(cases > 100, "{cases}");
}

/// An input of the targets that edit logs: which log, and the edits.
fn logs_input(input: &[u8], logs: usize, recover: impl Fn(usize, &[u8]) -> Result<(), String>) {
    if let Some((which, edits)) = input.split_first() {
        recover(usize::from(*which) % logs, edits).unwrap_or_else(|why| panic!("{input:?}: {why}"));
    }
}

#[test]
fn sound_images_are_silent() {
    for base in bases() {
        let sound = Case { base: base.name.to_owned(), edits: Vec::new(), seal: true };
        let said = judge(&base, &sound).unwrap();
        assert!(said.mounted && said.corrupt.is_empty(), "{}: {said:?}", base.name);
        // Sealing changes nothing that is right already.
        let mut image = base.image.to_vec();
        let all = base.places.iter().map(|p| quire_sim::hostile::Edit {
            at: p.at,
            bytes: image[usize::try_from(p.at).unwrap()..][..p.len].to_vec(),
        });
        let same = Case { edits: all.collect(), ..sound };
        let sealed = same.image(&base).to_vec();
        let differs = image.iter_mut().zip(&sealed).position(|(a, b)| a != b);
        let place = differs.and_then(|at| base.places.iter().find(|p| (p.at..p.end()).contains(&(at as u64))));
        assert_eq!(differs, None, "{}: {place:?}", base.name);
    }
}

#[test]
fn every_kind_of_structure_is_there() {
    let mut bases = bases();
    bases.extend(TINY.iter().map(Base::new));
    for b in &bases {
        let mut kinds = BTreeMap::<_, u32>::new();
        b.places.iter().for_each(|p| *kinds.entry(p.kind.name()).or_default() += 1);
        println!("{}: {} structures, {} bits: {kinds:?}", b.name, b.places.len(), flip_count(b));
    }
    let deep = bases.iter().find(|b| b.name == "large-dir").map(|b| {
        let nodes = b.places.iter().filter(|p| matches!(p.kind, quire_sim::hostile::Kind::HtreeRoot(_)));
        nodes.map(|p| b.image_byte(p.at + 30)).max()
    });
    assert!(deep.is_none_or(|levels| levels == Some(2)), "{deep:?}");
}
