use super::*;
use quire_mount::Latency;
use std::collections::{BTreeMap, BTreeSet};

/// One sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// A mount that has something of everything.
fn full() -> Stats {
    let l = Latency {
        count: 3,
        sum_nanos: 7_000_000,
        max_nanos: 5_000_000,
        buckets: vec![(1_000_000, 2), (5_242_880, 1)],
        ..Latency::default()
    };
    let mut s = Stats::default();
    s.requests_by_kind.insert("fsync".into(), 3);
    s.request_latency.insert("fsync".into(), l.clone());
    s.latency.insert("fsync".into(), l.clone());
    s.waited_nanos.insert("flush".into(), 1);
    s.queue.kernel = Some(1);
    s.sandbox.seccomp = true;
    let mut d = DeviceStats::default();
    d.regions.insert("log".into(), quire_mount::stats::RegionStats::default());
    d.latency.insert("flush".into(), l);
    s.devices.insert("fs".into(), d);
    s
}

/// Reads the exposition format 0.0.4, strictly: a family is named once, by HELP and then TYPE, before its samples.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    let mut families: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and words");
            assert!(!help.is_empty() && !families.contains_key(name), "{line}");
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(helped == name && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            families.insert(name.to_owned(), (kind.to_owned(), Vec::new()));
            current = name.to_owned();
        } else {
            let (what, value) = line.rsplit_once(' ').expect("a sample and a value");
            let (name, labels) = what.split_once('{').map_or((what, ""), |(n, l)| (n, l.strip_suffix('}').expect("}")));
            let (kind, samples) = families.get_mut(&current).expect("a family before its samples");
            let of_family = match kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"].iter().any(|s| name == format!("{current}{s}")),
                _ => name == current,
            };
            assert!(of_family && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
            let value = value.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
            samples.push((name.to_owned(), labels_of(labels), value));
        }
    }
    families
}

fn labels_of(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").expect("a label");
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("an escape").1 {
                    'n' => value.push('\n'),
                    c => value.push(c),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "label {name} twice");
        text = rest[end + 1..].strip_prefix(',').unwrap_or(&rest[end + 1..]);
    }
    labels
}

#[test]
fn a_parser_reads_what_is_exposed_and_no_sample_comes_twice() {
    let odd = "/srv/a \"b\\c\nd".to_owned();
    let text = text(&[("/mnt".to_owned(), Some(full())), (odd.clone(), Some(full())), ("/gone".to_owned(), None)]);
    let families = parse(&text);
    let mut seen = BTreeSet::new();
    for (name, (kind, samples)) in &families {
        assert!(!samples.is_empty(), "{name}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        for (name, labels, _) in samples {
            assert!(seen.insert((name, labels)), "{name} {labels:?} twice");
        }
    }
    let up: Vec<_> = families["quire_up"].1.iter().map(|(_, l, v)| (l["mount"].as_str(), *v)).collect();
    assert_eq!(up, [("/mnt", 1.0), (odd.as_str(), 1.0), ("/gone", 0.0)]);
}

#[test]
fn a_histogram_counts_up_to_all_and_has_the_buckets_of_etcd() {
    let families = parse(&text(&[("/mnt".to_owned(), Some(full()))]));
    let (kind, samples) = &families["quire_fsync_duration_seconds"];
    assert_eq!(kind, "histogram");
    let bucket = |le: &str| {
        let found = samples.iter().find(|(n, l, _)| n.ends_with("_bucket") && l["le"] == le);
        found.unwrap_or_else(|| panic!("no bucket {le}")).2
    };
    let etcd = [
        "0.001", "0.002", "0.004", "0.008", "0.016", "0.032", "0.064", "0.128", "0.256", "0.512", "1.024", "2.048",
        "4.096", "8.192", "+Inf",
    ];
    let counts: Vec<f64> = etcd.iter().map(|le| bucket(le)).collect();
    assert_eq!(counts[..4], [2.0, 2.0, 2.0, 3.0], "two below a millisecond, one below 5.24 ms");
    let buckets: Vec<f64> = samples.iter().filter(|s| s.0.ends_with("_bucket")).map(|s| s.2).collect();
    assert!(buckets.is_sorted(), "{buckets:?}");
    let one = |suffix: &str| samples.iter().find(|s| s.0.ends_with(suffix)).unwrap().2;
    assert_eq!((one("_count"), bucket("+Inf"), one("_sum")), (3.0, 3.0, 0.007));
}

#[test]
fn each_part_of_the_sandbox_is_told_whether_it_holds() {
    let families = parse(&text(&[("/mnt".to_owned(), Some(full()))]));
    let parts: Vec<_> = families["quire_sandboxed"].1.iter().map(|(_, l, v)| (l["part"].as_str(), *v)).collect();
    assert_eq!(parts, [("landlock", 0.0), ("seccomp", 1.0)]);
}

/// The dashboard asks for metrics that exist, by labels that they have.
#[test]
fn the_dashboard_names_metrics_and_labels_that_exist() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/grafana-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let families = parse(&text(&[("/mnt".to_owned(), Some(full()))]));
    let samples: Vec<&Sample> = families.values().flat_map(|(_, samples)| samples).collect();
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        expressions.extend(targets.iter().map(|t| t["expr"].as_str().unwrap().to_owned()));
    }
    assert!(expressions.len() >= 10);
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for e in &expressions {
        let names: Vec<&str> = e.split(|c| !word(c)).filter(|w| w.starts_with("quire_")).collect();
        assert!(!names.is_empty(), "{e}");
        for name in names {
            let Some((_, labels, _)) = samples.iter().find(|s| s.0 == name) else { panic!("{e}: no metric {name}") };
            for part in e.split("by (").skip(1) {
                let by = part.split(')').next().unwrap().split(", ");
                by.for_each(|label| assert!(labels.contains_key(label), "{e}: {name} has no label {label}"));
            }
        }
    }
}
