//! What `quire top` shows: the difference of two looks at a mount.

use quire_mount::{Latency, Stats};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph};
use std::path::Path;
use std::time::Duration;

/// The figures of an interval.
pub(super) struct View {
    title: String,
    /// The share of the log in use, from 0 to 1, and in words.
    log: (f64, String),
    rates: Vec<String>,
    latencies: Vec<String>,
    waits: Vec<String>,
    bytes: Vec<String>,
}

/// Figures to a second, with a unit's prefix.
fn scaled(n: f64) -> String {
    let (value, prefix) = match n {
        n if n >= 1e9 => (n / 1e9, "G"),
        n if n >= 1e6 => (n / 1e6, "M"),
        n if n >= 1e4 => (n / 1e3, "k"),
        n => (n, ""),
    };
    format!("{value:.1}{prefix}")
}

#[allow(clippy::cast_precision_loss, reason = "it is shown with three digits")]
fn float(n: u64) -> f64 {
    n as f64
}

fn micros(nanos: u64) -> String {
    match nanos {
        0..10_000_000 => format!("{}us", nanos.div_ceil(1000)),
        _ => format!("{}ms", nanos / 1_000_000),
    }
}

impl View {
    pub(super) fn new(dir: &Path, before: &Stats, now: &Stats, took: Duration) -> View {
        let seconds = took.as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| float(now.saturating_sub(before)) / seconds;
        let state = now.read_only.as_ref().map_or(String::new(), |why| format!("  READ-ONLY: {why}"));
        let j = &now.journal;
        let (used, capacity, unit) =
            j.nvram.map_or((j.log_used, j.log_capacity, "blocks"), |n| (n.used, n.capacity, "bytes"));
        let fill = if capacity == 0 { 0.0 } else { (float(used) / float(capacity)).clamp(0.0, 1.0) };
        View {
            title: format!("quire top  {}  {}{state}", dir.display(), now.profile),
            log: (fill, format!("{used} of {capacity} {unit}")),
            rates: rates(before, now, rate),
            latencies: latencies(before, now, seconds),
            waits: waits(before, now, seconds),
            bytes: bytes(before, now, rate),
        }
    }

    /// As lines of text.
    pub(super) fn text(&self) -> String {
        let mut out = format!("{}\nlog: {:.0} %, {}\n", self.title, self.log.0 * 100.0, self.log.1);
        for (title, lines) in self.parts() {
            out.push_str(&format!("\n{title}\n"));
            lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
        }
        out
    }

    fn parts(&self) -> [(&'static str, &[String]); 4] {
        [
            ("rates", &self.rates),
            ("latency", &self.latencies),
            ("requests wait for", &self.waits),
            ("bytes to and from devices", &self.bytes),
        ]
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let [title, log, above, below] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(2), Constraint::Fill(1)])
                .areas(frame.area());
        let [left, right] = Layout::horizontal([Constraint::Length(34), Constraint::Fill(1)]).areas(above);
        let [waits, bytes] = Layout::horizontal([Constraint::Length(34), Constraint::Fill(1)]).areas(below);
        frame.render_widget(Line::from(self.title.as_str()).bold(), title);
        let gauge = Gauge::default().ratio(self.log.0).label(format!("log {}", self.log.1));
        frame.render_widget(gauge.gauge_style(Style::new().cyan()), log);
        for ((title, lines), area) in self.parts().into_iter().zip([left, right, waits, bytes]) {
            let lines: Vec<Line<'_>> = lines.iter().map(|l| Line::from(l.as_str())).collect();
            frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
        }
    }
}

fn rates(before: &Stats, now: &Stats, rate: impl Fn(u64, u64) -> f64) -> Vec<String> {
    let (j, b) = (&now.journal, &before.journal);
    let flushes = |s: &Stats| s.devices.values().map(|d| d.flushes.count).sum::<u64>();
    let (c, d) = (&now.cache, &before.cache);
    let (hits, misses) = (c.hits.saturating_sub(d.hits), c.misses.saturating_sub(d.misses));
    let percent = (hits * 100).checked_div(hits + misses).map_or("-".to_owned(), |p| format!("{p} %"));
    let q = &now.queue;
    vec![
        format!("{:<18} {:>10}/s", "requests", scaled(rate(now.requests, before.requests))),
        format!("{:<18} {:>10}/s", "transactions", scaled(rate(j.transactions, b.transactions))),
        format!("{:<18} {:>10}/s", "flushes", scaled(rate(flushes(now), flushes(before)))),
        format!("{:<18} {:>10}/s", "checkpoints", scaled(rate(j.checkpoints, b.checkpoints))),
        format!("{:<18} {percent:>10}", "cache hits"),
        format!("{:<18} {:>10}", "under way", q.under_way),
        format!("{:<18} {:>10}", "suspended", q.suspended),
        format!("{:<18} {:>10}", "await a thaw", q.awaiting_thaw),
        format!("{:<18} {:>10}B", "unwritten", scaled(float(c.unwritten_bytes))),
    ]
}

fn latencies(before: &Stats, now: &Stats, seconds: f64) -> Vec<String> {
    let none = Latency::default();
    let mut rows: Vec<(String, Latency)> = Vec::new();
    for (name, l) in &now.latency {
        rows.push((name.clone(), l.since(before.latency.get(name).unwrap_or(&none))));
    }
    for (device, d) in &now.devices {
        for (op, l) in &d.latency {
            let earlier = before.devices.get(device).and_then(|d| d.latency.get(op)).unwrap_or(&none);
            rows.push((format!("{device} {op}"), l.since(earlier)));
        }
    }
    let engine = rows.len();
    for (kind, l) in &now.request_latency {
        rows.push((kind.clone(), l.since(before.request_latency.get(kind).unwrap_or(&none))));
    }
    rows[engine..].sort_by_key(|(_, l)| std::cmp::Reverse(l.sum_nanos));
    let head = format!("{:<18} {:>9} {:>8} {:>8} {:>8}", "", "/s", "p50", "p99", "p99.9");
    let line = |(name, l): &(String, Latency)| {
        let [p50, p99, p999] = [l.p50_nanos, l.p99_nanos, l.p999_nanos].map(micros);
        format!("{name:<18} {:>9} {p50:>8} {p99:>8} {p999:>8}", scaled(float(l.count) / seconds))
    };
    [head].into_iter().chain(rows.iter().filter(|(_, l)| l.count > 0).map(line)).collect()
}

fn waits(before: &Stats, now: &Stats, seconds: f64) -> Vec<String> {
    let earlier = |reason: &String| before.waited_nanos.get(reason).copied().unwrap_or(0);
    let mut rows: Vec<_> = now.waited_nanos.iter().map(|(r, n)| (n.saturating_sub(earlier(r)), r)).collect();
    rows.sort_unstable_by(|a, b| b.cmp(a));
    let shown = rows.into_iter().filter(|(n, _)| *n > 0);
    shown.map(|(n, reason)| format!("{reason:<18} {:>7.1} ms/s", float(n) / 1e6 / seconds)).collect()
}

fn bytes(before: &Stats, now: &Stats, rate: impl Fn(u64, u64) -> f64) -> Vec<String> {
    let mut lines = vec![format!("{:<18} {:>10} {:>10}", "", "read B/s", "write B/s")];
    for (device, d) in &now.devices {
        for (region, r) in &d.regions {
            let earlier = before.devices.get(device).and_then(|d| d.regions.get(region)).copied().unwrap_or_default();
            let read = rate(r.reads.bytes, earlier.reads.bytes);
            let written = rate(r.writes.bytes + r.zeroes.bytes, earlier.writes.bytes + earlier.zeroes.bytes);
            if read + written > 0.0 {
                let name = format!("{device} {region}");
                lines.push(format!("{name:<18} {:>10} {:>10}", scaled(read), scaled(written)));
            }
        }
    }
    lines
}
