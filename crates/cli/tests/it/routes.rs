//! Routes for file data as users choose them: for a mount, for names, for one file.

use crate::common::{Place, needs_mounts, needs_tools, ok, quire, said, text, tool};
use std::fs;

/// A file's setting as lsattr and getfattr show it.
fn setting(path: &std::path::Path) -> (bool, String) {
    let flags = ok(tool("lsattr").arg(path));
    let (_, value) =
        said(tool("getfattr").args(["--absolute-names", "--only-values", "-n", "user.quire.journal"]).arg(path));
    (flags.split(' ').next().unwrap().contains('j'), value)
}

/// The setting of one file: with chattr, with setfattr; it stays with the image.
#[test]
fn a_file_has_its_own_mode() {
    needs_mounts();
    needs_tools(&["lsattr", "chattr", "getfattr", "setfattr"]);
    let place = Place::new("64M", &[]);
    let options = "data=adaptive,record=block,commit_mode=barrier,journal_rule=*.db=journal,*-wal=ordered,noatime";
    let m = place.mount(options);
    let (file, dir) = (m.path("file"), m.path("dir"));
    fs::write(&file, [1; 5000]).unwrap();
    fs::create_dir(&dir).unwrap();
    let set = |value: &str, path| said(tool("setfattr").args(["-n", "user.quire.journal", "-v", value]).arg(path));
    assert_eq!(set("journal", &file).0, 0);
    assert_eq!(setting(&file), (true, "journal".into()));
    assert_eq!(set("ordered", &file).0, 0);
    assert_eq!(setting(&file), (false, "ordered".into()));
    assert_ne!(set("fast", &file).0, 0, "no such mode");
    ok(tool("chattr").arg("+j").arg(&file));
    assert!(setting(&file).0 && !setting(&file).1.contains("ordered"), "{:?}", setting(&file));
    assert_eq!(set("ordered", &dir).0, 0);
    fs::write(dir.join("handed down"), [2; 5000]).unwrap();
    fs::write(dir.join("ruled.db"), [2; 5000]).unwrap();
    assert_eq!(setting(&dir.join("handed down")), (false, "ordered".into()));
    assert!(!setting(&dir.join("ruled.db")).1.contains("ordered"));
    m.unmount();
    place.check();
    let m = place.mount(options);
    assert!(setting(&m.path("file")).0);
    assert_eq!(setting(&m.path("dir/handed down")), (false, "ordered".into()));
    m.unmount();
}

/// Every route is told where users look, works, and leaves an image that is whole.
#[test]
fn every_route_mounts_and_is_shown() {
    needs_mounts();
    for route in ["overwrite", "auto", "adaptive", "selective"] {
        let place = Place::new("64M", &[]);
        let m =
            place.mount(&format!("data={route},record=block,commit_mode=barrier,auto_threshold=8k,write_threshold=2k"));
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let line = mounts.lines().find(|l| l.contains(m.dir())).unwrap();
        let profile = if route == "overwrite" { "rfj" } else { route };
        assert!(line.contains(profile), "{line}");
        for round in 0..3u8 {
            fs::write(m.path("f"), vec![round; 300_000]).unwrap();
            fs::write(m.path("g"), [round; 100]).unwrap();
            ok(&mut quire(&["sync", m.dir()]));
        }
        let stats = ok(&mut quire(&["stats", m.dir()]));
        assert!(stats.contains(&format!("data={route}")) && stats.contains("never had to be"), "{stats}");
        assert_eq!(stats.contains("are all or nothing"), matches!(route, "overwrite" | "auto"), "{stats}");
        assert_eq!(stats.contains("up to 8192 bytes is logged"), route == "auto", "{stats}");
        assert!(fs::read(m.path("f")).unwrap() == vec![2; 300_000]);
        m.unmount();
        place.check();
        let m = place.mount("ro");
        assert!(fs::read(m.path("f")).unwrap() == vec![2; 300_000] && fs::read(m.path("g")).unwrap() == [2; 100]);
        m.unmount();
    }
    let (code, why) =
        said(&mut quire(&["mount", "-o", "journal_rule=nonsense", text(std::path::Path::new("x")), "/tmp"]));
    assert!(code == 1 && why.contains("PATTERN=journal"), "{code} {why}");
}
