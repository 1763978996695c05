"""Crash tests of GlusterFS: a brick, its daemon or its power goes while clients write with O_SYNC.

A write of replica 2 is acknowledged when both bricks have it, as long as both are up. So what was acknowledged before
the fault must be in the victim's own brick, which is read before it rejoins.

    both bricks healed ─ clients write ─ [acknowledged here: must be on the victim's brick] ─ fault ─ clients go on
      ─ victim: recover, e2fsck, read its brick ─ it rejoins and is healed ─ both bricks are alike
"""

import hashlib
import os
import random
import threading
import time

from . import faults
from .gluster import Volume, gfid, link_of
from .host import Failure, wait_for

FAULTS = faults.of("brick")
STORE_MIB = 512
CLIENTS = 2
RECORD_BYTES = 4096
WRITES_THAT_COUNT = 100
SECONDS_TO_STOP = 60.0


class Lost(Failure):
    """An acknowledged write is not there."""


def record_of(seed, writer, number):
    """4096 bytes that follow from the number of the write."""
    return hashlib.sha256(b"%d %d %d" % (seed, writer, number)).digest() * (RECORD_BYTES // 32)


class Writer:
    """A client that appends records to a file of its own, each durable before the next."""

    def __init__(self, directory, seed, number):
        self.seed, self.number, self.name = seed, number, f"s{seed}-w{number}"
        self.path, self.acked, self.ended = directory / self.name, [], threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        file, n = None, 0
        while not self.ended.is_set():
            begin = time.monotonic()
            try:
                if file is None:
                    file = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o644)
                done = os.pwrite(file, record_of(self.seed, self.number, n), n * RECORD_BYTES)
            except OSError:
                done = 0
            if done == RECORD_BYTES:
                self.acked.append((n, begin, time.monotonic()))
                n += 1
                continue
            if file is not None:
                file = self.close(file)
            self.ended.wait(0.05)
        if file is not None:
            self.close(file)

    def close(self, file):
        try:
            os.close(file)
        except OSError:
            pass

    def stop(self):
        """A write that hangs ends with its mount, which the end of the run takes away."""
        self.ended.set()
        self.thread.join(SECONDS_TO_STOP)
        if self.thread.is_alive():
            print(f"{self.name}: a write hangs", flush=True)


def must_hold(writer, since, until):
    return [n for n, begin, end in list(writer.acked) if begin > since and end < until]


def check_goes_on(writers, since):
    """Each client has a write acknowledged that began after the fault."""
    wait_for("the clients go on", lambda: all(w.acked[-1][1] > since for w in writers), 120)


def missing_on(brick, writer, numbers):
    """Which records are not on a brick."""
    lost = []
    try:
        with open(brick.path / writer.name, "rb") as file:
            for n in numbers:
                file.seek(n * RECORD_BYTES)
                if file.read(RECORD_BYTES) != record_of(writer.seed, writer.number, n):
                    lost.append(n)
    except FileNotFoundError:
        return list(numbers)
    return lost


def check_brick(brick, expected):
    """The brick's own files hold these records of each writer."""
    for writer, numbers in expected:
        lost = missing_on(brick, writer, numbers)
        if lost:
            raise Lost(f"{len(lost)} of {len(numbers)} acknowledged writes of {writer.name} are not on "
                       f"{brick.store.name}, the first is {lost[0]}")


def files_of(brick):
    """Path below the brick, checksum, gfid: of all files, each of which has its link below .glusterfs."""
    found = {}
    for path in sorted(brick.path.iterdir()):
        if not path.is_file():
            continue
        link = link_of(brick.path, path)
        if not link.exists() or link.stat().st_ino != path.stat().st_ino:
            raise Lost(f"{path} has no link by its gfid, {link}")
        found[path.name] = (hashlib.sha256(path.read_bytes()).hexdigest(), gfid(path).hex())
    return found


def check_alike(volume, writers):
    """Both bricks hold the same, with all that was ever acknowledged."""
    first, second = (files_of(brick) for brick in volume.bricks)
    if first != second:
        differ = sorted(n for n in first.keys() | second.keys() if first.get(n) != second.get(n))
        raise Lost(f"healed bricks differ in {', '.join(differ)}")
    for brick in volume.bricks:
        check_brick(brick, [(w, [n for n, _, _ in w.acked]) for w in writers])


def cut_off(brick, writer):
    """Truncates a file of the brick to half, behind the volume's back."""
    path = brick.path / writer.name
    os.truncate(path, path.stat().st_size // 2)


def one_round(volume, rng, fault, seed, number, tamper):
    victim = rng.choice(volume.bricks)
    volume.heal()
    writers = [Writer(directory, seed, i) for i, directory in enumerate(volume.clients)]
    try:
        # Both bricks have the first record of each client: it is connected with both.
        both = lambda: all(w.acked and not missing_on(b, w, [0]) for b in volume.bricks for w in writers)
        wait_for("each client writes to both bricks", both, 120)
        since = time.monotonic()
        enough = lambda: all(len(must_hold(w, since, time.monotonic())) >= WRITES_THAT_COUNT for w in writers)
        wait_for("writes", enough, 120)
        until = time.monotonic()
        said = faults.take_down(victim, fault, rng.randrange(1 << 32))
        after = time.monotonic()
        check_goes_on(writers, after)
        expected = [(w, must_hold(w, since, until)) for w in writers]
        faults.bring_back(victim, fault)
        if tamper:
            cut_off(victim, writers[0])
        check_brick(victim, expected)
        volume.restart_bricks()
    finally:
        for writer in writers:
            writer.stop()
    volume.heal()
    check_alike(volume, writers)
    counted, total = sum(len(n) for _, n in expected), sum(len(w.acked) for w in writers)
    print(f"round {number}: {fault} of {victim.store.name}{': ' + said if said else ''}; {counted} writes before it "
          f"are on its brick, all {total} on both after healing", flush=True)
    return counted


def crash(host, rounds, seed, tamper=False):
    """Runs rounds, each with the next kind of fault; raises Lost at the first write that is missing."""
    rng, counted = random.Random(seed), 0
    volume = Volume(host, "quire", STORE_MIB, CLIENTS, power=True)
    volume.start()
    order = rng.sample(FAULTS, len(FAULTS))
    for number in range(1, rounds + 1):
        counted += one_round(volume, rng, order[number % len(order)], seed * 1000 + number, number, tamper)
    volume.stop()
    for brick in volume.bricks:
        brick.store.check()
    print(f"gluster: {rounds} rounds, {counted} acknowledged writes before the faults, none missing")
