//! Set-user-id and set-group-id bits go when others change a file, exactly where the kernel's ext4 takes them off.

use crate::common::{Place, has, needs_mounts, needs_root, needs_tools, ok, said, skip, text, tool};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

const MODES: &[u32] = &[0o2767, 0o6766, 0o6777, 0o4666];
const CHANGES: &[(&str, &str)] = &[
    ("append", "echo more >> $0"),
    ("truncate", "truncate -s 10 $0"),
    ("grow", "truncate -s 100k $0"),
    ("open truncating", "echo new > $0"),
    ("direct", "dd if=/dev/zero of=$0 bs=4k count=1 oflag=direct conv=notrunc"),
    ("fallocate", "fallocate -l 64k $0"),
    ("copy", "xfs_io -c 'copy_range -s 0 -l 4096 '$(dirname $0)/source $0"),
];
const USERS: &[(&str, &[&str])] = &[
    ("nobody", &["--reuid", "65534", "--regid", "65534", "--clear-groups"]),
    ("of the group", &["--reuid", "65534", "--regid", "2000", "--clear-groups"]),
    ("of the group, besides", &["--reuid", "65534", "--regid", "65534", "--groups", "2000"]),
    ("root", &["--clear-groups"]),
];

fn modes_after(dir: &Path, modes: &[u32]) -> Vec<String> {
    fs::write(dir.join("source"), vec![3; 8192]).unwrap();
    let mut out = Vec::new();
    for mode in modes {
        for (change, script) in CHANGES.iter().filter(|(c, _)| *c != "copy" || has("xfs_io")) {
            for (who, ids) in USERS {
                let f = dir.join("f");
                fs::remove_file(&f).ok();
                fs::write(&f, vec![1; 20_000]).unwrap();
                chown(&f, Some(1000), Some(2000)).unwrap();
                fs::set_permissions(&f, fs::Permissions::from_mode(*mode)).unwrap();
                let (code, words) = said(tool("setpriv").args(*ids).args(["sh", "-c", script]).arg(&f));
                assert_eq!(code, 0, "{change} by {who}: {words}");
                let now = fs::metadata(&f).unwrap().mode() & 0o7777;
                out.push(format!("{mode:o}, {change} by {who}: {now:o}"));
            }
        }
    }
    out
}

#[test]
fn bits_go_where_the_kernels_ext4_takes_them_off() {
    needs_mounts();
    needs_root();
    needs_tools(&["setpriv", "fallocate"]);
    let place = Place::new("32M", &[]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let (kernel, at) = (place.path("kernel.img"), place.path("kernel"));
    fs::copy(place.image(), &kernel).unwrap();
    fs::create_dir(&at).unwrap();
    let (code, words) = said(tool("mount").args(["-o", "loop", "-t", "ext4", text(&kernel), text(&at)]));
    if code != 0 {
        skip(words);
    }
    let theirs = modes_after(&at, MODES);
    ok(tool("umount").arg(&at));
    for (options, modes) in [("", MODES), ("writethrough", &MODES[..2]), ("data=journal", &MODES[..2])] {
        let m = place.mount(options);
        let ours = modes_after(Path::new(m.dir()), modes);
        let wrong: Vec<_> = ours.iter().zip(&theirs).filter(|(a, b)| a != b).collect();
        assert!(wrong.is_empty(), "{options}: Quire's and the kernel's: {wrong:#?}");
        m.unmount();
        place.check();
    }
}
