//! The figures of the applications on mounts: a place for each mount.

use super::super::bed::Rounds;
use super::phases::{REQUESTS, of};
use crate::results::Figure;

/// A figure with a place for each mount and a series for each of these, empty.
pub(super) fn bars(id: &str, of: &str, title: &str, y: &str, series: &[String]) -> Figure {
    let title = format!("{title}, mounts");
    let figure = Figure::bars(&format!("okeanos-{id}-mounts"), of, title, "mount", y);
    figure.logarithmic().of_series(series.iter().map(|name| &**name))
}

/// Figure 5a: transactions a second of these phases, which have requests of each of [`REQUESTS`]. The paper prints the
/// highest rate and not of which size, so its number is at no place: the page says it below the figure.
pub(super) fn of_postmark(id: &str, title: &str, rounds: &Rounds<f64>, phases: [usize; 2]) -> Figure {
    let requests = REQUESTS.map(|bytes| format!("requests of {bytes} B"));
    let figure = bars(id, "figure 5a", title, "transactions/s", &requests);
    rounds.drawn(figure, &phases, of).turned("request size")
}

/// Figure 5b of a method of InnoDB's: the time of a flush in these phases, each with the name of its series. The title
/// says what is `special` of it, as does what ends the id.
pub(super) fn of_logs(
    (method, name, _): &(u8, &str, &str),
    (of_id, special): (&str, &str),
    rounds: &Rounds<f64>,
    phases: impl IntoIterator<Item = (usize, String)>,
) -> Figure {
    let (phases, series): (Vec<_>, Vec<_>) = phases.into_iter().unzip();
    let title = format!("{name} (method {method}): mean time to flush the log{special}");
    let figure = bars(&format!("5b-{method}{of_id}"), "figure 5b", &title, "s", &series);
    rounds.drawn(figure, &phases, of).turned("load")
}
