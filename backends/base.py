"""What a backend is: it turns a per-device program into something that runs on all devices.

The boundary is narrow on purpose: a partitioned module goes in, an executable comes out; arrays
cross it as one NumPy array a device, in row-major order of the module's mesh.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.errors import ShardirError
from shardir.ir import Module

Array = npt.NDArray[Any]
Shards = Sequence[Array]
"""What each device holds of one tensor. Devices that hold the same part may share an array,
and nobody writes into one."""


class UnknownBackendError(ShardirError, ValueError):
    """A backend that does not exist."""


class Executable(ABC):
    """A compiled program."""

    @abstractmethod
    def __call__(self, args: Sequence[Shards]) -> list[list[Array]]:
        """Run on all devices: for each parameter its shards in, for each result its shards out."""


class Backend(ABC):
    """A way to run partitioned modules."""

    name: str

    @abstractmethod
    def compile(self, module: Module) -> Executable:
        """Prepare the first function of a module.

        It is a per-device function, or a function without collectives for one device.
        """


_MODULES = {"cpu": "shardir.backends.cpu"}


def get_backend(name: str) -> Backend:
    """The backend called `name`; raises `UnknownBackendError` naming those that exist."""
    if name not in _MODULES:
        raise UnknownBackendError(
            f"no backend is called {name!r}; the backends are {', '.join(sorted(_MODULES))}"
        )
    backend: Backend = import_module(_MODULES[name]).BACKEND
    return backend


def as_shards(array: npt.ArrayLike, devices: int) -> Shards:
    """The same whole array on every device."""
    return [np.asarray(array)] * devices
