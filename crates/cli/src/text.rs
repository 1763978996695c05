//! How values are printed.

/// A text of the image, fit for a terminal: control characters are shown as escapes and have no effect.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}
