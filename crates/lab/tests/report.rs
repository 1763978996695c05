//! The laboratory's page in a real browser: every figure is painted with its data at the widths of a screen and of a
//! phone, in light and dark; nothing is wider than the page, and the browser complains of nothing.

#[macro_use(test)]
extern crate quire_testkit;

#[path = "report/browser.rs"]
mod browser;
#[path = "report/png.rs"]
mod png;

use std::path::{Path, PathBuf};

use quire_lab::report::page;
use quire_lab::results::{Claim, Effort, Figure, Findings, Host, Paper, Point, Program, Run, Shape};
use quire_testkit::needs_tools;
use serde_json::Value;

use browser::{Browser, View};
use png::{Area, Colour};

const REPEAT: &str = "cargo test -p quire-lab --test report every_figure";
/// A screen and a phone, in CSS pixels.
const WIDTHS: [u32; 2] = [1280, 390];
/// Of the window. A screenshot has that much of the page.
const HEIGHT: u32 = 4000;
/// Of the bar at the top of the window, which covers what is below it.
const BAR: u64 = 80;

/// Of the page: its width and that of what is on it. Of each figure: its name, its points, the drawings that
/// are to be seen, the marks in them, the paper's numbers and the lines in their colour, the points with a spread and
/// the lines in the colour of whiskers, the marks that have a size, the box of the drawing, and the colours that have
/// to be seen: of a mark of three pixels or more whose middle is under no later mark.
const PROBE: &str = r#"(() => {
const size = e => e.getBoundingClientRect();
const seen = e => size(e).width > 0 && size(e).height > 0;
const style = getComputedStyle(document.documentElement);
const colour = n => { const hex = style.getPropertyValue('--s' + n).trim();
    return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16)) };
const number = mark => mark.getAttribute('fill').match(/\d+/)[0];
const figures = [...document.querySelectorAll('figure')].map(f => {
    const svg = [...f.querySelectorAll('svg')].filter(seen);
    const marks = svg.flatMap(s => [...s.querySelectorAll('rect[fill^="var(--s"],circle[fill^="var(--s"]')]);
    const boxes = marks.map(size);
    const covers = (box, x, y) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
    const due = marks.filter((mark, n) => { const box = boxes[n];
        const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
        const large = Math.min(box.width, box.height) >= 3;
        return large && !boxes.slice(n + 1).some(later => covers(later, x, y)) });
    const box = svg.length ? size(svg[0]) : size(f);
    const stroked = colour => svg.flatMap(s => [...s.querySelectorAll(`[stroke="var(--${colour})"]`)]).length;
    return { id: f.id, points: +f.dataset.points, drawings: svg.length, marks: marks.length,
        printed: +f.dataset.printed, paper: stroked('paper'), spreads: +f.dataset.spreads, ink: stroked('ink'),
        sized: marks.filter(seen).length, left: Math.round(box.left), right: Math.round(box.right),
        top: Math.round(box.top + scrollY), bottom: Math.round(box.bottom + scrollY),
        due: [...new Set(due.map(number))].map(n => colour(+n)) } });
return { width: innerWidth, wide: document.documentElement.scrollWidth, figures } })()"#;

fn findings() -> Findings {
    let mut f = Findings::default();
    f.assume("a < b & \"c\"");
    for (n, shape) in [Shape::Bars, Shape::Lines].into_iter().enumerate() {
        for log in [false, true] {
            let id = format!("figure-{n}-{log}");
            let mut figure = Figure { shape, log, ..Figure::bars(&id, "figure 1", "A title", "size", "MB/s") }
                .of_series(["ext4-ordered", "ext4-journal", "wasteless"]);
            let with_spread = Point { value: 1.0, deviation: Some(0.25) };
            figure.place("64", [with_spread, Point::from(20.0), Point::from(f64::NAN)]);
            figure.place("4096", [300.0, 0.5, 7.0]);
            figure.printed("4096", "ext4-ordered", 270.0);
            f.figures.push(figure);
        }
    }
    f.claims
        .push(Claim::at_least("figure 1", "it is faster", "a / b", 3.0, "5.1").because_within(3.0..=5.0, "of <this>"));
    f
}

fn run() -> Run {
    Run {
        study: "study".into(),
        paper: Paper::Okeanos,
        title: "A study".into(),
        effort: Effort::Quick,
        date: "2026-01-01".into(),
        seconds: 1,
        command: "quire-lab run study".into(),
        program: Program { build: "0".into(), commit: Some("<commit>".into()) },
        host: Host::here(),
        findings: findings(),
    }
}

/// The page of the committed results and of those above.
fn whole_page() -> String {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/lab");
    let mut runs = Run::load_all(&committed).unwrap();
    runs.push(run());
    page(&runs).unwrap()
}

/// A page in a browser.
struct Look<'a> {
    browser: &'a mut Browser,
    dir: &'a Path,
    view: View,
}

impl Look<'_> {
    /// What is not as it should be on a page of so many figures.
    fn faults(&mut self, page: &str, count: usize) -> Vec<String> {
        let file = self.dir.join("page.html");
        std::fs::write(&file, page).unwrap();
        let mut faults = self.browser.open(&file, self.view);
        let probe = self.browser.evaluate(PROBE);
        let figures = probe["figures"].as_array().expect("a list");
        if figures.len() != count {
            faults.push(format!("{} figures instead of {count}", figures.len()));
        }
        if number(&probe["wide"]) > number(&probe["width"]) {
            faults.push(format!("wider than the page: {} at {}", probe["wide"], probe["width"]));
        }
        faults.extend(figures.iter().filter_map(fault_of_drawing));
        faults.extend(self.unpainted(figures));
        faults
    }

    /// Figures without pixels of a series' colour that has to be seen. They come in the order of the page.
    fn unpainted(&mut self, figures: &[Value]) -> Vec<String> {
        let (mut faults, mut left) = (Vec::new(), figures);
        while let Some(first) = left.first() {
            let to = number(&first["top"]).saturating_sub(BAR);
            let top = self.browser.evaluate(&format!("scrollTo({{top:{to},behavior:'instant'}}),Math.round(scrollY)"));
            let top = number(&top);
            let (pixels, png) = self.browser.pixels();
            let is_shown = |f: &&Value| number(&f["bottom"]) <= top + u64::from(HEIGHT) && number(&f["top"]) >= top;
            let shown = left.iter().take_while(is_shown).count();
            assert!(shown > 0, "larger than a window of {HEIGHT} pixels: {first}");
            for figure in &left[..shown] {
                let missing: Vec<Colour> = due(figure).filter(|c| pixels.count(area(figure, top), *c) == 0).collect();
                if !missing.is_empty() || due(figure).next().is_none() {
                    let shot = self.keep(&png);
                    faults.push(format!("{}: no pixel of {missing:?}: see {}", figure["id"], shot.display()));
                }
            }
            left = &left[shown..];
        }
        faults
    }

    /// Keeps a screenshot for the reader of a failure.
    fn keep(&self, png: &[u8]) -> PathBuf {
        let View { width, is_dark, .. } = self.view;
        let theme = if is_dark { "dark" } else { "light" };
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{width}-{theme}.png"));
        std::fs::write(&path, png).unwrap();
        path
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Of a figure in the document: one drawing with a mark to each point, some of which have a size; a line to each of the
/// paper's numbers, and a whisker of three lines to each point with a spread.
fn fault_of_drawing(figure: &Value) -> Option<String> {
    let [points, drawings, marks, sized] = ["points", "drawings", "marks", "sized"].map(|key| number(&figure[key]));
    let [printed, paper, spreads, ink] = ["printed", "paper", "spreads", "ink"].map(|key| number(&figure[key]));
    let is_drawn = points > 0 && drawings == 1 && marks == points && sized > 0;
    (!is_drawn || paper != printed || ink != 3 * spreads).then(|| figure.to_string())
}

/// The colours that have to be seen in a figure.
fn due(figure: &Value) -> impl Iterator<Item = Colour> {
    let colours = figure["due"].as_array().expect("a list").iter();
    colours.map(|c| [0, 1, 2].map(|n| u8::try_from(number(&c[n])).expect("a colour")))
}

/// Where a figure's drawing is on a screenshot that begins at `top`.
fn area(figure: &Value, top: u64) -> Area {
    let at = |key: &str| usize::try_from(number(&figure[key])).expect("on a screen");
    let top = usize::try_from(top).expect("on a screen");
    Area { left: at("left"), right: at("right"), top: at("top") - top, bottom: at("bottom") - top }
}

#[test]
fn every_figure_is_painted_with_its_data_on_a_screen_and_on_a_phone_in_light_and_dark() {
    needs_tools(&["chromium", "bash", "mkfifo"]);
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Browser::start(dir.path());
    let page = whole_page();
    let count = page.matches("<figure").count();
    for width in WIDTHS {
        for is_dark in [false, true] {
            let view = View { width, height: HEIGHT, is_dark };
            let faults = Look { browser: &mut browser, dir: dir.path(), view }.faults(&page, count);
            assert_eq!(faults, Vec::<String>::new(), "{view:?}; repeat: {REPEAT}");
        }
    }
}

/// What the test above looks for would be seen.
#[test]
fn empty_figures_and_complaints_are_seen() {
    needs_tools(&["chromium", "bash", "mkfifo"]);
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Browser::start(dir.path());
    let page = page(&[run()]).unwrap();
    let view = View { width: WIDTHS[0], height: HEIGHT, is_dark: false };
    let mut look = Look { browser: &mut browser, dir: dir.path(), view };
    let styled = |rule: &str| page.replacen("</style>", &format!("{rule}</style>"), 1);
    assert_eq!(look.faults(&page, 4), Vec::<String>::new());
    let unmarked = page.replacen("fill=\"var(--s0)\"", "fill=\"none\"", 1);
    assert_eq!(look.faults(&unmarked, 4).len(), 1, "a point without a mark");
    // All marks are in the document, and have a size.
    let empty = styled("#figure-1-true svg{visibility:hidden}");
    let faults = look.faults(&empty, 4);
    assert!(faults.len() == 1 && faults[0].contains("figure-1-true"), "an empty figure: {faults:?}");
    let pale = styled("#figure-0-false [fill=\"var(--s1)\"]{opacity:.3}");
    let faults = look.faults(&pale, 4);
    assert!(faults.len() == 1 && faults[0].contains("figure-0-false"), "a series of another colour: {faults:?}");
    assert_eq!(look.faults(&styled("h1{width:2000px}"), 4).len(), 1, "wider than the page");
    let unprinted = page.replacen("stroke=\"var(--paper)\"", "stroke=\"none\"", 1);
    assert_eq!(look.faults(&unprinted, 4).len(), 1, "a number of the paper's without its line");
    let unspread = page.replacen("stroke=\"var(--ink)\"", "stroke=\"none\"", 1);
    assert_eq!(look.faults(&unspread, 4).len(), 1, "a point without its whisker");
    let noisy = page.replace("</body>", "<script>missing()</script></body>");
    assert_eq!(look.faults(&noisy, 4).len(), 1, "a script's error");
    assert_eq!(look.faults(&page, 5).len(), 1, "a missing figure");
}

#[test]
fn the_page_needs_no_network_and_no_script() {
    let page = page(&[run()]).unwrap();
    let outside = ["src=", "@import", "url(", "<script", "href=\"http"];
    assert_eq!(outside.into_iter().filter(|o| page.contains(o)).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(page.contains("of &lt;this&gt;") && page.contains("a &lt; b &amp; &quot;c&quot;"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("270"));
    assert!(page.contains("build 0, commit &lt;commit&gt;;"));
}

/// What a link of the page hands over, to the byte.
#[test]
fn each_figure_has_its_numbers_as_csv() {
    let run = run();
    let page = page(std::slice::from_ref(&run)).unwrap();
    for figure in &run.findings.figures {
        let link = format!("<a download=\"{}.csv\" href=\"data:text/csv;charset=utf-8,", figure.id);
        let (_, rest) = page.split_once(&link).unwrap_or_else(|| panic!("{} has no link", figure.id));
        let (data, _) = rest.split_once('"').expect("an end");
        let digits = data.split('%').skip(1);
        let bytes: Vec<u8> = digits.map(|hex| u8::from_str_radix(hex, 16).expect("two digits")).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), figure.csv(), "{}", figure.id);
    }
    assert!(run.findings.figures.len() > 1);
}

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
