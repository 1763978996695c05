//! How values are read and printed.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// A text of the image, fit for a terminal: control characters are shown as escapes and have no effect.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// A name of the image, fit for a terminal: bytes that are not UTF-8 are shown as escapes, too.
pub(crate) fn printable_name(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        text.push_str(&printable(chunk.valid()));
        text.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    text
}

/// Bytes, with an optional suffix K, M, G or T (powers of 1024).
///
/// # Errors
/// It is no such number, or more than Linux counts in a file.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let bad = |_| format!("{text:?} is no size: a number with K, M, G or T behind it is expected");
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let n: u64 = digits.parse().map_err(bad)?;
    let bytes = n.checked_mul(1 << shift).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| format!("{text} is too large: a file has less than 8 EiB"))
}

/// Options of the command line, which are text where names may have any bytes.
///
/// # Errors
/// They are not UTF-8.
pub(crate) fn text_of(options: OsString) -> Result<String, String> {
    options.into_string().map_err(|options| format!("{}: options are UTF-8", printable_name(options)))
}

/// A name of the image on standard output: as it is in a file or pipe, printable on a terminal.
pub(crate) fn name_on_output<N: AsRef<OsStr> + ?Sized>(name: &N) -> Cow<'_, [u8]> {
    static IS_TERMINAL: OnceLock<bool> = OnceLock::new();
    let name = name.as_ref();
    if *IS_TERMINAL.get_or_init(|| std::io::stdout().is_terminal()) {
        return printable_name(name).into_bytes().into();
    }
    name.as_bytes().into()
}

/// Writes a name of the image, and what follows it, to standard output.
pub(crate) fn write_name<N: AsRef<OsStr> + ?Sized>(
    out: &mut (impl Write + ?Sized),
    name: &N,
    behind: &str,
) -> std::io::Result<()> {
    out.write_all(&name_on_output(name))?;
    out.write_all(behind.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_broken_utf_8_are_shown_as_escapes() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}\n"), "a\\u{1b}[2Jb\\u{9b}\\n");
        let shown = |bytes| printable_name(OsStr::from_bytes(bytes));
        assert_eq!(shown("gr\u{fc}n".as_bytes()), "gr\u{fc}n");
        assert_eq!(shown(b"a\xff\x07b\xc3"), "a\\xff\\u{7}b\\xc3");
    }
}
