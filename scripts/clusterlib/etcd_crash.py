"""Crash tests of etcd: a member, its daemon or its power goes while writers write.

What a member must hold is known for certain only when the cluster cannot acknowledge without it. So one of the other
two is stopped (SIGSTOP) before the fault: what was then begun and acknowledged is in the log of both that remain.

    all three write ─ SIGSTOP a bystander ─ [acknowledged here: must be in the victim's log] ─ fault ─ SIGCONT
      ─ the cluster goes on ─ victim: recover, e2fsck, read its log ─ it rejoins ─ read its store alone
"""

import json
import random
import time

from . import etcdwal, faults
from .etcd import Cluster, Writers, value_of
from .host import Failure, run, wait_for

FAULTS = faults.of("member")
STORE_MIB = 512
WRITERS = 8
# Acknowledged while the victim's log decides.
WRITES_THAT_COUNT = 100
# No snapshot cuts the log, and no segment of it is deleted: everything that was ever acknowledged is in it.
OPTIONS = ("--snapshot-count", "10000000", "--max-wals", "0")


class Lost(Failure):
    """An acknowledged write is not there."""


def must_hold(writers, since, until):
    """Keys of puts that began after `since` and were acknowledged before `until`."""
    return [key for key, begin, end in writers.all_acked() if begin > since and end < until]


def check_log(member, keys, seed):
    """The member's own log holds these keys with their values."""
    try:
        found = etcdwal.puts(member.wal)
    except etcdwal.Damaged as fault:
        raise Lost(f"the log of {member.name} is damaged: {fault}") from fault
    lost = [key for key in keys if found.get(key) != value_of(seed, key)]
    if lost:
        raise Lost(f"{len(lost)} of {len(keys)} acknowledged writes are not in the log of {member.name}, "
                   f"the first is {lost[0]!r}")


def check_store(member, writers, seed):
    """The member's own store, read without the others, holds every acknowledged write once it has caught up."""
    acked = [key for key, _, _ in writers.all_acked()]

    missing = list(acked)

    def complete():
        found = member.ask(lambda client: client.read_all(b"k/", serializable=True))
        if found is None:
            return False
        missing[:] = [key for key in acked if found.get(key) != value_of(seed, key)]
        return not missing

    try:
        wait_for(f"{member.name} catches up", complete, 120, member.process.ended)
    except Failure as fault:
        raise Lost(f"{fault}; {len(missing)} of {len(acked)} acknowledged writes are missing there") from fault
    return len(acked)


def check_goes_on(writers, since):
    """A put that began after the fault is acknowledged."""
    wait_for("the cluster goes on", lambda: any(begin > since for _, begin, _ in writers.all_acked()), 120)


def cut_off_log(member):
    """Truncates the member's log in the middle of what was written, behind its back."""
    path = etcdwal.segments(member.wal)[-1]
    with open(path, "r+b") as file:
        file.truncate(etcdwal.used_bytes(path) // 2)


def same_everywhere(cluster):
    """etcd's own hash of all keys is the same on all members."""
    def hashes():
        said = run("etcdctl", "--endpoints", cluster.endpoints(), "endpoint", "hashkv", "-w", "json",
                   env={"ETCDCTL_API": "3"}, check=False)
        if said.returncode != 0:
            return None
        return {(h["HashKV"]["hash"], h["HashKV"]["compact_revision"]) for h in json.loads(said.stdout)}
    wait_for("the members have the same hash", lambda: len(hashes() or ()) == 1, 60)


def one_round(cluster, rng, fault, seed, number, tamper):
    victim, bystander = rng.sample(cluster.members, 2)
    writers = Writers(cluster, WRITERS, seed).start()
    try:
        wait_for("writes", lambda: len(writers.all_acked()) > 50, 120)
        bystander.process.stop()
        since = time.monotonic()
        enough = lambda: len(must_hold(writers, since, time.monotonic())) >= WRITES_THAT_COUNT
        wait_for("writes by two members", enough, 120)
        until = time.monotonic()
        said = faults.take_down(victim, fault, rng.randrange(1 << 32))
        bystander.process.resume()
        check_goes_on(writers, time.monotonic())
        keys = must_hold(writers, since, until)
        faults.bring_back(victim, fault)
        if tamper:
            cut_off_log(victim)
        check_log(victim, keys, seed)
        victim.start()
        wait_for(f"{victim.name} is healthy", victim.is_healthy, 120, victim.process.ended)
    finally:
        bystander.process.resume()
        writers.stop()
    total = check_store(victim, writers, seed)
    same_everywhere(cluster)
    print(f"round {number}: {fault} of {victim.name}{': ' + said if said else ''}; {len(keys)} writes that only "
          f"{victim.name} and one other held are in its log, all {total} in its store", flush=True)
    return len(keys)


def crash(host, rounds, seed, tamper=False):
    """Runs rounds, each with the next kind of fault; raises Lost at the first write that is missing."""
    rng, counted = random.Random(seed), 0
    cluster = Cluster(host, "quire", STORE_MIB, power=True, options=OPTIONS)
    cluster.start()
    order = rng.sample(FAULTS, len(FAULTS))
    for number in range(1, rounds + 1):
        counted += one_round(cluster, rng, order[number % len(order)], seed * 1000 + number, number, tamper)
    cluster.stop()
    for member in cluster.members:
        member.store.check()
    print(f"etcd: {rounds} rounds, {counted} acknowledged writes that depended on the victim, none missing")
