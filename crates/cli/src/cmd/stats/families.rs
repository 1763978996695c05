//! The text format of Prometheus (exposition format 0.0.4): families of samples, each with HELP and TYPE.

use quire_mount::Latency;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The kinds of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Samples by family.
#[derive(Default)]
pub(super) struct Families(BTreeMap<&'static str, Family>);

struct Family {
    kind: Kind,
    help: &'static str,
    samples: String,
}

/// Where buckets end: 1 ms times powers of two from 1.95 us to 8.192 s; from 1 ms on they are those of etcd.
fn bounds() -> impl Iterator<Item = f64> {
    (-9..=13).map(|power| 0.001 * 2f64.powi(power))
}

/// Labels in braces; empty if there are none.
fn braces(labels: &[(&str, &str)]) -> String {
    let one = |(name, value): &(&str, &str)| {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    };
    let all: Vec<_> = labels.iter().map(one).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

impl Families {
    fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> &mut String {
        let family = self.0.entry(name).or_insert(Family { kind, help, samples: String::new() });
        debug_assert_eq!((family.kind, family.help), (kind, help), "{name}");
        &mut family.samples
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.sample(name, Kind::Counter, help, labels, value);
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        self.sample(name, Kind::Gauge, help, labels, value);
    }

    fn sample(&mut self, name: &'static str, kind: Kind, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let samples = self.family(name, kind, help);
        writeln!(samples, "{name}{} {value}", braces(labels)).expect("a string");
    }

    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], l: &Latency) {
        let samples = self.family(name, Kind::Histogram, help);
        for bound in bounds() {
            // To the next nanosecond; the bound has no more digits than that from 15.6 us on.
            let nanos = std::time::Duration::from_secs_f64(bound).as_nanos();
            let below = l.below(u64::try_from(nanos).unwrap_or(u64::MAX));
            let le = format!("{bound}");
            let labels: Vec<_> = labels.iter().copied().chain([("le", le.as_str())]).collect();
            writeln!(samples, "{name}_bucket{} {below}", braces(&labels)).expect("a string");
        }
        let all: Vec<_> = labels.iter().copied().chain([("le", "+Inf")]).collect();
        writeln!(samples, "{name}_bucket{} {}", braces(&all), l.count).expect("a string");
        let sum = std::time::Duration::from_nanos(l.sum_nanos).as_secs_f64();
        writeln!(samples, "{name}_sum{} {sum}", braces(labels)).expect("a string");
        writeln!(samples, "{name}_count{} {}", braces(labels), l.count).expect("a string");
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for (name, f) in &self.0 {
            let kind = match f.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            write!(out, "# HELP {name} {}\n# TYPE {name} {kind}\n{}", f.help, f.samples).expect("a string");
        }
        out
    }
}
