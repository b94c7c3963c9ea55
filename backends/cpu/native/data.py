"""What a native program is made of: views of memory, kernels, and phases of tasks.

A kernel is machine code of one signature, `void NAME(ptr bases, ptr record, i64 task, i64 worker)`.
`bases[slot]` is the address of a buffer in this call, so that one program may run on many buffers
at once; `record` holds the constants of a phase. `bases[0]` is scratch memory: worker w owns the
`SCRATCH_BYTES` at `bases[0] + w * SCRATCH_BYTES`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol

from shardir.backends.cpu.native.llvm.target import Machine
from shardir.types import TensorType

if TYPE_CHECKING:
    from shardir.ir import Op

SCRATCH_BYTES = 4 << 20
"""The memory a worker has for itself while it runs a task, 64-byte aligned."""


class View(NamedTuple):
    """Where a tensor lies: `offset` bytes into the buffer of `slot`, `strides` in bytes.

    A stride of 0 repeats, a negative one goes backwards. `dtype` is the IR's name of the elements.
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
        """How many elements it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, repeated ones counted as often as they are seen."""
        return self.size * self.itemsize


class Kernel(NamedTuple):
    """Machine code that is made when it is needed.

    `name` is its symbol and says what it does to the last instruction: kernels of one name are
    the same, whoever makes them. `text` gives the LLVM module that defines it; `imports` are the
    symbols of libraries that it calls.
    """

    name: str
    text: Callable[[], str]
    imports: tuple[str, ...] = ()


class Phase(NamedTuple):
    """`tasks` calls of a kernel, in any order, by any worker, at the same time.

    All tasks of a phase are done before the next phase begins. `cost` estimates the nanoseconds
    that one core takes for all of them; `label` is for people.
    """

    kernel: Kernel
    record: tuple[int, ...]
    tasks: int
    cost: float
    label: str = ""


class Context(Protocol):
    """What a rule may ask of the program that it lowers an operation for."""

    @property
    def workers(self) -> int:
        """How many threads will share the tasks. Results must not depend on it."""

    @property
    def machine(self) -> Machine:
        """The machine that kernels are selected for. Results may differ in rounding alone."""

    def temporary(self, nbytes: int) -> int:
        """The slot of a buffer that only the phases of this operation see, 64-byte aligned."""


Rule = Callable[["Op", Sequence[View], Sequence[View], Context], Sequence[Phase] | None]
"""(operation, views of its operands, views of its results, context) -> its phases, or `None` where
it has none for these, and NumPy does it instead."""

Order = Callable[["Op", Sequence[View]], Sequence[int]]
"""(operation, views of its operands) -> the dimensions of its result, outermost in memory first."""

Rules = Mapping[str, Rule]


def packed(type: TensorType, order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Byte strides of a dense tensor whose dimensions lie in `order`, outermost first."""
    strides = [0] * type.rank
    step = type.numpy.itemsize
    for dim in reversed(range(type.rank) if order is None else order):
        strides[dim] = step
        step *= type.shape[dim]
    return tuple(strides)
