"""The NumPy backend: one process runs the program of every device of a mesh in lock step.

Input: a partitioned module (`shardir.ir.module.Module`). Output: an `Executable` that maps the
shards of the arguments to the shards of the results. Each operation is one NumPy call, on a thread
pool where it is large. Start reading in `executor.py`; `kernel_table.py` has the table of
operations that have a faster implementation than their reference semantics. The backend `cpu`
compiles programs instead.
"""

from shardir.backends.base import Backend, Executable
from shardir.backends.numpy import (
    contraction_kernels as contraction_kernels,
    decomposition_kernels as decomposition_kernels,
    fft_kernels as fft_kernels,
    lapack_kernels as lapack_kernels,
    sort_kernels as sort_kernels,
)
from shardir.backends.numpy.executor import NumPyExecutable
from shardir.ir.module import Module


class NumPyBackend(Backend):
    """Run a per-device program for all devices on the threads of this process."""

    name = "numpy"

    def __init__(self, isolated: bool = False) -> None:
        """Create the backend; `isolated` devices share no arrays, and each computes all of its
        work."""
        self._isolated = isolated

    def compile(self, module: Module) -> Executable:
        return NumPyExecutable(module, isolated=self._isolated)


BACKEND = NumPyBackend()
ISOLATED = NumPyBackend(isolated=True)
