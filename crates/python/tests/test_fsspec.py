"""quire:// as fsspec sees it, by fsspec's own tests of file systems and by pandas."""

import errno
import os
import pickle
import re
import shutil
import subprocess

import pytest

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")

import quire
import quire._quire
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


def test_ls_beside_a_damaged_and_a_removed_entry(path, monkeypatch):
    with quire.Image(path) as image:
        image.mkdir("/d")
        for name in ("a", "bad", "c"):
            image.write_text(f"/d/{name}", name)
        image.symlink("a", "/d/link")
        image.symlink("x" * 100, "/d/lost")
        inode = image.stat("/d/bad").st_ino
    env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    for change in (f"sif <{inode}> mode 0", "sif /d/lost block[0] 0", "sif /d/lost size 0"):
        subprocess.run(["debugfs", "-w", "-R", change, path], check=True, capture_output=True, env=env)
    with QuireFileSystem(fo=str(path), mode="r") as fs:
        types = {entry["name"]: entry["type"] for entry in fs.ls("/d")}
        assert types == {"/d/a": "file", "/d/bad": "other", "/d/c": "file", "/d/link": "link", "/d/lost": "other"}
        assert {"name": "/d/bad", "size": 0, "type": "other"} in fs.ls("/d")
        assert fs.ls("/d", detail=False) == list(types)
        assert fs.ls("/d/a", detail=False) == ["/d/a"]
        assert "/d/c" in fs.find("/d")

        def is_gone(path):
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)

        # The links are removed between the listing and the look at their targets.
        monkeypatch.setattr(fs.image, "readlink", is_gone)
        assert [entry["name"] for entry in fs.ls("/d")] == ["/d/a", "/d/bad", "/d/c"]


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


@pytest.fixture
def fs():
    with quire.Image.create(None, "16M") as image:
        yield QuireFileSystem(fo=image)


@pytest.mark.parametrize(
    "copy",
    [
        lambda fs: fs.cp_file("/d/a", "/d/a"),
        lambda fs: fs.cp("/d/a", "/d/"),
        lambda fs: fs.cp_file("/d/a", "/d/soft"),
        lambda fs: fs.cp_file("/d/soft", "/d/a"),
        lambda fs: fs.cp_file("/d/a", "/d/hard"),
    ],
)
def test_a_copy_onto_the_same_file_is_an_error_and_keeps_it(fs, copy):
    fs.mkdir("/d")
    fs.pipe("/d/a", b"kept")
    fs.symlink("/d/a", "/d/soft")
    fs.link("/d/a", "/d/hard")
    with pytest.raises(shutil.SameFileError):
        copy(fs)
    assert fs.cat_file("/d/a") == b"kept"


def test_ls_reports_links_and_walks_do_not_follow_them(fs):
    fs.mkdir("/d")
    fs.pipe("/d/file", b"12345")
    fs.image.symlink(".", "/d/self")
    fs.image.symlink("file", "/d/soft")
    fs.image.symlink("missing", "/d/dangling")
    found = {entry["name"]: entry for entry in fs.ls("/d")}
    assert {name: (entry["type"], entry["islink"]) for name, entry in found.items()} == {
        "/d/file": ("file", False),
        "/d/self": ("link", True),
        "/d/soft": ("link", True),
        "/d/dangling": ("link", True),
    }
    assert (found["/d/soft"]["size"], found["/d/soft"]["destination"]) == (5, "file")
    assert found["/d/dangling"]["size"] == 0
    assert [directory for directory, _, _ in fs.walk("/d")] == ["/d"]
    assert fs.find("/d") == ["/d/dangling", "/d/file", "/d/self", "/d/soft"]
    assert sorted(fs.du("/d", total=False)) == fs.find("/d")
    assert fs.glob("/d/**/file") == ["/d/file"]


def test_info_follows_links(fs):
    fs.pipe("/file", b"12345")
    fs.mkdir("/d")
    fs.image.symlink("file", "/soft")
    fs.image.symlink("d", "/to-d")
    fs.image.symlink("missing", "/dangling")
    kinds = {name: (fs.info(name)["type"], fs.info(name)["islink"]) for name in ("/soft", "/to-d", "/dangling")}
    assert kinds == {"/soft": ("file", True), "/to-d": ("directory", True), "/dangling": ("link", True)}
    assert (fs.info("/soft")["ino"], fs.info("/soft")["size"]) == (fs.info("/file")["ino"], 5)
    fs.pipe("/d/inside", b"1")
    assert fs.find("/to-d") == ["/to-d/inside"]


@pytest.mark.parametrize("pattern", ["/t/*", "/t/**"])
def test_rm_of_a_pattern_removes_files_and_trees(fs, pattern):
    fs.makedirs("/t/a/b")
    fs.mkdir("/kept")
    for name in ("/t/1", "/t/a/2", "/t/a/b/3", "/kept/4"):
        fs.pipe(name, b"x")
    fs.image.symlink("/kept", "/t/link")
    fs.rm(pattern, recursive=True)
    assert fs.find("/t") == [] and fs.find("/kept") == ["/kept/4"]


def test_rm_of_a_pattern_refuses_before_it_removes(fs):
    fs.makedirs("/t/a")
    fs.pipe("/t/z", b"x")
    with pytest.raises(IsADirectoryError):
        fs.rm("/t/*")
    with pytest.raises(FileNotFoundError):
        fs.rm("/t/none*", recursive=True)
    assert fs.exists("/t/a") and fs.exists("/t/z")
    fs.rm("/t/[z]")
    assert not fs.exists("/t/z")


def test_rm_with_maxdepth_keeps_what_is_deeper(fs):
    fs.makedirs("/t/a/b")
    for name in ("/t/1", "/t/a/2", "/t/a/b/3"):
        fs.pipe(name, b"x")
    fs.rm("/t", recursive=True, maxdepth=2)
    assert fs.find("/t") == ["/t/a/b/3"]


def test_ranges_may_be_counted_from_the_end(fs):
    fs.pipe("/f", b"one\ntwo\nthree\n")
    assert fs.cat_file("/f", start=-6) == b"three\n"
    assert fs.cat_file("/f", start=-6, end=-1) == b"three"
    assert fs.cat_ranges(["/f", "/f"], [-6, 0], [None, 3]) == [b"three\n", b"one"]
    assert fs.read_block("/f", 4, 100) == b"two\nthree\n"
    assert fs.read_block("/f", 2, 4, delimiter=b"\n") == b"two\n"
    assert fs.tail("/f", 6) == b"three\n"
    with fs.open("/f", "ab") as f:
        assert f.size == 14


def test_a_transaction_without_with_is_a_batch(path):
    with fsspec.filesystem("quire", fo=str(path)) as fs:
        fs.start_transaction()
        fs.pipe("/a", b"1")
        # In a batch there is no second one.
        with pytest.raises(OSError):
            with fs.image.batch():
                pass
        fs.end_transaction()
        transaction = fs.start_transaction()
        fs.pipe("/a", b"2")
        transaction.complete(commit=False)
        assert fs.cat("/a") == b"1"
        with fs.transaction:
            fs.pipe("/a", b"3")
        assert fs.cat("/a") == b"3"


def test_an_image_that_may_not_be_written_is_read(path, monkeypatch):
    with QuireFileSystem(fo=str(path)) as fs:
        fs.pipe("/a", b"1")
    open_image = quire._quire.open_image

    def refuse_writers(path, read_only, **options):
        if not read_only:
            raise PermissionError(errno.EACCES, "permission denied", path)
        return open_image(path, read_only=read_only, **options)

    monkeypatch.setattr(quire._quire, "open_image", refuse_writers)
    with QuireFileSystem(fo=str(path)) as fs:
        assert fs.cat("/a") == b"1"
        with pytest.raises(OSError) as caught:
            fs.pipe("/a", b"2")
        assert caught.value.errno == errno.EROFS
    with pytest.raises(PermissionError):
        QuireFileSystem(fo=str(path), mode="r+")


@pytest.mark.parametrize("mode", ["rb", "w", "", "a"])
def test_a_mode_that_is_none_is_a_value_error(path, mode):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="reads the image only"):
        QuireFileSystem(fo=str(path), mode=mode)
    assert path.read_bytes() == before


def test_a_file_system_that_reads_can_be_pickled(path):
    with QuireFileSystem(fo=str(path)) as fs:
        fs.pipe("/a", b"1")
    before = path.read_bytes()
    with QuireFileSystem(fo=str(path), mode="r") as fs, pickle.loads(pickle.dumps(fs)) as other:
        assert (fs.cat("/a"), other.cat("/a")) == (b"1", b"1")
    assert path.read_bytes() == before
    with quire.Image(path) as image, pytest.raises(TypeError, match="fo= must be a path"):
        pickle.dumps(QuireFileSystem(fo=image))
