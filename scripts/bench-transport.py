#!/usr/bin/env python3
"""Measures requests over /dev/fuse and by io_uring, side by side, and writes bench/results/transport.json.

    sudo scripts/bench-transport.py [--quire target/release/quire] [--rounds 3] [--seconds 2]

Each round mounts a fresh image once by each way, in turn. Reads are of 4 KiB, O_DIRECT, in a hole: a request and its
reply, and no disk. fsyncs are of 4 KiB overwrites (fdatasync). The kernel's parameter is as before when it ends.
"""

import argparse
import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARAMETER = pathlib.Path("/sys/module/fuse/parameters/enable_uring")
WAYS = ["dev", "uring"]
CASES = [("read", jobs) for jobs in (1, 4, 16)] + [("fsync", jobs) for jobs in (1, 4, 16, 64)]


@contextlib.contextmanager
def allowed():
    """FUSE over io_uring is allowed meanwhile; the tests take the same lock."""
    with PARAMETER.open("r+") as parameter:
        fcntl.flock(parameter, fcntl.LOCK_EX)
        before = parameter.read().strip()
        PARAMETER.write_text("Y")
        try:
            yield
        finally:
            PARAMETER.write_text(before)


def fio(directory, kind, jobs, seconds):
    """Operations a second."""
    how = {
        "read": ["--rw=randread", "--direct=1", f"--filename={directory}/hole"],
        "fsync": ["--rw=randwrite", "--fdatasync=1", f"--directory={directory}", "--filename_format=f.$jobnum"],
    }[kind]
    size = "64M" if kind == "read" else "1M"
    said = subprocess.run(
        ["fio", "--name=job", "--ioengine=psync", "--bs=4k", f"--size={size}", f"--numjobs={jobs}", "--time_based",
         f"--runtime={seconds}", "--group_reporting", "--output-format=json", *how],
        check=True, capture_output=True, text=True).stdout
    job = json.loads(said[said.index("{"):])["jobs"][0]
    return job["read" if kind == "read" else "write"]["iops"]


def run(quire, way, order, seconds, found):
    with tempfile.TemporaryDirectory() as place:
        image, mnt = pathlib.Path(place, "image"), pathlib.Path(place, "mnt")
        mnt.mkdir()
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", image, "512M"], check=True, stdout=subprocess.DEVNULL)
        with allowed():
            subprocess.run([quire, "mount", "-o", f"transport={way}", image, mnt], check=True)
        try:
            with open(mnt / "hole", "w") as hole:
                hole.truncate(64 << 20)
            for kind, jobs in order:
                found[kind, jobs][way].append(fio(mnt, kind, jobs, seconds))
        finally:
            subprocess.run([quire, "umount", mnt], check=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quire", default=str(ROOT / "target/release/quire"))
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=int, default=2)
    options.add_argument("--out", default=str(ROOT / "bench/results/transport.json"))
    asked = options.parse_args()
    found = {case: {way: [] for way in WAYS} for case in CASES}
    for n in range(asked.rounds):
        for way in WAYS if n % 2 == 0 else WAYS[::-1]:
            run(asked.quire, way, CASES, asked.seconds, found)
    rows = []
    for (kind, jobs), by in found.items():
        ratios = [u / d for u, d in zip(by["uring"], by["dev"])]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})"
        rates = [f"{statistics.median(by[way]):,.0f}" for way in WAYS]
        rows.append([f"{kind}, {jobs} job{'s' if jobs > 1 else ''}", *rates, spread])
    data = {
        "title": "Operations a second over /dev/fuse and by io_uring, and their ratio",
        "note": "Medians, and the range of the ratios of each round.",
        "date": datetime.date.today().isoformat(),
        "host": f"Linux {platform.release()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.0f}",
        "build": subprocess.run([asked.quire, "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0],
        "command": f"sudo scripts/bench-transport.py --rounds {asked.rounds} --seconds {asked.seconds}",
        "columns": ["/dev/fuse", "io_uring", "ratio"],
        "rows": rows,
    }
    pathlib.Path(asked.out).write_text(json.dumps(data, indent=1) + "\n")
    for row in rows:
        print(*row, sep="\t")


if __name__ == "__main__":
    main()
