"""Images by the names of os, os.path and io."""

import errno
import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import threading

import pytest

import quire


def test_open_modes_are_those_of_the_built_in_open(image, tmp_path):
    """The same calls on an image and on the host give the same results."""
    host = tmp_path / "host"
    host.mkdir()
    script = [
        ("w", lambda f: f.write("one\ntwo\n")),
        ("r", lambda f: f.readlines()),
        ("a", lambda f: (f.tell(), f.write("three\n"), f.tell())),
        ("r+", lambda f: (f.read(3), f.seek(0), f.write("ONE"), f.seek(0), f.read())),
        ("rb", lambda f: (f.seek(-6, 2), f.read(), f.tell(), f.read())),
        ("a+", lambda f: (f.seek(0), f.read(), f.write("four\n"), f.seek(0), f.read())),
        ("r+b", lambda f: (f.truncate(5), f.seek(0), f.read())),
        ("w+b", lambda f: (f.write(b"x" * 70000), f.seek(65536), len(f.read()))),
        ("rb", lambda f: f.write(b"no")),
        ("wb", lambda f: f.read()),
        ("x", lambda f: f.write("exists")),
    ]

    def run(opener, path):
        results = []
        for mode, use in script:
            try:
                with opener(path, mode) as f:
                    results.append(use(f))
            except (OSError, ValueError) as error:
                results.append((type(error), getattr(error, "errno", None)))
        return results

    expected = run(lambda p, m: open(host / p, m, encoding=None if "b" in m else "utf-8"), "f")
    assert run(lambda p, m: image.open("/" + p, m), "f") == expected


@pytest.mark.parametrize("mode", ["", "rw", "rr", "rbt", "q", "b", "r+x"])
def test_a_bad_mode_is_a_value_error(image, mode):
    with pytest.raises(ValueError):
        image.open("/f", mode)


@pytest.mark.parametrize(
    "arguments",
    [
        ("wb", -1, "utf-8"),
        ("wb", -1, None, "strict"),
        ("w", 0),
        ("w", -1, "no-such-encoding"),
        ("w", -1, None, "no-such-handler"),
        ("w", -1, None, None, "x"),
    ],
)
def test_bad_arguments_of_open_leave_the_file_as_it_was(image, arguments):
    image.write_text("/f", "kept")
    mode, *more = arguments
    with pytest.raises((ValueError, LookupError)):
        image.open("/f", mode, *more)
    with pytest.raises((ValueError, LookupError)):
        image.open("/new", mode.replace("w", "x"), *more)
    assert image.read_text("/f") == "kept" and not image.exists("/new")


@pytest.mark.parametrize(
    "write",
    [
        lambda image: image.write_bytes("/f", "text"),
        lambda image: image.write_bytes("/f", None),
        lambda image: image.write_text("/f", b"bytes"),
        lambda image: image.write_text("/f", "\udc80"),
        lambda image: image.write_text("/f", "\xe4", encoding="ascii"),
        lambda image: image.write_text("/f", "text", encoding="none"),
    ],
)
def test_what_cannot_be_written_leaves_the_file_as_it_was(image, write):
    image.write_bytes("/f", b"kept")
    with pytest.raises((TypeError, ValueError, LookupError)):
        write(image)
    assert image.read_bytes("/f") == b"kept"


@pytest.mark.parametrize("how", [{}, {"newline": "\r\n"}, {"encoding": "utf-16"}, {"encoding": "ascii", "errors": "replace"}])
def test_write_text_writes_what_the_built_in_open_does(image, tmp_path, how):
    text = "a\nb\xe4\n"
    assert image.write_text("/f", text, **how) == len(text)
    with open(tmp_path / "f", "w", **{"encoding": "utf-8", **how}) as file:
        file.write(text)
    assert image.read_bytes("/f") == (tmp_path / "f").read_bytes()


def test_a_damaged_inode_hides_no_name_beside_it(tmp_path):
    path = tmp_path / "image"
    with quire.Image.create(path, "16M") as image:
        image.mkdir("/d")
        for name in ("a", "bad", "c"):
            image.write_text(f"/d/{name}", name)
        inode = image.stat("/d/bad").st_ino
    env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    subprocess.run(["debugfs", "-w", "-R", f"sif <{inode}> mode 0", path], check=True, capture_output=True, env=env)
    with quire.Image(path, read_only=True) as image:
        assert image.listdir("/d") == ["a", "bad", "c"]
        with image.scandir("/d") as entries:
            a, bad, c = entries
        assert (a.stat().st_size, bad.name, c.stat().st_size) == (1, "bad", 1)
        for ask in (bad.stat, bad.inode, bad.is_symlink, bad.is_file):
            with pytest.raises(quire.CorruptError) as caught:
                ask()
            assert caught.value.filename == "/d/bad"
        assert list(image.walk("/d")) == [("/d", [], ["a", "bad", "c"])]


def test_errors_are_those_of_the_operating_system(image):
    image.mkdir("/d")
    image.write_text("/d/f", "text")
    cases = [
        (FileNotFoundError, errno.ENOENT, lambda: image.read_bytes("/missing"), "/missing"),
        (FileExistsError, errno.EEXIST, lambda: image.mkdir("/d"), "/d"),
        (NotADirectoryError, errno.ENOTDIR, lambda: image.listdir("/d/f"), "/d/f"),
        (IsADirectoryError, errno.EISDIR, lambda: image.open("/d", "w"), "/d"),
        (OSError, errno.ENOTEMPTY, lambda: image.rmdir("/d"), "/d"),
        (OSError, errno.ENODATA, lambda: image.getxattr("/d", "user.none"), "/d"),
        (OSError, errno.ENOSPC, lambda: image.write_bytes("/big", bytes(40 << 20)), None),
    ]
    for kind, number, call, path in cases:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.errno == number
        if path is not None:
            assert caught.value.filename == path
        assert caught.value.structure is None and caught.value.block is None


def test_damage_names_structure_and_block(tmp_path):
    path = tmp_path / "image"
    with quire.Image.create(path, "8M") as image:
        image.makedirs("/a")
        block_size = image.info.block_size
    data = bytearray(path.read_bytes())
    for size in (2047, 1 << 20):
        with pytest.raises(quire.NotExt4Error):
            quire.Image.from_bytes(bytes(size))
    # The first group's descriptor follows the superblock's block.
    descriptor = max(block_size, 2048)
    data[descriptor : descriptor + 8] = b"\xff" * 8
    with pytest.raises(quire.CorruptError) as caught:
        quire.Image.from_bytes(bytes(data)).read_bytes("/x")
    assert isinstance(caught.value, OSError) and caught.value.errno == errno.EUCLEAN
    assert caught.value.structure


def test_attributes(image):
    image.write_bytes("/f", b"data")
    image.chmod("/f", 0o4750)
    image.chown("/f", 1000, -1)
    image.utime("/f", ns=(1, 1_700_000_000_123_456_789))
    s = image.stat("/f")
    # As chown(2), a change of owner has taken set-user-id away.
    assert stat.filemode(s.st_mode) == "-rwxr-x---"
    assert (s.st_uid, s.st_gid, s.st_size, s.st_nlink) == (1000, 0, 4, 1)
    assert (s.st_atime_ns, s.st_mtime_ns) == (1, 1_700_000_000_123_456_789)
    image.setxattr("/f", "user.note", b"hello")
    assert image.listxattr("/f") == ["user.note"]
    assert image.getxattr("/f", "user.note") == b"hello"
    image.removexattr("/f", "user.note")
    assert image.listxattr("/f") == []
    image.mknod("/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert image.stat("/null").st_rdev == os.makedev(1, 3)
    image.mknod("/wide", stat.S_IFBLK | 0o600, os.makedev(259, 70000))
    assert image.stat("/wide").st_rdev == os.makedev(259, 70000)


def test_links_and_names(image):
    image.write_text("/f", "x")
    image.link("/f", "/g")
    image.symlink("f", "/s")
    image.symlink("loop", "/loop")
    assert image.stat("/g").st_nlink == 2
    assert image.readlink("/s") == "f" and image.islink("/s") and image.isfile("/s")
    assert image.lexists("/loop") and not image.exists("/loop")
    image.rename("/g", "/f")
    image.remove("/g")
    odd = os.fsdecode(b"/\xff\xfe name")
    image.write_text(odd, "")
    assert odd[1:] in image.listdir("/")
    assert not image.exists("/g")


def test_walk_is_that_of_os(image, tmp_path):
    host = tmp_path / "tree"
    for d in ["a/b", "a/c", "d"]:
        (host / d).mkdir(parents=True)
    for f in ["a/1", "a/b/2", "d/3", "4"]:
        (host / f).write_text(f)
    for name, target in [("link", "a"), ("loop", "loop"), ("through", "4/x"), ("long", "n" * 256), ("none", "n")]:
        os.symlink(target, host / name)
    image.mkdir("/tree")
    image.import_tree(host, "/tree", owner=(0, 0))
    for topdown in (True, False):
        expected = sorted(
            (os.path.relpath(d, host), sorted(ds), sorted(fs)) for d, ds, fs in os.walk(host, topdown=topdown)
        )
        found = sorted(
            (os.path.relpath(d, "/tree"), sorted(ds), sorted(fs)) for d, ds, fs in image.walk("/tree", topdown=topdown)
        )
        assert found == expected
    out = tmp_path / "out"
    image.export_dir(out, "/tree")
    assert (out / "a/b/2").read_text() == "a/b/2"
    image.rmtree("/tree")
    assert image.listdir("/") == ["lost+found"]


def test_a_batch_happens_as_a_whole_or_not_at_all(image):
    image.write_text("/version", "1")
    with pytest.raises(KeyError):
        with image.batch():
            image.write_text("/version", "2")
            image.mkdir("/new")
            raise KeyError("stop")
    assert image.read_text("/version") == "1" and not image.exists("/new")
    with image.batch():
        image.write_text("/version", "3")
    assert image.read_text("/version") == "3"
    with pytest.raises(OSError) as caught:
        with image.batch(), image.batch():
            pass
    assert caught.value.errno == errno.EBUSY


def test_other_threads_wait_for_a_batch(image):
    image.write_text("/f", "before")
    begun, seen = threading.Event(), []

    def reader():
        begun.wait()
        seen.append(image.read_text("/f"))

    thread = threading.Thread(target=reader)
    thread.start()
    with image.batch():
        begun.set()
        thread.join(timeout=0.3)
        assert thread.is_alive() and not seen
        image.write_text("/f", "after")
    thread.join()
    assert seen == ["after"]


def test_a_batch_is_ended_by_its_thread(image):
    batch = image._image.begin()
    caught = []

    def other():
        try:
            batch.commit()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert caught
    batch.rollback()


def test_tar_through_paths_and_file_objects(image, tmp_path):
    source = io.BytesIO()
    with tarfile.open(fileobj=source, mode="w:gz") as tar:
        member = tarfile.TarInfo("etc/hostname")
        member.size = 4
        member.uid = 77
        tar.addfile(member, io.BytesIO(b"host"))
    source.seek(0)
    objects, written = image.import_tree(source, "/")
    assert (objects >= 1, written) == (True, 4)
    assert image.read_text("/etc/hostname") == "host" and image.stat("/etc/hostname").st_uid == 77
    target = io.BytesIO()
    image.export_tar(target)
    image.export_tar(tmp_path / "out.tar")
    assert target.getvalue() == (tmp_path / "out.tar").read_bytes()
    with tarfile.open(tmp_path / "out.tar") as tar:
        names = [n.strip("./") for n in tar.getnames()]
    assert "etc/hostname" in names


def test_an_error_of_a_file_object_reaches_the_caller(image, tmp_path):
    class Broken:
        def read(self, n):
            raise RuntimeError("the network is down")

        def write(self, data):
            raise RuntimeError("the network is down")

    class Interrupted:
        def read(self, n):
            raise KeyboardInterrupt

        write = read

    for use in [lambda f: image.import_tree(f, "/"), image.export_tar, lambda f: quire.build(tmp_path / "new", f)]:
        with pytest.raises(RuntimeError, match="the network is down"):
            use(Broken())
        with pytest.raises(KeyboardInterrupt):
            use(Interrupted())
    assert not (tmp_path / "new").exists()
    with pytest.raises(OSError) as caught, open("/dev/full", "wb", buffering=0) as full:
        image.export_tar(full)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(TypeError):
        image.import_tree(object(), "/")
    with pytest.raises(quire.QuireError):
        image.import_tree(io.BytesIO(b"no tar" * 500), "/")


def test_build_is_deterministic_and_fits(tmp_path):
    tree = tmp_path / "tree"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    same = dict(uuid="6b1c2f5e-0000-4000-8000-000000000001", source_date_epoch=1_600_000_000, owner=(0, 0))
    quire.build(tmp_path / "1", tree, "min+20%", label="root", **same)
    quire.build(tmp_path / "2", tree, "min+20%", label="root", **same)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    with quire.Image(tmp_path / "1", read_only=True) as image:
        assert image.info.label == "root" and image.info.uuid == same["uuid"]
        assert image.read_text("/etc/passwd").startswith("root:")
        with pytest.raises(OSError) as caught:
            image.mkdir("/no")
        assert caught.value.errno == errno.EROFS
    with pytest.raises(ValueError):
        quire.build(tmp_path / "3", tree, "minimal")


def test_images_in_memory():
    image = quire.Image.create(None, "8M")
    image.write_text("/f", "x")
    data = image.to_bytes()
    assert image.closed
    with quire.Image.from_bytes(data) as again:
        assert again.read_text("/f") == "x"
    with pytest.raises(ValueError):
        again.listdir("/")
    again.close()


def test_sparse_files(image):
    with image.open("/sparse", "w+b", buffering=0) as f:
        f.pwrite(b"end", 1 << 20)
        start, end = f.next_data(0)
        assert start == 1 << 20 and end >= (1 << 20) + 3
        f.punch_hole(1 << 20, 4096)
        assert f.next_data(0) is None
        f.allocate(0, 8192)
        f.fsync()
        assert f.stat().st_size == (1 << 20) + 3
    with pytest.raises(ValueError):
        f.pread(1, 0)


MORE_THAN_MEMORY = """
import resource
import quire

image = quire.Image.create(None, "32M")
image.write_bytes("/sparse", b"start")
image.truncate("/sparse", 3 << 40)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
with image.open("/sparse", "rb", buffering=0) as file:
    for read in [lambda: image.read_bytes("/sparse"), lambda: file.pread(3 << 40, 0), file.read]:
        try:
            read()
        except MemoryError:
            print("MemoryError")
    buffer = bytearray(1200 << 20)
    for use in [lambda: file.readinto(buffer), lambda: image.write_bytes("/copy", buffer)]:
        try:
            use()
        except MemoryError:
            print("MemoryError")
    print(file.pread(5, 0))
"""


def test_a_read_of_more_than_memory_holds_is_a_memory_error():
    done = subprocess.run([sys.executable, "-c", MORE_THAN_MEMORY], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "MemoryError\n" * 5 + "b'start'\n"), done.stderr


def test_shutil_copies_into_an_image(image, tmp_path):
    (tmp_path / "f").write_bytes(os.urandom(300_000))
    with open(tmp_path / "f", "rb") as source, image.open("/f", "wb") as target:
        shutil.copyfileobj(source, target)
    assert image.read_bytes("/f") == (tmp_path / "f").read_bytes()


def test_freeze_keeps_a_clean_image(image):
    image.write_text("/f", "x")
    with image.frozen():
        # The image's own lock keeps a second opener away; its bytes are a whole, clean image.
        with open(image.name, "rb") as f, quire.Image.from_bytes(f.read(), read_only=True) as copy:
            assert copy.read_text("/f") == "x"
    image.write_text("/f", "y")


def test_the_stubs_have_what_the_module_has():
    import ast
    import pathlib

    import quire._quire as inner

    stubs = ast.parse((pathlib.Path(__file__).parent.parent / "python/quire/_quire.pyi").read_text())
    declared = {}
    for node in stubs.body:
        if isinstance(node, ast.ClassDef):
            names = [n.name if isinstance(n, ast.FunctionDef) else getattr(n.target, "id", None) for n in node.body
                     if isinstance(n, (ast.FunctionDef, ast.AnnAssign))]
            declared[node.name] = set(names)
        elif isinstance(node, ast.FunctionDef):
            declared[node.name] = set()
    present = {n for n in dir(inner) if not n.startswith("_")}
    assert present == set(declared)
    for name in present:
        value = getattr(inner, name)
        if isinstance(value, type) and not issubclass(value, BaseException):
            assert {m for m in vars(value) if not m.startswith("_")} == declared[name], name


def test_the_docs_of_the_package_run():
    import doctest

    assert doctest.testmod(quire, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_walk_tells_a_directory_that_is_below_itself(tmp_path):
    path = tmp_path / "image"
    with quire.Image.create(path, "32M") as image:
        image.makedirs("/a/b")
    env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    subprocess.run(["debugfs", "-w", "-R", "ln / /a/b/up", path], check=True, capture_output=True, env=env)
    with quire.Image(path, read_only=True) as image:
        errors = []
        found = [directory for directory, _, _ in image.walk("/", onerror=errors.append)]
        assert sorted(found) == ["/", "/a", "/a/b", "/lost+found"]
        assert [(error.errno, error.filename) for error in errors] == [(errno.EUCLEAN, "/a/b/up")]


def test_an_export_replaces_a_file_when_it_is_complete_and_never_the_image(image, tmp_path):
    out, link = tmp_path / "out.tar", tmp_path / "link"
    out.write_text("old")
    link.symlink_to(image.name)
    with pytest.raises(FileNotFoundError):
        image.export_tar(out, "/none")
    assert out.read_text() == "old"
    for name in (image.name, link):
        with pytest.raises(OSError, match="this is the image itself") as caught:
            image.export_tar(name)
        assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(name))
    image.export_tar("/dev/null")
    image.export_tar(out)
    assert tarfile.is_tarfile(out)
    assert sorted(os.listdir(tmp_path)) == ["image", "link", "out.tar"]
    with pytest.raises(OSError) as caught:
        image.export_tar("/dev/full")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")


def test_an_import_leaves_the_image_itself_out(image, tmp_path):
    (tmp_path / "f").write_text("x")
    image.import_tree(tmp_path, "/")
    assert image.listdir("/") == ["f", "lost+found"]


INTERRUPTED = """
import os, signal, sys, threading, time
import quire


def fill_until_an_import_lasts():
    "Makes empty files, until an import takes several times as long as the library goes without a look at signals."
    end, seconds = 1_000_000, 0
    while seconds < 0.3:
        begin, end = end, end + 10_000
        for n in range(begin, end):
            open(f"{tree}/{n}", "x").close()
        with quire.Image.create(out + "/measured", "4G") as image:
            began = time.monotonic()
            image.import_tree(tree, "/")
            seconds = time.monotonic() - began
        os.unlink(out + "/measured")
    return f"/{end - 1}"


def is_interrupted(call):
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        call()
    except KeyboardInterrupt:
        return True


# Whoever starts the tests in the background has the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
tree, out = sys.argv[1:]
last = fill_until_an_import_lasts()
with quire.Image.create(out + "/image", "4G") as image:
    print(is_interrupted(lambda: image.import_tree(tree, "/")), image.exists(last))
    image.import_tree(tree, "/")
    print(is_interrupted(lambda: image.export_tar(out + "/tar")), os.path.exists(out + "/tar"))
    print(is_interrupted(lambda: image.export_dir(out + "/dir")), os.path.exists(out + "/dir" + last))
print(is_interrupted(lambda: quire.build(out + "/new", tree, "4G")), os.path.exists(out + "/new"))
"""


def test_ctrl_c_ends_long_work_before_it_is_done(tmp_path):
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    out.mkdir()
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, tree, out], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["True False"] * 4, done.stderr


def test_an_import_warns_of_an_attribute_that_ext4_does_not_store(image, tmp_path):
    archive = tmp_path / "mac.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("f")
        member.pax_headers = {"SCHILY.xattr.com.apple.quarantine": "1"}
        tar.addfile(member)
    with pytest.warns(UserWarning, match="f: attribute com.apple.quarantine is left out"):
        image.import_tree(archive)
    assert image.listxattr("/f") == []
