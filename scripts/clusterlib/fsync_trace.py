"""Where an fdatasync of a log waits beside a stream on the same mount, by the kernel's FUSE tracepoints.

    fdatasync ─ its page waits in the kernel's queue ─ WRITE is served ─ FSYNC is served ─ return
                └─ until fuse_request_send              └─ send to end     └─ send to end

The log is one like etcd's: allocated ahead, appended to by 1200 bytes, an fdatasync each.
"""

import os
import re
import time
from pathlib import Path

from . import results
from .host import Failure, run
from .latency import quantile
from .stores import KINDS, Store

TRACING = Path("/sys/kernel/tracing")
CONNECTIONS = Path("/sys/fs/fuse/connections")
STORE_MIB = 1792
STREAM_MIB = 1024
STREAM_SECONDS = 300.0
SEGMENT_MIB = 64
APPEND_BYTES = 1200
PAUSE_SECONDS = 0.002
BUFFER_KIB = 8192
# A WRITE of the log is a few pages; those of the stream are near 1 MiB.
LOG_WRITE_BYTES = 20_000
WRITE, FSYNC = 16, 20
# The kernel stamps events in whole microseconds.
ROUNDING = 1e-5
TITLE = "Where an fdatasync of a log waits beside a stream of 1 GiB on the same mount"
NOTE = (
    "Milliseconds, mean / p99 of the fdatasyncs. A page of the log waits in the kernel's queue of background requests "
    "behind the pages of the stream{in_flight}; then Quire serves its WRITE, and the FSYNC."
)
COLUMNS = ["fdatasync", "WRITE waits in the kernel", "WRITE is served", "FSYNC is served", "fdatasyncs"]


class Traced:
    """FUSE requests while it lasts, in an instance of its own, so that other users of the tracer are not disturbed."""

    def __init__(self):
        if not (TRACING / "instances").exists():
            run("mount", "-t", "tracefs", "tracefs", TRACING, check=False)
        self.dir = TRACING / "instances" / f"quire-{os.getpid()}"

    def __enter__(self):
        try:
            self.dir.mkdir()
            (self.dir / "trace_clock").write_text("mono")
            (self.dir / "buffer_size_kb").write_text(str(BUFFER_KIB))
            (self.dir / "events/fuse/enable").write_text("1")
        except OSError as error:
            if self.dir.exists():
                self.dir.rmdir()
            raise Failure(f"the kernel's FUSE has no tracepoints here (Linux 6.11 and later has): {error}") from error
        return self

    def __exit__(self, *_):
        (self.dir / "events/fuse/enable").write_text("0")
        self.dir.rmdir()

    def requests(self, connection):
        """Opcode, length, begin and end of each request on a connection, in seconds of the monotonic clock."""
        return parse((self.dir / "trace").read_text(), connection)


def parse(text, connection):
    sent, found = {}, []
    send = re.compile(r"(\d+\.\d+): fuse_request_send: connection (\d+) req (\d+) opcode (\d+) \(\S+\) len (\d+)")
    end = re.compile(r"(\d+\.\d+): fuse_request_end: connection (\d+) req (\d+)")
    for line in text.splitlines():
        if m := send.search(line):
            if int(m[2]) == connection:
                sent[m[3]] = (int(m[4]), int(m[5]), float(m[1]))
        elif (m := end.search(line)) and int(m[2]) == connection and m[3] in sent:
            found.append((*sent.pop(m[3]), float(m[1])))
    return found


def parts(begin, end, requests):
    """What an fdatasync waited for: total, its WRITE in the kernel's queue, its WRITE served, its FSYNC served."""
    within = [r for r in requests if r[2] >= begin - ROUNDING and r[3] <= end + ROUNDING]
    syncs = [r for r in within if r[0] == FSYNC]
    writes = [r for r in within if r[0] == WRITE and r[1] < LOG_WRITE_BYTES]
    if len(syncs) != 1:
        return None
    queued = writes[0][2] - begin if writes else 0.0
    served = writes[-1][3] - writes[0][2] if writes else 0.0
    return end - begin, max(queued, 0.0), served, syncs[0][3] - syncs[0][2]


def syncs_beside_stream(host, directory):
    """Begin and end of each fdatasync while the stream is written and synced."""
    command = ["dd", "if=/dev/zero", f"of={directory}/stream", "bs=1M", f"count={STREAM_MIB}", "conv=fsync"]
    log, block, times = os.open(directory / "log", os.O_CREAT | os.O_RDWR, 0o600), os.urandom(APPEND_BYTES), []
    try:
        os.posix_fallocate(log, 0, SEGMENT_MIB << 20)
        os.fsync(log)
        stream = host.start(command, "stream.log")
        while stream.popen.poll() is None:
            os.pwrite(log, block, len(times) * APPEND_BYTES)
            begin = time.monotonic()
            os.fdatasync(log)
            times.append((begin, time.monotonic()))
            time.sleep(PAUSE_SECONDS)
        stream.wait(STREAM_SECONDS)
    finally:
        os.close(log)
    if stream.popen.returncode != 0:
        raise Failure(f"the stream: {stream.ended()}")
    return times


def connection_of(directory):
    """The FUSE connection of a mount, as the tracepoints number it: the kernel's own form of a device number."""
    device = os.stat(directory).st_dev
    return os.major(device) << 20 | os.minor(device)


def limit_of(connection):
    """Background requests that the kernel sends at once on a connection, in brackets; "" where it does not tell."""
    try:
        return f" ({(CONNECTIONS / str(connection) / 'max_background').read_text().strip()} are in flight at once)"
    except OSError:
        return ""


def trace(host, kinds=None):
    """Measures; returns the data of bench/results/etcd-fsync.json."""
    rows, facts, in_flight = [], results.describe_host(host.dir), ""
    for kind in kinds or ["quire", "quire:tune=host", "quire:writethrough"]:
        if KINDS[kind][0] != "quire":
            raise Failure(f"{kind} has no FUSE requests")
        store = Store(host, "s", STORE_MIB, kind)
        store.mount()
        with Traced() as traced:
            times = syncs_beside_stream(host, store.dir)
            connection = connection_of(store.dir)
            requests, in_flight = traced.requests(connection), limit_of(connection)
        store.unmount()
        store.detach()
        known = [p for p in (parts(*t, requests) for t in times) if p]
        if not known:
            raise Failure(f"{kind}: no FSYNC was traced")
        cells = []
        for part in zip(*known):
            cells.append(f"{sum(part) / len(part) * 1e3:.2f} / {quantile(part, 0.99) * 1e3:.2f}")
        rows.append([f"`{kind}`", *cells, str(len(known))])
        print(" | ".join(rows[-1]), flush=True)
    return {
        "title": TITLE, "date": results.today(), "build": results.build(), "host": facts,
        "command": "sudo scripts/clusters.py fsync", "columns": COLUMNS, "rows": rows,
        "note": NOTE.format(in_flight=in_flight),
    }
