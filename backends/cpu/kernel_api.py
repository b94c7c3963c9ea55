"""The interface between the rules of operations and the scheduler: views, kernels, phases.

A kernel is a native function with the signature `void NAME(ptr bases, ptr record, i64 task, i64
worker)`. `bases[slot]` is the address of a buffer in this call, so that one program may run on many
sets of buffers concurrently; `record` holds the constants of a phase. `bases[0]` is scratch memory:
worker w owns the `SCRATCH_BYTES_PER_WORKER` bytes at `bases[0] + w * SCRATCH_BYTES_PER_WORKER`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.ir.types import TensorType

if TYPE_CHECKING:
    from shardir.ir.module import Op

SCRATCH_BYTES_PER_WORKER = 4 << 20
"""Scratch memory of a worker while it runs a task, 64-byte aligned."""
MIN_TASK_NS = 20_000.0
"""Minimum duration of a task in nanoseconds, so that the cost of scheduling it is negligible."""
TASKS_PER_WORKER = 4
"""Tasks of a phase for each worker, so that workers that start late can run fewer of them."""
SIGNAL_CHECK_INTERVAL_NANOSECONDS = 100_000_000.0
"""Nanoseconds after which signals are handled; longer phases are split into rows of this length."""
MIN_ROW_TASKS_PER_WORKER = 8
"""Minimum tasks of a row for each of several workers: at the end of a row they wait for each other,
on average for half a task."""


def choose_task_count(cost: float, workers: int, min_task_ns: float = MIN_TASK_NS) -> int:
    """Return the number of tasks into which work of `cost` nanoseconds should be split.

    Long work has enough tasks for rows of the length of the interval between checks for signals.
    """
    intervals = cost / SIGNAL_CHECK_INTERVAL_NANOSECONDS
    most = max(TASKS_PER_WORKER * workers, int(intervals * MIN_ROW_TASKS_PER_WORKER))
    return max(1, min(int(cost / min_task_ns), most))


def blocks_per_task(blocks: int, cost: float, workers: int) -> int:
    """Return the number of blocks of each task, if all blocks take `cost` nanoseconds."""
    return -(-blocks // max(1, min(blocks, choose_task_count(cost, workers))))


class BufferView(NamedTuple):
    """A strided tensor in memory: `offset` bytes into the buffer of `slot`, `strides` in bytes.

    A stride of 0 repeats elements, a negative one reverses them. `dtype` is the IR's name.
    """

    slot: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return TensorType((), self.dtype).numpy.itemsize

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; repeated elements count each time."""
        return self.size * self.itemsize


class Kernel(NamedTuple):
    """A native function that is compiled on demand.

    `name` is its symbol and identifies its code: kernels with equal names are equal, whichever rule
    returns them. `text` returns the LLVM module that defines it for a machine; `imports` are the
    library symbols that it calls.
    """

    name: str
    text: Callable[[HostDescription], str]
    imports: tuple[str, ...] = ()


class Phase(NamedTuple):
    """`tasks` calls of a kernel, in any order, on any worker, concurrently.

    All tasks of a phase end before the next phase begins. `cost` estimates the nanoseconds that one
    core takes for all of them; `label` is for display. `max_workers` is the number of workers for
    which the phase has memory, 0 for any number: with more workers, the caller runs all tasks.
    """

    kernel: Kernel
    record: tuple[int, ...]
    tasks: int
    cost: float
    label: str = ""
    max_workers: int = 0


class LoweringContext(Protocol):
    """The services that a scheduler offers to the rule of an operation."""

    @property
    def workers(self) -> int:
        """The number of threads that will share the tasks. Results must not depend on it."""

    @property
    def machine(self) -> HostDescription:
        """The machine that kernels are selected for. Results may differ in rounding only."""

    def temporary(self, nbytes: int) -> int:
        """Return the slot of a 64-byte aligned buffer that only the phases of this operation
        use."""


Rule = Callable[
    ["Op", Sequence[BufferView], Sequence[BufferView], LoweringContext], Sequence[Phase] | None
]
"""Maps an operation, the views of its operands, the views of its results and a context to phases.
A rule returns `None` for operands that it does not support; NumPy runs the operation then."""

Order = Callable[["Op", Sequence[BufferView]], Sequence[int]]
"""Maps an operation and the views of its operands to the dimension order of its result, outermost
first."""

Rules = Mapping[str, Rule]


def row_major_strides(type: TensorType, order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the byte strides of a dense tensor with dimensions in `order`, outermost first."""
    strides = [0] * type.rank
    step = type.numpy.itemsize
    for dim in reversed(range(type.rank) if order is None else order):
        strides[dim] = step
        step *= type.shape[dim]
    return tuple(strides)
