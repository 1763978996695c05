//! `quire completions` and `quire man`: made from the command's own description.

use crate::exit;
use clap_complete::Shell;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print completions for a shell.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire completions bash > /usr/share/bash-completion/completions/quire")]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

/// Write the manual pages into a directory.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire man /usr/share/man/man1")]
pub(crate) struct ManArgs {
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "quire", &mut script);
    exit::print("completions", &String::from_utf8_lossy(&script), 0, exit::SYSTEM)
}

pub(crate) fn man(args: &ManArgs, mut command: clap::Command) -> ExitCode {
    let written = helper_page(&mut command).and_then(|page| {
        clap_mangen::generate_to(command, &args.dir)?;
        std::fs::write(args.dir.join("mount.quire.8"), page)
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => exit::fail("man", exit::SYSTEM, format_args!("{}: {e}", args.dir.display())),
    }
}

/// `mount.quire(8)`: the options are those that `quire mount --help` lists.
fn helper_page(quire: &mut clap::Command) -> io::Result<String> {
    let mount = quire.find_subcommand("mount").ok_or(io::ErrorKind::NotFound)?;
    let options = mount.get_after_help().map(ToString::to_string).unwrap_or_default();
    let bold = |s: &str| vec![roff::bold(s.to_owned())];
    let mut page = roff::Roff::new();
    page.control("TH", ["mount.quire", "8", "", "quire", "System Administration"]);
    page.control("SH", ["NAME"]).text([roff::roman("mount.quire - mount an ext4 image or device with Quire")]);
    page.control("SH", ["SYNOPSIS"]);
    page.text(bold("mount -t quire [-rv] [-o OPTIONS] IMAGE DIR"));
    page.control("PP", []).text(bold("mount.quire IMAGE DIR [-sfnvwr] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]"));
    page.control("SH", ["DESCRIPTION"]);
    page.text([roff::roman(DESCRIPTION)]);
    page.control("SH", ["OPTIONS"]);
    page.control("nf", []);
    page.text(options.lines().map(|l| roff::roman(format!("{l}\n"))).collect::<Vec<_>>());
    page.control("fi", []);
    page.control("SH", ["FSTAB"]);
    page.control("nf", []);
    page.text([roff::roman("/srv/data.img  /srv/data  quire  noatime,nofail  0 0")]);
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([roff::roman("quire(1), quire-mount(1), quire-formats(5), ext4(5), fstab(5), mount(8)")]);
    Ok(page.render())
}

const DESCRIPTION: &str = "mount(8) calls this program for the type quire, also for lines of /etc/fstab. It does what \
    quire mount does: it replays the journal if need be, returns when the mount answers, and serves the file system in \
    the background until it is unmounted. umount(8) of an image file returns while the daemon still writes; quire \
    umount returns when the image is clean. Keep the sixth field of fstab 0: Quire recovers its own log, and fsck(8) \
    must not run before.";
