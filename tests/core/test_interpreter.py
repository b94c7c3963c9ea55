"""Import in a subinterpreter is an error, because extension modules would block later."""

import subprocess
import sys

import pytest

INSIDE = """
import sys
sys.path[:0] = {path!r}
try:
    import shardir.numpy
except ImportError as error:
    print(type(error).__name__, error, flush=True)
"""
PROGRAM = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
run(interpreters.create(), sys.argv[1].format(path=sys.path))
import shardir
print(shardir.__name__)
"""


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="only CPython has subinterpreters")
def test_import_in_a_subinterpreter_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, INSIDE],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == (
        "SubinterpreterError shardir can be imported only in the main interpreter of a process, "
        "because NumPy does not support subinterpreters; use threads, or processes "
        "(concurrent.futures.ProcessPoolExecutor)\nshardir\n"
    ), done.stderr
