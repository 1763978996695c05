"""Files of an image, as Python has files."""

import codecs
import io
import os


class File(io.RawIOBase):
    """An open file of an image, without a buffer; :meth:`quire.Image.open` puts one around it.

    Beyond ``io.RawIOBase`` it has :meth:`pread`, :meth:`pwrite`, :meth:`fsync`, :meth:`stat`, :meth:`allocate`,
    :meth:`punch_hole` and :meth:`next_data`.
    """

    def __init__(self, raw, name, mode, readable, writable, append):
        self._raw = raw
        self._at = 0
        self._readable = readable
        self._writable = writable
        self._append = append
        self.name = name
        self.mode = mode
        if append:
            self._at = raw.stat().st_size

    def __repr__(self):
        return f"<quire.File name={self.name!r} mode={self.mode!r}>"

    def _check(self, allowed=True, what=""):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(what)

    def readable(self):
        self._check()
        return self._readable

    def writable(self):
        self._check()
        return self._writable

    def seekable(self):
        self._check()
        return True

    def readinto(self, buffer):
        self._check(self._readable, "not readable")
        with memoryview(buffer).cast("B") as view:
            n = self._raw.preadinto(view, self._at)
        self._at += n
        return n

    def readall(self):
        self._check(self._readable, "not readable")
        data = self._raw.pread(max(self._raw.stat().st_size - self._at, 0), self._at)
        self._at += len(data)
        return data

    def write(self, data):
        self._check(self._writable, "not writable")
        with memoryview(data).cast("B") as view:
            if self._append:
                # One call finds the end and writes there, so that appends of other handles are not overwritten.
                self._at = self._raw.append(view)
                return view.nbytes
            n = self._raw.pwrite(view, self._at)
        self._at += n
        return n

    def seek(self, offset, whence=os.SEEK_SET):
        self._check()
        if whence == os.SEEK_SET:
            at = offset
        elif whence == os.SEEK_CUR:
            at = self._at + offset
        elif whence == os.SEEK_END:
            at = self._raw.stat().st_size + offset
        else:
            raise ValueError(f"invalid whence: {whence}")
        if at < 0:
            raise ValueError(f"negative seek position {at}")
        self._at = at
        return at

    def tell(self):
        self._check()
        return self._at

    def truncate(self, size=None):
        self._check(self._writable, "not writable")
        size = self._at if size is None else size
        if size < 0:
            raise ValueError(f"negative size {size}")
        self._raw.truncate(size)
        return size

    def close(self):
        if not self.closed:
            try:
                super().close()
            finally:
                self._raw.close()

    def pread(self, size, offset):
        """At most ``size`` bytes at ``offset``; the position stays."""
        self._check(self._readable, "not readable")
        return self._raw.pread(size, offset)

    def pwrite(self, data, offset):
        """Writes all bytes at ``offset``; the position stays."""
        self._check(self._writable, "not writable")
        return self._raw.pwrite(data, offset)

    def fsync(self, data_only=False):
        """Makes the file durable: contents and metadata, or what is needed to read the contents."""
        self._check()
        self._raw.sync(data_only)

    def stat(self):
        """What the file system knows of the file."""
        self._check()
        return self._raw.stat()

    def allocate(self, offset, size):
        """Gives a range space; the file grows to hold it."""
        self._check(self._writable, "not writable")
        self._raw.allocate(offset, size)

    def punch_hole(self, offset, size):
        """Takes the space of a range away; it reads as zeros."""
        self._check(self._writable, "not writable")
        self._raw.punch_hole(offset, size)

    def next_data(self, offset):
        """The next range of data from ``offset`` on, as start and end; ``None`` where only a hole follows."""
        self._check()
        return self._raw.next_data(offset)


def parse_mode(mode):
    """What a mode of ``open`` means: a dictionary of reading, writing, appending, creating, text."""
    letters = set(mode)
    if letters - set("rwaxbt+") or len(letters) != len(mode) or ("t" in letters and "b" in letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if len(letters & set("rwax")) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    plus = "+" in letters
    return {
        "readable": "r" in letters or plus,
        "writable": "r" not in letters or plus,
        "append": "a" in letters,
        "create": bool(letters & set("wa")),
        "create_new": "x" in letters,
        "truncate": "w" in letters,
        "text": "b" not in letters,
    }


def check(parsed, buffering, encoding, errors, newline):
    """Refuses what :func:`wrap` would refuse."""
    if parsed["text"]:
        if buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        io.TextIOWrapper(io.BytesIO(), encoding or "utf-8", errors, newline)
        if errors is not None:
            codecs.lookup_error(errors)
    elif encoding is not None or errors is not None or newline is not None:
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")


def wrap(raw, parsed, buffering, encoding, errors, newline):
    """A buffer, and a decoder for text, around a :class:`File`, as the built-in ``open`` does."""
    text = parsed["text"]
    line_buffering = buffering == 1 and text
    if buffering == 0:
        return raw
    size = io.DEFAULT_BUFFER_SIZE if buffering < 0 or buffering == 1 else buffering
    if parsed["readable"] and parsed["writable"]:
        buffer = io.BufferedRandom(raw, size)
    elif parsed["writable"]:
        buffer = io.BufferedWriter(raw, size)
    else:
        buffer = io.BufferedReader(raw, size)
    if not text:
        return buffer
    return io.TextIOWrapper(buffer, encoding or "utf-8", errors, newline, line_buffering)
