//! `quire script`: commands from a file, one a line, all or nothing.

use super::action::Action;
use super::commands::Line;
use super::failure::{Failure, finish};
use super::host_file::Unfinished;
use super::target::open;
use super::{signals, work};
use crate::cmd::at::At;
use crate::text::printable_name;
use clap::Parser;
use quire::FileSystem;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run commands in an image, one a line: all of them, or none.
///
/// The commands are those of this program that work inside an image, with paths instead of IMG:PATH; words are quoted
/// as in a shell, `#` begins a comment. The first error ends the script with the number of its line, and nothing of the
/// script has happened. All changes become durable in one transaction: if the process is killed, or the machine loses
/// power, the image has all of them or none. Files that `get` makes have their names when the script has ended.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire script rootfs.img <<'END'
  put resolv.conf /etc/resolv.conf
  mkdir -p /var/lib/app
  chown 1000:1000 /var/lib/app
  rm -r /var/cache/apt
  END

A script larger than one transaction is refused: what it overwrites and the metadata that it changes may take a quarter
of the journal. Then work on a copy: quire clone IMG NEW && quire script NEW FILE && mv NEW IMG, in parts.")]
pub(crate) struct ScriptArgs {
    /// The image file or block device
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// The commands; standard input if not named, or -
    file: Option<PathBuf>,
    /// Do everything, then undo it: an error shows what would happen. `get` makes no files
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    at: At,
}

const NAME: &str = "script";

pub(crate) fn script(args: &ScriptArgs) -> ExitCode {
    signals::end_at_once();
    let done = || {
        let lines = read(args.file.as_deref())?;
        let fs = open(args.at, &args.image, true)?;
        let done = run(&fs, args, &lines);
        let closed = fs.close();
        done?;
        Ok(closed?)
    };
    match done() {
        Err(Stopped::At(line, e)) => {
            let file = args.file.as_deref().filter(|f| f.as_os_str() != "-");
            let place = file.map_or_else(|| "line".to_owned(), |f| format!("{}:", f.display()));
            let sep = if file.is_some() { "" } else { " " };
            crate::exit::fail(NAME, e.code(), format_args!("{place}{sep}{line}: {}", e.message(&args.image)))
        }
        Err(Stopped::Whole(e)) => finish(NAME, &args.image, Err(e)),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Where a script stopped.
enum Stopped {
    At(usize, Failure),
    Whole(Failure),
}

impl<E: Into<Failure>> From<E> for Stopped {
    fn from(e: E) -> Self {
        Stopped::Whole(e.into())
    }
}

fn is_stdin(file: Option<&Path>) -> bool {
    file.is_none_or(|f| f.as_os_str() == "-")
}

/// Refuses a command that would read its own file from where the commands come from.
///
/// # Errors
/// Usage.
pub(super) fn check_source(action: &dyn Action) -> Result<(), Failure> {
    if action.host_source().is_some_and(|source| source.as_os_str() == "-") {
        return Err(Failure::Usage("-: the commands come from standard input, so no file can".to_owned()));
    }
    Ok(())
}

fn read(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let (name, done) = match file {
        Some(f) if !is_stdin(file) => (f, std::fs::File::open(f).and_then(|mut file| file.read_to_end(&mut text))),
        _ => (Path::new("standard input"), std::io::stdin().read_to_end(&mut text)),
    };
    done.map_err(|e| Failure::host(quire::Error::host(name, &e)))?;
    Ok(text)
}

fn run(fs: &FileSystem, args: &ScriptArgs, text: &[u8]) -> Result<(), Stopped> {
    // Before anything happens, each line is understood.
    let is_stdin = is_stdin(args.file.as_deref());
    let mut actions = Vec::new();
    for (n, line) in text.split(|b| *b == b'\n').enumerate() {
        if let Some(action) = parse(line).map_err(|e| Stopped::At(n + 1, e))? {
            if is_stdin {
                check_source(&*action).map_err(|e| Stopped::At(n + 1, e))?;
            }
            actions.push((n + 1, action));
        }
    }
    let batch = fs.batch()?;
    // What the commands print comes when all of them are done.
    let mut printed = Vec::new();
    let mut made = Unfinished::new(args.dry_run);
    for (n, action) in &actions {
        if let Some(source) = action.host_source().filter(|source| made.replaces(source)) {
            let why = format!("{}: this script replaces it, at its end", printable_name(source));
            return Err(Stopped::At(*n, Failure::Failed(why)));
        }
        // A `get` has signals wait for a look, because files that have no names yet are to be taken away.
        let done = work::check().and_then(|()| action.run_unfinished(&batch, &mut printed, &mut made));
        done.map_err(|e| Stopped::At(*n, e))?;
    }
    work::check()?;
    if args.dry_run {
        batch.rollback()?
    } else {
        batch.commit()?
    };
    made.finish()?;
    signals::end_at_once();
    let mut out = std::io::stdout().lock();
    out.write_all(&printed).and_then(|()| out.flush()).map_err(Failure::Output)?;
    Ok(())
}

/// The command of a line; `None`: it is empty, or a comment.
///
/// # Errors
/// Usage.
pub(super) fn parse(line: &[u8]) -> Result<Option<Box<dyn Action>>, Failure> {
    let words = words(line)?;
    if words.is_empty() {
        return Ok(None);
    }
    command(&words).map(Some).map_err(|e| Failure::Usage(usage(&e)))
}

/// The words of a line, of any bytes.
///
/// # Errors
/// Usage.
pub(super) fn words(line: &[u8]) -> Result<Vec<OsString>, Failure> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let words = shlex::bytes::split(line).ok_or_else(|| Failure::Usage("a quote is not closed".to_owned()))?;
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// The command that these words are.
///
/// # Errors
/// Usage.
pub(super) fn command(words: &[OsString]) -> Result<Box<dyn Action>, clap::Error> {
    Line::try_parse_from(words).map(Line::action)
}

/// What clap says, without its hints at options of the whole program.
pub(super) fn usage(e: &clap::Error) -> String {
    let text = e.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    text.split("\n\nFor more information").next().unwrap_or(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_words_of_a_shell() {
        assert!(parse(b"").unwrap().is_none() && parse(b"  # comment").unwrap().is_none());
        assert!(parse(b"mkdir -p '/a b' \"/c\" # comment").unwrap().unwrap().writes());
        assert!(matches!(parse(b"mkdir 'open"), Err(Failure::Usage(_))));
        let Err(Failure::Usage(why)) = parse(b"frobnicate /x") else { panic!("an unknown command") };
        assert!(why.contains("frobnicate"), "{why}");
    }
}
