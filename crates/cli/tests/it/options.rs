//! Mount options as a user meets them: on a mount of root's, through fusermount3, and in a user namespace of one's own.

use crate::common::{Place, has, is_root, needs_mounts, ok, quire, said, skip, text, tool};
use std::path::Path;
use std::process::Command;

/// A shell as root of a new user and mount namespace, without the programs in `$PATH` that mount for others.
fn in_namespace(script: &str) -> Command {
    let mut c = tool("unshare");
    let quire = Path::new(env!("CARGO_BIN_EXE_quire"));
    c.args(["-Urm", "bash", "-euc", script]).env("QUIRE", quire);
    c
}

#[test]
fn an_ignored_option_is_said_in_one_line() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let mounted = ok(&mut quire(&["mount", "-o", "stripe=4,nofail,data=ordered", text(&p.image()), text(&p.mnt())]));
    ok(&mut quire(&["umount", text(&p.mnt())]));
    assert_eq!(mounted.lines().collect::<Vec<_>>(), ["quire: mount: stripe=4 is ignored: it tunes the kernel's ext4"]);
}

#[test]
fn a_warning_that_standard_error_does_not_take_is_no_reason_not_to_mount() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut mount = quire(&["mount", "-o", "lazytime", text(&p.image()), text(&p.mnt())]);
    let code = mount.stderr(full).status().unwrap().code();
    let mounted = p.mnt().join("lost+found").is_dir();
    said(&mut quire(&["umount", text(&p.mnt())]));
    assert_eq!((code, mounted), (Some(0), true));
    p.check();
}

#[test]
fn nosymfollow_holds_or_the_mount_fails() {
    needs_mounts();
    let p = Place::new("16M", &[]);
    let (code, words) = said(&mut quire(&["mount", "-o", "nosymfollow", text(&p.image()), text(&p.mnt())]));
    if !is_root() {
        // A fusermount3 that knows it would mount.
        assert!(code == 0 || words.contains("nosymfollow"), "{words}");
    }
    if code == 0 {
        std::os::unix::fs::symlink("/dev/null", p.mnt().join("l")).unwrap();
        let followed = std::fs::read(p.mnt().join("l"));
        ok(&mut quire(&["umount", text(&p.mnt())]));
        assert_eq!(followed.unwrap_err().raw_os_error(), Some(rustix::io::Errno::LOOP.raw_os_error()));
    }
}

#[test]
fn a_user_namespace_mounts_without_fusermount3() {
    needs_mounts();
    let may = has("unshare") && in_namespace("true").output().is_ok_and(|o| o.status.success());
    if !may {
        skip("no user namespaces");
    }
    let p = Place::new("16M", &["-E", "root_owner=0:0"]);
    let script = format!(
        "PATH=/nonexistent \"$QUIRE\" mount {0} {1}; echo kept >{1}/file
         [ \"$(cat {1}/file)\" = kept ]; PATH=/nonexistent \"$QUIRE\" umount {1}",
        text(&p.image()),
        text(&p.mnt())
    );
    ok(&mut in_namespace(&script));
    let listed = ok(tool("debugfs").args(["-R", "ls -p /", text(&p.image())]));
    assert!(listed.contains("/file/"), "{listed}");
    crate::common::check(&p.image());
}

#[test]
fn the_list_of_options_keeps_its_columns_on_a_terminal_of_80() {
    let help = ok(&mut quire(&["mount", "--help"]));
    let list: Vec<_> =
        help.lines().skip_while(|l| !l.starts_with("Options (-o)")).skip(1).take_while(|l| !l.is_empty()).collect();
    assert!(list.len() > 40, "{help}");
    let broken: Vec<_> = list.iter().filter(|l| !l.starts_with("  ") || l.len() > 80).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}
