//! Who may do what (P1): root, the mount's user, the file's owner, a stranger, and root of a container.

use crate::common::{Place, needs_mounts, needs_root, needs_tools, ok, said, skip, tool};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use Who::{BoundedRoot, NamespaceRoot, Owner, Root, Stranger};

/// Runs as somebody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Root,
    Owner,
    Stranger,
    /// As in a container: number 0, but without the capabilities that matter.
    BoundedRoot,
    /// The same, with all capabilities in a user namespace of its own.
    NamespaceRoot,
}

const EVERYBODY: [Who; 5] = [Who::Root, Who::Owner, Who::Stranger, Who::BoundedRoot, Who::NamespaceRoot];
const OWNER: &str = "1000";

/// Root of a container may lack this capability.
pub(crate) fn may_use_resources() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|l| l.strip_prefix("CapEff:")).map(str::trim).unwrap_or_default();
    u64::from_str_radix(set, 16).is_ok_and(|set| set >> CAP_SYS_RESOURCE & 1 != 0)
}

impl Who {
    fn command(self) -> Command {
        let mut c = tool(match self {
            Who::Root => "env",
            Who::NamespaceRoot => "unshare",
            _ => "setpriv",
        });
        match self {
            Who::Root => &mut c,
            Who::Owner => c.args(["--reuid", OWNER, "--regid", OWNER, "--clear-groups"]),
            Who::Stranger => c.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]),
            Who::BoundedRoot => {
                let without = "-sys_admin,-sys_resource,-fowner,-linux_immutable";
                c.args(["--bounding-set", without, "--inh-caps", without])
            }
            Who::NamespaceRoot => c.args(["-U", "-r"]),
        };
        c
    }
}

fn allowed(place: &Path, operation: &[&str]) -> Vec<Who> {
    let run = |who: &Who| {
        let (code, words) = said(who.command().args(operation).current_dir(place));
        assert_ne!(code, 127, "{words}");
        code == 0
    };
    EVERYBODY.into_iter().filter(run).collect()
}

#[test]
fn each_operation_is_for_those_whom_the_table_names() {
    needs_mounts();
    needs_root();
    let tools = ["setpriv", "unshare", "setfattr", "chattr", "fstrim", "perl"];
    needs_tools(&tools);
    if said(Who::NamespaceRoot.command().arg("true")).0 != 0 {
        skip("no user namespaces");
    }
    // Where ext4 would set a generation, too.
    let place = Place::new("32M", &["-O", "^metadata_csum"]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let m = place.mount("data=adaptive,atomic_writes=all");
    fs::write(m.path("f"), "x").unwrap();
    ok(tool("chown").arg(format!("{OWNER}:{OWNER}")).arg(m.path("f")));
    fs::set_permissions(m.path("f"), fs::Permissions::from_mode(0o666)).unwrap();
    let quire = env!("CARGO_BIN_EXE_quire");
    let at = Path::new(m.dir());
    let set = |value: &'static str| ["setfattr", "-n", "user.quire.journal", "-v", value, "f"];
    // _IOW('v', 2, long): the generation. _IOW('Q', 7, int): the journaling mode.
    let ioctl = |number: &str| format!("open(F, '<', 'f') or die; $v = pack('q', 1); ioctl(F, {number}, $v) or die");
    let (generation, mode) = (ioctl("0x40087602"), ioctl("0x40045107"));
    // _IOW(0x94, 50, char[256]): the label. A START and an ABORT of F2FS's atomic writes.
    let label = r#"open(F, '<', 'f') or die; $v = 'x' . "\0" x 255; ioctl(F, 0x41009432, $v) or die"#;
    let read_label = r#"open(F, '<', 'f') or die; $v = "\0" x 256; ioctl(F, 0x81009431, $v) or die"#;
    let atomic = "open(F, '+<', 'f') or die; ioctl(F, 0xf501, 0) or die; ioctl(F, 0xf505, 0) or die";
    let freeze = format!("{quire} freeze . && {quire} thaw .");
    let flags = |f: &str| allowed(at, &["sh", "-c", &format!("chattr +{f} f && chattr -{f} f")]);
    assert_eq!(allowed(at, &["sh", "-c", &freeze]), [Root], "freeze and thaw");
    assert_eq!(allowed(at, &["fstrim", "."]), [Root], "trim");
    assert_eq!(allowed(at, &["perl", "-e", label]), [Root], "set the label");
    assert_eq!(allowed(at, &["perl", "-e", read_label]), EVERYBODY, "read the label");
    assert_eq!(allowed(at, &["perl", "-e", atomic]), EVERYBODY, "an atomic update: whoever may write the file");
    assert_eq!(flags("j"), [Root], "journal a file's data");
    assert_eq!(allowed(at, &["perl", "-e", &mode]), [Root], "the same by ioctl");
    // Where the daemon has no CAP_SYS_RESOURCE itself, number 0 is its user, and may.
    let number_0 = [Root, BoundedRoot, NamespaceRoot];
    let may = if may_use_resources() { &number_0[..1] } else { &number_0 };
    assert_eq!(allowed(at, &set("journal")), may, "the same by attribute");
    assert!(allowed(at, &set("ordered")).starts_with(&[Root, Owner, Stranger]), "whoever may write the file");
    assert_eq!(flags("d"), [Root, Owner], "other flags");
    assert_eq!(allowed(at, &["perl", "-e", &generation]), [], "the generation: nobody");
    assert_eq!(flags("i"), [Root], "immutable");
    assert_eq!(flags("a"), [Root], "append-only");
    m.unmount();
    place.check();
}
