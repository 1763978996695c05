//! Prose: comments and documents keep to a width that fits any screen.

use std::path::Path;

/// Characters of a line.
const MAX_WIDTH: usize = 120;

/// Lines that are too long: all of a document but tables and links, and comments of a source file.
#[must_use]
pub(crate) fn long_lines(path: &Path, text: &str) -> Vec<String> {
    let document = path.extension().is_some_and(|e| e == "md");
    let is_prose = |line: &str| {
        let line = line.trim_start();
        if document {
            !line.starts_with('|') && !line.starts_with("[")
        } else {
            line.starts_with("//") && !line.contains("| ")
        }
    };
    let too_long = |line: &&str| line.chars().count() > MAX_WIDTH && line.trim().contains(' ');
    // Diagrams and listings stand between fences.
    let mut fenced = false;
    let is_outside = |line: &str| {
        let fence = line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    let outside: Vec<bool> = text.lines().map(is_outside).collect();
    let lines = (1..).zip(text.lines()).zip(outside).filter(|((_, l), outside)| *outside && too_long(l) && is_prose(l));
    let lines = lines.map(|(line, _)| line);
    lines
        .map(|(n, l)| format!("{}:{n}: {} characters; at most {MAX_WIDTH}", path.display(), l.chars().count()))
        .collect()
}
