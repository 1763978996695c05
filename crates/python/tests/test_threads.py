"""Several threads on one image: batches, closes, appends."""

import os
import subprocess
import sys
import threading

import pytest

BESIDE_A_BATCH = """
import gc, threading, time
import quire

image = quire.Image.create(None, "16M")
image.write_bytes("/f", b"old")
file = image.open("/f", "rb", buffering=0)
begun = threading.Event()

def other():
    with image.batch():
        begun.set()
        time.sleep(0.5)
        image.write_bytes("/g", b"new")

class Cycle:
    pass

thread = threading.Thread(target=other)
thread.start()
begun.wait()
{}
thread.join()
print("done")
"""


@pytest.mark.parametrize(
    "end",
    [
        "file.close()",
        "del file",
        "c = Cycle(); c.file = file; c.c = c; del c, file; gc.collect()",
        "file._raw.close()",
        "raw = file._raw; file._raw = None; del raw",
        "del image; file.close()",
        "image.close()",
    ],
)
def test_the_end_of_a_file_beside_a_batch_of_another_thread_lets_that_thread_go_on(end):
    script = BESIDE_A_BATCH.format(end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, env=os.environ)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_appends_of_several_handles_do_not_overwrite_each_other(image):
    image.write_bytes("/log", b"")

    def append(thread):
        with image.open("/log", "a", buffering=1) as log:
            for n in range(200):
                log.write(f"{thread} {n}\n")

    threads = [threading.Thread(target=append, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(image.read_text("/log").splitlines()) == sorted(f"{t} {n}" for t in range(8) for n in range(200))


def test_the_position_after_an_append_is_the_end_of_its_bytes(image):
    image.write_bytes("/log", b"0123")
    with image.open("/log", "a+b", buffering=0) as first, image.open("/log", "ab", buffering=0) as second:
        first.write(b"first")
        second.write(b"second")
        assert (first.tell(), second.tell()) == (9, 15)
        assert first.write(b"") == 0
        first.seek(0)
        assert first.read() == b"0123firstsecond"
