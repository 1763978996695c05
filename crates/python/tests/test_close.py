"""What becomes of files that are open, with data in their buffers, when their image is closed."""

import errno

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
