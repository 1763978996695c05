"""What a cluster on Quire does when a member's image is corrupt, and when it fills up: a typed error, nothing lost."""

import errno
import os
import time

from . import etcd, etcd_crash, gluster, gluster_crash
from .host import MIB, Failure, wait_for

SUPERBLOCK_AT = 1024
DAMAGE_BYTES = 64
# As mount(8) has it.
CANNOT_MOUNT = 32


def corrupt(store):
    """Overwrites the head of the superblock; returns what was there. The store is detached."""
    with open(store.image, "r+b") as image:
        image.seek(SUPERBLOCK_AT)
        before = image.read(DAMAGE_BYTES)
        image.seek(SUPERBLOCK_AT)
        image.write(b"\xa5" * DAMAGE_BYTES)
    return before


def mend(store, before):
    with open(store.image, "r+b") as image:
        image.seek(SUPERBLOCK_AT)
        image.write(before)


def must_refuse(store):
    """Mounting fails with mount(8)'s exit code and names what is wrong; the daemon neither panics nor hangs."""
    try:
        store.mount()
    except Failure as fault:
        code = store.daemon.popen.returncode
        told = [t for t in store.daemon.log.read_text(errors="replace").splitlines() if t.startswith("quire: mount: ")]
        said = told[-1] if told else store.daemon.log_tail()
        if code != CANNOT_MOUNT or "superblock" not in said.lower() or "panicked" in said:
            raise Failure(f"{store.name}: a corrupt image gives exit code {code}: {said}") from fault
        store.daemon.wait()
        store.daemon = None
        store.host.disown(store.mount_entry)
        store.detach()
        return said
    raise Failure(f"{store.name}: an image without a superblock is mounted")


def fill(directory):
    """Writes a file until the file system says ENOSPC; returns the file."""
    path, block = directory / "ballast", os.urandom(MIB)
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for size in (MIB, 4096):
            while True:
                try:
                    os.write(file, block[:size])
                    os.fsync(file)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise Failure(f"a full image gives {error}") from error
                    break
    finally:
        os.close(file)
    return path


def etcd_corrupt(cluster, seed):
    writers = etcd.Writers(cluster, 8, seed).start()
    try:
        member = cluster.members[0]
        wait_for("writes", lambda: len(writers.all_acked()) > 50, 120)
        member.process.end()
        member.store.unmount()
        member.store.detach()
        before = corrupt(member.store)
        said = must_refuse(member.store)
        etcd_crash.check_goes_on(writers, time.monotonic())
        mend(member.store, before)
        member.store.mount()
        member.start()
    finally:
        writers.stop()
    total = etcd_crash.check_store(member, writers, seed)
    print(f"etcd, a corrupt image: {said!r}; the cluster went on, and the member holds all {total} writes", flush=True)


def etcd_full(cluster, seed):
    """A member whose database cannot grow ends by itself; with space again it holds everything."""
    member = cluster.members[1]
    ballast = fill(member.store.dir)
    writers = etcd.Writers(cluster, 8, seed).start()
    try:
        wait_for(f"{member.name} ends for want of space", lambda: member.process.popen.poll() is not None, 300)
        told = member.process.log.read_text(errors="replace")
        if "no space left on device" not in told:
            raise Failure(f"{member.name} ended otherwise: {member.process.log_tail()}")
        member.process.wait()
        etcd_crash.check_goes_on(writers, time.monotonic())
        ballast.unlink()
        member.start()
        wait_for(f"{member.name} is healthy", member.is_healthy, 120, member.process.ended)
    finally:
        writers.stop()
    total = etcd_crash.check_store(member, writers, seed)
    etcd_crash.same_everywhere(cluster)
    print(f"etcd, an image that fills up: {member.name} found no space left on device; with space again it holds all "
          f"{total} writes", flush=True)


def etcd_bad(host, seed):
    cluster = etcd.Cluster(host, "quire", 224, options=etcd_crash.OPTIONS)
    cluster.start()
    etcd_corrupt(cluster, seed)
    etcd_full(cluster, seed + 1)
    cluster.stop()
    for member in cluster.members:
        member.store.check()


def gluster_corrupt(volume, seed):
    victim = volume.bricks[0]
    writers = [gluster_crash.Writer(directory, seed, i) for i, directory in enumerate(volume.clients)]
    try:
        wait_for("writes", lambda: all(len(w.acked) > 50 for w in writers), 120)
        victim.end()
        victim.store.unmount()
        victim.store.detach()
        before = corrupt(victim.store)
        said = must_refuse(victim.store)
        after = time.monotonic()
        gluster_crash.check_goes_on(writers, after)
        mend(victim.store, before)
        victim.store.mount()
        volume.restart_bricks()
    finally:
        for writer in writers:
            writer.stop()
    volume.heal()
    gluster_crash.check_alike(volume, writers)
    print(f"gluster, a corrupt image: {said!r}; the clients went on, and both bricks are alike", flush=True)


def gluster_full(volume, seed):
    writers = [gluster_crash.Writer(directory, seed, i) for i, directory in enumerate(volume.clients)]
    try:
        wait_for("writes", lambda: all(len(w.acked) > 50 for w in writers), 120)
        ballast = fill(volume.clients[0])
    finally:
        for writer in writers:
            writer.stop()
    ballast.unlink()
    volume.heal()
    gluster_crash.check_alike(volume, writers)
    again = gluster_crash.Writer(volume.clients[0], seed + 1, 0)
    try:
        wait_for("writes after space is free", lambda: len(again.acked) > 10, 120)
    finally:
        again.stop()
    total = sum(len(w.acked) for w in writers)
    print(f"gluster, bricks that fill up: ENOSPC at the client; both hold all {total} acknowledged writes", flush=True)


def gluster_bad(host, seed):
    gluster.OPTIONS["storage.reserve"] = "0"
    volume = gluster.Volume(host, "quire", 192, 2)
    volume.start()
    gluster_corrupt(volume, seed)
    gluster_full(volume, seed + 1)
    volume.stop()
    for brick in volume.bricks:
        brick.store.check()
