import os
import subprocess

import pytest

import quire


@pytest.fixture
def image(tmp_path):
    """An image on disk, checked by e2fsck when the test has ended."""
    path = tmp_path / "image"
    image = quire.Image.create(path, "32M")
    yield image
    image.close()
    env = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    checked = subprocess.run(["e2fsck", "-fn", path], capture_output=True, text=True, env=env)
    assert checked.returncode == 0, checked.stdout
