//! Means, deviations, percentiles.

/// How values are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Standard deviation of the sample.
    pub deviation: f64,
    pub median: f64,
    pub p99: f64,
    pub largest: f64,
}

/// A count as a number to calculate with.
#[must_use]
pub fn float(n: u64) -> f64 {
    // Counts are far below 2^53: exact.
    #[expect(clippy::cast_precision_loss)]
    let f = n as f64;
    f
}

impl Spread {
    /// Of these values; all zero if there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Spread::default();
        }
        values.sort_by(f64::total_cmp);
        let n = float(values.len() as u64);
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
        // The smallest value that so many of a hundred do not exceed.
        let percentile = |p: usize| values[(values.len() * p).div_ceil(100).max(1) - 1];
        Spread { mean, deviation, median: median(&values), p99: percentile(99), largest: values[values.len() - 1] }
    }
}

/// The median; NaN if there are no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The arithmetic mean; NaN if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / float(values.len() as u64)
}

/// The geometric mean; NaN if there are no values.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / float(values.len() as u64)).exp()
}

/// What is left at the last of values at even distances of what was there at the first, by the straight line of least
/// squares through all: two values alone may be off by their spread. NaN of fewer than two.
#[must_use]
pub fn left_by_line(values: &[f64]) -> f64 {
    let n = float(values.len() as u64);
    let (middle, mean) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let (mut along, mut squares) = (0.0, 0.0);
    for (i, v) in (0..).zip(values) {
        let from_middle = float(i) - middle;
        along += from_middle * (v - mean);
        squares += from_middle * from_middle;
    }
    let half = along / squares * middle;
    (mean + half) / (mean - half)
}

/// Bytes as MiB.
#[must_use]
pub fn mib(bytes: u64) -> f64 {
    // Far below 2^53: exact.
    #[expect(clippy::cast_precision_loss)]
    let mib = (bytes >> 10) as f64 / 1024.0;
    mib
}

/// The least and the most; `None` of nothing.
#[must_use]
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    Some((least, values.iter().copied().max_by(f64::total_cmp)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_books() {
        let s = Spread::of((1..=100).map(float).collect());
        assert!((s.mean - 50.5).abs() < 1e-9 && (s.deviation - 29.011_491_975_882).abs() < 1e-9);
        assert_eq!(
            (s.median.to_bits(), s.p99.to_bits(), s.largest.to_bits()),
            (50.5f64.to_bits(), 99f64.to_bits(), 100f64.to_bits())
        );
        assert!((geometric_mean(&[1.0, 4.0]) - 2.0).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_line_leaves_what_its_ends_say_and_one_value_off_changes_little() {
        assert!((left_by_line(&[10.0, 9.0, 8.0, 7.0, 6.0]) - 0.6).abs() < 1e-9);
        // The ends alone say 1.2.
        assert!((left_by_line(&[5.0, 9.0, 8.0, 7.0, 6.0]) - 1.0).abs() < 1e-9);
        assert!(left_by_line(&[1.0]).is_nan());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
