//! `quire completions` and `quire man`: made from the command's own description.

use crate::{Cli, exit};
use clap::CommandFactory;
use clap_complete::Shell;
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

pub(crate) fn completions(args: &CompletionsArgs) -> ExitCode {
    clap_complete::generate(args.shell, &mut Cli::command(), "quire", &mut std::io::stdout());
    ExitCode::SUCCESS
}

pub(crate) fn man(args: &ManArgs) -> ExitCode {
    match clap_mangen::generate_to(Cli::command(), &args.dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => exit::fail("man", exit::SYSTEM, format_args!("{}: {e}", args.dir.display())),
    }
}
