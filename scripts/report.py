#!/usr/bin/env python3
"""Makes the tables and the chart of the documents from the data files in bench/results.

A document says where a table stands:

    <!-- table: NAME -->      bench/results/NAME.json
    ...                       made by this script
    <!-- end -->

    scripts/report.py            writes the documents and docs/speed.svg
    scripts/report.py --check    changes nothing; fails if something would change
"""

import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = ["docs/performance.md", "docs/lab.md", "docs/testing.md", "docs/clusters.md", "docs/databases.md"]
CHART = ROOT / "docs" / "speed.svg"


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def line(cells):
    return "| " + " | ".join(cells) + " |"


def head(columns):
    return [line(columns), "|" + "---|" * len(columns)]


def with_ratios(data):
    """Numbers by column, with the ratio to one of them, and the spread of the rounds where it is told."""
    rows = head(["", "unit", *data["columns"]])
    for name, unit, values in data["rows"]:
        base = values[data["base"]]
        spread = data.get("spread", {}).get(name, [None] * len(values))
        cells = []
        for value, seen in zip(values, spread):
            if value is None:
                cells.append("-")
                continue
            ratio = f" ({value / base:.2f})" if base else ""
            cells.append(f"{value:.2f}{ratio}" + (f", {seen[0]:.2f} .. {seen[1]:.2f}" if seen else ""))
        rows.append(line([name, unit, *cells]))
    return rows


def runs(data):
    """Ratios of several runs, and the median and range of those on each host."""
    show = lambda values: "" if values is None else ", ".join(f"{v:.2f}" for v in values)
    rows = head(["host", "build", "run", *data["columns"]])
    for run in data["rows"]:
        rows.append(line([run["host"], run["build"], run["run"], *map(show, run["values"])]))
    for which, name in ((0, "`auto`"), (1, "`data=ordered`")):
        cells = []
        for column in range(len(data["columns"])):
            of_host_a = [r["values"][column] for r in data["rows"] if r["host"].startswith("A")]
            seen = sorted(v[which] for v in of_host_a if v and len(v) > which)
            cells.append(f"{statistics.median(seen):.2f} ({seen[0]:.2f} .. {seen[-1]:.2f})")
        rows.append(line([f"**A, {name}: median (range)**", "", "", *cells]))
    return rows


def texts(data):
    return head(["", *data["columns"]]) + [line(row) for row in data["rows"]]


def clients(data):
    """What `quire-lab clients --save` keeps: medians and spread of each mounter, and what Quire's daemon did."""
    names = list(dict.fromkeys(row["mounter"] for row in data["rows"]))
    found = {(row["workload"], row["mounter"]): row for row in data["rows"]}
    workloads = {row["workload"]: row["unit"] for row in data["rows"]}
    number = lambda v: "-" if v is None else f"{v:.3g}" if v < 100 else f"{v:,.0f}"
    rows = head(["", "unit", *names, "p99, us", "threads", "switches a request", "fsyncs a commit"])
    for workload, unit in workloads.items():
        of = [found.get((workload, name)) for name in names]
        base = statistics.median(of[0]["rates"]) if of[0] else None
        cells = []
        for row in of:
            if row is None:
                cells.append("-")
                continue
            middle = statistics.median(row["rates"])
            ratio = f" ({middle / base:.2f})" if base and row is not of[0] else ""
            spread = f"{number(min(row['rates']))} .. {number(max(row['rates']))}"
            cells.append(f"{number(middle)}{ratio}, {spread}")
        p99 = [number(row["p99_micros"]) if row else "-" for row in of]
        last = next((row for row in reversed(of) if row and row["threads"]), {})
        cells += [", ".join(p99), *(number(last.get(k)) for k in ("threads", "switches", "fsyncs"))]
        rows.append(line([workload, unit, *cells]))
    return rows


def table(name):
    data = load(name)
    first = data["rows"][0]
    if isinstance(first, dict) and "workload" in first:
        rows = clients(data)
    else:
        rows = runs(data) if isinstance(first, dict) else with_ratios(data) if "base" in data else texts(data)
    facts = [data["date"], *(data[k] for k in ("host",) if k in data)]
    if "build" in data:
        facts.append("build " + data["build"])
    sentence = lambda text: text[:1].upper() + text[1:].removesuffix(".") + "."
    notes = [sentence(data["note"])] if "note" in data else []
    about = [f"**{data['title']}.**", *notes, sentence("; ".join(facts))]
    commands = [part for command in data["command"].splitlines() for part in wrap(command, " \\")]
    return wrap(" ".join(about)) + ["", "```", *commands, "```", "", *rows]


def wrap(text, more=""):
    """Breaks a text into lines of at most 118 characters."""
    lines, now = [], ""
    for word in text.split():
        if now and len(now) + 1 + len(word) + len(more) > 118:
            lines.append(now + more)
            now = ("    " if more else "") + word
        else:
            now = f"{now} {word}".strip() if not now.startswith("    ") else f"{now} {word}"
    return [*lines, now]


def fill(text):
    def made(match):
        return "\n".join([match[1], "", *table(match[2]), "", "<!-- end -->"])

    return re.sub(r"(<!-- table: ([\w-]+) -->)\n.*?<!-- end -->", made, text, flags=re.S)


def chart():
    """Bars of how many times as fast as fuse2fs a mount is, and the kernel beside it, on a logarithmic scale. The
    unmount is left out."""
    data = load("mount")
    columns = {name: i for i, name in enumerate(data["columns"])}
    series = [("kernel:data=ordered", "#9aa5b1"), ("quire (auto)", "#5aa9e6"), ("quire:tune=host", "#1f5f99")]
    other = columns["fuse2fs"]
    rows = [r for r in data["rows"] if r[1] in ("us", "s", "MiB/s") and r[2][other] is not None and r[2][0] is not None]
    rows = [r for r in rows if r[0] != "unmount"]
    left, width, bar, gap, top = 230, 470, 12, 16, 44
    from math import log10

    most = 100
    x = lambda ratio: left + width * max(0.0, min(1.0, (log10(ratio) + 0.3) / (log10(most) + 0.3)))
    height = top + len(rows) * (bar * len(series) + gap) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="760" height="{height}" fill="#ffffff"/>',
        '<text x="16" y="20" font-size="14" font-weight="bold">'
        "How many times as fast as fuse2fs, without unmount (logarithmic)</text>",
    ]
    for n, (name, colour) in enumerate(series):
        out.append(f'<rect x="{left + n * 170}" y="27" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{left + n * 170 + 15}" y="36">{name}</text>')
    for tick in (1, 2, 5, 10, 20, 50, 100):
        at = x(tick)
        out.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{height - 30}" stroke="#dddddd"/>')
        out.append(f'<text x="{at:.1f}" y="{height - 14}" text-anchor="middle" fill="#555555">{tick}x</text>')
    y = top + 6
    for name, unit, values in rows:
        out.append(f'<text x="{left - 8}" y="{y + bar * len(series) / 2 + 4:.1f}" text-anchor="end">{name}</text>')
        for column, colour in series:
            value = values[columns[column]]
            ratio = value / values[other] if unit == "MiB/s" else values[other] / value
            out.append(f'<rect x="{left}" y="{y}" width="{x(ratio) - left:.1f}" height="{bar - 2}" fill="{colour}"/>')
            out.append(f'<text x="{x(ratio) + 4:.1f}" y="{y + bar - 3}" font-size="10">{ratio:.1f}</text>')
            y += bar
        y += gap
    return "\n".join([*out, "</svg>", ""])


def main():
    wanted = {ROOT / d: fill((ROOT / d).read_text()) for d in DOCUMENTS}
    wanted[CHART] = chart()
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)}: not what scripts/report.py makes of bench/results")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
