//! What a half-typed line of the shell may become: names of commands, of their options, of files in the image, and of
//! files of the host where a command takes those.

use super::commands::Line;
use super::place::{OWN_COMMANDS, Place};
use clap::CommandFactory;
use quire::Dir;
use rustyline::completion::{Completer, FilenameCompleter, Pair, escape, extract_word, unescape};

/// Candidates that are shown; a directory may have a million names.
const MAX_CANDIDATES: usize = 1000;
const QUOTE: Option<char> = Some('\\');

/// Completes lines of a shell that is somewhere in an image.
pub(super) struct ImageCompleter {
    place: Place,
    host: FilenameCompleter,
}

impl ImageCompleter {
    pub(super) fn new(place: Place) -> Self {
        ImageCompleter { place, host: FilenameCompleter::new() }
    }
}

impl rustyline::Helper for ImageCompleter {}
impl rustyline::hint::Hinter for ImageCompleter {
    type Hint = String;
}
impl rustyline::highlight::Highlighter for ImageCompleter {}
impl rustyline::validate::Validator for ImageCompleter {}

impl Completer for ImageCompleter {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, word) = extract_word(line, pos, QUOTE, char::is_whitespace);
        let before: Vec<&str> = line[..start].split_whitespace().collect();
        let found = match before.split_first() {
            None => commands(word),
            Some((&"help", [])) => commands(word),
            Some((command, _)) if word.starts_with('-') => options(command, word),
            Some((command, rest)) if is_of_host(command, rest) => return self.host.complete_path(line, pos),
            Some(_) => names(&self.place, word),
        };
        Ok((start, found))
    }
}

/// True if the next word of a command names a file of the host: the first of `put`, the second of `get`.
fn is_of_host(command: &str, before: &[&str]) -> bool {
    let words = before.iter().filter(|w| !w.starts_with('-')).count();
    matches!((command, words), ("put", 0) | ("get", 1))
}

fn pair(text: String) -> Pair {
    Pair { display: text.clone(), replacement: text }
}

fn commands(word: &str) -> Vec<Pair> {
    let line = Line::command();
    let known = line.get_subcommands().map(clap::Command::get_name).chain(OWN_COMMANDS.iter().map(|(name, _)| *name));
    let mut found: Vec<_> = known.filter(|c| c.starts_with(word)).map(|c| pair(format!("{c} "))).collect();
    found.sort_by(|a, b| a.display.cmp(&b.display));
    found
}

fn options(command: &str, word: &str) -> Vec<Pair> {
    let line = Line::command();
    let Some(command) = line.find_subcommand(command) else { return Vec::new() };
    let long = command.get_arguments().filter_map(|a| a.get_long()).map(|l| format!("--{l}"));
    let short = command.get_arguments().filter_map(|a| a.get_short()).map(|s| format!("-{s}"));
    short.chain(long).filter(|o| o.starts_with(word)).map(|o| pair(format!("{o} "))).collect()
}

/// Names in the image that begin like the word; directories get a `/`, so that the next Tab goes on in them.
fn names(place: &Place, word: &str) -> Vec<Pair> {
    let word = unescape(word, QUOTE).into_owned();
    let (above, begun) = word.rfind('/').map_or(("", word.as_str()), |at| word.split_at(at + 1));
    let absolute = place.absolute(if above.is_empty() { "." } else { above });
    let fs = place.fs();
    let (Ok(dir), Ok(all)) = (fs.open_dir(&absolute), fs.names(&absolute)) else { return Vec::new() };
    let fitting = all.iter().filter_map(|name| {
        let name = name.to_str()?;
        // Names that begin with a dot only for a word that does; none that a terminal would take for commands.
        (!name.contains(char::is_control)
            && name.starts_with(begun)
            && (begun.starts_with('.') || !name.starts_with('.')))
        .then_some(name)
    });
    fitting.take(MAX_CANDIDATES).map(|name| candidate(&dir, above, name)).collect()
}

fn candidate(dir: &Dir, above: &str, name: &str) -> Pair {
    let is_dir = dir.metadata(name).is_ok_and(|m| m.is_dir());
    let end = if is_dir { "/" } else { "" };
    let replacement = escape(format!("{above}{name}{end}"), QUOTE, needs_escape, rustyline::completion::Quote::None);
    Pair { display: format!("{name}{end}"), replacement }
}

/// What the parser of lines would take for something else.
fn needs_escape(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\\' | '"' | '\'' | '#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(place: &Place, line: &str) -> Vec<String> {
        let history = rustyline::history::MemHistory::new();
        let completer = ImageCompleter::new(place.clone());
        let (start, found) = completer.complete(line, line.len(), &rustyline::Context::new(&history)).unwrap();
        found.into_iter().map(|p| format!("{}{}", &line[..start], p.replacement)).collect()
    }

    fn place() -> Place {
        let fs = quire::CreateOptions::new().size(16 << 20).in_memory().unwrap();
        fs.create_dir_all("/etc/network").unwrap();
        fs.write("/etc/netconfig", "").unwrap();
        fs.write("/etc/.hidden", "").unwrap();
        fs.write("/a b", "").unwrap();
        Place::new(fs)
    }

    #[test]
    fn first_words_become_commands_and_words_with_a_dash_options() {
        let place = place();
        assert_eq!(completed(&place, "ch"), ["chmod ", "chown "]);
        assert_eq!(completed(&place, "q"), ["quit "]);
        assert_eq!(completed(&place, "help mk"), ["help mkdir "]);
        assert_eq!(completed(&place, "mkdir --par"), ["mkdir --parents "]);
    }

    #[test]
    fn other_words_become_paths_of_the_image_seen_from_where_the_shell_is() {
        let place = place();
        assert_eq!(completed(&place, "ls /etc/net"), ["ls /etc/netconfig", "ls /etc/network/"]);
        assert_eq!(completed(&place, "ls /etc/.h"), ["ls /etc/.hidden"]);
        assert_eq!(completed(&place, "cat a"), ["cat a\\ b"]);
        assert_eq!(completed(&place, "ls /none/x"), [""; 0]);
        place.enter("etc").unwrap();
        assert_eq!(completed(&place, "rm -r netw"), ["rm -r network/"]);
        assert_eq!(completed(&place, "ls ../e"), ["ls ../etc/"]);
    }

    #[test]
    fn names_beside_a_damaged_inode_are_completed() {
        let host = tempfile::tempdir().unwrap();
        let image = host.path().join("image");
        let fs = quire::CreateOptions::new().size(16 << 20).create(&image).unwrap();
        ["/net-a", "/net-bad"].iter().for_each(|name| fs.write(name, "").unwrap());
        let ino = fs.metadata("/net-bad").unwrap().ino;
        fs.close().unwrap();
        quire_testkit::run("debugfs", &["-w", "-R", &format!("sif <{ino}> mode 0"), image.to_str().unwrap()]);
        let place = Place::new(quire::FileSystem::options().read_only(true).open(&image).unwrap());
        assert_eq!(completed(&place, "ls /net"), ["ls /net-a", "ls /net-bad"]);
    }

    #[test]
    fn words_that_name_files_of_the_host_become_those() {
        let place = place();
        let host = tempfile::tempdir().unwrap();
        std::fs::write(host.path().join("of-the-host"), "").unwrap();
        let begun = format!("{}/of-", host.path().display());
        assert_eq!(completed(&place, &format!("put {begun}")), [format!("put {begun}the-host")]);
        assert_eq!(completed(&place, &format!("get /etc/netconfig {begun}")).len(), 1);
        assert!(completed(&place, &format!("put x {begun}")).is_empty());
    }
}
