"""Tests of what judges clusters: the reader of etcd's log, quantiles, and the record of what a run owns.

    python3 -B scripts/clusterlib/tests.py
"""

import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clusterlib import etcdwal, fsync_trace, host, latency, results  # noqa: E402


def varint(value):
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def put(index, key, value):
    request = number(1, 7) + text(etcdwal.FIELD_PUT, text(1, key) + text(2, value))
    return number(1, 0) + number(2, 1) + number(3, index) + text(4, request)


class Log:
    """Writes a log as etcd does: CRCs go on from record to record, and each is padded to eight bytes."""

    def __init__(self, crc=0):
        self.data, self.crc = b"", crc
        self.frame(etcdwal.CRC, b"", crc)

    def frame(self, kind, data, crc):
        record = number(1, kind) + number(2, crc) + (text(3, data) if data else b"")
        padding = -len(record) % 8
        head = len(record) | ((0x80 | padding) << 56 if padding else 0)
        self.data += head.to_bytes(8, "little") + record + bytes(padding)

    def entry(self, *entry):
        data = put(*entry)
        self.crc = etcdwal.crc32c(data, self.crc)
        self.frame(etcdwal.ENTRY, data, self.crc)
        return self


class Wal(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.dir = Path(self.temporary.name)
        self.addCleanup(self.temporary.cleanup)

    def puts(self, *files):
        for n, data in enumerate(files):
            (self.dir / f"{n:016x}-{n:016x}.wal").write_bytes(data)
        return etcdwal.puts(self.dir)

    def test_crc_is_castagnoli(self):
        self.assertEqual(etcdwal.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(etcdwal.crc32c(b"56789", etcdwal.crc32c(b"1234")), 0xE3069283)

    def test_log_of_two_segments_gives_all_puts(self):
        first = Log().entry(1, b"a", b"1").entry(2, b"b", b"2")
        second = Log(first.crc).entry(3, b"a", b"3")
        self.assertEqual(self.puts(first.data + bytes(64), second.data + bytes(64)), {b"a": b"3", b"b": b"2"})

    def test_entry_that_a_later_leader_replaced_is_left_out(self):
        log = Log().entry(1, b"a", b"1").entry(2, b"b", b"2").entry(3, b"c", b"3").entry(2, b"d", b"4")
        self.assertEqual(self.puts(log.data), {b"a": b"1", b"d": b"4"})

    def test_cut_log_ends_before_the_cut(self):
        log = Log().entry(1, b"a", b"1")
        whole = len(log.data)
        log.entry(2, b"b", b"2")
        for end in range(whole, len(log.data) - 7):
            self.assertEqual(self.puts(log.data[:end]), {b"a": b"1"}, f"cut at {end}")

    def test_flipped_byte_is_noticed(self):
        log = Log().entry(1, b"a", b"1" * 100)
        data = bytearray(log.data)
        data[-20] ^= 1
        with self.assertRaises(etcdwal.Damaged):
            self.puts(bytes(data))

    def test_segment_after_another_crc_is_noticed(self):
        with self.assertRaises(etcdwal.Damaged):
            self.puts(Log().entry(1, b"a", b"1").data, Log(5).entry(2, b"b", b"2").data)


PAGE = """# TYPE t histogram
t_bucket{le="0.001"} 10
t_bucket{le="0.002"} 30
t_bucket{le="+Inf"} 40
t_sum 0.08
t_count 40
"""


class Latency(unittest.TestCase):
    def test_quantile_is_interpolated_within_its_bucket(self):
        h = latency.Histogram.parse(PAGE, "t")
        self.assertAlmostEqual(h.quantile(0.125), 0.0005)
        self.assertAlmostEqual(h.quantile(0.5), 0.0015)
        self.assertAlmostEqual(h.mean(), 0.002)

    def test_quantile_in_the_last_bucket_is_its_lower_limit(self):
        self.assertAlmostEqual(latency.Histogram.parse(PAGE, "t").quantile(0.999), 0.002)

    def test_difference_counts_what_came_later(self):
        h = latency.Histogram.parse(PAGE, "t")
        empty = h.since(h)
        self.assertEqual(empty.count, 0)
        self.assertTrue(math.isnan(empty.quantile(0.5)) and math.isnan(empty.mean()))

    def test_missing_histogram_is_an_error(self):
        with self.assertRaises(ValueError):
            latency.Histogram.parse(PAGE, "u")

    def test_quantile_of_times(self):
        times = list(range(1, 101))
        self.assertEqual([latency.quantile(times, q) for q in (0.5, 0.99, 1.0)], [50, 99, 100])


EVENTS = """
 dd-1 [000] ..... 10.000100: fuse_request_send: connection 7 req 2 opcode 16 (FUSE_WRITE) len 1048656
 py-2 [001] ..... 10.002000: fuse_request_send: connection 7 req 4 opcode 16 (FUSE_WRITE) len 8272
 py-2 [001] ..... 10.002500: fuse_request_send: connection 9 req 4 opcode 20 (FUSE_FSYNC) len 56
 quire-3 [000] ..... 10.003000: fuse_request_end: connection 7 req 4 len 24 error 0
 py-2 [001] ..... 10.003100: fuse_request_send: connection 7 req 6 opcode 20 (FUSE_FSYNC) len 56
 quire-3 [000] ..... 10.005100: fuse_request_end: connection 7 req 6 len 16 error 0
"""


class Trace(unittest.TestCase):
    def test_parts_of_an_fdatasync_are_told_apart(self):
        requests = fsync_trace.parse(EVENTS, 7)
        self.assertEqual([r[:2] for r in requests], [(16, 8272), (20, 56)])
        for found, wanted in zip(fsync_trace.parts(10.0, 10.0052, requests), (0.0052, 0.002, 0.001, 0.002)):
            self.assertAlmostEqual(found, wanted)

    def test_fdatasync_without_its_request_has_no_parts(self):
        self.assertIsNone(fsync_trace.parts(11.0, 12.0, fsync_trace.parse(EVENTS, 7)))


class Owned(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.dir = Path(self.temporary.name) / "run"
        self.addCleanup(self.temporary.cleanup)

    def test_close_ends_processes_also_stopped_ones(self):
        with host.Host(self.dir) as owner:
            first, second = owner.start(["sleep", "600"], "a"), owner.start(["sleep", "600"], "b")
            second.stop()
        self.assertTrue(host.is_gone(first.pid, first.began) and host.is_gone(second.pid, second.began))
        self.assertFalse(self.dir.exists())

    def test_failed_run_is_kept_and_ended(self):
        with self.assertRaises(host.Failure), host.Host(self.dir) as owner:
            process = owner.start(["sleep", "600"], "a")
            raise host.Failure("found something")
        self.assertTrue(host.is_gone(process.pid, process.began) and self.dir.exists())

    def test_killed_run_is_cleaned_by_its_record(self):
        owner = host.Host(self.dir)
        process = owner.start(["sleep", "600"], "a")
        self.assertEqual(host.clean_directory(self.dir), 1)
        process.popen.wait()
        self.assertEqual(host.clean_directory(self.dir), 0)

    def test_process_with_a_recorded_id_but_another_start_lives_on(self):
        other = subprocess.Popen(["sleep", "600"])
        try:
            host.clean([["process", other.pid, "1"]])
            self.assertIsNone(other.poll())
        finally:
            other.kill()
            other.wait()

    def test_process_with_a_pid_file_of_the_run_is_ended_and_no_other(self):
        sleeper = [sys.executable, "-c", "import time; time.sleep(600)", "-p"]
        ours = subprocess.Popen([*sleeper, f"{self.dir}/run/vols/a.pid"])
        other = subprocess.Popen([*sleeper, f"{self.dir}/other/a.pid"])
        try:
            host.clean([["started", f"{self.dir}/run", None]])
            self.assertIsNotNone(ours.wait(60))
            self.assertIsNone(other.poll())
        finally:
            for process in (ours, other):
                process.kill()
                process.wait()

    def test_directory_of_a_run_that_did_not_end_is_refused(self):
        host.Host(self.dir)
        with self.assertRaises(host.Failure):
            host.Host(self.dir)

    def test_program_that_ends_early_is_told_with_its_log(self):
        with host.Host(self.dir) as owner:
            process = owner.start(["sh", "-c", "echo no such thing; exit 3"], "a")
            with self.assertRaisesRegex(host.Failure, "ended with 3: no such thing"):
                host.wait_for("it answers", lambda: False, 60, process.ended)


class Results(unittest.TestCase):
    def test_table_has_medians_and_spread(self):
        table = results.Table(["k", "q"], "k")
        for value in (3, 1, 2):
            table.add("fsync", "ms", "k", value)
        table.add("fsync", "ms", "q", math.nan)
        self.assertEqual(table.rows(), ([["fsync", "ms", [2, None]]], {"fsync": [[1, 3], None]}))


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    unittest.main()
