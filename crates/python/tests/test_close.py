"""What becomes of files that are open, with data in their buffers, when their image is closed."""

import bz2
import errno
import gzip
import lzma
import shutil

import pytest

import quire


@pytest.fixture
def path(tmp_path):
    return tmp_path / "disk.img"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_close_writes_what_open_files_have_buffered(path, encoding):
    image = quire.Image.create(path, "16M")
    binary, both = image.open("/binary", "wb"), image.open("/b", "w+b")
    text = image.open("/text", "w", encoding=encoding)
    binary.write(b"bytes")
    text.write("text")
    both.write(b"more")
    closed = image.open("/closed", "w")
    closed.close()
    image.close()
    with quire.Image(path) as again:
        found = (again.read_bytes("/binary"), again.read_text("/text", encoding), again.read_bytes("/b"))
    assert found == (b"bytes", "text", b"more")


def test_to_bytes_has_what_open_files_have_buffered():
    image = quire.Image.create(None, "16M")
    file = image.open("/f", "w")
    file.write("text")
    with quire.Image.from_bytes(image.to_bytes()) as again:
        assert again.read_text("/f") == "text"
    assert file.name == "/f"


def test_close_writes_the_buffer_of_a_file_whose_decoder_is_detached(path):
    image = quire.Image.create(path, "16M")
    text = image.open("/f", "w")
    buffer = text.detach()
    buffer.write(b"bytes")
    image.close()
    with quire.Image(path) as again:
        assert again.read_bytes("/f") == b"bytes"


def test_close_raises_what_a_buffer_cannot_write_and_closes_the_image(path):
    image = quire.Image.create(path, "16M")
    large, small = image.open("/large", "wb", buffering=64 << 20), image.open("/small", "w")
    small.write("text")
    large.write(bytes(32 << 20))
    with pytest.raises(OSError) as caught:
        image.close()
    assert caught.value.errno == errno.ENOSPC and image.closed
    image.close()
    with pytest.raises((OSError, ValueError)):
        large.close()
    with quire.Image(path) as again:
        assert again.exists("/small")


def test_close_of_a_file_system_of_fsspec_writes_what_open_files_have_buffered(path):
    pytest.importorskip("fsspec")
    from quire.fsspec import QuireFileSystem

    quire.Image.create(path, "16M").close()
    fs = QuireFileSystem(fo=str(path))
    binary, text = fs.open("/binary", "wb"), fs.open("/text", "w")
    binary.write(b"bytes")
    text.write("text")
    fs.close()
    with quire.Image(path) as again:
        assert (again.read_bytes("/binary"), again.read_text("/text")) == (b"bytes", "text")


@pytest.mark.parametrize("compression, module", [("gzip", gzip), ("bz2", bz2), ("xz", lzma)])
def test_close_of_a_file_system_of_fsspec_ends_compressed_files(path, compression, module):
    pytest.importorskip("fsspec")
    from quire.fsspec import QuireFileSystem

    quire.Image.create(path, "16M").close()
    fs = QuireFileSystem(fo=str(path))
    binary, text = (fs.open(f"/{mode}", mode, compression=compression) for mode in ("wb", "wt"))
    binary.write(b"bytes")
    text.write("text")
    fs.close()
    with quire.Image(path) as again:
        found = [module.decompress(again.read_bytes(name)) for name in ("/wb", "/wt")]
    assert found == [b"bytes", b"text"]


class Slotted:
    """A compressor without weak references, as those of C may be: it writes an end."""

    __slots__ = ("closed", "inner")

    def __init__(self, inner, mode):
        self.inner = inner
        self.closed = False

    def write(self, data):
        return self.inner.write(data)

    def close(self):
        self.inner.write(b"end")
        self.closed = True


def test_close_ends_a_compressed_file_whose_compressor_has_no_weak_references(path):
    compression = pytest.importorskip("fsspec.compression")
    from quire.fsspec import QuireFileSystem

    compression.register_compression("slotted", Slotted, "slotted", force=True)
    quire.Image.create(path, "16M").close()
    fs = QuireFileSystem(fo=str(path))
    fs.open("/closed", "wb", compression="slotted").close()
    fs.open("/f", "wb", compression="slotted").write(b"bytes ")
    fs.close()
    with quire.Image(path) as again:
        assert (again.read_bytes("/closed"), again.read_bytes("/f")) == (b"end", b"bytes end")


class Silent:
    """A compressor that has neither weak references nor ``closed``."""

    __slots__ = ("inner",)

    def __init__(self, inner, mode):
        self.inner = inner

    def close(self):
        self.inner.write(b"end")


def test_close_ends_a_compressed_file_whose_compressor_has_no_attribute_closed(path):
    compression = pytest.importorskip("fsspec.compression")
    from quire.fsspec import QuireFileSystem

    compression.register_compression("silent", Silent, "silent", force=True)
    quire.Image.create(path, "16M").close()
    fs = QuireFileSystem(fo=str(path))
    names = ["/a", "/b"]
    for name in names:
        fs.open(name, "wb", compression="silent")
    fs.close()
    with quire.Image(path) as again:
        assert [again.read_bytes(name) for name in names] == [b"end", b"end"]


def test_closed_compressors_are_freed_without_the_lock(path):
    held = []

    class Compressor:
        __slots__ = ("closed",)

        def __init__(self, closed):
            self.closed = closed

        def __del__(self):
            held.append(image._buffered_lock._is_owned())

        def close(self):
            self.closed = True

    with quire.Image.create(path, "16M") as image:
        image._track_compressor(Compressor(True))
        image._track_compressor(Compressor(False))
        assert held == [False]


def test_a_file_replaced_by_open_is_not_empty_after_a_crash(path, tmp_path):
    with quire.Image.create(path, "16M") as image:
        image.write_text("/f", "old")
        image.sync()
        with image.open("/f", "w") as file:
            file.write("new")
        with image.open("/other", "wb", buffering=0) as other:
            other.write(b"x")
            # It makes durable that the file was emptied, too.
            other.fsync()
        shutil.copy(path, tmp_path / "crashed")
    with quire.Image(tmp_path / "crashed") as crashed:
        assert crashed.read_text("/f") == "new"
