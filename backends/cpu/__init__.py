"""The NumPy backend: one process runs the program of every device of a mesh in lock step.

Input: a partitioned module (`shardir.ir.Module`). Output: an `Executable` that maps the shards of
the arguments to the shards of the results. Each operation is one NumPy call, on a thread pool where
it is large. Start reading in `executor.py`; `kernels.py` holds the table of operations that have a
faster implementation than their reference semantics. `backends.cpu` compiles machine code instead.
"""

from shardir.backends.base import Backend, Executable
from shardir.backends.cpu import (
    contraction as contraction,
    decomposing as decomposing,
    lapack as lapack,
    ordering as ordering,
    transforms as transforms,
)
from shardir.backends.cpu.executor import Program
from shardir.ir import Module


class NumPyBackend(Backend):
    """Run a per-device program for all devices on the threads of this process."""

    name = "numpy"

    def __init__(self, isolated: bool = False) -> None:
        """Create the backend; `isolated` devices share no arrays, and each computes all of its
        work."""
        self._isolated = isolated

    def compile(self, module: Module) -> Executable:
        return Program(module, isolated=self._isolated)


BACKEND = NumPyBackend()
ISOLATED = NumPyBackend(isolated=True)
