//! More names of one hash than one operation looks at (D2, D3, D5).

use super::listing::with_hash;
use super::*;
use quire_layout::dir::{HashVersion, Hasher};
use std::collections::BTreeSet;

/// Parts of names. After 203 times `c` and one of each of the pairs before, both of a pair leave the legacy hash in the
/// same state.
const PAIRS: [[&str; 2]; 4] = [
    ["e6jEAzO-DXa", "2ibojmOAqJb"],
    ["aQRUirvlipa", "zqu0O9Hs73f"],
    ["AsrNROdrSCf", "KFQhg4NIgLf"],
    ["tu_Y5iws6Vf", "qkK_8zHdt5e"],
];
/// Endings of eight bytes that then give one and the same hash.
const ENDINGS: &str = "8AHxaxahQhtiDdC67V7gkLbrUiq5tiTnm3Zbwz6n8ZVr984ZwGB7w4LaLtq0qBMoEPGQf7v2JWEkcwgw\
    10Q06rEIBbRcbq7tLoQtpOqEj4qVTO7nQx280ff6snO2xxzNC3PpBlKtRseQRacQwA5DQVfLIycM7H7v\
    NvJ9kwYYCJPVR9gM4HKC1rsnGBxE7ORhH9DURaNgvyMwNNRElMvozdQURTTmZWMkPk8PMH76Jb2UFUIa\
    yvorQ_vDDwfL9oGge7iF5LQsbXxMY9bMoyxDYRvg0AMzfcLnUbgz0yip5KG8PwxO-fK2kGbBykayWcmJ\
    H7uaQ0KMisO-yAD7uEshNVPGdeL9VOePIWE024AVHmNJ9YMurYbtc2kiy8dpTxR2t7Knj5JJuwZHm54I\
    PpSVxKUVSCUnr4gd0T0bgjY5Jvh71rsWHzG5jF7WvHwkrntFVZnmWaGMTIzeN9p_TdNanI-q9rtbZXYJ\
    uv77HOZepjLufrGkDEShKzYN3momIkBy";

/// 1,024 names of 255 bytes with one and the same legacy hash: a block of 1 KiB holds three.
fn colliding() -> Vec<Vec<u8>> {
    let mut starts = vec![vec![b'c'; 203]];
    for pair in PAIRS {
        starts = starts.iter().flat_map(|s| pair.map(|p| [s, p.as_bytes()].concat())).collect();
    }
    let endings = ENDINGS.as_bytes().chunks(8);
    let names: Vec<Vec<u8>> = starts.iter().flat_map(|s| endings.clone().map(move |e| [s, e].concat())).collect();
    let hasher = Hasher::new(HashVersion::Legacy, false, [0; 4]);
    assert!(names.iter().all(|n| n.len() == 255 && hasher.hash(n) == hasher.hash(&names[0])));
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 1024);
    names
}

/// A directory of these names, and of some of other hashes.
fn of_names(names: &[Vec<u8>]) -> (Dirs, BTreeSet<Vec<u8>>) {
    let d = Dirs::on(with_hash(image("16M", &["-t", "ext4", "-b", "1024"]), "legacy", false));
    let others = (0..200).map(|n| format!("other-{n}").into_bytes());
    let all: Vec<Vec<u8>> = names.iter().cloned().chain(others).collect();
    for (n, name) in all.iter().enumerate() {
        d.add(name, d.file(n)).unwrap();
    }
    let dots = [&b"."[..], b".."].map(<[u8]>::to_vec);
    (d, all.into_iter().chain(dots).collect())
}

/// Lists in pieces; each name must come once.
fn list(d: &Dirs, piece: usize) -> BTreeSet<Vec<u8>> {
    let (mut cookie, mut seen) = (0, BTreeSet::new());
    loop {
        let (names, next) = d.list(cookie, piece).unwrap();
        if names.is_empty() {
            return seen;
        }
        for (name, _) in names {
            assert!(seen.insert(name.clone()), "{} came twice", String::from_utf8_lossy(&name));
        }
        cookie = next;
    }
}

#[test]
fn a_directory_full_of_names_of_one_hash_is_listed_and_emptied() {
    let names = colliding();
    let (mut d, all) = of_names(&names);
    for piece in [1, 7, 100, 5000] {
        assert!(list(&d, piece) == all, "in pieces of {piece}");
    }
    let errors = d.t.volume.run(|op| Ok(records::superblock(op)?.error_count())).unwrap();
    assert_eq!(errors, 0, "an error was recorded");
    for name in &all {
        if name.len() > 2 {
            d.remove(name).unwrap();
        }
    }
    assert_eq!(list(&d, 100).len(), 2);
    d.check();
}

/// D5: also where memory does not hold all of its leaves.
#[test]
fn names_of_one_hash_are_listed_with_little_memory() {
    let (mut d, all) = of_names(&colliding()[..400]);
    d.check();
    d.t.volume.close().unwrap();
    let d = Dirs::with(d.t.device.snapshot(), Options { cache_bytes: 64 << 10, ..Options::default() });
    assert!(list(&d, 100) == all);
}

/// Names of one hash may come twice when others split their leaves, and none is lost.
#[test]
fn no_name_of_a_long_hash_is_lost_while_others_come() {
    let names = colliding();
    let (mut d, all) = of_names(&names[..600]);
    let (mut cookie, mut seen, mut more) = (0, BTreeSet::new(), names[600..].iter());
    loop {
        let (some, next) = d.list(cookie, 20).unwrap();
        if some.is_empty() {
            break;
        }
        seen.extend(some.into_iter().map(|(name, _)| name));
        cookie = next;
        for name in more.by_ref().take(8) {
            d.add(name, d.file(0)).unwrap();
        }
    }
    assert!(seen.is_superset(&all), "{} names were lost", all.difference(&seen).count());
    d.check();
}
