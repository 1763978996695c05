//! The page: what each paper says and what came out, each figure with the paper's numbers, and what it was measured by.

use std::fmt::Write;

use anyhow::Result;

use super::chart::{self, Look, Width};
use super::escape::escaped;
use super::{papers, printed};
use crate::results::{Claim, Figure, Paper, Run, Verdict, shown};

const STYLE: &str = include_str!("style.css");

/// What each paper is about, in a sentence.
fn about(paper: Paper) -> &'static str {
    match paper {
        Paper::Joj => {
            "Journaling of Journal Is (Almost) Free, FAST '14: SQLite on ext4 whose fsync is one sequential write, and \
             whose journaling mode is chosen for each file."
        }
        Paper::Djfs => {
            "DJFS, ETRI Journal 39(6), 2017: a journal in a small NVRAM without flushes, of compressed differences, \
             that goes home a region at a time."
        }
        Paper::Okeanos => {
            "Okeanos, USENIX ATC '11: small synchronous writes of many threads share blocks of the journal; large ones \
             may go in place."
        }
        Paper::Rfj => {
            "RFJ, 2019: what is overwritten is journaled, what is new is written in place before its metadata, by the \
             writeback that happens anyway."
        }
        Paper::Quire => "Not of a paper: what Quire asks of itself beside them.",
    }
}

/// The whole page.
///
/// # Errors
/// A figure cannot be drawn.
pub fn page(runs: &[Run]) -> Result<String> {
    let papers: Vec<Paper> = Paper::ALL.into_iter().filter(|p| runs.iter().any(|r| r.paper == *p)).collect();
    let mut out = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Four papers on one \
         engine</title>";
    // An icon of its own: a browser that looks for one finds nothing to fetch.
    out += "<link rel=\"icon\" href=\"data:,\">";
    let _ = write!(out, "<style>{STYLE}</style></head><body>\n<nav><ul>");
    for p in &papers {
        let _ = write!(out, "<li><a href=\"#{p:?}\">{}</a></li>", p.name());
    }
    out += "<li><a href=\"#items\">Figure by figure</a></li></ul></nav>\n<header><h1>Four papers on one engine</h1>";
    out += "<p>Each claim is a sentence of a paper in our words. <b>Held</b>: what was measured here is what the \
         sentence says; a number has a tenth on either side. <b>Differs</b>: it is not, and a known cause explains a \
         figure of that size. <b>Not held</b>: it is not, and no known cause explains so much. Pink lines and numbers \
         are the papers'.</p><div class=\"tiles\">";
    papers.iter().for_each(|p| out += &tile(*p, runs));
    out += "</div></header>\n<main>";
    for p in &papers {
        let _ = write!(out, "\n<section id=\"{p:?}\"><h2>{}</h2><p class=\"soft\">{}</p>", p.name(), about(*p));
        for run in runs.iter().filter(|r| r.paper == *p) {
            out += &study(run)?;
        }
        out += "</section>";
    }
    out += &items(runs);
    out += "</main>\n<footer>Made by <code>quire-lab report</code> of the studies' results \
         alone.</footer></body></html>\n";
    Ok(out)
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Held => "held",
        Verdict::Differs => "differs",
        Verdict::NotHeld => "not-held",
    }
}

fn tile(paper: Paper, runs: &[Run]) -> String {
    let of = runs.iter().filter(|r| r.paper == paper).flat_map(|r| &r.findings.claims);
    let claims: Vec<&Claim> = of.filter(|c| !c.ours).collect();
    let mut out = format!("<a class=\"tile\" href=\"#{paper:?}\"><b>{}</b><div class=\"bar\">", paper.name());
    let mut words = Vec::new();
    for verdict in [Verdict::Held, Verdict::Differs, Verdict::NotHeld] {
        let n = claims.iter().filter(|c| c.verdict == verdict).count();
        if n > 0 {
            let _ = write!(out, "<i class=\"{}\" style=\"flex:{n}\"></i>", class(verdict));
        }
        words.push(format!("{n} {verdict}"));
    }
    let _ = write!(out, "</div><span class=\"soft\">{}</span></a>", words.join(", "));
    out
}

fn study(run: &Run) -> Result<String> {
    let mut out = format!("\n<h3 id=\"{}\">{}</h3>", run.study, escaped(&run.title));
    out += &claims(&run.findings.claims);
    if !run.findings.figures.is_empty() {
        out += "<div class=\"figures\">";
        for f in &run.findings.figures {
            out += &figure(f, run)?;
        }
        out += "</div>";
    }
    out += &made_by(run);
    Ok(out)
}

fn claims(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<div class=\"claims\"><table><thead><tr><th></th><th>The paper says</th><th>Measured</th>\
         <th class=\"n\">Here</th><th class=\"n\">Held if</th><th class=\"n\">Paper</th></tr></thead><tbody>",
    );
    for c in claims {
        let cause = c.cause_in_full();
        let cause = cause.map_or(String::new(), |why| format!("<div class=\"why\">Why: {}</div>", escaped(&why)));
        let whose = if c.ours { "Quire's aim, " } else { "" };
        let _ = write!(
            out,
            "<tr><td><span class=\"badge {}\">{}</span></td><td>{} <span class=\"soft\">({whose}{})</span>{cause}</td>\
             <td data-l=\"Measured\">{}</td><td class=\"n\" data-l=\"Here\">{}</td><td class=\"n\" \
                  data-l=\"Held if\">{}</td>\
             <td class=\"n\" data-l=\"Paper\">{}</td></tr>",
            class(c.verdict),
            c.verdict,
            escaped(&c.says),
            escaped(&c.at),
            escaped(&c.what),
            c.measured.map_or("-".into(), shown),
            c.bound(),
            c.paper_shown().unwrap_or_else(|| "in words".into()),
        );
    }
    out + "</tbody></table></div>"
}

fn figure(f: &Figure, run: &Run) -> Result<String> {
    let mut out = format!(
        "<figure id=\"{}\" data-points=\"{}\" data-printed=\"{}\" data-spreads=\"{}\"><figcaption>{}<span>{}</span>\
         </figcaption>",
        f.id,
        f.count(),
        f.printed.iter().filter(|p| f.places.contains(&p.x) && f.series.iter().any(|s| s.name == p.series)).count(),
        f.series.iter().flat_map(|s| s.points.iter().flatten()).filter(|p| p.deviation.is_some()).count(),
        escaped(&f.title),
        escaped(&f.of)
    );
    for width in [Width::Wide, Width::Narrow] {
        out += &chart::draw(f, width)?;
    }
    out += "<ul class=\"legend\">";
    for (n, s) in f.series.iter().enumerate() {
        let Look { colour, is_striped } = Look::of(n);
        let class = if is_striped { " class=\"striped\"" } else { "" };
        let _ = write!(out, "<li><i{class} style=\"--of:var(--s{colour})\"></i>{}</li>", escaped(&s.name));
    }
    if !f.printed.is_empty() {
        out += "<li><i class=\"mark\" style=\"background:var(--paper)\"></i>the paper's</li>";
    }
    if f.series.iter().flat_map(|s| s.points.iter().flatten()).any(|p| p.deviation.is_some()) {
        out += "<li>whiskers: one standard deviation</li>";
    }
    out += "</ul>";
    if f.printed.is_empty() && run.paper != Paper::Quire {
        let _ = write!(out, "<p class=\"soft\">{}</p>", escaped(&printed::sentence(run.paper, f)));
    }
    out += "<details><summary>Numbers</summary><div class=\"scroll\">";
    out += &numbers(f);
    let csv: String = f.csv().bytes().map(|b| format!("%{b:02X}")).collect();
    let _ = write!(
        out,
        "</div><a download=\"{}.csv\" href=\"data:text/csv;charset=utf-8,{csv}\">as CSV</a></details></figure>",
        f.id
    );
    Ok(out)
}

fn numbers(f: &Figure) -> String {
    let mut out = format!("<table><thead><tr><th>{}</th>", escaped(&f.x));
    out += &f.series.iter().map(|s| format!("<th class=\"n\">{}</th>", escaped(&s.name))).collect::<String>();
    out += "</tr></thead><tbody>";
    for (n, place) in f.places.iter().enumerate() {
        let _ = write!(out, "<tr><td>{}</td>", escaped(place));
        for s in &f.series {
            let mut cell = s.points[n].map_or("-".into(), |p| shown(p.value));
            if let Some(d) = s.points[n].and_then(|p| p.deviation) {
                let _ = write!(cell, " &plusmn; {}", shown(d));
            }
            if let Some(paper) = f.printed_at(place, &s.name) {
                let _ = write!(cell, " <small>({})</small>", shown(paper));
            }
            let _ = write!(out, "<td class=\"n\">{cell}</td>");
        }
        out += "</tr>";
    }
    out + "</tbody></table>"
}

/// Assumptions, machine and command.
fn made_by(run: &Run) -> String {
    let mut out = String::from("<div class=\"about\">");
    let list = |title: &str, lines: &[String]| {
        if lines.is_empty() {
            return String::new();
        }
        let lines: String = lines.iter().map(|l| format!("<li>{}</li>", escaped(l))).collect();
        format!("<b>{title}</b><ul>{lines}</ul>")
    };
    out += &list("Assumed", &run.findings.assumptions);
    out += &list("Not measured here", &run.findings.skipped);
    let h = &run.host;
    let commit = run.program.commit.as_ref().map_or(String::new(), |name| format!(", commit {}", escaped(name)));
    let _ = write!(
        out,
        "<div class=\"soft\">{}, {} s, build {}{commit}; {} x {}, {} GiB, Linux {}, {}</div><code>{}</code></div>",
        run.date,
        run.seconds,
        escaped(&run.program.build),
        h.processors,
        escaped(&h.processor),
        h.memory_gib,
        escaped(&h.kernel),
        escaped(&h.system),
        escaped(&run.command)
    );
    out
}

/// All that the papers have.
fn items(runs: &[Run]) -> String {
    let mut out = String::from(
        "\n<section id=\"items\"><h2>Figure by figure</h2><p class=\"soft\">Every technique, figure and table \
             of the four \
         papers.</p><div class=\"claims items\"><table><thead><tr><th>Paper</th><th>What</th><th>Study</th>\
         <th>Result</th>\
         </tr></thead><tbody>",
    );
    let rows = papers::rows(runs);
    let causes = papers::causes(&rows);
    for row in &rows {
        let badge = row.verdict.map_or("none", class);
        let _ = write!(
            out,
            "<tr><td>{}</td><td>{}</td><td data-l=\"Study\">{}</td><td><span class=\"badge {badge}\">{}</span> \
                 {}</td></tr>",
            row.paper.name(),
            escaped(row.what),
            escaped(&row.by.replace('`', "")),
            escaped(&row.result),
            escaped(&row.why_by_number(&causes))
        );
    }
    out += "</tbody></table></div><h3>Causes</h3><ol>";
    causes.iter().for_each(|cause| out += &format!("<li>{}</li>", escaped(cause)));
    out + "</ol></section>"
}
