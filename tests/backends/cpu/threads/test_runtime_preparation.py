"""Other threads prepare the runtime, and on a machine without cached code the kernel of most matrix
products, during the first device_put or the first trace."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import threading
import numpy as np
import shardir as sd
from shardir.backends.cpu import backend
from shardir.backends.cpu.threads import workers
thread_names = []
make = workers.WorkerPool.__init__
def record_thread(self, *args):
    thread_names.append(threading.current_thread().name)
    make(self, *args)
workers.WorkerPool.__init__ = record_thread
{before}
def f():
    for thread in threading.enumerate():
        if thread.name == "shardir-prepare":
            thread.join()
    return sd.numpy.arange(3.0) + 1
print(sd.jit(f)(), sd.jit(lambda: sd.numpy.arange(3.0) - 1)(), thread_names)
"""
REFUSE_THREADS = """
def refuse_start(self):
    raise RuntimeError("can't start new thread")
backend.Thread = type("RefusingThread", (threading.Thread,), {"start": refuse_start})
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


def test_the_runtime_is_prepared_during_the_first_trace() -> None:
    assert run("") == "[1. 2. 3.] [-1.  0.  1.] ['shardir-prepare']\n"


def test_without_threads_the_runtime_is_prepared_at_the_first_call() -> None:
    assert run(REFUSE_THREADS) == "[1. 2. 3.] [-1.  0.  1.] ['MainThread']\n"


PLACE_ARRAYS = """
import sys, threading
import numpy as np
import shardir as sd
started = []
start = threading.Thread.start
def record_start(self):
    started.append(self)
    start(self)
threading.Thread.start = record_start
def join_preparation():
    found = [thread for thread in started if thread.name == "shardir-prepare"]
    for thread in found:
        thread.join()
        started.remove(thread)
    return bool(found)
print(join_preparation())
sd.device_put(np.arange(3.0))
print(join_preparation(), "shardir.backends.cpu.schedule.build" in sys.modules)
sd.device_put(np.arange(3000.0))
print(join_preparation())
"""


def test_the_first_device_put_prepares_the_runtime(tmp_path: Path) -> None:
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PLACE_ARRAYS],
            env={**os.environ, "SHARDIR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout.split())
    assert outputs[0] == ["False", "True", "True", "False"]
    # The disk cache has everything except the code that builds schedules of new programs.
    assert outputs[1][2:] == ["False", "False"]


PREPARE_WITH_TWO_CORES = """
import threading
import numpy as np
import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.codegen import kernel_table
kernel_table.allowed_worker_count = lambda: 2
x = sd.device_put(np.ones((640, 640), np.float32))
for thread in threading.enumerate():
    if thread.name == "shardir-prepare":
        thread.join()
prepared = list(kernel_table._kernel_addresses)
y = jnp.matmul(x, x).block_until_ready()
print(len(prepared), len(kernel_table._kernel_addresses), np.asarray(y)[0, 0])
"""


def prepare(folder: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PREPARE_WITH_TWO_CORES],
        env={**os.environ, "SHARDIR_CACHE_DIR": folder},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_first_process_of_a_machine_compiles_the_kernel_of_products(tmp_path: Path) -> None:
    """The product needs no other kernel. Later processes find it on disk."""
    assert prepare(str(tmp_path)) == "1 1 640.0\n"
    assert prepare(str(tmp_path)) == "0 1 640.0\n"


def test_without_a_disk_cache_only_programs_compile_kernels() -> None:
    """Every process would compile the kernel of products again."""
    assert prepare("") == "0 1 640.0\n"
