"""The runtime is made on another thread while the first array is placed or function traced."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import threading
import numpy as np
import shardir as sd
from shardir.backends import cpu
from shardir.backends.cpu.threads import workers
who = []
make = workers.WorkerPool.__init__
def noted(self, *args):
    who.append(threading.current_thread().name)
    make(self, *args)
workers.WorkerPool.__init__ = noted
{before}
x = sd.device_put(np.arange(3.0))
print(who)
def f(x):
    for thread in threading.enumerate():
        if thread.name == "shardir-prepare":
            thread.join()
    return x + 1
print(sd.jit(f)(x), sd.jit(lambda x: x - 1)(x), who)
"""
REFUSE = """
def refused(self):
    raise RuntimeError("can't start new thread")
cpu.Thread = type("Refused", (threading.Thread,), {"start": refused})
"""


def run(before: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{before}", before)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_runtime_is_made_while_the_first_function_is_traced() -> None:
    assert run("") == "[]\n[1. 2. 3.] [-1.  0.  1.] ['shardir-prepare']\n"


def test_it_is_made_later_where_no_thread_can_be_had() -> None:
    assert run(REFUSE) == "[]\n[1. 2. 3.] [-1.  0.  1.] ['MainThread']\n"


PLACED = """
import sys, threading
import numpy as np
import shardir as sd
started = []
start = threading.Thread.start
def starting(self):
    started.append(self)
    start(self)
threading.Thread.start = starting
def joined():
    found = [thread for thread in started if thread.name == "shardir-prepare"]
    for thread in found:
        thread.join()
        started.remove(thread)
    return bool(found)
sd.device_put(np.arange(3.0))
print(joined())
sd.device_put(np.arange(3000.0))
print(joined(), "shardir.backends.cpu.schedule.build" in sys.modules)
sd.device_put(np.arange(3000.0))
print(joined())
"""


def test_what_is_needed_comes_while_the_first_array_is_placed(tmp_path: Path) -> None:
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PLACED],
            env={**os.environ, "SHARDIR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        told.append(done.stdout.split())
    assert told[0] == ["False", "True", "True", "False"]
    # On disk is all but what makes schedules of programs that are new.
    assert told[1][2:] == ["False", "False"]
