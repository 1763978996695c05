//! As mount(8)'s helper: a link named `mount.quire` (or `mount.fuse.quire`) to this program, for `mount -t quire` and
//! fstab.

use crate::text::text_of;
use crate::{cmd, exit};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// True for the names by which mount(8) calls its helpers.
pub(crate) fn is_helper(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    ["mount.quire", "mount.fuse.quire", "mount.fuseblk.quire"].iter().any(|n| name == *n)
}

/// `mount.quire IMAGE DIR [-sfnvw] [-r] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`, as mount(8) calls it.
pub(crate) fn run() -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok((_, true)) => ExitCode::SUCCESS,
        Ok((args, false)) => cmd::mount::run(&args),
        Err(what) => exit::fail("mount", exit::USAGE, what),
    }
}

/// The mount that is asked for, and whether it is only to be pretended (`-f`).
fn parse(args: impl Iterator<Item = OsString>) -> Result<(cmd::mount::Args, bool), String> {
    let (mut places, mut options, mut pretend) = (Vec::new(), Vec::new(), false);
    let mut args = args;
    while let Some(arg) = args.next() {
        // Names may have any bytes.
        let flag = arg.to_str().filter(|text| text.starts_with('-') && text.len() > 1);
        match flag {
            Some("-o") => options.push(text_of(args.next().ok_or("-o needs options")?)?),
            Some("-t" | "-N") => drop(args.next()),
            Some("-r") => options.push("ro".to_owned()),
            Some(flags) => {
                let unknown = flags[1..].chars().find(|c| !"sfnvw".contains(*c));
                if let Some(c) = unknown {
                    return Err(format!("unknown flag -{c}"));
                }
                pretend |= flags.contains('f');
            }
            None => places.push(PathBuf::from(arg)),
        }
    }
    let Ok([image, dir]) = <[PathBuf; 2]>::try_from(places) else {
        return Err("an image and a directory are expected".to_owned());
    };
    let args =
        cmd::mount::Args { image, dir: Some(dir), options, fd: None, foreground: false, log: None, debug: false };
    Ok((args, pretend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn of(line: &str) -> Result<(cmd::mount::Args, bool), String> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn names_may_have_any_bytes_and_options_are_text() {
        let bytes = || OsString::from_vec(b"/srv/\xff.img".to_vec());
        let (a, _) = parse([bytes(), "/mnt".into()].into_iter()).unwrap();
        assert_eq!(a.image, PathBuf::from(bytes()));
        let refused = parse(["a".into(), "/mnt".into(), "-o".into(), bytes()].into_iter()).map(drop).unwrap_err();
        assert_eq!(refused, "/srv/\\xff.img: options are UTF-8");
    }

    #[test]
    fn mount8_calls_it_with_its_own_flags() {
        let (a, pretend) = of("/dev/sdb1 /mnt -sv -o rw,noatime -t fuse.quire").unwrap();
        assert_eq!((a.image, a.dir, pretend), ("/dev/sdb1".into(), Some("/mnt".into()), false));
        assert_eq!(a.options, ["rw,noatime"]);
        assert!(of("a b -f").unwrap().1);
        assert!(of("a").is_err());
        assert!(of("a b -x").is_err());
    }

    #[test]
    fn helpers_are_known_by_name() {
        assert!(is_helper(OsStr::new("/sbin/mount.quire")));
        assert!(!is_helper(OsStr::new("/usr/bin/quire")));
    }
}
