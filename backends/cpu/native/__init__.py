"""The native CPU backend: programs as machine code, one native call a step.

It takes one program over whole arrays, as `merge-devices` makes it of the program of each device.
"""

from shardir.backends.base import Backend, WholeExecutable
from shardir.backends.cpu.native.availability import available as available
from shardir.backends.cpu.native.pipeline import WHOLE
from shardir.ir import Module


class NativeBackend(Backend):
    """Compiles a program over whole arrays, for the threads of this process."""

    name = "cpu"
    pipeline = f"{WHOLE},fuse"

    def compile(self, module: Module) -> WholeExecutable:
        from shardir.backends.cpu.native.program import NativeProgram

        return NativeProgram(module)


BACKEND = NativeBackend()
