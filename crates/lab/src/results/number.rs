//! Numbers as they are kept, and as they are shown.

/// Six digits: the rest is noise of the arithmetic.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() { value } else { format!("{value:.5e}").parse().expect("a number") }
}

/// A number for people: three digits.
#[must_use]
pub fn shown(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "-".into(),
        0.0 => "0".into(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 0.0995 => format!("{value:.3}"),
        _ if size >= 0.000_995 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_small_ones_are_not_zero() {
        let all: Vec<String> = [0.0, 123.4, 12.34, 1.234, 0.1234, 0.012_34, 0.000_012_34, f64::NAN].map(shown).into();
        assert_eq!(all, ["0", "123", "12.3", "1.23", "0.123", "0.0123", "1.23e-5", "-"]);
    }
}
