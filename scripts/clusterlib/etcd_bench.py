"""Measures etcd on Quire and on the kernel's ext4: rounds in rotated order, each on fresh file systems."""

import re
import threading
import time

from . import results
from .etcd import FSYNCS, Cluster, Writers
from .host import Failure, run
from .latency import Histogram, quantile
from .stores import make_file

KINDS = ["kernel:ordered", "kernel:fast_commit", "quire", "quire:writethrough"]
# The stream's GiB, etcd's segments of 64 MiB, its database, and room.
STORE_MIB = 1792
STREAM_MIB = 1024
STREAM_SECONDS = 300.0
CONCURRENT = 64
TITLE = "etcd, three members on one machine"
NOTE = (
    "Medians of the rounds, in brackets the ratio to the first column, then the least and the most. Fsyncs: "
    "etcd_disk_wal_fsync_duration_seconds of the leader; p50, p99 and p99.9 are interpolated within its buckets "
    "(0 .. 1 ms, 1 .. 2 ms, doubling), the mean is exact. Writes: 256 B, timed at the client. The stream writes 1 GiB "
    "into the leader's mount and syncs it, over and over. check perf runs in the first round."
)


class Stream:
    """Writes a GiB into a directory, syncs and removes it, until it is ended; at least once. dd does it."""

    def __init__(self, host, directory):
        self.host, self.path = host, directory / "stream"
        self.ended, self.rates, self.fault = threading.Event(), [], None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        command = ["dd", "if=/dev/zero", f"of={self.path}", "bs=1M", f"count={STREAM_MIB}", "conv=fsync"]
        while not (self.rates and self.ended.is_set()):
            begin = time.monotonic()
            copy = self.host.start(command, "stream.log")
            copy.wait(STREAM_SECONDS)
            self.rates.append(STREAM_MIB / (time.monotonic() - begin))
            if copy.popen.returncode != 0:
                self.fault = copy.ended()
                return
            self.path.unlink()

    def stop(self):
        self.ended.set()
        self.thread.join()
        if self.fault:
            raise Failure(f"the stream: {self.fault}")
        return self.rates


def phase(table, kind, cluster, name, writers, writes, beside=False):
    """One load: so many writers, each so many writes; with the stream in the leader's mount if `beside`."""
    leader = cluster.leader()
    before = Histogram.parse(leader.metrics(), FSYNCS)
    stream = Stream(cluster.host, leader.store.dir) if beside else None
    begin = time.monotonic()
    load = Writers(cluster, writers, 1, writes).start()
    load.join()
    if stream:
        table.add(f"{name}: the stream", "MiB/s", kind, quantile(stream.stop(), 0.5))
    acked = load.all_acked()
    seconds = max(end for _, _, end in acked) - begin
    if cluster.leader() is not leader:
        print(f"{kind}, {name}: another member leads now; the figures of the fsyncs are left out", flush=True)
        return
    fsyncs = Histogram.parse(leader.metrics(), FSYNCS).since(before)
    table.add(f"{name}: writes", "1/s", kind, len(acked) / seconds)
    for q, label in ((0.5, "p50"), (0.99, "p99")):
        table.add(f"{name}: write {label}", "ms", kind, quantile([e - b for _, b, e in acked], q) * 1e3)
    table.add(f"{name}: fsync mean", "ms", kind, fsyncs.mean() * 1e3)
    for q, label in ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")):
        table.add(f"{name}: fsync {label}", "ms", kind, fsyncs.quantile(q) * 1e3)


def check_perf(table, kind, cluster, load):
    """`etcdctl check perf`, which takes a minute; whether it passes is told, not required."""
    said = run("etcdctl", "--endpoints", cluster.endpoints(), "check", "perf", f"--load={load}",
               env={"ETCDCTL_API": "3"}, check=False)
    text = said.stdout + said.stderr
    rate = re.search(r"Throughput(?: is| too low:)? (\d+) writes/s", text)
    slowest = re.search(r"took (?:too long: )?([\d.]+)s", text)
    if rate and slowest:
        table.add(f"check perf {load}: writes", "1/s", kind, float(rate[1]))
        table.add(f"check perf {load}: slowest", "s", kind, float(slowest[1]))
    verdict = "passes" if said.returncode == 0 and "FAIL" not in text else "fails"
    print(f"{kind}: etcdctl check perf --load={load} {verdict}", flush=True)


def one(host, table, kind, quick, perf):
    sequential, each = (200, 20) if quick else (2000, 200)
    cluster = Cluster(host, kind, STORE_MIB)
    cluster.start()
    for beside, suffix in ((False, "alone"), (True, "beside a stream")):
        phase(table, kind, cluster, f"1 writer {suffix}", 1, sequential, beside)
        phase(table, kind, cluster, f"64 writers {suffix}", CONCURRENT, each, beside)
    if perf != "none":
        check_perf(table, kind, cluster, perf)
    cluster.stop()


def bench(host, rounds, quick, perf, kinds=None):
    """Measures; returns the data of bench/results/etcd.json."""
    kinds = kinds or KINDS
    facts = results.describe_host(host.dir)
    for member in range(3):
        make_file(host.dir / f"m{member}.img", STORE_MIB)
    table = results.Table(kinds, kinds[0])
    for number, kind in results.rotated(table, rounds, "etcd"):
        one(host, table, kind, quick, perf if number == 0 else "none")
    print(table.text())
    command = f"sudo scripts/clusters.py bench etcd --rounds {rounds}{' --quick' if quick else ''} --perf {perf}"
    return results.data_of(table, TITLE, NOTE, command, rounds, facts)
