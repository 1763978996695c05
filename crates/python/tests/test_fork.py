"""A child that was forked has no say in the image: what its parent synced is there after the parent was killed."""

import os
import signal
import subprocess
import sys

import pytest

import quire

PARENT = """
import os, signal, sys
import quire
image = quire.Image.create(sys.argv[1], "16M")
image.write_text("/before", "1")
image.sync()
child = os.fork()
if child == 0:
    if sys.argv[2] == "close":
        try:
            image.close()
        except OSError:
            pass
    if sys.argv[2] == "write":
        try:
            image.write_text("/of-the-child", "x")
        except OSError:
            pass
    del image
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for n in range(5):
    with image.open(f"/n{n}", "wb") as f:
        f.write(b"x")
image.sync()
os.kill(os.getpid(), signal.SIGKILL)
"""


def names_after(script, path, does):
    """The names in the root of an image that a process has made, and whose end was a SIGKILL."""
    done = subprocess.run([sys.executable, "-c", script, path, does], timeout=60)
    assert done.returncode == -signal.SIGKILL
    with quire.Image(path) as image:
        return set(image.listdir("/"))


@pytest.mark.parametrize("does", ["nothing", "close", "write"])
def test_a_forked_child_leaves_the_image_alone(tmp_path, does):
    assert names_after(PARENT, tmp_path / "image", does) == {"lost+found", "before", "n0", "n1", "n2", "n3", "n4"}


BATCH = """
import errno, os, shutil, signal, sys
import quire
path, does = sys.argv[1:]
image = quire.Image.create(path, "16M")
image.write_text("/before", "1")
image.sync()
batch = image.batch()
batch.__enter__()
image.write_text("/of-the-batch", "x")
before = open(path, "rb").read()
child = os.fork()
if child == 0:
    refused = None
    try:
        if does == "commit":
            batch.__exit__(None, None, None)
        if does == "rollback":
            batch.__exit__(ValueError, ValueError("undone"), None)
    except OSError as error:
        refused = error.errno
    sys.exit(refused != (None if does == "nothing" else errno.ESTALE))
assert os.waitpid(child, 0)[1] == 0
assert open(path, "rb").read() == before, "the child has written to the image"
batch.__exit__(None, None, None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("does", ["nothing", "commit", "rollback"])
def test_a_forked_child_leaves_the_batch_to_its_parent(tmp_path, does):
    assert names_after(BATCH, tmp_path / "image", does) == {"lost+found", "before", "of-the-batch"}


def test_a_closed_image_can_be_opened_while_a_forked_child_lives(tmp_path):
    path = tmp_path / "image"
    image = quire.Image.create(path, "16M")
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.read(ended, 1)
        os._exit(0)
    try:
        image.close()
        quire.Image(path).close()
    finally:
        os.close(end)
        os.waitpid(child, 0)
        os.close(ended)
