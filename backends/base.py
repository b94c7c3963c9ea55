"""What a backend is: it turns a per-device program into something that runs on all devices.

The boundary is narrow on purpose: a partitioned module goes in, an executable comes out; arrays
cross it as one NumPy array a device, in row-major order of the module's mesh.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy.typing as npt

from shardir.backends.storage import Storage as Storage
from shardir.errors import ShardirError
from shardir.ir import Module
from shardir.memory import Memory

Array = npt.NDArray[Any]
Launch = Callable[[list[Any]], list[Any] | None]
Lower = Callable[[str], Module]
"""From a pipeline as text to what it makes of a module; raises `MergeError` where it cannot."""
Shards = Sequence[Array]
"""What each device holds of one tensor. Devices that hold the same part may share an array,
and nobody writes into one."""


class UnknownBackendError(ShardirError, ValueError):
    """A backend that does not exist."""


@dataclass(frozen=True)
class InputCheck:
    """What the processes of a program compare of the host inputs of one call.

    `digest` is the same in all of them if their inputs are. If it is not, every process calls
    `differs`, which raises an error in all of them, or returns in all.
    """

    digest: bytes
    differs: Callable[[], None]


class Executable(ABC):
    """A compiled program."""

    passes: str | None = None
    """The passes between the partitioned module and what runs; `None`: those of its backend."""

    @abstractmethod
    def __call__(self, args: Sequence[Shards]) -> Sequence[Shards]:
        """Run on all devices: for each parameter its shards in, for each result its shards out."""

    def begin(self) -> None:
        """Make sure, before a first run, that all processes of the program have the same."""
        return

    def run_checked(self, args: Sequence[Shards], check: InputCheck) -> Sequence[Shards]:
        """Run as `__call__` does, once all processes of the program are known to agree; nothing
        that depends on the inputs leaves the run before that."""
        return self(args)

    def arranged(self, number: int, shards: Shards) -> Shards:
        """The shards of an argument as this program takes them, for their array to hold from now
        on, so that no other call has to bring them into this form again."""
        return shards

    def donate(self, donated: Sequence[int]) -> None:
        """Let results be written over these arguments, where nobody else holds them."""
        return

    def written_over(self, donated: Sequence[int]) -> Mapping[int, int]:
        """The results written over arguments in `donated` that nobody else holds: their bytes."""
        return {}

    def memory(self) -> Memory | None:
        """The bytes that a run holds for all devices together; `None` where nobody knows."""
        return None

    def describe(self) -> str | None:
        """What runs when, and what lies where, as text; `None` where nobody knows."""
        return None


class WholeExecutable(ABC):
    """A compiled program that takes and gives whole tensors, of all devices together."""

    passes: str | None = None

    @abstractmethod
    def run(self, args: Sequence[Storage], donated: Sequence[int] = ()) -> list[Storage]:
        """Run: for each parameter all of it in, for each result all of it out.

        Both are as long as the devices' pieces are together. A result may be an argument's own
        memory, and may be written over an argument in `donated` that nobody else holds.
        """

    def launcher(
        self,
        kind: type,
        made: Sequence[tuple[object, object]],
        captured: Sequence[Storage],
        donated: Sequence[int] = (),
    ) -> Launch | None:
        """A quicker way to run, from arrays of the class `kind` to such arrays; `None`: no way.

        It takes a list of the arguments but for the last ones, which are `captured`, and gives
        `None` where they are not all arrays that hold storages of the shape that is needed. An
        array is made of its `signature` and `sharding`, those of each result are in `made`.
        Results may be written over arguments in `donated` that nobody else holds.
        """
        return None

    def written_over(self, donated: Sequence[int]) -> Mapping[int, int]:
        """The results written over arguments in `donated` that nobody else holds: their bytes."""
        return {}

    @abstractmethod
    def memory(self) -> Memory:
        """The bytes that a run holds for all devices together, if nothing is donated."""

    @abstractmethod
    def describe(self) -> str:
        """What runs when, and what lies where, as text."""


class Backend(ABC):
    """A way to run partitioned modules."""

    name: str
    pipeline: str = ""
    """The passes that a partitioned module goes through before this backend compiles it."""

    def prepare(self) -> None:
        """Begin with what every program needs, beside the thread that traces the first one."""
        return

    @abstractmethod
    def compile(self, module: Module) -> Executable | WholeExecutable:
        """Prepare the first function of a module that went through `pipeline`.

        It is a per-device function, or a function without collectives for one device.
        """

    def bring(self, module: Module, lowered: Callable[[], Module]) -> Executable | WholeExecutable:
        """`compile` what `lowered` makes of a partitioned module by `pipeline`, or find what is
        left of an earlier time."""
        return self.compile(lowered())


class Link(ABC):
    """How a process reaches the others that run the same program.

    Whoever takes part in a call makes it, in the same order as all other calls; `what` says in
    errors what it is for.
    """

    @abstractmethod
    def who(self, process: int) -> str:
        """What a process is called in errors: its index and its host."""

    @abstractmethod
    def compile(
        self,
        module: Module,
        owners: Sequence[int],
        lower: Lower | None = None,
        *,
        checks_inputs: bool = True,
    ) -> Executable:
        """Prepare the first function of a module; `owners` has the process of each device.

        The executable takes and makes the shards of this process's devices alone. It is machine
        code where the module can be brought to the form that needs, and `lower` is there.
        `checks_inputs`: each run is a `run_checked`.
        """

    @abstractmethod
    def gather(
        self, row: bytes, what: str, processes: tuple[int, ...] | None = None
    ) -> list[bytes]:
        """What each of `processes` (all of them) gave, in their order; this is one of them."""

    @abstractmethod
    def exchange(
        self, rows: Mapping[int, Array], sizes: Mapping[int, int], what: str
    ) -> dict[int, Array]:
        """Send bytes to processes, and receive so many from others."""


_PLACES = {
    "cpu": ("shardir.backends.cpu.native", "BACKEND"),
    "numpy": ("shardir.backends.cpu", "BACKEND"),
    "isolated": ("shardir.backends.cpu", "ISOLATED"),
    "gpu": ("shardir.backends.gpu.backend", "BACKEND"),
}


def get_backend(name: str) -> Backend:
    """The backend called `name`; raises `UnknownBackendError` naming those that exist."""
    if name not in _PLACES:
        raise UnknownBackendError(
            f"no backend is called {name!r}; the backends are {', '.join(sorted(_PLACES))}"
        )
    module, attribute = _PLACES[name]
    backend: Backend = getattr(import_module(module), attribute)
    return backend
