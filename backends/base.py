"""The interface of backends: a backend compiles a per-device program and runs it on all devices.

The interface is narrow: a backend takes a partitioned module and returns an executable; arrays are
passed as one NumPy array per device, in row-major order of the module's mesh.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardir.backends.storage import Storage as Storage
from shardir.errors import ShardirError
from shardir.ir.module import Module
from shardir.ir.types import NumpyArray
from shardir.plugins.registry import Registry

if TYPE_CHECKING:
    from shardir.cost.memory import MemoryEstimate

Array = NumpyArray
Launch = Callable[[list[Any]], list[Any] | None]
Lower = Callable[[str], Module]
"""Returns the module that a pipeline, given as text, makes; raises `MergeError` if it cannot."""
Shards = Sequence[Array]
"""The shards of one tensor, one per device. Devices that hold the same part may share an array; the
arrays must not be written to."""


class UnknownBackendError(ShardirError, ValueError):
    """No backend has the given name."""


@dataclass(frozen=True)
class InputCheck:
    """The digest of the host inputs of one call, which the processes of a program compare.

    `digest` is equal in all processes if their inputs are. If it is not, every process calls
    `report_mismatch`, which either raises an error in all of them or returns in all of them.
    """

    digest: bytes
    report_mismatch: Callable[[], None]


class Executable(ABC):
    """A compiled program."""

    passes: str | None = None
    """The passes between the partitioned module and the executed one; None means those of the
    backend."""

    @abstractmethod
    def __call__(self, args: Sequence[Shards]) -> Sequence[Shards]:
        """Run on all devices; take the shards of each parameter and return the shards of each
        result."""

    def begin(self) -> None:
        """Check, before the first run, that all processes of the program have the same program."""
        return

    def run_checked(self, args: Sequence[Shards], check: InputCheck) -> Sequence[Shards]:
        """Run like `__call__` after all processes of the program agree on their inputs; nothing
        that depends on the inputs leaves the run before that."""
        return self(args)

    def arrange_argument(self, number: int, shards: Shards) -> Shards:
        """Return the shards of an argument in the layout of this program.

        The array of the argument keeps them, so that later calls need not convert the layout again.
        """
        return shards

    def donate(self, donated: Sequence[int]) -> None:
        """Allow results to overwrite these arguments if no other reference to them exists."""
        return

    def overwritten_results(self, donated: Sequence[int]) -> Mapping[int, int]:
        """Return the results that overwrite unshared arguments in `donated`, with their sizes in
        bytes."""
        return {}

    def memory(self) -> "MemoryEstimate | None":
        """Return the bytes that a run holds for all devices together, or None if they are
        unknown."""
        return None

    def describe(self) -> str | None:
        """Return the schedule and the memory layout as text, or None if they are unknown."""
        return None


class UnshardedExecutable(ABC):
    """A compiled program that takes and returns unsharded tensors, stored for all devices
    together."""

    passes: str | None = None

    @abstractmethod
    def run(self, args: Sequence[Storage], donated: Sequence[int] = ()) -> list[Storage]:
        """Run; take the storage of each parameter and return the storage of each result.

        A storage has the size of all shards together. A result may be an argument's own memory, and
        may overwrite an unshared argument in `donated`.
        """

    def launcher(
        self,
        kind: type,
        made: Sequence[tuple[object, object]],
        captured: Sequence[Storage],
        donated: Sequence[int] = (),
    ) -> Launch | None:
        """Return a faster way to run, from arrays of the class `kind` to such arrays; None if there
        is none.

        It takes a list of the arguments without the last ones, which are `captured`, and returns
        None if they are not all arrays with storages of the required shape. An array is constructed
        from its `signature` and `sharding`; `made` has those of each result. Results may overwrite
        unshared arguments in `donated`.
        """
        return None

    def overwritten_results(self, donated: Sequence[int]) -> Mapping[int, int]:
        """Return the results that overwrite unshared arguments in `donated`, with their sizes in
        bytes."""
        return {}

    @abstractmethod
    def memory(self) -> "MemoryEstimate":
        """Return the bytes that a run holds for all devices together without donation."""

    @abstractmethod
    def describe(self) -> str:
        """Return the schedule and the memory layout as text."""


class Backend(ABC):
    """A compiler and runtime for partitioned modules."""

    name: str
    """The name by which programs select the backend."""
    pipeline: str = ""
    """The passes that a partitioned module goes through before this backend compiles it."""

    def prepare(self) -> None:
        """Start initialization that every program needs, concurrently with the trace of the first
        one."""
        return

    @abstractmethod
    def compile(self, module: Module) -> Executable | UnshardedExecutable:
        """Compile the first function of a module that went through `pipeline`.

        It is a per-device function, or a function without collectives for one device.
        """

    def load_or_compile(
        self, module: Module, lowered: Callable[[], Module]
    ) -> Executable | UnshardedExecutable:
        """Return the cached executable of a partitioned module, or `compile` the module that
        `lowered` returns."""
        return self.compile(lowered())


class PendingMessage(ABC):
    """A message between two processes that has been started."""

    received: Array
    """The bytes of a received message, once it has finished; empty for a sent one."""

    @abstractmethod
    def has_finished(self) -> bool:
        """Return whether the message has been sent or received."""


class ProcessLink(ABC):
    """The communication of a process with the others that run the same program.

    All processes that take part in a call must call it in the same order; `what` describes the call
    in errors.
    """

    @abstractmethod
    def process_name(self, process: int) -> str:
        """Return the name of a process in errors: its index and its host."""

    @abstractmethod
    def compile(
        self,
        module: Module,
        owners: Sequence[int],
        lower: Lower | None = None,
        *,
        checks_inputs: bool = True,
    ) -> Executable:
        """Compile the first function of a module; `owners` has the process of each device.

        The executable takes and returns the shards of this process's devices only. It is machine
        code if `lower` is given and the module can be lowered to the required form.
        `checks_inputs`: each run is a `run_checked`.
        """

    @abstractmethod
    def gather(
        self, row: bytes, what: str, processes: tuple[int, ...] | None = None
    ) -> list[bytes]:
        """Return the row of each of `processes` (default: all), in their order; this is one of
        them."""

    @abstractmethod
    def start_send(self, row: Array, target: int, tag: int, what: str) -> PendingMessage:
        """Start to send bytes to a process, which receives them with the same tag.

        The array must not be written to until the message has finished.
        """

    @abstractmethod
    def start_receive(self, size: int, source: int, tag: int, what: str) -> PendingMessage:
        """Start to receive a number of bytes from a process."""

    @abstractmethod
    def wait_for_any(self, messages: Sequence[PendingMessage]) -> None:
        """Return when one of the messages has finished; end the job if none can finish."""

    @abstractmethod
    def exchange(
        self, rows: Mapping[int, Array], sizes: Mapping[int, int], what: str
    ) -> dict[int, Array]:
        """Send bytes to processes, and receive arrays of the given sizes from others."""


BACKENDS: Registry[Backend] = Registry(
    "backend",
    "shardir.backends",
    expected="an instance of a subclass of shardir.backends.base.Backend",
    accepts=lambda entry: isinstance(entry, Backend),
    name_of=lambda backend: backend.name,
    own={
        "cpu": ("shardir.backends.cpu", "BACKEND"),
        "numpy": ("shardir.backends.numpy", "BACKEND"),
        "isolated": ("shardir.backends.numpy", "ISOLATED"),
        "gpu": ("shardir.backends.gpu.backend", "BACKEND"),
        "pjrt": ("shardir.backends.pjrt.backend", "BACKEND"),
    },
)
"""The backends by name. Installed packages and loaded files add theirs (`shardir.plugins`)."""


def get_backend(name: str) -> Backend:
    """Return the backend called `name`; raise `UnknownBackendError` if there is none."""
    return BACKENDS.lookup(name, UnknownBackendError)


def register_backend(backend: Backend) -> Backend:
    """Add a backend under its name; raise `PluginError` if the name is taken."""
    BACKENDS.register_object(backend)
    return backend
