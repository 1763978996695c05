#!/usr/bin/env python3
"""etcd and GlusterFS on Quire, on one machine: docs/clusters.md.

    clusters.py start etcd|gluster               run a cluster until Ctrl-C
    clusters.py bench etcd|gluster [--record]    measure against the kernel's ext4
    clusters.py crash etcd|gluster [--tamper]    kill, cut the power, and look for acknowledged writes
    clusters.py bad etcd|gluster                 a corrupt image, an image that fills up
    clusters.py fsync [--record]                 trace where a log's fdatasync waits beside a stream
    clusters.py clean DIR                        end what a killed run has left

Exit codes: 0 all is well, 1 a promise was broken or a program failed, 2 usage, 77 something is missing, 130 Ctrl-C.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

from clusterlib import bad_input, fsync_trace, results  # noqa: E402
from clusterlib import etcd, etcd_bench, etcd_crash, gluster, gluster_bench, gluster_crash  # noqa: E402
from clusterlib.host import LAB, QUIRE, Failure, Host, Interrupts, Missing, clean_directory, need  # noqa: E402
from clusterlib.stores import KINDS  # noqa: E402

MISSING = 77
PROGRAMS = {"etcd": ["etcd", "etcdctl"], "gluster": ["glusterd", "gluster", "glusterfs"]}
CRASHES = {"etcd": etcd_crash, "gluster": gluster_crash}


def start(host, arguments):
    if arguments.what == "etcd":
        cluster = etcd.Cluster(host, arguments.kind, arguments.mib)
        cluster.start()
        print(f"etcd: ETCDCTL_API=3 etcdctl --endpoints {cluster.endpoints()} put key value")
    else:
        cluster = gluster.Volume(host, arguments.kind, arguments.mib, 1)
        cluster.start()
        print(f"gluster: {cluster.clients[0]}; gluster --glusterd-sock={host.dir}/glusterd.socket volume info")
    print("Ctrl-C ends it, and removes its images", flush=True)
    while True:
        time.sleep(3600)


def bench(host, arguments):
    if arguments.what == "etcd":
        if arguments.device:
            raise Failure("--device is for GlusterFS' bricks")
        data = etcd_bench.bench(host, arguments.rounds, arguments.quick, arguments.perf, arguments.kind)
    else:
        need("fio")
        data = gluster_bench.bench(host, arguments.rounds, arguments.quick, arguments.kind, arguments.device)
    if arguments.record:
        name = f"{arguments.what}-{arguments.device}" if arguments.device else arguments.what
        print(f"wrote {results.save(name, data)}; scripts/report.py makes the table")


def fsync(host, arguments):
    data = fsync_trace.trace(host, arguments.kind)
    if arguments.record:
        print(f"wrote {results.save('etcd-fsync', data)}; scripts/report.py makes the table")


def crash(host, arguments):
    module = CRASHES[arguments.what]
    if not arguments.tamper:
        module.crash(host, arguments.rounds, arguments.seed)
        return
    try:
        module.crash(host, 1, arguments.seed, tamper=True)
    except module.Lost as noticed:
        print(f"tampered with, and noticed: {noticed}")
        return
    raise Failure("a store was truncated, and nothing was noticed: the test cannot fail")


def bad(host, arguments):
    {"etcd": bad_input.etcd_bad, "gluster": bad_input.gluster_bad}[arguments.what](host, arguments.seed)


def arguments_of(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where images, logs and mounts are (a new one in /tmp)")
    parser.add_argument("--keep", action="store_true", help="keep it; after a failure it is kept anyway")
    actions = parser.add_subparsers(dest="action", required=True)

    def action(name, do, text):
        one = actions.add_parser(name, help=text)
        one.add_argument("what", choices=sorted(CRASHES))
        one.set_defaults(do=do)
        return one

    one = action("start", start, "run a cluster until Ctrl-C")
    one.add_argument("--kind", choices=KINDS, default="quire")
    one.add_argument("--mib", type=int, default=512, help="size of each image (512)")
    one = action("bench", bench, "measure against the kernel's ext4")
    one.add_argument("--rounds", type=int, default=5)
    one.add_argument("--quick", action="store_true", help="a tenth of the writes: the spread is wide")
    one.add_argument("--perf", choices=["none", "s", "m", "l"], default="s", help="load of etcdctl check perf")
    one.add_argument("--kind", choices=KINDS, action="append", help="these only; the first is compared with")
    one.add_argument("--device", help="GlusterFS' bricks on modelled disks of this name (hdd15k: Okeanos')")
    one.add_argument("--record", action="store_true", help="write bench/results")
    one = action("crash", crash, "kill, cut the power, and look for acknowledged writes")
    one.add_argument("--rounds", type=int, default=3, help="each with the next of three faults (3)")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--tamper", action="store_true", help="truncate the victim's store: the test must notice")
    one = action("bad", bad, "a corrupt image, an image that fills up")
    one.add_argument("--seed", type=int, default=1)
    one = actions.add_parser("fsync", help="trace where a log's fdatasync waits beside a stream")
    one.add_argument("--kind", choices=KINDS, action="append")
    one.add_argument("--record", action="store_true", help="write bench/results")
    one.set_defaults(do=fsync, what=None)
    one = actions.add_parser("clean", help="end what a killed run has left")
    one.add_argument("left", type=Path)
    return parser.parse_args(argv)


def main(argv):
    arguments = arguments_of(argv)
    Interrupts.install()
    try:
        if arguments.action == "clean":
            print(f"ended {clean_directory(arguments.left)} processes, mounts and loop devices of {arguments.left}")
            return 0
        need("mke2fs", "e2fsck", "losetup", QUIRE, LAB, *PROGRAMS.get(arguments.what, []))
        with Host(arguments.dir or tempfile.mkdtemp(prefix="quire-clusters."), arguments.keep) as host:
            arguments.do(host, arguments)
        return 0
    except KeyboardInterrupt:
        return 130
    except Missing as fault:
        print(f"clusters: {fault}", file=sys.stderr)
        return MISSING
    except Failure as fault:
        print(f"clusters: {fault}", file=sys.stderr)
        print(f"again: scripts/clusters.py {' '.join(argv)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
