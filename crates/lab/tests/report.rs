//! The laboratory's page in a real browser: every figure is drawn with its data at the widths of a screen and of a
//! phone, nothing is wider than the page, and the browser complains of nothing.

#[macro_use(test)]
extern crate quire_testkit;

use std::path::Path;
use std::process::Command;

use quire_lab::report::page;
use quire_lab::results::{Claim, Effort, Figure, Findings, Host, Paper, Run, Shape};
use quire_testkit::needs_tools;

/// Says of each figure: its name, its points, drawings to be seen, marks in them, marks that have a size.
const PROBE: &str = r#"<script>addEventListener('load',()=>{
const seen=e=>{const b=e.getBoundingClientRect();return b.width>0&&b.height>0};
const lines=[...document.querySelectorAll('figure')].map(f=>{const svg=[...f.querySelectorAll('svg')].filter(seen);
const marks=svg.flatMap(s=>[...s.querySelectorAll('rect[fill^="var(--s"],circle[fill^="var(--s"]')]);
return ['figure',f.id,f.dataset.points,svg.length,marks.length,marks.filter(seen).length].join(' ')});
lines.push('width '+innerWidth+' '+document.documentElement.scrollWidth);
const pre=document.createElement('pre');pre.textContent='\nprobe\n'+lines.join('\n')+'\nend\n';document.body.append(pre)})</script>"#;

fn findings() -> Findings {
    let mut f = Findings::default();
    f.assume("a < b & \"c\"");
    for (n, shape) in [Shape::Bars, Shape::Lines].into_iter().enumerate() {
        for log in [false, true] {
            let id = format!("figure-{n}-{log}");
            let mut figure = Figure { shape, log, ..Figure::bars(&id, "figure 1", "A title", "size", "MB/s") }
                .of_series(["ext4-ordered", "ext4-journal", "wasteless"]);
            figure.place("64", [1.0, 20.0, f64::NAN]);
            figure.place("4096", [300.0, 0.5, 7.0]);
            figure.printed("4096", "ext4-ordered", 270.0);
            f.figures.push(figure);
        }
    }
    f.claims.push(Claim::at_least("figure 1", "it is faster", "a / b", 3.0, 5.1).as_printed().because("of <this>"));
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
        build: "0".into(),
        host: Host::here(),
        findings: findings(),
    }
}

/// What the probe says at a width, and what the browser printed.
fn browse(page: &str, width: u32, dir: &Path) -> (Vec<String>, String) {
    let file = dir.join(format!("page-{width}.html"));
    std::fs::write(&file, page.replace("</body>", &format!("{PROBE}</body>"))).unwrap();
    let profile = dir.join(format!("profile-{width}"));
    let out = Command::new("timeout")
        .args(["-k", "5", "90", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"])
        .args(["--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let (dom, said) =
        (String::from_utf8_lossy(&out.stdout).into_owned(), String::from_utf8_lossy(&out.stderr).into_owned());
    let probe = dom.split_once("\nprobe\n").and_then(|(_, rest)| rest.split_once("\nend\n"));
    let Some((probe, _)) = probe else { panic!("the page did not load: {said}\n{dom}") };
    (probe.lines().map(str::to_owned).collect(), said)
}

/// True if everything on the page is as it should be; else what is not.
fn faults(page: &str, width: u32, dir: &Path) -> Vec<String> {
    let (lines, said) = browse(page, width, dir);
    let mut faults: Vec<String> = said.lines().filter(|l| l.contains("CONSOLE")).map(str::to_owned).collect();
    let mut figures = 0;
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u64>().unwrap();
        match words[0] {
            "figure" => {
                figures += 1;
                if number(2) == 0 || number(3) != 1 || number(4) != number(2) || number(5) == 0 {
                    faults.push(line.clone());
                }
            }
            _ if number(2) > number(1) => faults.push(format!("wider than the page: {line}")),
            _ => {}
        }
    }
    if figures != page.matches("<figure").count() {
        faults.push(format!("{figures} figures"));
    }
    faults
}

#[test]
fn every_figure_is_drawn_with_its_data_on_a_screen_and_on_a_phone() {
    needs_tools(&["chromium"]);
    let dir = tempfile::tempdir().unwrap();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/lab");
    let mut runs = Run::load_all(&committed).unwrap();
    runs.push(run());
    let page = page(&runs).unwrap();
    for width in [1280, 500] {
        assert_eq!(faults(&page, width, dir.path()), Vec::<String>::new(), "at {width}");
    }
    // It would be seen: a figure without marks, an error of a script.
    let broken = page.replacen("fill=\"var(--s0)\"", "fill=\"none\"", 1);
    assert_eq!(faults(&broken, 1280, dir.path()).len(), 1);
    let noisy = page.replace("</body>", "<script>missing()</script></body>");
    assert!(!faults(&noisy, 1280, dir.path()).is_empty());
}

#[test]
fn the_page_needs_no_network_and_no_script() {
    let page = page(&[run()]).unwrap();
    let outside = ["src=", "@import", "url(", "<script", "href=\"http"];
    assert_eq!(outside.into_iter().filter(|o| page.contains(o)).collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(page.contains("of &lt;this&gt;") && page.contains("a &lt; b &amp; &quot;c&quot;"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("270"));
}

fn main() -> std::process::ExitCode {
    quire_testkit::harness::main()
}
