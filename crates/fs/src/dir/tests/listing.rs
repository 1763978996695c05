//! Listings while names come and go (D3).

use super::*;
use quire_layout::dir::{HashVersion, Hasher};
use std::collections::BTreeSet;

/// Lists in pieces, changing other names between them; what stays must come exactly once.
fn list_while_changing(d: &Dirs, stay: &[Vec<u8>], n: &mut Numbers, piece: usize) {
    let mut seen = BTreeSet::new();
    let mut others: Vec<Vec<u8>> = Vec::new();
    let (mut cookie, mut pieces) = (0, 0);
    loop {
        let (names, next) = d.list(cookie, piece).unwrap();
        if names.is_empty() {
            break;
        }
        for (name, _) in names {
            let stays = stay.contains(&name);
            assert!(seen.insert(name.clone()) || !stays, "{} came twice", String::from_utf8_lossy(&name));
        }
        cookie = next;
        pieces += 1;
        // Up to some point more names than before, so that leaves split and a single block becomes an index.
        for _ in 0..if pieces < 60 { 20 } else { 0 } {
            if !others.is_empty() && n.next(3) == 0 {
                let gone = others.swap_remove(n.next(others.len()));
                d.remove(&gone).unwrap();
            } else {
                let name = [b"other-", &n.name(1 << 40)[..]].concat();
                if name.len() <= 255 && d.lookup(&name).unwrap().is_none() {
                    d.add(&name, d.file(others.len())).unwrap();
                    others.push(name);
                }
            }
        }
    }
    for name in stay {
        assert!(seen.contains(name), "{} was lost", String::from_utf8_lossy(name));
    }
}

#[test]
fn after_the_last_name_is_the_end_whatever_is_added() {
    for args in [&["-b", "1024"][..], &["-b", "4096"]] {
        let mut d = Dirs::on(image("16M", &[&["-t", "ext4"], args].concat()));
        let names = |from: usize| (from..from + 30).map(|i| format!("name-{i}").into_bytes());
        for (i, name) in names(0).enumerate() {
            d.add(&name, d.file(i)).unwrap();
        }
        let (all, end) = d.list(0, 100).unwrap();
        assert_eq!((all.len(), end), (32, i64::MAX.cast_unsigned()));
        for (i, name) in names(30).enumerate() {
            d.add(&name, d.file(i)).unwrap();
        }
        assert!(d.list(end, 100).unwrap().0.is_empty());
        // But not after what was the last one once, seen when it is that no more.
        let (some, cookie) = d.list(0, 61).unwrap();
        assert_eq!((some.len(), d.list(cookie, 100).unwrap().0.len()), (61, 1));
        d.check();
    }
}

#[test]
fn names_that_stay_come_exactly_once() {
    let seed = seed("names_that_stay_come_exactly_once");
    for args in [&["-b", "1024"][..], &["-b", "4096"], &["-b", "1024", "-O", "^dir_index"]] {
        // From one block, and from an index.
        for staying in [8, 300] {
            for alg in ["half_md4", "tea", "legacy"] {
                let mut d = Dirs::on(with_hash(image("16M", &[&["-t", "ext4"], args].concat()), alg, false));
                let mut n = Numbers(seed + staying);
                let stay: Vec<_> = (0..staying).map(|i| format!("stay-{i}").into_bytes()).collect();
                for (i, name) in stay.iter().enumerate() {
                    d.add(name, d.file(i)).unwrap();
                }
                list_while_changing(&d, &stay, &mut n, 7);
                d.check();
            }
        }
    }
}

/// The image, whose directories are from now on hashed so.
pub(super) fn with_hash(image: Vec<u8>, alg: &str, unsigned: bool) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let path = file.path().to_str().unwrap();
    quire_testkit::run("tune2fs", &["-E", &format!("hash_alg={alg}"), path]);
    quire_testkit::run("debugfs", &["-w", "-R", if unsigned { "ssv flags 2" } else { "ssv flags 1" }, path]);
    std::fs::read(file.path()).unwrap()
}

/// Names of one legacy hash: many of them, over several leaves, found and listed in any pieces. D3, D4.
#[test]
fn names_of_one_hash() {
    let mut d = Dirs::on(with_hash(image("16M", &["-t", "ext4", "-b", "1024"]), "legacy", false));
    let names = colliding(60);
    for (i, name) in names.iter().enumerate() {
        d.add(name, d.file(i)).unwrap();
        d.add(format!("filler-{i}-{}", "x".repeat(150)).as_bytes(), d.file(i)).unwrap();
    }
    for (i, name) in names.iter().enumerate() {
        assert_eq!(d.lookup(name).unwrap(), Some(d.file(i)));
    }
    let all = d.names();
    assert_eq!(all.len(), 120);
    for piece in [1, 2, 7, 59] {
        let (mut cookie, mut seen) = (0, BTreeSet::new());
        loop {
            let (names, next) = d.list(cookie, piece).unwrap();
            if names.is_empty() {
                break;
            }
            for (name, _) in names {
                assert!(seen.insert(name));
            }
            cookie = next;
        }
        assert_eq!(seen.len(), 122);
    }
    d.check();
    for name in &names {
        d.remove(name).unwrap();
    }
    d.check();
}

/// Endings of eight bytes that, after a hundred times `c`, give one and the same legacy hash.
const ENDINGS: &str = "w131dcad4euctearmbuj4ea2aey67fazkvv18iap7ievdjartbscxjao25d6nkadjmydvna9nq5zeoap\
    kg49foaoaaa3dqa6ozqaxtap7yghzuarat8h3va16aogpwa4su89xxadzv0zgya0vx1l60al2vtti1au\
    um40q1awt1agg2a8rici72a7a60yu3ayhyb3w3axfu4s93arqs7jd4a0hrpex5axju8f67ay0uzpx8aw\
    qvcl18aza3ojp9arg1gtabbifh5fybbn83dw2eb6uy0dggb8nchp1gbcehbckibddi1swkb3xn3pfnbo\
    zftgapbyms22lqblu3ampqb2dabt6qbwyndmyrbhm9a9ksbbwsiwxtb5hm8jmvbuji7zawbdlvk990bs\
    8ghsl1bamkkxc2btrhzwc3b9hq99t3be9311v5bqk5g6x7bpqz8kc8b951d228b6b0wp0acmu6jtcbcs";

/// Long names with one and the same legacy hash.
fn colliding(count: usize) -> Vec<Vec<u8>> {
    let hasher = Hasher::new(HashVersion::Legacy, false, [0; 4]);
    let names: Vec<_> = ENDINGS.as_bytes().chunks(8).take(count).map(|e| [&[b'c'; 100], e].concat()).collect();
    assert!(names.iter().all(|n| hasher.hash(n) == hasher.hash(&names[0])) && names.len() == count);
    names
}
