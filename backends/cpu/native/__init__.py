"""The native CPU backend: programs as machine code, one native call a step.

It takes one program over whole arrays, as `merge-devices` makes it of the program of each device.
"""

from importlib.util import find_spec

from shardir.backends.base import Backend, WholeExecutable
from shardir.ir import Module


class NativeBackend(Backend):
    """Compiles a program over whole arrays, for the threads of this process."""

    name = "cpu"
    pipeline = "merge-devices,cse,dce"

    def compile(self, module: Module) -> WholeExecutable:
        from shardir.backends.cpu.native.program import NativeProgram

        return NativeProgram(module)


BACKEND = NativeBackend()


def available() -> bool:
    """Whether there is what compiles machine code: llvmlite, which has no wheel everywhere."""
    return find_spec("llvmlite") is not None
