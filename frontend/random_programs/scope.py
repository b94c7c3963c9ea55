"""The scope from which samplers choose operands, and the table of samplers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.random_programs.choices import Choices
from shardir.frontend.random_programs.shardings import axis_parts, merge_axes
from shardir.ir.builder import Builder
from shardir.ir.dtypes import RBG_KEYS, SMALL_DTYPES
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes
from shardir.ir.types import (
    COMPLEX,
    DTYPES as ALL_DTYPES,
    FLOATS as ALL_FLOATS,
    INTEGERS as ALL_INTEGERS,
    UNSIGNED as ALL_UNSIGNED,
    TensorType,
)

# Random programs have no small dtypes: their precision would hide errors. They have keys of one
# implementation, because StableHLO text, GPUs and IPUs have no elements of 128 bits.
DTYPES, FLOATS, INTEGERS, UNSIGNED = (
    tuple(name for name in names if name not in (*SMALL_DTYPES, *RBG_KEYS))
    for names in (ALL_DTYPES, ALL_FLOATS, ALL_INTEGERS, ALL_UNSIGNED)
)
NUMBERS = INTEGERS + FLOATS + COMPLEX
REAL = INTEGERS + FLOATS
ORDERED = ("bool", *REAL)
ARITHMETIC = ("bool", *NUMBERS)
SIZES = (1, 2, 3, 4, 8)
INDEX = TensorType((), "i32")


@dataclass
class Scope:
    """The values from which a sampler chooses operands; it adds parameters where none fits."""

    choices: Choices
    b: Builder
    mesh: Mesh
    params: list[Value] = field(default_factory=list)
    """The parameters of the function; blocks share the list."""
    seen: list[Value] = field(default_factory=list)
    inner: Sequence[str] = ()
    """The operations that blocks may contain besides those that the sampler appends."""
    sizes: Sequence[int] = SIZES
    """The sizes of dimensions."""

    def choose(self, *options: object) -> Any:
        """Return one of the options."""
        return self.choices.choose(options)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return self.choices.integer(low, high)

    def flag(self) -> bool:
        """Return true or false."""
        return self.choices.flag()

    def permutation(self, items: Sequence[object]) -> list[Any]:
        """Return the items in any order."""
        return self.choices.permute(items)

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        """Return a shape of a rank between `low` and `high`."""
        return tuple(self.choose(*self.sizes) for _ in range(self.integer(low, high)))

    def type(self, dtypes: Sequence[str], low: int = 0, high: int = 3) -> TensorType:
        """Return a type with one of these element types, of a rank between `low` and `high`."""
        return TensorType(self.shape(low, high), self.choose(*dtypes))

    def value(self, type: TensorType) -> Value:
        """Return a value of this type, a known or a new one."""
        return self.any(lambda value: value.type == type, lambda: type)

    def tensor(self, dtypes: Sequence[str] = DTYPES, low: int = 0, high: int = 3) -> Value:
        """Return a value with one of these element types, of a rank between `low` and `high`."""
        return self.any(
            lambda value: value.type.dtype in dtypes and low <= value.type.rank <= high,
            lambda: self.type(dtypes, low, high),
        )

    def any(self, fits: Callable[[Value], bool], new: Callable[[], TensorType]) -> Value:
        """Return a known value that fits, or a new parameter of the type `new()`."""
        known = [*self.params, *self.seen]
        if 0 not in self.sizes:
            known = [value for value in known if value.type.size]
        fitting = [value for value in known if fits(value)]
        if fitting and self.integer(0, 3):
            return self.choices.choose(fitting)
        self.params.append(self.b.param(new(), self.choose("", "x", "params.w")))
        return self.params[-1]

    def dims(self, x: Value) -> tuple[int, ...]:
        """Return some of the dimensions of a value, in order."""
        return tuple(d for d in range(x.type.rank) if self.flag())

    def dim(self, x: Value) -> int:
        """Return a dimension of a value."""
        return self.integer(0, x.type.rank - 1)

    def each(self, x: Value, low: int, high: int) -> tuple[int, ...]:
        """Return an integer from `low` to `high` for each dimension."""
        return tuple(self.integer(low, high) for _ in x.type.shape)

    def axes(self) -> Axes:
        """Return one or more axes or sub-axes of the mesh, in any order."""
        ways = [self.choose(*axis_parts(self.mesh, name)) for name, _ in self.mesh.axes]
        atoms = self.permutation([axis for way in ways for axis in way])
        return merge_axes(atoms[: self.integer(1, len(atoms))])

    def emit(self, name: str, *operands: Value, **options: Any) -> Any:
        """Append an operation, and return its results."""
        hint = self.choose("", "", "h", "w.1", "x")
        result = self.b.emit(OPS[name], *operands, name=hint, **options)
        self.seen += result if isinstance(result, tuple) else [result]
        return result

    def block(
        self, params: Sequence[TensorType], body: Callable[["Scope", list[Value]], Sequence[Value]]
    ) -> Block:
        """Return a block; `body` appends its operations and returns its results."""
        b = self.b.inner()
        values = [b.param(type, self.choose("", "c")) for type in params]
        scope = Scope(
            self.choices, b, self.mesh, self.params, [*self.seen, *values], self.inner, self.sizes
        )
        returns = body(scope, values)
        return b.block(values, returns)

    def some(self) -> None:
        """Append up to two operations without blocks."""
        for _ in range(self.integer(0, 2)):
            simple = [name for name in self.inner if not OPS[name].blocks]
            SAMPLERS[self.choose(*simple)](self)


Sampler = Callable[[Scope], Any]
SAMPLERS: dict[str, Sampler] = {}


SPECIAL_OPERATIONS = (
    ops.manual_computation,
    ops.opaque,
    ops.call,
    ops.callback,
    ops.pure_callback,
    ops.inspect_sharding,
    ops.checkpoint,
    ops.checkpoint_name,
    ops.custom_jvp,
    ops.custom_partitioning,
    ops.custom_vjp,
    ops.fused,
    ops.fused_products,
    ops.pipeline,
    ops.pipeline_call,
    ops.pipeline_stage,
    ops.staged_pipeline,
)
"""Operations that random programs contain on request only: they depend on devices, have no defined
meaning, call Python, or are removed before a program is partitioned."""


def runnable_operations(*, spmd: bool) -> list[str]:
    """Return the operations for per-device programs, or those for all programs, that can run."""
    known = [name for name in SAMPLERS if name in OPS and OPS[name] not in SPECIAL_OPERATIONS]
    return [name for name in known if OPS[name].spmd is spmd]


@with_argument_errors
def sampler(*names: str) -> Callable[[Callable[[Scope, str], Any]], Callable[[Scope, str], Any]]:
    """Return a decorator that registers a function of (scope, name) as the sampler of these
    operations."""

    def register(function: Callable[[Scope, str], PyTree]) -> Callable[[Scope, str], PyTree]:
        def for_name(name: str) -> Sampler:
            return lambda s: function(s, name)

        SAMPLERS.update({name: for_name(name) for name in names})
        return function

    return register
