"""Programs on the CPU.

Here: all devices of a mesh in one process, device by device, NumPy kernels on threads. `native` is
the backend that compiles machine code.
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
    """Runs a per-device program for all devices on the threads of this process."""

    name = "numpy"

    def __init__(self, isolated: bool = False) -> None:
        """`isolated`: every device has its own copy of all it holds, and computes all of it."""
        self._isolated = isolated

    def compile(self, module: Module) -> Executable:
        return Program(module, isolated=self._isolated)


BACKEND = NumPyBackend()
ISOLATED = NumPyBackend(isolated=True)
