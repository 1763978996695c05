//! In fuse2fs's place: a link named `fuse2fs` to this program takes the command line of e2fsprogs' fuse2fs.

use crate::text::text_of;
use crate::{cmd, exit};
use std::ffi::{OsStr, OsString};
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: fuse2fs device/image mountpoint [options]

general options:
    -o opt,[opt...]        mount options
    -f                     foreground operation
    -d   -o debug          foreground operation with debug messages
    -s                     accepted; requests are answered in parallel
    -h   --help            print help
    -V   --version         print version

fuse2fs options:
    -o ro                  read-only mount
    -o rw                  read-write mount (default)
    -o errors=WHAT         continue, remount-ro or panic
    -o minixdf             minix-style df
    -o fakeroot            whoever may use the mount acts as root inside the image
    -o offset=BYTES        mount the partition that starts there
    -o norecovery          do not replay the journal (implies ro)
    -o uid=N -o gid=N      all files seem to belong to this user, group
    -o kernel              allow_other, dev and suid, as the kernel's mounts have them
    -o cache_size=BYTES    memory for blocks
    -o lockfile=PATH       a file that is there while the image is in use
    -o direct, no_default_opts, fuse2fs_debug: accepted

This is Quire: all options of quire mount are taken, too (quire mount --help).
";

/// True if the program was called by fuse2fs's name.
pub(crate) fn is_fuse2fs(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "fuse2fs")
}

pub(crate) fn run(version: &str) -> ExitCode {
    match parse(std::env::args_os().skip(1)) {
        Ok(Call::Mount(args)) => cmd::mount::run(&args),
        // fuse2fs says both on standard error, and ends so.
        Ok(Call::Help) => {
            stderr().write_all(USAGE.as_bytes()).ok();
            ExitCode::FAILURE
        }
        Ok(Call::Version) => {
            writeln!(stderr(), "fuse2fs (quire {version})").ok();
            ExitCode::SUCCESS
        }
        Err(what) => exit::fail("fuse2fs", exit::USAGE, format_args!("{what}\nSee 'fuse2fs -h' for usage")),
    }
}

#[derive(Debug)]
enum Call {
    Mount(cmd::mount::Args),
    Help,
    Version,
}

/// fuse2fs's options may stand anywhere; a flag may have its value attached (`-oro`).
fn parse(args: impl Iterator<Item = OsString>) -> Result<Call, String> {
    let (mut places, mut options) = (Vec::new(), Vec::new());
    let (mut foreground, mut debug) = (false, false);
    let mut args = args;
    while let Some(arg) = args.next() {
        // Names may have any bytes.
        let flag = arg.to_str().filter(|text| text.starts_with('-') && text.len() > 1);
        match flag {
            Some("-h" | "--help" | "--helpfull") => return Ok(Call::Help),
            Some("-V" | "--version") => return Ok(Call::Version),
            Some("-f") => foreground = true,
            Some("-d") => debug = true,
            Some("-s") => {}
            Some("-o") => options.push(text_of(args.next().ok_or("-o needs options")?)?),
            Some(attached) if attached.starts_with("-o") => options.push(attached[2..].to_owned()),
            Some(unknown) => return Err(format!("unknown option {unknown}")),
            None => places.push(PathBuf::from(arg)),
        }
    }
    for list in &mut options {
        let given: Vec<&str> = list.split(',').collect();
        debug |= given.contains(&"debug");
        *list = given.into_iter().filter(|o| *o != "debug").collect::<Vec<_>>().join(",");
    }
    let mut places = places.into_iter();
    let image = places.next().ok_or("Missing ext4 device/image")?;
    let dir = places.next().ok_or("no mount point specified")?;
    match places.next() {
        Some(more) => Err(format!("unexpected argument {}", more.display())),
        None => Ok(Call::Mount(cmd::mount::Args {
            image,
            dir: Some(dir),
            options,
            fd: None,
            foreground: foreground || debug,
            log: None,
            debug,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(line: &str) -> cmd::mount::Args {
        match parse(line.split(' ').map(OsString::from)) {
            Ok(Call::Mount(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn options_stand_anywhere_and_may_be_attached() {
        let a = mount("-oro a.img -f /mnt -o fakeroot,offset=512 -s");
        assert_eq!((a.image, a.dir), ("a.img".into(), Some("/mnt".into())));
        assert_eq!(a.options, ["ro", "fakeroot,offset=512"]);
        assert!(a.foreground && !a.debug);
        let a = mount("a.img /mnt -o debug,ro");
        assert_eq!(a.options, ["ro"]);
        assert!(a.foreground && a.debug);
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        let wrong = |line: &str| parse(line.split(' ').map(OsString::from)).unwrap_err();
        assert_eq!(wrong("-f"), "Missing ext4 device/image");
        assert_eq!(wrong("a.img"), "no mount point specified");
        assert_eq!(wrong("a.img /mnt -x"), "unknown option -x");
        assert!(matches!(parse([OsString::from("--helpfull")].into_iter()), Ok(Call::Help)));
    }
}
