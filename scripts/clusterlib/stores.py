"""Where a member keeps its files: an image, a device over it, and a mount by Quire or by the kernel.

    Store ── mount ── loop device ── image file                (measurements: Quire and the kernel on the same)
    Store ── mount ── loop device ── quire-lab power ── memory (crash tests: the power can be cut)
    Store ── mount ── loop device ── quire-lab model ── memory (a modelled disk)
"""

import os
import subprocess
from pathlib import Path

from .host import LAB, MIB, QUIRE, Failure, SECONDS_TO_MOUNT, end_loop, end_mount, is_mounted, run, wait_for

# name: (who mounts, options of the mount, further options of mke2fs)
KINDS = {
    "quire": ("quire", "", []),
    "quire:writethrough": ("quire", "writethrough", []),
    "quire:tune=host": ("quire", "tune=host", []),
    # Okeanos' modes, which commit as the kernel's ext4 does.
    "quire:wasteless": ("quire", "profile=wasteless,commit_mode=barrier", []),
    "quire:selective": ("quire", "profile=selective,commit_mode=barrier", []),
    "kernel:none": ("kernel", "", ["-O", "^has_journal"]),
    "kernel:ordered": ("kernel", "data=ordered", []),
    "kernel:fast_commit": ("kernel", "data=ordered", ["-O", "fast_commit"]),
    "kernel:journal": ("kernel", "data=journal", []),
}


def make_file(path, mib):
    """A file that is fully written, so that no write to it costs the host's file system an allocation."""
    zeros = bytes(MIB)
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(zeros)
        os.fsync(file.fileno())


class Store:
    """One image with a file system, mounted at `dir`; or a modelled disk with one, which `check` cannot see."""

    def __init__(self, host, name, mib, kind="quire", power=False, model=None):
        self.host, self.name, self.mib, self.kind, self.power, self.model = host, name, mib, kind, power, model
        self.image, self.dir = host.dir / f"{name}.img", host.dir / f"{name}.mnt"
        self.daemon = self.device = self.server = self.mount_entry = self.file = None
        self.dir.mkdir(exist_ok=True)
        if model:
            return
        if power:
            with open(self.image, "wb") as file:
                file.truncate(mib * MIB)
        elif not self.image.exists():
            make_file(self.image, mib)
        self.format(self.image)

    def format(self, where):
        more = KINDS[self.kind][2]
        lazily = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
        run("mke2fs", "-q", "-F", "-t", "ext4", "-E", lazily, *more, where)

    def attach(self):
        """The image becomes a block device; a modelled disk begins, empty, and gets its file system."""
        self.file = self.image
        if self.power:
            self.serve("power", self.image, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        elif self.model:
            self.serve("model", "--device", self.model, "--mib", str(self.mib))
        self.device = self.host.loop(self.file)
        if self.model:
            self.format(self.device[0])

    def serve(self, what, *arguments, **pipes):
        """Serves the file below the loop device by quire-lab."""
        served = self.host.dir / f"{self.name}.{what}"
        served.mkdir(exist_ok=True)
        self.server = self.host.start([LAB, what, *arguments, served], f"{self.name}.{what}.log", **pipes)
        # Recorded before it is there: what is not mounted is nothing to end.
        entry = self.host.own("mount", str(served))
        self.file = file = served / "disk"
        wait_for(f"{file} is served", lambda: is_mounted(served) and file.exists(), alive=self.server.ended)
        self.served = (served, entry)

    def mount(self):
        """Mounts; a mount that fails is a Failure with what the mounter said."""
        if self.device is None:
            self.attach()
        who, options, _ = KINDS[self.kind]
        if who == "kernel":
            self.mount_entry = self.host.own("mount", str(self.dir))
            run("mount", "-t", "ext4", *(["-o", options] if options else []), self.device[0], self.dir)
            return
        command = [QUIRE, "mount", self.device[0], self.dir, "-f", *(["-o", options] if options else [])]
        self.daemon = self.host.start(command, f"{self.name}.quire.log")
        self.mount_entry = self.host.own("mount", str(self.dir))
        wait_for(f"{self.name} is mounted", lambda: is_mounted(self.dir), SECONDS_TO_MOUNT, self.daemon.ended)

    def unmount(self):
        """Unmounts in order: the image is clean when this returns."""
        if self.daemon:
            run(QUIRE, "umount", self.dir)
            self.daemon.wait()
            self.daemon = None
        else:
            end_mount(self.dir)
        self.host.disown(self.mount_entry)

    def kill_daemon(self):
        """SIGKILL to the daemon; every user of the mount gets errors from now on."""
        self.daemon.kill()

    def cut_power(self, seed):
        """The device keeps what was flushed and any part of the rest, and fails from now on."""
        self.server.popen.stdin.write(f"cut {seed}\n".encode())
        self.server.popen.stdin.flush()
        said = self.server.popen.stdout.readline().decode().strip()
        if not said.startswith("cut: "):
            raise Failure(f"{self.name}: no power cut: {said or self.server.log_tail()}")
        return said

    def take_off(self):
        """Takes a mount off whose daemon or device is dead."""
        if self.daemon:
            self.daemon.kill()
            self.daemon = None
        end_mount(self.dir)
        self.host.disown(self.mount_entry)

    def detach(self):
        """The block device ends; what is in memory goes to the image, unless the power was cut."""
        if self.device is None:
            return
        end_loop(self.device[0], str(self.file))
        self.host.disown(self.device[1])
        self.device = None
        if self.server:
            served, entry = self.served
            wait_for(f"{served} is free", lambda: run("umount", served, check=False).returncode == 0)
            self.server.wait()
            for pipe in (self.server.popen.stdin, self.server.popen.stdout):
                if pipe:
                    pipe.close()
            self.host.disown(entry)
            self.server = None

    def check(self):
        """Recovers the image, and fails unless e2fsck calls it clean. The store is not mounted."""
        recovered = run(QUIRE, "recover", self.image, check=False)
        # As fsck(8) has it: 1 tells that something was replayed.
        if recovered.returncode not in (0, 1):
            raise Failure(f"{self.name}: quire recover gives {recovered.returncode}: {recovered.stderr.strip()}")
        run("e2fsck", "-fn", self.image)

    def stats(self):
        """`quire stats --json`, or None on the kernel."""
        return run(QUIRE, "stats", "--json", self.dir).stdout if self.daemon else None


def directory(path):
    Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)
