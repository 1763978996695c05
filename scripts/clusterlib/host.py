"""Processes, mounts, loop devices and images that a run owns.

Guarantees: everything that a run starts is recorded before it is used, by process id and start time, mount point or
loop device, in memory and in the file `owned.json`. `Host.close` ends it in the opposite order, and so does
`clusters.py clean DIR` for a run that was killed. Nothing is ever ended by a name.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
QUIRE = os.environ.get("QUIRE", str(TARGET / "release" / "quire"))
LAB = os.environ.get("LAB", str(TARGET / "release" / "quire-lab"))
SECONDS_TO_END = 20.0
SECONDS_TO_MOUNT = 120.0
MIB = 1 << 20


class Failure(Exception):
    """What a run reports and ends with exit code 1: a program failed, or a promise was broken."""


class Missing(Failure):
    """A program, a device or a privilege that a run needs is not there."""


class Interrupts:
    """SIGINT and SIGTERM raise KeyboardInterrupt, but not between a thing's beginning and its record."""

    held, waiting = 0, False

    @classmethod
    def install(cls):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, cls.come)

    @classmethod
    def come(cls, _number, _frame):
        if cls.held:
            cls.waiting = True
        else:
            raise KeyboardInterrupt

    @classmethod
    @contextlib.contextmanager
    def hold(cls):
        cls.held += 1
        try:
            yield
        finally:
            cls.held -= 1
            if cls.waiting and not cls.held:
                cls.waiting = False
                raise KeyboardInterrupt


def run(*command, check=True, seconds=180.0, env=None):
    """Runs a program to its end, and returns what it was and said; a code other than 0 is a Failure if `check`."""
    try:
        done = subprocess.run(
            [str(c) for c in command], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
            start_new_session=True, env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired as slow:
        raise Failure(f"{' '.join(map(str, command))}: no end within {seconds:.0f} s") from slow
    if check and done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Failure(f"{' '.join(map(str, command))}: exit code {done.returncode}: {said}")
    return done


def need(*programs):
    """Fails with the names of programs that are missing."""
    missing = [p for p in programs if not shutil.which(p) and not Path(p).exists()]
    if missing:
        raise Missing(f"missing: {', '.join(missing)} (scripts/setup.sh --clusters, make)")
    if os.geteuid() != 0:
        raise Missing("clusters need root: loop devices, trusted xattrs, mounts of the kernel")


def wait_for(what, condition, seconds=60.0, alive=None):
    """Waits until `condition()` is true, and returns it; `alive()` tells why waiting is in vain, or None."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        why = alive() if alive else None
        if why:
            raise Failure(f"{what}: {why}")
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


def free_ports(count):
    """Ports of the loopback address that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start_time(pid):
    """When a process began, in ticks since boot; None if there is none. With the pid it names one process for ever."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def state(pid):
    """The state letter of a process (R, S, D, T, Z), or None."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return None


def is_mounted(path):
    """Whether something is mounted there, also by a daemon that is dead."""
    path = str(path)
    return any(line.split(" ")[1] == path for line in Path("/proc/self/mounts").read_text().splitlines())


def signal_process(pid, began, number):
    """Signals one process, if it still is the one that was recorded."""
    if began is not None and start_time(pid) == began:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def is_gone(pid, began):
    return start_time(pid) != began or state(pid) in (None, "Z")


def end_process(pid, began):
    """SIGTERM, and SIGKILL for what does not follow; a stopped process goes on first."""
    for number, seconds in ((signal.SIGCONT, 0), (signal.SIGTERM, SECONDS_TO_END), (signal.SIGKILL, SECONDS_TO_END)):
        if is_gone(pid, began):
            return
        signal_process(pid, began, number)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_gone(pid, began):
            time.sleep(0.02)


def end_mount(path):
    """Unmounts; lazily what is in use or whose daemon is dead."""
    end = time.monotonic() + 5
    while is_mounted(path):
        lazily = time.monotonic() > end
        run("umount", *(["-l"] if lazily else []), path, check=False)
        if lazily and is_mounted(path):
            raise Failure(f"cannot unmount {path}")
        if is_mounted(path):
            time.sleep(0.05)


def end_loop(device, file):
    """Detaches, if the device still stands on the file that was recorded: its number may be another run's by now."""
    backing = Path("/sys/block") / Path(device).name / "loop" / "backing_file"
    try:
        ours = backing.read_text().strip() == file
    except OSError:
        return
    if ours:
        run("losetup", "--detach", device, check=False)


def with_pid_file_below(directory):
    """Processes that were given a pid file below a directory of this run (`-p FILE`): what glusterd starts."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        began = start_time(entry.name)
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(a == b"-p" and b.startswith(os.fsencode(f"{directory}/")) for a, b in zip(words, words[1:])):
            found.append((int(entry.name), began))
    return found


def end_started(directory):
    """Ends them, and what they were about to start."""
    quiet = time.monotonic() + 1
    while time.monotonic() < quiet:
        found = [(pid, began) for pid, began in with_pid_file_below(directory) if not is_gone(pid, began)]
        for pid, began in found:
            end_process(pid, began)
            quiet = time.monotonic() + 1
        time.sleep(0.05)


class Process:
    """A program that this run started."""

    def __init__(self, host, command, log, stdin=subprocess.DEVNULL, stdout=None, env=None):
        self.command, self.log, self.host = [str(c) for c in command], Path(log), host
        with Interrupts.hold(), open(log, "ab") as out:
            # A session of its own: Ctrl-C at the terminal reaches this script alone, which ends all in order.
            self.popen = subprocess.Popen(
                self.command, stdin=stdin, stdout=stdout or out, stderr=out, start_new_session=True,
                env={**os.environ, **(env or {})},
            )
            self.pid, self.began = self.popen.pid, start_time(self.popen.pid)
            self.entry = host.own("process", self.pid, self.began)

    def ended(self):
        """Why it is not running, with the end of its log; None while it runs."""
        code = self.popen.poll()
        if code is None:
            return None
        return f"{self.command[0]} ended with {code}: {self.log_tail()}"

    def log_tail(self, lines=5):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def signal(self, number):
        if self.popen.poll() is None:
            os.kill(self.pid, number)

    def stop(self):
        """SIGSTOP; returns once the process is stopped."""
        self.signal(signal.SIGSTOP)
        wait_for(f"process {self.pid} stops", lambda: state(self.pid) == "T", alive=self.ended)

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds=SECONDS_TO_END):
        try:
            self.popen.wait(seconds)
        except subprocess.TimeoutExpired as slow:
            raise Failure(f"{self.command[0]} (process {self.pid}) does not end") from slow
        self.host.disown(self.entry)

    def end(self):
        """SIGTERM, and SIGKILL if it does not follow."""
        if self.popen.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            try:
                self.popen.wait(SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
        self.wait()


class Host:
    """Everything that one run owns, below one directory."""

    def __init__(self, directory, keep=False):
        self.dir, self.keep, self.owned, self.count = Path(directory).resolve(), keep, {}, 0
        self.lock, self.processes = threading.RLock(), []
        self.dir.mkdir(parents=True, exist_ok=True)
        if (self.dir / "owned.json").exists():
            raise Failure(f"{self.dir} belongs to a run that did not end: scripts/clusters.py clean {self.dir}")
        self.save()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.keep = self.keep or error is not None and not isinstance(error, KeyboardInterrupt)
        self.close()

    def own(self, kind, what, began=None):
        with self.lock:
            self.count += 1
            self.owned[self.count] = [kind, what, began]
            self.save()
            return self.count

    def disown(self, entry):
        with self.lock:
            self.owned.pop(entry, None)
            self.save()

    def save(self):
        fresh = self.dir / "owned.json.new"
        fresh.write_text(json.dumps(list(self.owned.values())))
        fresh.rename(self.dir / "owned.json")

    def start(self, command, log, **how):
        process = Process(self, command, self.dir / log, **how)
        self.processes.append(process)
        return process

    def loop(self, file):
        """A loop device over a file, past the page cache."""
        with Interrupts.hold():
            device = run("losetup", "--find", "--show", "--direct-io=on", file).stdout.strip()
            return device, self.own("loop", device, str(file))

    def close(self):
        """Ends everything, the newest first. Ctrl-C does not interrupt that."""
        with Interrupts.hold():
            clean(self.owned.values())
            for process in self.processes:
                process.popen.poll()
            self.owned.clear()
            (self.dir / "owned.json").unlink(missing_ok=True)
            if self.keep:
                print(f"kept: {self.dir}")
            else:
                shutil.rmtree(self.dir, ignore_errors=True)


def clean(owned):
    """Ends what is recorded, the newest first. What is gone already is no error."""
    ends = {
        "process": end_process, "mount": lambda path, _: end_mount(path), "loop": end_loop,
        "started": lambda directory, _: end_started(directory),
    }
    faults = []
    for kind, what, began in reversed(list(owned)):
        try:
            ends[kind](what, began)
        except Failure as fault:
            faults.append(str(fault))
    if faults:
        raise Failure("; ".join(faults))


def clean_directory(directory):
    """Ends what a run in this directory has left, and removes its record."""
    record = Path(directory) / "owned.json"
    if not record.exists():
        return 0
    owned = json.loads(record.read_text())
    clean(owned)
    record.unlink()
    return len(owned)
