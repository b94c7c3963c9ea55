"""What runs a program: this process alone, or several processes together."""

import os
from collections.abc import Sequence

from shardir.backends.base import Backend, Executable, WholeExecutable, get_backend
from shardir.backends.cpu.native import available
from shardir.errors import MergeError
from shardir.frontend.devices import Device
from shardir.frontend.processes import here
from shardir.ir import Module
from shardir.passes.pipeline import Pipeline


def executable(module: Module, devices: Sequence[Device]) -> Executable | WholeExecutable:
    """A partitioned module, ready to run on `devices`, which may be of several processes."""
    there = here()
    owners = tuple(there.owner(device.id) for device in devices)
    if there.link is None or all(owner == there.index for owner in owners):
        return _alone(module, devices[0].platform)
    return there.link.compile(module, owners)


def _alone(module: Module, platform: str) -> Executable | WholeExecutable:
    """The program for this process: device by device where there is no other way."""
    if available() and os.environ.get("SHARDIR_NATIVE"):
        backend: Backend = get_backend(platform)
        try:
            return backend.compile(Pipeline.parse(backend.pipeline)(module))
        except MergeError:
            pass
    return get_backend("numpy").compile(module)
