"""GlusterFS with one volume of replica 2 on one machine, each brick on a store of its own, and clients.

glusterd has its directories and its socket below the run's directory, and listens on the loopback address alone. Its
port is the usual one, because bricks look for it there; a glusterd that runs already is left alone, and the run fails.
The processes that glusterd starts are recorded by the pid files that it writes.
"""

import os
import signal
import socket
import time
from pathlib import Path

from .host import Failure, end_mount, end_process, end_started, is_gone, is_mounted
from .host import run, signal_process, start_time, wait_for
from .stores import Store, directory

VOLUME = "quire"
BRICKS = 2
PORT = 24007
OPTIONS = {"network.ping-timeout": "5", "cluster.quorum-type": "none", "cluster.heal-timeout": "5"}

VOLFILE = """volume management
    type mgmt/glusterd
    option working-directory {dir}/glusterd
    option run-directory {dir}/run
    option glusterd-sockfile {dir}/glusterd.socket
    option transport-type socket
    option transport.socket.bind-address 127.0.0.1
    option transport.socket.listen-port {port}
    option transport.socket.read-fail-log off
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
"""


def host_name():
    """A name of this machine that is the loopback address: bricks may not be given as 127.0.0.1."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        raise Failure(f"the name of this host, {name}, has no address: add it to /etc/hosts for 127.0.0.1") from error
    if not address.startswith("127."):
        raise Failure(f"the name of this host, {name}, is {address}: add it to /etc/hosts for 127.0.0.1")
    return name


class Brick:
    """A directory on a store, and the process that serves it."""

    def __init__(self, volume, store):
        self.volume, self.store, self.path = volume, store, store.dir / "brick"
        self.pid = self.began = self.entry = None

    def pid_file(self):
        files = list((self.volume.host.dir / "run" / "vols" / VOLUME).glob(f"*-{self.store.name}.mnt-brick.pid"))
        return files[0] if files else None

    def is_served(self):
        """Whether glusterd has started a process for it, which is then recorded."""
        file = self.pid_file()
        try:
            pid = int(file.read_text()) if file else 0
        except (OSError, ValueError):
            return False
        began = start_time(pid) if pid else None
        if began is None or is_gone(pid, began) or (pid, began) == (self.pid, self.began):
            return began is not None and not is_gone(pid, began) and self.entry is not None
        self.pid, self.began = pid, began
        self.entry = self.volume.host.own("process", pid, began)
        return True

    def kill(self):
        signal_process(self.pid, self.began, signal.SIGKILL)
        self.gone()

    def end(self):
        end_process(self.pid, self.began)
        self.gone()

    def gone(self):
        wait_for(f"the brick {self.store.name} ends", lambda: is_gone(self.pid, self.began))
        self.volume.host.disown(self.entry)
        self.entry = None

    def pending(self):
        """How many files this brick knows the other one to miss, or itself in doubt of."""
        indices = self.path / ".glusterfs" / "indices"
        kinds = ("xattrop", "dirty")
        return sum(not e.startswith(f"{k}-") for k in kinds if (indices / k).is_dir() for e in os.listdir(indices / k))


class Volume:
    def __init__(self, host, kind, mib, clients, power=False, model=None):
        self.host, self.daemon = host, None
        self.bricks = [Brick(self, Store(host, f"b{i}", mib, kind, power, model)) for i in range(BRICKS)]
        self.clients = [host.dir / f"c{i}.mnt" for i in range(clients)]
        self.mounts = []
        self.healer = None

    def gluster(self, *words, check=True):
        return run("gluster", "--mode=script", f"--glusterd-sock={self.host.dir}/glusterd.socket", *words, check=check)

    def start(self):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                raise Failure(f"port {PORT} is in use: another glusterd runs here")
        for name in ("glusterd", "run"):
            directory(self.host.dir / name)
        name = host_name()
        for brick in self.bricks:
            brick.store.mount()
        file = self.host.dir / "glusterd.vol"
        file.write_text(VOLFILE.format(dir=self.host.dir, port=PORT))
        # Recorded before the daemon, so that it ends after it: what glusterd starts.
        self.started = self.host.own("started", str(self.host.dir / "run"))
        self.daemon = self.host.start(
            ["glusterd", "-N", "-f", file, "-l", self.host.dir / "glusterd.log", "-p", self.host.dir / "glusterd.pid"],
            "glusterd.out",
        )
        answers = lambda: self.gluster("pool", "list", check=False).returncode == 0
        wait_for("glusterd answers", answers, 60, self.daemon.ended)
        paths = [f"{name}:{brick.path}" for brick in self.bricks]
        self.gluster("volume", "create", VOLUME, "replica", str(BRICKS), *paths, "force")
        for option, value in OPTIONS.items():
            self.gluster("volume", "set", VOLUME, option, value)
        self.gluster("volume", "start", VOLUME)
        self.wait_until_served()
        for client in self.clients:
            self.mount(name, client)

    def wait_until_served(self):
        for brick in self.bricks:
            wait_for(f"the brick {brick.store.name} is served", brick.is_served)
        self.record_healer()

    def record_healer(self):
        """The daemon that heals is started anew with the volume."""
        def found():
            for file in (self.host.dir / "run").glob("shd/*/*.pid"):
                text = file.read_text().strip()
                began = start_time(int(text)) if text else None
                if began and not is_gone(int(text), began):
                    return int(text), began
            return None
        self.end_record(self.healer)
        pid, began = wait_for("the healing daemon runs", found)
        self.healer = (pid, began, self.host.own("process", pid, began))

    def end_record(self, process):
        if process:
            self.host.disown(process[2])

    def mount(self, name, where):
        where.mkdir(exist_ok=True)
        log = self.host.dir / f"{where.name}.log"
        command = ["glusterfs", "-N", "-s", name, f"--volfile-id={VOLUME}", "-l", log, where]
        process = self.host.start(command, f"{where.name}.out")
        entry = self.host.own("mount", str(where))
        # A mount is there before the volume is: an answer of its root says that it is.
        answers = lambda: is_mounted(where) and run("stat", where, check=False).returncode == 0
        wait_for(f"{where} is mounted", answers, 60, process.ended)
        self.mounts.append((where, process, entry))

    def restart_bricks(self):
        """Bricks without a process get one; the others stay. glusterd notices an end late: it is asked again."""
        asked = [0.0]

        def served():
            if all(brick.is_served() for brick in self.bricks):
                return True
            if time.monotonic() - asked[0] > 3:
                asked[0] = time.monotonic()
                self.gluster("volume", "start", VOLUME, "force", check=False)
            return False
        wait_for("the bricks are served", served, 120)
        self.record_healer()

    def pending(self):
        return sum(brick.pending() for brick in self.bricks)

    def heal(self, seconds=180):
        """Waits until no brick misses anything."""
        asked = [0.0]

        def healed():
            if self.pending() == 0:
                return True
            if time.monotonic() - asked[0] > 3:
                asked[0] = time.monotonic()
                self.gluster("volume", "heal", VOLUME, check=False)
            return False
        wait_for("the bricks are healed", healed, seconds)

    def stop(self):
        """Ends clients, the volume, its peers' state, glusterd and the stores."""
        for where, process, entry in self.mounts:
            end_mount(where)
            self.host.disown(entry)
            process.wait()
        self.mounts.clear()
        self.gluster("volume", "stop", VOLUME, "force")
        self.gluster("volume", "delete", VOLUME)
        for brick in self.bricks:
            if brick.entry:
                brick.end()
        end_process(self.healer[0], self.healer[1])
        self.end_record(self.healer)
        self.healer = None
        self.daemon.end()
        end_started(self.host.dir / "run")
        self.host.disown(self.started)
        for brick in self.bricks:
            brick.store.unmount()
            brick.store.detach()


def gfid(path):
    return os.getxattr(path, "trusted.gfid")


def link_of(brick, path):
    """The name below .glusterfs that is a hard link of a file, by its gfid."""
    text = gfid(path).hex()
    name = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return Path(brick) / ".glusterfs" / text[:2] / text[2:4] / name
