"""Images: what ``os``, ``os.path`` and ``shutil`` do, inside an ext4 image."""

import contextlib
import errno
import io
import os
import stat as modes
import threading
import time
import weakref

from . import _quire
from .file import File, check, parse_mode, wrap


def _bytes(size):
    """A number of bytes from ``"2G"``, ``"64M"`` or a number."""
    if not isinstance(size, str):
        return size
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
    number = size.strip().upper().removesuffix("IB").removesuffix("B")
    factor = units.get(number[-1:], 1)
    try:
        return int(number.rstrip("KMGT") if factor > 1 else number) * factor
    except ValueError:
        raise ValueError(f"{size!r}: a size such as 64M is expected") from None


def _is_closed(file):
    """False also for a compressor of fsspec that does not tell."""
    return getattr(file, "closed", False)


def _choices(owner, remove_permissions, whiteouts, latest_time, reference):
    return {
        "owner": owner,
        "remove_permissions": remove_permissions,
        "whiteouts": whiteouts,
        "latest_time": latest_time,
        "reference": reference,
    }


def build(
    path,
    source,
    size="min",
    *,
    label=None,
    uuid=None,
    features=(),
    source_date_epoch=None,
    owner=None,
    remove_permissions=0,
    whiteouts=False,
    reference=None,
):
    """Builds an image from a directory, a tar archive (a path, or an open binary file) or an OCI layout.

    ``size`` is a number of bytes, ``"2G"``, ``"min"`` (as small as the tree allows) or ``"min+20%"``. What had the
    name is replaced when the image is complete. With ``uuid`` and ``source_date_epoch`` the same tree gives the same
    bytes. Returns how many objects and bytes were written.
    """
    if isinstance(size, str) and not size.startswith("min"):
        size = _bytes(size)
    choices = _choices(owner, remove_permissions, whiteouts, source_date_epoch, reference)
    more = {"label": label, "uuid": uuid, "features": list(features), "time": source_date_epoch}
    return _quire.build_image(path, source, size, choices, **more)


class DirEntry:
    """What :meth:`Image.scandir` yields: as ``os.DirEntry``.

    Where the inode cannot be read, the methods raise the error, and the entry still has its name.
    """

    __slots__ = ("_image", "_stat", "name", "path")

    def __init__(self, image, directory, name, stat):
        self._image = image
        self._stat = stat
        self.name = name
        self.path = os.path.join(directory, name)

    def __fspath__(self):
        return self.path

    def __repr__(self):
        return f"<DirEntry {self.name!r}>"

    def _lstat(self):
        if isinstance(self._stat, OSError):
            raise self._stat
        return self._stat

    def inode(self):
        return self._lstat().st_ino

    def stat(self, *, follow_symlinks=True):
        if follow_symlinks and self.is_symlink():
            return self._image.stat(self.path)
        return self._lstat()

    def _is(self, test, follow_symlinks):
        try:
            return test(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks=True):
        return self._is(modes.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks=True):
        return self._is(modes.S_ISREG, follow_symlinks)

    def is_symlink(self):
        return modes.S_ISLNK(self._lstat().st_mode)


class Image:
    """An open ext4 image, a block device, or an image in memory.

    Opening recovers an image that a crash has left dirty. ``with`` closes it, which writes what open files have
    buffered, makes everything durable and leaves a clean image; a process that is killed leaves a journal that any ext4
    implementation replays. Several threads may use one object.

    ``partition`` (from 1) or ``offset`` (in bytes) say where the file system lies in an image of a disk. New objects
    belong to ``owner``.
    """

    def __init__(self, path, *, read_only=False, offset=0, partition=None, cache_size=None, owner=(0, 0)):
        options = {"offset": offset, "partition": partition, "cache_size": cache_size, "owner": owner}
        self._set(_quire.open_image(path, read_only=read_only, **options), path)

    def _set(self, image, name):
        self._image = image
        self.name = name
        # Files that may have data in a buffer.
        self._buffered = weakref.WeakSet()
        # Files above them that write an end when they are closed, and those of them that have no weak references.
        self._compressors = weakref.WeakSet()
        self._kept_compressors = []
        self._buffered_lock = threading.RLock()

    @classmethod
    def _of(cls, image, name):
        self = cls.__new__(cls)
        self._set(image, name)
        return self

    @classmethod
    def create(cls, path, size, *, label=None, uuid=None, features=(), block_size=None, inodes=None):
        """Makes an image by ``mke2fs`` and opens it. ``size``: bytes, or such as ``"64M"``. ``path=None``: in memory."""
        more = {"label": label, "uuid": uuid, "features": list(features), "block_size": block_size, "inodes": inodes}
        return cls._of(_quire.create_image(path, _bytes(size), **more), path)

    @classmethod
    def from_bytes(cls, data, *, read_only=False):
        """Opens an image in memory; :meth:`to_bytes` closes it and returns it."""
        return cls._of(_quire.open_bytes(data, read_only=read_only), None)

    def to_bytes(self):
        """Closes an image in memory as :meth:`close` does, and returns it. ``None``: it is not in memory."""
        self._flush()
        return self._image.to_bytes()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<quire.Image {self.name!r}{' closed' if self.closed else ''}>"

    def close(self):
        """Writes what open files have buffered, makes everything durable, and leaves a clean image.

        If a buffer cannot be written, the image is closed all the same, and the error is raised.
        """
        try:
            self._flush()
        finally:
            self._image.close()

    @property
    def closed(self):
        return self._image.closed

    def _track(self, file):
        """Has :meth:`close` write what this file buffers; returns the file."""
        with self._buffered_lock:
            self._buffered.add(file)
        return file

    def _track_compressor(self, file):
        """Has :meth:`close` close this file, which compresses for one that is tracked; returns the file."""
        before = None
        with self._buffered_lock:
            try:
                self._compressors.add(file)
            except TypeError:
                # What is dropped dies after the lock: its end may write.
                before = self._kept_compressors
                self._kept_compressors = [*(other for other in before if not _is_closed(other)), file]
        return file

    def _flush(self):
        """Writes all buffers, also after one that fails. Raises the first error."""
        if self.closed:
            return
        with self._buffered_lock:
            files = list(self._buffered)
            compressors = [*self._compressors, *self._kept_compressors]
        # From the top down: a decoder may lie above a compressor, which lies above a buffer.
        steps = [(file, "flush") for file in files if isinstance(file, io.TextIOBase)]
        steps += [(file, "close") for file in compressors]
        steps += [(file, "flush") for file in files if not isinstance(file, io.TextIOBase)]
        failed = None
        for file, step in steps:
            try:
                if not _is_closed(file):
                    getattr(file, step)()
            except ValueError:
                # Its buffer was detached, or another thread has closed it.
                pass
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def sync(self):
        """Makes everything durable."""
        self._image.sync()

    @contextlib.contextmanager
    def frozen(self):
        """``with image.frozen():`` the image is clean and stays so, and may be copied."""
        self._image.freeze()
        try:
            yield self
        finally:
            self._image.thaw()

    @contextlib.contextmanager
    def batch(self):
        """``with image.batch():`` what is changed inside happens as a whole or, if an exception leaves it, not at all.

        That holds across a crash, too. Calls of other threads wait meanwhile. Files that were opened before are stale
        after a batch that was undone.
        """
        batch = self._image.begin()
        try:
            yield self
        except BaseException:
            batch.rollback()
            raise
        batch.commit()

    @property
    def info(self):
        """What the superblock says: label, uuid, block_size, blocks, features, journal, read_only."""
        return self._image.info()

    def statvfs(self):
        """How full it is, as ``os.statvfs``."""
        return self._image.statvfs()

    # Files.

    def open(self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *, permissions=0o644):
        """Opens a file as the built-in ``open`` does; text is UTF-8 unless told."""
        parsed = parse_mode(mode)
        # Before the file is made, or emptied.
        check(parsed, buffering, encoding, errors, newline)
        how = {key: parsed[key] for key in ("create", "create_new", "truncate")}
        raw = self._image.open(path, **how, mode=permissions)
        file = File(raw, path, mode, parsed["readable"], parsed["writable"], parsed["append"])
        wrapped = wrap(file, parsed, buffering, encoding, errors, newline)
        if parsed["writable"] and wrapped is not file:
            self._track(wrapped)
            if parsed["text"]:
                # It may be detached.
                self._track(wrapped.buffer)
        return wrapped

    def read_bytes(self, path):
        with self.open(path, "rb", buffering=0) as file:
            return file.readall()

    def write_bytes(self, path, data):
        # Before the file is emptied: data may be no bytes.
        with memoryview(data).cast("B") as view, self.open(path, "wb", buffering=0) as file:
            return file.write(view)

    def read_text(self, path, encoding="utf-8", errors=None):
        with self.open(path, "r", encoding=encoding, errors=errors) as file:
            return file.read()

    def write_text(self, path, text, encoding="utf-8", errors=None, newline=None):
        check(parse_mode("w"), -1, encoding, errors, newline)
        # Before the file is emptied: text may be no text, or have characters that the encoding has not.
        encoded = io.BytesIO()
        encoder = io.TextIOWrapper(encoded, encoding or "utf-8", errors, newline)
        count = encoder.write(text)
        encoder.flush()
        self.write_bytes(path, encoded.getvalue())
        return count

    def truncate(self, path, size):
        with self.open(path, "r+b", buffering=0) as file:
            file.truncate(size)

    # Directories.

    def listdir(self, path="/"):
        return self._image.names(path)

    @contextlib.contextmanager
    def scandir(self, path="/"):
        """An iterator over :class:`DirEntry`, as ``os.scandir``; use it with ``with``."""
        directory = os.fsdecode(path)
        yield iter([DirEntry(self, directory, name, stat) for name, stat in self._image.read_dir(path)])

    def walk(self, top="/", topdown=True, onerror=None, followlinks=False):
        """As ``os.walk``: yields (directory, names of directories, other names).

        A directory that is below itself, in a corrupt image, is an error for ``onerror``.
        """
        yield from self._walk(os.fsdecode(top), topdown, onerror, followlinks, frozenset())

    def _walk(self, top, topdown, onerror, followlinks, above):
        dirs, others = [], []
        try:
            if not followlinks:
                inode = self.stat(top).st_ino
                if inode in above:
                    why = f"corrupt: directory inode {inode} is below itself"
                    raise OSError(errno.EUCLEAN, why, top)
                above = above | {inode}
            with self.scandir(top) as entries:
                for entry in entries:
                    try:
                        is_dir = entry.is_dir()
                    except OSError:
                        # As os.walk: a link that leads in a circle, or through a file, is no directory.
                        is_dir = False
                    (dirs if is_dir else others).append(entry.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        if topdown:
            yield top, dirs, others
        for name in dirs:
            path = os.path.join(top, name)
            if followlinks or not self.islink(path):
                yield from self._walk(path, topdown, onerror, followlinks, above)
        if not topdown:
            yield top, dirs, others

    def mkdir(self, path, mode=0o755):
        self._image.mkdir(path, mode)

    def makedirs(self, path, mode=0o755, exist_ok=False):
        path = os.fsdecode(path)
        head = os.path.dirname(path.rstrip("/"))
        if head and head != path and not self.exists(head):
            self.makedirs(head, mode, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def remove(self, path):
        self._image.remove(path)

    unlink = remove

    def rmdir(self, path):
        self._image.rmdir(path)

    def rmtree(self, path):
        """Removes a name and everything below it."""
        self._image.rmtree(path)

    def rename(self, src, dst):
        """Renames; what has the new name is replaced, as by rename(2)."""
        self._image.rename(src, dst)

    replace = rename

    def link(self, src, dst):
        self._image.link(src, dst)

    def symlink(self, src, dst):
        self._image.symlink(src, dst)

    def readlink(self, path):
        return self._image.readlink(path)

    def mknod(self, path, mode=0o600, device=0):
        """Makes a file, fifo, socket or device; ``device`` is as ``os.makedev`` makes it."""
        self._image.mknod(path, mode, os.major(device), os.minor(device))

    def mkfifo(self, path, mode=0o644):
        self.mknod(path, modes.S_IFIFO | mode)

    # Attributes.

    def stat(self, path, *, follow_symlinks=True):
        return self._image.stat(path, follow_symlinks)

    def lstat(self, path):
        return self.stat(path, follow_symlinks=False)

    def exists(self, path):
        return self._mode(path) is not None

    def lexists(self, path):
        return self._mode(path, follow_symlinks=False) is not None

    def isdir(self, path):
        return modes.S_ISDIR(self._mode(path) or 0)

    def isfile(self, path):
        return modes.S_ISREG(self._mode(path) or 0)

    def islink(self, path):
        return modes.S_ISLNK(self._mode(path, follow_symlinks=False) or 0)

    def _mode(self, path, follow_symlinks=True):
        try:
            return self.stat(path, follow_symlinks=follow_symlinks).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                return None
            raise

    def getsize(self, path):
        return self.stat(path).st_size

    def chmod(self, path, mode):
        self._image.chmod(path, mode)

    def chown(self, path, uid, gid, *, follow_symlinks=True):
        """Sets owner and group; -1 leaves one as it is."""
        keep = (None if uid == -1 else uid, None if gid == -1 else gid)
        self._image.chown(path, *keep, follow_symlinks)

    def utime(self, path, times=None, *, ns=None, follow_symlinks=True):
        """Sets the times of access and change: ``times`` in seconds, or ``ns`` in nanoseconds; now without both."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if ns is None:
            ns = (time.time_ns(),) * 2 if times is None else tuple(round(t * 1_000_000_000) for t in times)
        self._image.utime(path, tuple(ns), follow_symlinks)

    def getxattr(self, path, attribute, *, follow_symlinks=True):
        return self._image.getxattr(path, attribute, follow_symlinks)

    def setxattr(self, path, attribute, value, *, follow_symlinks=True):
        self._image.setxattr(path, attribute, bytes(value), follow_symlinks)

    def removexattr(self, path, attribute, *, follow_symlinks=True):
        self._image.removexattr(path, attribute, follow_symlinks)

    def listxattr(self, path="/", *, follow_symlinks=True):
        return self._image.listxattr(path, follow_symlinks)

    # Whole trees.

    def import_tree(
        self,
        source,
        to="/",
        *,
        owner=None,
        remove_permissions=0,
        whiteouts=False,
        latest_time=None,
        reference=None,
    ):
        """Brings a directory, a tar archive (a path, or an open binary file) or an OCI layout below the directory ``to``.

        The image itself is left out of a directory that has it. An exception of the file object reaches the caller.
        ``owner`` is ``(uid, gid)`` for all objects, either of them ``None`` to keep it. An attribute that ext4 does not
        store is left out with a ``UserWarning``. Returns how many objects and bytes were written.
        """
        choices = _choices(owner, remove_permissions, whiteouts, latest_time, reference)
        return self._image.import_tree(to, source, choices)

    def export_tar(self, to, path="/"):
        """Writes what is below ``path`` as a tar archive to a path of the host, or to an open binary file.

        A file of the host has its name when the archive is complete; what had the name is replaced then. Sockets, which
        tar does not have, are left out.
        """
        self._image.export_tar(path, to)

    def export_dir(self, to, path="/"):
        """Copies what is below ``path`` into a directory of the host."""
        self._image.export_dir(path, to)
