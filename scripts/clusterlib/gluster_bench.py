"""Measures GlusterFS on Quire and on the kernel's ext4, as Okeanos' figure 5c: small synced writes of several clients.

Okeanos (USENIX ATC '11) had 13 clients, PVFS2 and two servers; here four clients, a volume of replica 2 and both bricks
are on one machine; with `--device` each brick has a modelled disk of its own, as Okeanos' servers had.
"""

import json

from . import results
from .gluster import Volume
from .host import run
from .stores import make_file

KINDS = ["kernel:ordered", "kernel:journal", "quire", "quire:writethrough"]
# On a modelled disk: the modes of Okeanos.
MODES = [
    "kernel:ordered", "kernel:none", "kernel:fast_commit", "kernel:journal", "quire:wasteless", "quire:selective", "quire",
]
STORE_MIB = 1024
CLIENTS = 4
SIZES = (1024, 4096)
TITLE = "GlusterFS, replica 2: synced writes by four clients"
NOTE = (
    "Medians of the rounds, in brackets the ratio to the first column, then the least and the most. Each client has a "
    "mount of its own and appends to a file of its own with O_SYNC (fio)."
)


def fio(volume, size, seconds):
    """Writes a second of all clients, and the largest p99 of a client, in milliseconds."""
    command = [
        "fio", "--output-format=json", "--ioengine=psync", "--rw=write", "--sync=1", f"--bs={size}", "--size=256m",
        "--time_based", f"--runtime={seconds}", "--fallocate=none", "--create_on_open=1",
    ]
    for number, client in enumerate(volume.clients):
        command += [f"--name=c{number}", f"--filename={client}/f{number}-{size}"]
    jobs = json.loads(run(*command, seconds=seconds + 120).stdout)["jobs"]
    p99 = max(job["write"]["clat_ns"]["percentile"]["99.000000"] for job in jobs)
    return sum(job["write"]["iops"] for job in jobs), p99 / 1e6


def one(host, table, kind, seconds, model):
    volume = Volume(host, kind, STORE_MIB, CLIENTS, model=model)
    volume.start()
    for size in SIZES:
        rate, p99 = fio(volume, size, seconds)
        table.add(f"{size // 1024} KiB: writes", "1/s", kind, rate)
        table.add(f"{size // 1024} KiB: throughput", "MiB/s", kind, rate * size / (1 << 20))
        table.add(f"{size // 1024} KiB: p99", "ms", kind, p99)
    volume.stop()


def bench(host, rounds, quick, kinds=None, model=None):
    """Measures; returns the data of bench/results/gluster.json, or of gluster-MODEL.json."""
    kinds = kinds or (MODES if model else KINDS)
    facts = results.describe_host(host.dir)
    if not model:
        for brick in range(2):
            make_file(host.dir / f"b{brick}.img", STORE_MIB)
    table = results.Table(kinds, kinds[0])
    for _, kind in results.rotated(table, rounds, "gluster"):
        one(host, table, kind, 4 if quick else 20, model)
    print(table.text())
    on = f" --device {model}" if model else ""
    command = f"sudo scripts/clusters.py bench gluster --rounds {rounds}{' --quick' if quick else ''}{on}"
    title, note = TITLE, NOTE
    if model:
        title = f"{TITLE}, bricks on disks of the model {model}"
        note += f" Each brick has a modelled disk of its own (`quire-lab model --device {model}`)."
    return results.data_of(table, title, note, command, rounds, facts)
