"""etcd with three members on one machine, each data directory on a store of its own, and writers.

Members are reached by etcd's JSON gateway (POST /v3/kv/put), which takes a request on a connection that is kept.
"""

import base64
import hashlib
import http.client
import json
import threading
import time

from .host import Failure, free_ports, wait_for
from .stores import Store

MEMBERS = 3
VALUE_BYTES = 256
# The three members and what they stand on share a few CPUs, so elections wait longer than etcd's 100 and 1000 ms.
HEARTBEAT_MS, ELECTION_MS = 300, 3000
REQUEST_SECONDS = 10.0
FSYNCS = "etcd_disk_wal_fsync_duration_seconds"


def text64(data):
    return base64.b64encode(data).decode()


class Refused(Exception):
    """A member did not acknowledge a request: it may have happened, or not."""


class Client:
    """A connection to one member."""

    def __init__(self, port, seconds=REQUEST_SECONDS):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)

    def ask(self, path, body=None):
        try:
            method = "GET" if body is None else "POST"
            self.connection.request(method, path, None if body is None else json.dumps(body))
            answer = self.connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Refused(str(error)) from error
        if answer.status != 200:
            raise Refused(text.strip())
        return text

    def put(self, key, value):
        self.ask("/v3/kv/put", {"key": text64(key), "value": text64(value)})

    def read_all(self, prefix, serializable):
        """Every key with this prefix. Serializable: from this member's own store, without asking the others."""
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        found, start = {}, prefix
        while True:
            ask = {"key": text64(start), "range_end": text64(end), "limit": 2000, "serializable": serializable}
            answer = json.loads(self.ask("/v3/kv/range", ask))
            for pair in answer.get("kvs", []):
                start = base64.b64decode(pair["key"])
                found[start] = base64.b64decode(pair.get("value", ""))
            if not answer.get("more"):
                return found
            start += b"\0"

    def status(self):
        return json.loads(self.ask("/v3/maintenance/status", {}))

    def close(self):
        self.connection.close()


class Member:
    def __init__(self, cluster, index, store, client_port, peer_port):
        self.cluster, self.index, self.store = cluster, index, store
        self.name, self.port, self.peer_port = f"m{index}", client_port, peer_port
        self.data = store.dir / "etcd"
        self.process = None

    @property
    def wal(self):
        return self.data / "member" / "wal"

    def start(self):
        self.data.mkdir(mode=0o700, exist_ok=True)
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        command = [
            "etcd", "--name", self.name, "--data-dir", self.data,
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", self.cluster.peers(), "--initial-cluster-state", "new",
            "--initial-cluster-token", "quire", "--heartbeat-interval", str(HEARTBEAT_MS),
            "--election-timeout", str(ELECTION_MS), "--logger", "zap", "--log-level", "warn",
            "--log-outputs", "stderr", *self.cluster.options,
        ]
        self.process = self.cluster.host.start(command, f"{self.name}.etcd.log")

    def ask(self, what):
        """What a fresh connection answers, or None."""
        client = Client(self.port, 5.0)
        try:
            return what(client)
        except (Refused, ValueError):
            return None
        finally:
            client.close()

    def status(self):
        return self.ask(Client.status)

    def metrics(self):
        text = self.ask(lambda client: client.ask("/metrics"))
        if text is None:
            raise Failure(f"{self.name} gives no metrics: {self.process.ended() or 'it runs'}")
        return text

    def is_healthy(self):
        health = self.ask(lambda client: json.loads(client.ask("/health")))
        return health is not None and health.get("health") == "true"

    def kill(self):
        self.process.kill()


class Cluster:
    """Three members on stores of one kind."""

    def __init__(self, host, kind, mib, power=False, options=()):
        self.host, self.options = host, list(options)
        ports = free_ports(2 * MEMBERS)
        self.members = [
            Member(self, i, Store(host, f"m{i}", mib, kind, power), ports[2 * i], ports[2 * i + 1])
            for i in range(MEMBERS)
        ]

    def peers(self):
        return ",".join(f"{m.name}=http://127.0.0.1:{m.peer_port}" for m in self.members)

    def start(self):
        for member in self.members:
            member.store.mount()
        for member in self.members:
            member.start()
        for member in self.members:
            wait_for(f"{member.name} is healthy", member.is_healthy, 120, member.process.ended)

    def leader(self):
        """The member that leads, as it says itself."""
        def found():
            for member in self.members:
                status = member.status() or {}
                if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                    return member
            return None
        return wait_for("a leader", found)

    def endpoints(self):
        return ",".join(f"127.0.0.1:{m.port}" for m in self.members)

    def stop(self):
        for member in self.members:
            if member.process and not member.process.ended():
                member.process.end()
        for member in self.members:
            member.store.unmount()
            member.store.detach()


def value_of(seed, key):
    """256 bytes that follow from the key."""
    out = b""
    while len(out) < VALUE_BYTES:
        out += hashlib.sha256(b"%d %b %d" % (seed, key, len(out))).digest()
    return out[:VALUE_BYTES]


class Writers:
    """Threads that put keys, each its own, one after the other. A put that is refused is tried at the next member."""

    def __init__(self, cluster, count, seed, limit=None):
        self.cluster, self.seed, self.limit = cluster, seed, limit
        self.ended = threading.Event()
        self.acked = [[] for _ in range(count)]
        self.threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(count)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def work(self, number):
        acked, turn, client, n = self.acked[number], number, None, 0
        while not self.ended.is_set() and (self.limit is None or n < self.limit):
            key = b"k/%03d/%08d" % (number, n)
            if client is None:
                client = Client(self.cluster.members[turn % MEMBERS].port, 3.0)
            begin = time.monotonic()
            try:
                client.put(key, value_of(self.seed, key))
            except Refused:
                client, turn = None, turn + 1
                self.ended.wait(0.05)
                continue
            acked.append((key, begin, time.monotonic()))
            n += 1
        if client:
            client.close()

    def all_acked(self):
        """Key, begin and end of each acknowledged put so far."""
        return [ack for acked in self.acked for ack in list(acked)]

    def stop(self):
        self.ended.set()
        # A request ends by its timeout.
        for thread in self.threads:
            thread.join(2 * REQUEST_SECONDS)

    def join(self):
        for thread in self.threads:
            thread.join()
