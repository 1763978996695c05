"""Results as data files of bench/results: medians and spread by kind of store, with host, date and command.

scripts/report.py makes the tables of docs/clusters.md from them.
"""

import datetime
import json
import math
import os
import platform
import statistics
import time
from pathlib import Path

from .host import QUIRE, ROOT, run

RESULTS = ROOT / "bench" / "results"


class Table:
    """Figures by name and kind of store, one from each round."""

    def __init__(self, kinds, base):
        self.kinds, self.base, self.figures, self.units = list(kinds), base, {}, {}

    def add(self, name, unit, kind, value):
        self.units[name] = unit
        self.figures.setdefault(name, {}).setdefault(kind, []).append(value)

    def of(self, name, kind):
        return [v for v in self.figures.get(name, {}).get(kind, []) if v is not None and not math.isnan(v)]

    def rows(self):
        """Medians, and least and most of the rounds."""
        medians, spread = [], {}
        for name, unit in self.units.items():
            seen = [self.of(name, kind) for kind in self.kinds]
            medians.append([name, unit, [round(statistics.median(v), 3) if v else None for v in seen]])
            spread[name] = [[round(min(v), 3), round(max(v), 3)] if v else None for v in seen]
        return medians, spread

    def text(self):
        """For the terminal."""
        medians, spread = self.rows()
        lines = [" | ".join(["", *self.kinds])]
        for name, unit, values in medians:
            cells = [
                "-" if v is None else f"{v:g} ({s[0]:g} .. {s[1]:g})" for v, s in zip(values, spread[name])
            ]
            lines.append(" | ".join([f"{name}, {unit}", *cells]))
        return "\n".join(lines)


def rotated(table, rounds, title):
    """Round and kind of store, each kind once a round, in an order that rotates."""
    kinds = table.kinds
    for number in range(rounds):
        for turn in range(len(kinds)):
            kind = kinds[(number + turn) % len(kinds)]
            print(f"{title}: round {number + 1} of {rounds}, {kind}", flush=True)
            yield number, kind


def sync_micros(directory, count=300):
    """Median time of a 4 KiB write with fdatasync in a directory of the host, in microseconds."""
    path, block, times = Path(directory) / "probe", bytes(4096), []
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for n in range(count + 50):
            begin = time.perf_counter()
            os.pwrite(file, block, n % 50 * 4096)
            os.fdatasync(file)
            if n >= 50:
                times.append((time.perf_counter() - begin) * 1e6)
    finally:
        os.close(file)
        path.unlink()
    return statistics.median(times)


def describe_host(directory):
    model = "CPUs"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    load = os.getloadavg()[0]
    return (f"{os.cpu_count()} x {model}, Linux {platform.release()}; 4 KiB write + fdatasync "
            f"{sync_micros(directory):.0f} us; load {load:.1f} at the start")


def today():
    return datetime.date.today().isoformat()


def build():
    """The commit that was measured, as `git describe` tells; the program's version where there is no git."""
    said = run("git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*", check=False)
    return said.stdout.strip() if said.returncode == 0 else run(QUIRE, "--version").stdout.strip()


def data_of(table, title, note, command, rounds, host):
    medians, spread = table.rows()
    return {
        "title": title, "date": today(), "build": build(), "host": host,
        "command": command, "rounds": rounds, "columns": table.kinds, "base": table.kinds.index(table.base),
        "note": note, "rows": medians, "spread": spread,
    }


def save(name, data):
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path
