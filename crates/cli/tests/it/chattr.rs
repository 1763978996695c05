//! Inode flags, projects and root's reserve through the mount, as the kernel's ext4 has them.

use crate::common::{Place, needs_mounts, needs_root, needs_tools, ok, said, skip, text, tool};
use std::fs;
use std::io::Write;
use std::path::Path;

/// The kernel's ext4 journals a file's data for those only who have this capability; root of a container may lack it.
fn may_use_resources() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|l| l.strip_prefix("CapEff:")).map(str::trim).unwrap_or_default();
    u64::from_str_radix(set, 16).is_ok_and(|set| set >> CAP_SYS_RESOURCE & 1 != 0)
}

/// Every flag that chattr(1) knows.
const FLAGS: &str = "aAcCdDeFijmPsStTuVx";

/// What `chattr +FLAG` and `chattr -FLAG` answer for a file and a directory, and what lsattr shows after each.
fn answers(dir: &Path) -> Vec<(char, &'static str, i32, String)> {
    let (file, sub) = (dir.join("file"), dir.join("sub"));
    fs::write(&file, "x").unwrap();
    fs::create_dir(&sub).unwrap();
    let mut out = Vec::new();
    for (name, path) in [("file", &file), ("directory", &sub)] {
        for flag in FLAGS.chars() {
            for sign in ["+", "-"] {
                // What +e and -e do to a map is the kernel's own.
                if flag == 'e' && sign == "-" {
                    continue;
                }
                let (code, _) = said(tool("chattr").arg(format!("{sign}{flag}")).arg(path));
                let (_, shown) = said(tool("lsattr").arg("-d").arg(path));
                out.push((flag, name, code, shown.split_whitespace().next().unwrap_or("").to_owned()));
            }
        }
    }
    out
}

#[test]
fn chattr_answers_as_the_kernels_ext4_does() {
    needs_mounts();
    needs_root();
    needs_tools(&["chattr"]);
    for options in [&[][..], &["-b", "1024", "-O", "^extent,^64bit,^metadata_csum"]] {
        let place = Place::new("32M", options);
        let kernel = place.path("kernel.img");
        fs::copy(place.image(), &kernel).unwrap();
        let at = place.path("kernel");
        fs::create_dir(&at).unwrap();
        let (code, words) = said(tool("mount").args(["-o", "loop", "-t", "ext4", text(&kernel), text(&at)]));
        if code != 0 {
            skip(words);
        }
        let theirs = answers(&at);
        ok(tool("umount").arg(&at));
        let m = place.mount("");
        let ours = answers(Path::new(m.dir()));
        m.unmount();
        place.check();
        let resource = may_use_resources();
        if !resource {
            println!("chattr +j is not compared: the kernel asks for CAP_SYS_RESOURCE");
        }
        for (a, b) in ours.iter().zip(&theirs).filter(|(a, _)| a.0 != 'j' || resource) {
            assert_eq!(a, b, "Quire's answer, and the kernel's");
        }
    }
}

/// lsattr -p and chattr -p: without the feature there is project 0, and no other can be set.
#[test]
fn projects_are_shown_and_refused_as_in_ext4() {
    needs_mounts();
    needs_tools(&["chattr"]);
    let place = Place::new("16M", &[]);
    let m = place.mount("");
    fs::write(m.path("f"), "x").unwrap();
    assert!(ok(tool("lsattr").arg("-p").arg(m.path("f"))).trim_start().starts_with("0 "));
    assert_ne!(said(tool("chattr").args(["-p", "7"]).arg(m.path("f"))).0, 0);
    ok(tool("chattr").args(["-p", "0"]).arg(m.path("f")));
    m.unmount();
    place.check();
}

/// A user meets the end of the space with root's reserve left; root writes on. What the kernel's cache holds of root's
/// is written back in nobody's name.
#[test]
fn root_writes_on_where_users_cannot() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv"]);
    for options in ["", "writethrough", "data=journal"] {
        let place = Place::new("64M", &["-m", "25"]);
        let m = place.mount(options);
        fs::create_dir(m.path("theirs")).unwrap();
        ok(tool("chown").args(["1000:1000"]).arg(m.path("theirs")));
        let fill =
            "i=0; while dd if=/dev/zero of=$0/$i bs=64k count=16 conv=fsync 2>/dev/null; do i=$((i+1)); done; echo $i";
        let by_user = ok(tool("setpriv")
            .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c", fill])
            .arg(m.path("theirs")));
        assert!((20..48).contains(&by_user.trim().parse::<u32>().unwrap()), "{options}: {by_user}");
        let mut f = fs::File::create(m.path("roots")).unwrap();
        for n in 0..10 {
            f.write_all(&vec![n; 1 << 20]).unwrap_or_else(|e| panic!("{options}: {n} MiB of the reserve: {e}"));
        }
        f.sync_all().unwrap_or_else(|e| panic!("{options}: {e}"));
        drop(f);
        m.unmount();
        place.check();
    }
}
