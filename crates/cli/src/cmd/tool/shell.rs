//! `quire shell`: the commands of a script, one after the other as they are typed.

use super::action::{Action, perform};
use super::complete::ImageCompleter;
use super::failure::{Failure, finish};
use super::place::{OWN_COMMANDS, Place};
use super::script;
use super::target::open;
use super::{signals, work};
use crate::cmd::at::At;
use crate::text::{printable_name, write_name};
use clap::CommandFactory;
use clap::error::ErrorKind as UsageKind;
use rustyline::error::ReadlineError;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Work in an image, command after command.
///
/// The commands are those of `quire script`, with paths instead of IMG:PATH, and cd, pwd, help and exit. Each command
/// that changes something is durable when the prompt returns, and happens as a whole or not at all, also if the shell
/// is killed or interrupted while it runs. Tab completes commands, options and paths of the image; the arrow keys and
/// Ctrl-R find earlier lines.
///
/// If standard input is no terminal, its lines are run without a prompt up to the first error, which is the exit
/// code's. They are also run if nobody reads standard output any more. `quire script` does the same in one transaction.
///
/// On an image without a journal nothing is whole: a kill leaves a part of a command's changes.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire shell rootfs.img
  echo 'ls -l /etc' | quire shell rootfs.img

Lines are kept in $QUIRE_HISTORY, or in quire/history below $XDG_STATE_HOME or ~/.local/state; QUIRE_HISTORY= keeps
none. A line that begins with a space is not kept.")]
pub(crate) struct ShellArgs {
    /// The image file or block device
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Change nothing: commands that would are refused
    #[arg(short, long)]
    read_only: bool,
    #[command(flatten)]
    at: At,
}

const NAME: &str = "shell";
const MAX_HISTORY_LINES: usize = 1000;
/// Commands that work where the shell is, if no path is given.
const OF_A_PLACE: &[&str] = &["ls", "tree", "stat", "du", "df", "find"];
pub(crate) fn shell(args: &ShellArgs) -> ExitCode {
    let place = match open(args.at, &args.image, !args.read_only) {
        Ok(fs) => Place::new(fs),
        Err(e) => return finish(NAME, &args.image, Err(e)),
    };
    let worked = if io::stdin().is_terminal() { interactive(args, &place) } else { piped(args, &place) };
    let closed = place.close().map_err(Failure::from);
    match worked {
        ExitCode::SUCCESS => finish(NAME, &args.image, closed),
        failed => failed,
    }
}

/// Standard output of lines that come from a pipe or file. After its reader has gone it takes everything and writes
/// nothing, because the lines that are left may change the image.
#[derive(Default)]
struct Printed {
    is_unread: bool,
}

impl Printed {
    fn unless_unread<T>(&mut self, unread: T, write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        if self.is_unread {
            return Ok(unread);
        }
        match write() {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.is_unread = true;
                Ok(unread)
            }
            other => other,
        }
    }
}

impl Write for Printed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.unless_unread(buf.len(), || io::stdout().write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_unread((), || io::stdout().flush())
    }
}

/// Lines of a pipe or file: the first error ends them.
fn piped(args: &ShellArgs, place: &Place) -> ExitCode {
    let mut out = Printed::default();
    signals::end_at_once();
    for (n, line) in io::stdin().lock().split(b'\n').enumerate() {
        let done = match line {
            // A signal may have come when the line was just done.
            Ok(line) => run(place, &line, true, &mut out).and_then(|goes_on| work::check().map(|()| goes_on)),
            Err(e) => Err(Failure::host(quire::Error::host("standard input", &e))),
        };
        match done {
            Ok(true) => {}
            Ok(false) => break,
            Err(e) => {
                return crate::exit::fail(NAME, e.code(), format_args!("line {}: {}", n + 1, e.message(&args.image)));
            }
        }
    }
    ExitCode::SUCCESS
}

/// Lines of a user; errors are told, and the next line is asked for.
fn interactive(args: &ShellArgs, place: &Place) -> ExitCode {
    let failed = |e: ReadlineError| crate::exit::fail(NAME, 1, format_args!("the terminal: {e}"));
    let config = rustyline::Config::builder()
        .completion_type(rustyline::CompletionType::List)
        .history_ignore_space(true)
        .max_history_size(MAX_HISTORY_LINES);
    let mut editor = match config.and_then(|c| rustyline::Editor::with_config(c.auto_add_history(true).build())) {
        Ok(editor) => editor,
        Err(e) => return failed(e),
    };
    editor.set_helper(Some(ImageCompleter::new(place.clone())));
    let history = history_file();
    if let Some(file) = &history {
        editor.load_history(file).ok();
    }
    let name = printable_name(args.image.file_name().unwrap_or(args.image.as_os_str()));
    let ended = loop {
        match editor.readline(&format!("{name}:{}> ", printable_name(place.here()))) {
            Ok(line) => {
                signals::forget_signals();
                match run(place, line.as_bytes(), false, &mut io::stdout()) {
                    Ok(true) => {}
                    Ok(false) => break ExitCode::SUCCESS,
                    Err(e) => drop(writeln!(io::stderr(), "{}", e.message(&args.image))),
                }
            }
            // Ctrl-C drops the line, Ctrl-D ends the shell.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break ExitCode::SUCCESS,
            Err(e) => break failed(e),
        }
    };
    if let Some(file) = &history {
        // A history that cannot be kept is no failure of what was done.
        file.parent().map(std::fs::create_dir_all).transpose().ok();
        editor.save_history(file).ok();
    }
    ended
}

/// Where lines are kept; `None`: nowhere.
fn history_file() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(file) = std::env::var_os("QUIRE_HISTORY") {
        return Some(PathBuf::from(file)).filter(|f| !f.as_os_str().is_empty());
    }
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("quire/history"))
}

/// Runs one line; false: it ends the shell. `is_piped`: standard input is that of the lines.
fn run(place: &Place, line: &[u8], is_piped: bool, out: &mut dyn Write) -> Result<bool, Failure> {
    let words = script::words(line)?;
    let mut out = io::BufWriter::new(out);
    let texts: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    match texts.as_slice() {
        [] => {}
        ["exit" | "quit"] => return Ok(false),
        ["pwd"] => write_name(&mut out, &place.here(), "\n")?,
        ["cd"] => place.enter("/")?,
        ["cd", _] => place.enter(&words[1])?,
        ["help"] => help(&mut out)?,
        ["help", command] => help_of(command, &mut out)?,
        ["cd" | "pwd" | "help" | "exit" | "quit", ..] => {
            return Err(Failure::Usage(format!("{}: too many arguments", texts[0])));
        }
        [command, ..] => match parse(&words) {
            Ok(mut action) => {
                if is_piped {
                    script::check_source(&*action)?;
                }
                for name in action.names() {
                    *name = place.absolute(&name);
                }
                let done = perform(place.fs(), &*action, &mut out);
                // After a `get`, which leaves nothing half done any more.
                signals::end_at_once();
                done?;
            }
            Err(e) if e.kind() == UsageKind::DisplayHelp => help_of(command, &mut out)?,
            Err(e) => return Err(Failure::Usage(script::usage(&e))),
        },
    }
    out.flush()?;
    Ok(true)
}

fn parse(words: &[OsString]) -> Result<Box<dyn Action>, clap::Error> {
    let of_a_place = || OF_A_PLACE.iter().any(|command| words[0] == **command);
    match script::command(words) {
        Err(e) if e.kind() == UsageKind::MissingRequiredArgument && of_a_place() => {
            script::command(&[words, &[OsString::from(".")]].concat())
        }
        other => other,
    }
}

fn help(out: &mut dyn Write) -> Result<(), Failure> {
    let line = super::commands::Line::command();
    for command in line.get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(out, "{:<10} {about}", command.get_name())?;
    }
    for (name, about) in OWN_COMMANDS {
        writeln!(out, "{name:<10} {about}")?;
    }
    Ok(())
}

fn help_of(name: &str, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some((name, about)) = OWN_COMMANDS.iter().find(|(n, _)| *n == name) {
        return Ok(writeln!(out, "{name}: {about}")?);
    }
    let mut line = super::commands::Line::command();
    let Some(command) = line.find_subcommand_mut(name) else {
        return Err(Failure::Usage(format!("{name}: no such command; help lists them")));
    };
    // Written for the command line; here the image is open.
    let text = command.render_help().to_string().replace("IMG:PATH", "PATH");
    let text = text.split("\nExample:").next().unwrap_or(&text).trim_end().to_owned();
    Ok(writeln!(out, "{text}")?)
}
