"""quire:// as fsspec sees it, by fsspec's own tests of file systems and by pandas."""

import re

import pytest

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")

import quire
from quire.fsspec import QuireFileSystem


class QuireFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self):
        image = quire.Image.create(None, "32M")
        return QuireFileSystem(fo=image, auto_mkdir=True)

    @pytest.fixture
    def fs_path(self):
        return "/"

    @pytest.fixture
    def fs_join(self):
        # A slash at the end says that a target is a directory.
        return lambda *args: re.sub("/+", "/", "/" + "/".join(args))

    @pytest.fixture
    def fs_sanitize_path(self):
        return lambda x: x


class TestCopy(abstract.AbstractCopyTests, QuireFixtures):
    pass


class TestGet(abstract.AbstractGetTests, QuireFixtures):
    pass


class TestPut(abstract.AbstractPutTests, QuireFixtures):
    pass


if hasattr(abstract, "AbstractOpenTests"):

    class TestOpen(abstract.AbstractOpenTests, QuireFixtures):
        pass


if hasattr(abstract, "AbstractPipeTests"):

    class TestPipe(abstract.AbstractPipeTests, QuireFixtures):
        pass


@pytest.fixture
def path(tmp_path):
    quire.Image.create(tmp_path / "disk.img", "16M").close()
    return tmp_path / "disk.img"


def test_urls_name_files_in_images(path):
    with fsspec.filesystem("quire", fo=str(path)) as fs:
        fs.makedirs("data")
        with fs.open("data/table.csv", "w") as f:
            f.write("a,b\n1,2\n")
        assert fs.find("/") == ["/data/table.csv"]
        assert fs.cat("data/table.csv") == b"a,b\n1,2\n"
        assert fs.glob("/data/*.csv") == ["/data/table.csv"]
        assert fs.du("/data") == 8
        assert fs.unstrip_protocol("data") == "quire:///data"
    with fsspec.open(f"quire://data/table.csv::file://{path}", "r") as f:
        assert f.read() == "a,b\n1,2\n"


def test_a_transaction_is_a_batch(path):
    with fsspec.filesystem("quire", fo=str(path)) as fs:
        with fs.transaction:
            fs.pipe("/a", b"1")
        with pytest.raises(KeyError):
            with fs.transaction:
                fs.pipe("/a", b"2")
                fs.pipe("/b", b"2")
                raise KeyError
        assert fs.cat("/a") == b"1" and not fs.exists("/b")


def test_pandas_reads_and_writes(path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    image = quire.Image(path)
    options = {"fo": image}
    table.to_csv("quire://table.csv", index=False, storage_options=options)
    assert pandas.read_csv("quire://table.csv", storage_options=options).equals(table)
    image.close()


def test_bad_arguments_are_errors(path):
    with pytest.raises(ValueError):
        QuireFileSystem()
    with pytest.raises(ValueError):
        QuireFileSystem(fo=str(path), target_protocol="s3")
    with QuireFileSystem(fo=str(path)) as fs:
        with pytest.raises(FileNotFoundError):
            fs.info("/missing")
        with pytest.raises(ValueError):
            fs.rm("/", recursive=True)
