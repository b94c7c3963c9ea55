"""The CPU backend: all devices of a mesh in one process, NumPy kernels on threads."""

from shardir.backends.base import Backend, Executable
from shardir.backends.cpu import contraction as contraction
from shardir.backends.cpu.executor import Program
from shardir.ir import Module


class CpuBackend(Backend):
    """Runs a per-device program for all devices on the threads of this process."""

    name = "cpu"

    def compile(self, module: Module) -> Executable:
        return Program(module)


BACKEND = CpuBackend()
