//! Archives that no program would write are refused with a typed error, or imported; the image is sound either way.
//!
//! `QUIRE_ARCHIVE_SEED` chooses other archives, `QUIRE_ARCHIVE_CASES` how many; `QUIRE_ARCHIVE_CASE=HEX` is one, as a
//! failure prints it.

use crate::archive_case::{CHANGE, base, changed, import_and_walk};
use crate::common::{fsck_bytes, scratch};
use quire::FileSystem;
use quire_testkit::Rng;

/// e2fsck judges one image in so many: it takes longer than the import.
const JUDGED: u64 = 20;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")))
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .map(|b| char::from(b).to_digit(16).expect("a hexadecimal digit"))
        .map(|digit| u8::try_from(digit).expect("below 16"))
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn judge(image: &[u8], input: &[u8], with_e2fsck: bool) {
    let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
    let repeat = format!("repeat: QUIRE_ARCHIVE_CASE={hex} cargo test -p quire-ext4 --test it hostile_archives");
    let outcome = std::panic::catch_unwind(|| {
        let fs = FileSystem::options().open_bytes(image).unwrap();
        let after = import_and_walk(fs, changed(input), input.first().is_some_and(|b| b & 2 != 0))?;
        if with_e2fsck {
            fsck_bytes(&after);
        }
        Ok::<(), String>(())
    });
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(why)) => panic!("{why}\n{repeat}"),
        Err(panic) => {
            eprintln!("{repeat}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn changed_archives_are_refused_or_imported_and_the_image_is_sound() {
    let image = scratch().into_bytes().unwrap().unwrap();
    if let Ok(case) = std::env::var("QUIRE_ARCHIVE_CASE") {
        return judge(&image, &from_hex(&case), true);
    }
    let mut rng = Rng::new(number("QUIRE_ARCHIVE_SEED", 1));
    for n in 0..number("QUIRE_ARCHIVE_CASES", 600) {
        let mut input = vec![0; 1 + (1 + rng.index(6)) * CHANGE];
        rng.fill(&mut input);
        judge(&image, &input, n % JUDGED == 0);
    }
}

#[test]
fn the_unchanged_archive_is_imported_whole() {
    let fs = scratch();
    let archive = std::io::Cursor::new(base());
    let options = quire::archive::ImportOptions::new();
    quire::archive::import(&fs, "/", quire::archive::Source::Stream(Box::new(archive)), &options).unwrap();
    // The root, lost+found and the sixteen entries, of which three only describe the next, and the whiteout is a file.
    let names: Vec<_> = fs.walk("/").unwrap().map(|found| found.unwrap().path).collect();
    for name in ["dir/link", "dir/symlink", "dir/null", "dir/disk", "dir/pipe", "far", "attributes", "sparse"] {
        assert!(names.iter().any(|n| n.ends_with(name)), "{name} of {names:?}");
    }
    assert!(names.iter().any(|n| n.to_string_lossy().len() > 200));
    fsck_bytes(&fs.into_bytes().unwrap().unwrap());
}
