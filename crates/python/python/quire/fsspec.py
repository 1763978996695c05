"""``quire://``: files inside ext4 images for fsspec, and so for pandas, pyarrow, dask and others.

>>> import pandas
>>> pandas.read_csv("quire://data/table.csv", storage_options={"fo": "disk.img"})      # doctest: +SKIP
>>> pandas.read_csv("quire://data/table.csv::file:///srv/disk.img")                    # doctest: +SKIP

``fo`` is the image: a path of the host, or a :class:`quire.Image`. Everything is durable when the image is closed, or
at :meth:`QuireFileSystem.sync`. A transaction of fsspec (``with fs.transaction:``) is a batch: it happens as a whole
or not at all.

``mode`` is ``"r+"`` to change the image, or ``"r"`` to read it only. Without it the image is opened to be changed, or,
if this user may not write to it, to be read. One process at a time may have an image open to change it; any number may
read it. So a file system that goes to other processes, as with dask, is opened with ``mode="r"``: it can be pickled,
and each process opens the image for itself.
"""

import datetime
import errno
import io
import os
import pathlib
import shutil
import stat as modes

from fsspec.spec import AbstractFileSystem
from fsspec.transaction import Transaction
from fsspec.utils import stringify_path

from .image import Image

_TYPES = {modes.S_IFDIR: "directory", modes.S_IFREG: "file", modes.S_IFLNK: "link"}


class _Batch(Transaction):
    """A transaction of fsspec as a batch of the image."""

    def __init__(self, fs, **kwargs):
        super().__init__(fs, **kwargs)
        self._batch = None

    def start(self):
        self.files = []
        self._batch = self.fs.image.batch()
        self._batch.__enter__()
        self.fs._intrans = True

    def complete(self, commit=True):
        batch, self._batch = self._batch, None
        self.fs._intrans = False
        self.fs._transaction = None
        if batch is None:
            return
        if commit:
            batch.__exit__(None, None, None)
        else:
            undone = Exception("the transaction was discarded")
            try:
                batch.__exit__(type(undone), undone, None)
            except Exception as error:
                if error is not undone:
                    raise


def _opened(path, mode, options):
    """The image, opened as ``mode`` says, or as this user may."""
    if mode is not None:
        return Image(path, read_only=mode == "r", **options)
    try:
        return Image(path, **options)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return Image(path, read_only=True, **options)


class QuireFileSystem(AbstractFileSystem):
    """The files of one ext4 image."""

    protocol = "quire"
    root_marker = "/"
    cachable = False
    transaction_type = _Batch

    def __init__(
        self,
        fo=None,
        mode=None,
        target_protocol=None,
        target_options=None,
        auto_mkdir=False,
        partition=None,
        offset=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"an image must be a file of this host, not of {target_protocol!r}")
        if fo is None:
            raise ValueError("fo= names the image")
        if mode not in (None, "r", "r+"):
            raise ValueError(f"mode {mode!r}: 'r' reads the image only, 'r+' changes it, too")
        self._own = not isinstance(fo, Image)
        if self._own:
            path = os.fspath(fo).removeprefix("file://")
            fo = _opened(path, mode, {"partition": partition, "offset": offset})
        self.image = fo
        self.auto_mkdir = auto_mkdir

    def __reduce__(self):
        if not self._own:
            raise TypeError("a quire.Image cannot be pickled: fo= must be a path")
        return super().__reduce__()

    def start_transaction(self):
        """Begins a batch, which ``end_transaction`` makes durable."""
        transaction = self.transaction
        transaction.start()
        return transaction

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        path = stringify_path(path)
        for prefix in ("quire://", "quire::"):
            path = path.removeprefix(prefix)
        return "/" + path.strip("/")

    def unstrip_protocol(self, name):
        return "quire://" + self._strip_protocol(name)

    @classmethod
    def _parent(cls, path):
        path = cls._strip_protocol(path)
        return path.rpartition("/")[0] or "/"

    def close(self):
        """Closes the image, with what open files have buffered, unless the caller had opened it."""
        if self._own:
            self.image.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def sync(self):
        """Makes everything durable."""
        self.image.sync()

    def _details(self, path, stat, link=False):
        return {
            "name": path,
            "size": stat.st_size,
            "type": _TYPES.get(modes.S_IFMT(stat.st_mode), "other"),
            "created": stat.st_ctime,
            "islink": link,
            "mode": stat.st_mode,
            "uid": stat.st_uid,
            "gid": stat.st_gid,
            "mtime": stat.st_mtime,
            "ino": stat.st_ino,
            "nlink": stat.st_nlink,
        }

    def _link_details(self, path, link, follow):
        """Details of a symbolic link, with the size of its target; with ``follow`` all details are the target's."""
        try:
            target = self.image.stat(path)
        except OSError:
            target = None
        result = self._details(path, target if follow and target else link, link=True)
        result["size"] = target.st_size if target else 0
        result["destination"] = self.image.readlink(path)
        return result

    def info(self, path, **kwargs):
        """Details of a path. A link is followed; a link without a target has the type ``link`` and the size 0."""
        path = self._strip_protocol(path)
        stat = self.image.lstat(path)
        if modes.S_ISLNK(stat.st_mode):
            return self._link_details(path, stat, follow=True)
        return self._details(path, stat)

    def _entry(self, entry):
        """Details of an entry of a directory. A link has the type ``link``, so that no walk follows it.

        An entry that cannot be read has the type ``other``. ``None``: it was removed meanwhile.
        """
        try:
            stat = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                return self._link_details(entry.path, stat, follow=False)
            return self._details(entry.path, stat)
        except FileNotFoundError:
            return None
        except OSError:
            return {"name": entry.path, "size": 0, "type": "other"}

    def ls(self, path, detail=True, **kwargs):
        """The entries of a directory, or the file itself. An entry that cannot be read hides no other one."""
        path = self._strip_protocol(path)
        if not modes.S_ISDIR(self.image.stat(path).st_mode):
            return [self.info(path)] if detail else [path]
        if not detail:
            return [os.path.join(path, name) for name in self.image.listdir(path)]
        with self.image.scandir(path) as entries:
            found = [self._entry(entry) for entry in entries]
        return [details for details in found if details is not None]

    def exists(self, path, **kwargs):
        return self.image.exists(self._strip_protocol(path))

    def lexists(self, path, **kwargs):
        return self.image.lexists(self._strip_protocol(path))

    def isdir(self, path):
        return self.image.isdir(self._strip_protocol(path))

    def isfile(self, path):
        return self.image.isfile(self._strip_protocol(path))

    def islink(self, path):
        return self.image.islink(self._strip_protocol(path))

    def created(self, path):
        return self._time(self.image.stat(self._strip_protocol(path)).st_ctime)

    def modified(self, path):
        return self._time(self.image.stat(self._strip_protocol(path)).st_mtime)

    @staticmethod
    def _time(seconds):
        return datetime.datetime.fromtimestamp(seconds, tz=datetime.timezone.utc)

    def mkdir(self, path, create_parents=True, **kwargs):
        path = self._strip_protocol(path)
        if self.image.exists(path):
            raise FileExistsError(path)
        if create_parents:
            self.makedirs(path, exist_ok=True)
        else:
            self.image.mkdir(path)

    def makedirs(self, path, exist_ok=False):
        self.image.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path):
        self.image.rmdir(self._strip_protocol(path))

    def rm_file(self, path):
        self.image.remove(self._strip_protocol(path))

    def _rm(self, path):
        self.rm_file(path)

    def rm(self, path, recursive=False, maxdepth=None):
        for name in [path] if isinstance(path, (str, os.PathLike)) else path:
            name = self._strip_protocol(name)
            if recursive and maxdepth is not None:
                self._rm_to_depth(name, maxdepth)
            elif any(c in name for c in "*?["):
                self._rm_glob(name, recursive)
            else:
                self._rm_name(name, recursive)

    def _is_tree(self, name):
        """True for a directory; false for a link to one."""
        return self.image.isdir(name) and not self.image.islink(name)

    def _rm_name(self, name, recursive):
        if not self._is_tree(name):
            self.image.remove(name)
        elif not recursive:
            self.image.rmdir(name)
        elif name == "/":
            raise ValueError("the root cannot be removed")
        else:
            self.image.rmtree(name)

    def _rm_glob(self, pattern, recursive):
        """Removes the matches of a pattern. A match that may not be removed is refused before the first removal."""
        names = self.expand_path(pattern)
        trees = {name for name in names if self._is_tree(name)}
        if recursive and "/" in trees:
            raise ValueError("the root cannot be removed")
        if trees and not recursive:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), min(trees))
        for name in names:
            if not any(str(above) in trees for above in pathlib.PurePosixPath(name).parents):
                self._rm_name(name, recursive)

    def _rm_to_depth(self, name, maxdepth):
        """Removes everything at most ``maxdepth`` levels below; a directory with deeper entries stays."""
        for found in reversed(self.expand_path(name, recursive=True, maxdepth=maxdepth)):
            if not self._is_tree(found):
                self.image.remove(found)
            elif found != "/" and not self.image.listdir(found):
                self.image.rmdir(found)

    def cp_file(self, path1, path2, **kwargs):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        # Opening the target empties it, also where it is another name of the source.
        if self.exists(path2) and self.image.stat(path1).st_ino == self.image.stat(path2).st_ino:
            raise shutil.SameFileError(f"{path1!r} and {path2!r} are the same file")
        with self.image.open(path1, "rb") as source, self.image.open(path2, "wb") as target:
            while data := source.read(1 << 20):
                target.write(data)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if maxdepth is not None or any(c in path1 for c in "*?["):
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        if self.image.isdir(path2):
            path2 = path2.rstrip("/") + "/" + path1.rpartition("/")[2]
        if self.auto_mkdir:
            self.makedirs(self._parent(path2), exist_ok=True)
        self.image.rename(path1, path2)

    mv_file = mv

    def touch(self, path, truncate=True, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)
        if truncate or not self.image.exists(path):
            self.image.write_bytes(path, b"")
        else:
            self.image.utime(path)

    def open(self, path, mode="rb", *args, **kwargs):
        """As fsspec's. What it puts around a file for text or compression is written by :meth:`close`, too."""
        file = super().open(path, mode, *args, **kwargs)
        if "r" in mode and "+" not in mode:
            return file
        if isinstance(file, (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)):
            return self.image._track(file)
        return self.image._track_compressor(file)

    def _open(self, path, mode="rb", block_size=None, **kwargs):
        path = self._strip_protocol(path)
        if self.auto_mkdir and "r" not in mode:
            self.makedirs(self._parent(path), exist_ok=True)
        file = self.image.open(path, mode.replace("t", "").replace("b", "") + "b")
        # fsspec adds negative offsets to the attribute `size`.
        file.size = file.raw.stat().st_size
        return file

    def chmod(self, path, mode):
        self.image.chmod(self._strip_protocol(path), mode)

    def chown(self, path, uid, gid):
        self.image.chown(self._strip_protocol(path), uid, gid)

    def symlink(self, src, dst, **kwargs):
        self.image.symlink(self._strip_protocol(src), self._strip_protocol(dst))

    def link(self, src, dst, **kwargs):
        self.image.link(self._strip_protocol(src), self._strip_protocol(dst))
