//! How values are printed.

pub(crate) fn uuid(b: &[u8; 16]) -> String {
    let hex: String = b.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A text of the image, fit for a terminal: control characters are shown as escapes and have no effect.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}
