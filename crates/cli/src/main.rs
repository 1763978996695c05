//! The `quire` command: ext4 in user space, journaled. Each subcommand is a file of `cmd`.

// `exit::print` tells of an output that takes nothing; the macros panic.
#![deny(clippy::print_stdout)]

mod cmd;
mod exit;
mod fuse2fs;
mod helper;
mod log;
mod progress;
mod text;
mod undo;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "quire", version = VERSION, long_version = LONG_VERSION, about = "Mount, recover and look into ext4 images in user space")]
#[command(propagate_version = true, disable_help_subcommand = true, after_help = TOP_EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("QUIRE_COMMIT"), ")");
const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("QUIRE_COMMIT"),
    ")\n\nJournals: jbd2 (checksum v3), Quire's block log, Quire's NVRAM log\nTransports: /dev/fuse, io_uring (FUSE over io_uring)"
);

const TOP_EXAMPLES: &str = "Example:
  mke2fs -t ext4 disk.img 1G
  quire mount disk.img /mnt
  quire umount /mnt

Exit codes are those of mount(8), 0, 1 for wrong usage and 32 for a failure; of
commands that work in images 0, 2 for wrong usage and 1; of recover and check
those of fsck(8). The help of a command names further ones.";

#[derive(Subcommand)]
enum Command {
    Mount(cmd::mount::Args),
    #[command(visible_alias = "unmount")]
    Umount(cmd::umount::Args),
    Wait(cmd::wait::Args),
    Sync(cmd::control::SyncArgs),
    Freeze(cmd::control::FreezeArgs),
    Thaw(cmd::control::ThawArgs),
    Recover(cmd::recover::Args),
    Info(cmd::info::Args),
    Dump(cmd::dump::Args),
    Stats(cmd::stats::Args),
    Top(cmd::top::Args),
    #[command(flatten)]
    Tool(cmd::tool::Tool),
    Script(cmd::tool::ScriptArgs),
    Shell(cmd::tool::ShellArgs),
    Create(cmd::tool::CreateArgs),
    Import(cmd::tool::ImportArgs),
    Export(cmd::tool::ExportArgs),
    Clone(cmd::tool::CloneArgs),
    Check(cmd::tool::CheckArgs),
    Diff(cmd::tool::DiffArgs),
    Resize(cmd::tool::ResizeArgs),
    Completions(cmd::generate::CompletionsArgs),
    #[command(hide = true)]
    Man(cmd::generate::ManArgs),
}

fn main() -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    if helper::is_helper(&program) {
        return helper::run();
    }
    if fuse2fs::is_fuse2fs(&program) {
        return fuse2fs::run(VERSION);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return exit::usage(&e, usage_code()),
    };
    match cli.command {
        Command::Mount(a) => cmd::mount::run(&a),
        Command::Umount(a) => cmd::umount::run(&a),
        Command::Wait(a) => cmd::wait::run(&a),
        Command::Sync(a) => cmd::control::sync(&a),
        Command::Freeze(a) => cmd::control::freeze(&a),
        Command::Thaw(a) => cmd::control::thaw(&a),
        Command::Recover(a) => cmd::recover::run(&a),
        Command::Info(a) => cmd::info::run(&a),
        Command::Dump(a) => cmd::dump::run(&a),
        Command::Stats(a) => cmd::stats::run(&a),
        Command::Top(a) => cmd::top::run(&a),
        Command::Tool(tool) => cmd::tool::run(tool),
        Command::Script(a) => cmd::tool::script(&a),
        Command::Shell(a) => cmd::tool::shell(&a),
        Command::Create(a) => cmd::tool::create(&a),
        Command::Import(a) => cmd::tool::import_tree(&a),
        Command::Export(a) => cmd::tool::export(&a),
        Command::Clone(a) => cmd::tool::clone(&a),
        Command::Check(a) => cmd::tool::check(&a),
        Command::Diff(a) => cmd::tool::diff(&a),
        Command::Resize(a) => cmd::tool::resize(&a),
        Command::Completions(a) => cmd::generate::completions(&a, Cli::command()),
        Command::Man(a) => cmd::generate::man(&a, Cli::command()),
    }
}

/// The exit code for wrong usage of the command that was called: `recover` and `check` have fsck(8)'s, the toolbox that
/// of most programs, the others mount(8)'s.
fn usage_code() -> u8 {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    match command.to_str() {
        Some("recover" | "check") => exit::fsck::USAGE,
        Some(c) if cmd::tool::is_command(c) => exit::TOOL_USAGE,
        _ => exit::USAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of arguments are unique in each command, and what else clap asks of definitions holds.
    #[test]
    fn every_command_is_well_defined() {
        Cli::command().debug_assert();
    }
}
