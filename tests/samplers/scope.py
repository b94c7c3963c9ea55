"""The scope from which samplers draw, and the table of samplers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from shardir import ops as ops  # declares the operations
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes
from shardir.ir.types import COMPLEX, DTYPES, FLOATS, INTEGERS, TensorType
from tests.programs.shardings import merge_axes, parts

NUMBERS = INTEGERS + FLOATS + COMPLEX
REAL = INTEGERS + FLOATS
ORDERED = ("bool", *REAL)
ARITHMETIC = ("bool", *NUMBERS)
SIZES = (1, 2, 3, 4, 8)
INDEX = TensorType((), "i32")


@dataclass
class Scope:
    """The values defined so far, and parameters added when no value fits."""

    draw: st.DrawFn
    b: Builder
    mesh: Mesh
    params: list[Value] = field(default_factory=list)
    """The parameters of the function; blocks share the list."""
    seen: list[Value] = field(default_factory=list)
    inner: Sequence[str] = ()
    """The operations that blocks may have, besides what the sampler puts there."""
    sizes: Sequence[int] = SIZES

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.sampled_from(self.sizes), min_size=low, max_size=high)))

    def type(self, dtypes: Sequence[str], low: int = 0, high: int = 3) -> TensorType:
        return TensorType(self.shape(low, high), self.draw(st.sampled_from(dtypes)))

    def value(self, type: TensorType) -> Value:
        """Draw a value of this type, defined or new."""
        return self.any(lambda value: value.type == type, lambda: type)

    def tensor(self, dtypes: Sequence[str] = DTYPES, low: int = 0, high: int = 3) -> Value:
        """Draw a value with one of these dtypes, of a rank between `low` and `high`."""
        return self.any(
            lambda value: value.type.dtype in dtypes and low <= value.type.rank <= high,
            lambda: self.type(dtypes, low, high),
        )

    def any(self, fits: Callable[[Value], bool], new: Callable[[], TensorType]) -> Value:
        known = [*self.params, *self.seen]
        if 0 not in self.sizes:
            known = [value for value in known if value.type.size]
        fitting = [value for value in known if fits(value)]
        if fitting and self.integer(0, 3):
            return self.draw(st.sampled_from(fitting))
        self.params.append(self.b.param(new(), self.choose("", "x", "params.w")))
        return self.params[-1]

    def dims(self, x: Value) -> tuple[int, ...]:
        """Draw some of the dimensions of a value, ascending."""
        return tuple(d for d in range(x.type.rank) if self.flag())

    def dim(self, x: Value) -> int:
        return self.integer(0, x.type.rank - 1)

    def each(self, x: Value, low: int, high: int) -> tuple[int, ...]:
        """Draw an integer for each dimension."""
        return tuple(self.integer(low, high) for _ in x.type.shape)

    def axes(self) -> Axes:
        """Draw some axes of the mesh or sub-axes, at least one, in some order."""
        ways = [self.draw(st.sampled_from(parts(self.mesh, name))) for name, _ in self.mesh.axes]
        atoms = self.draw(st.permutations([axis for way in ways for axis in way]))
        return merge_axes(atoms[: self.integer(1, len(atoms))])

    def emit(self, name: str, *operands: Value, **options: Any) -> Any:
        wish = self.choose("", "", "h", "w.1", "x")
        made = self.b.emit(OPS[name], *operands, name=wish, **options)
        self.seen += made if isinstance(made, tuple) else [made]
        return made

    def block(
        self, params: Sequence[TensorType], body: Callable[["Scope", list[Value]], Sequence[Value]]
    ) -> Block:
        """Return a block; `body` adds its operations and returns its results."""
        b = self.b.inner()
        values = [b.param(type, self.choose("", "c")) for type in params]
        scope = Scope(
            self.draw, b, self.mesh, self.params, [*self.seen, *values], self.inner, self.sizes
        )
        returns = body(scope, values)
        return b.block(values, returns)

    def some(self) -> None:
        """Add a few operations; deeply nested blocks get no operations with blocks."""
        for _ in range(self.integer(0, 2)):
            simple = [name for name in self.inner if not OPS[name].blocks]
            SAMPLERS[self.draw(st.sampled_from(simple))](self)


Sampler = Callable[[Scope], Any]
SAMPLERS: dict[str, Sampler] = {}


APART = (
    "manual_computation",
    "opaque",
    "callback",
    "pure-callback",
    "inspect-sharding",
    "checkpoint",
    "checkpoint-name",
    "custom-jvp",
    "custom-vjp",
    "fused",
)
"""Operations that random programs do without unless they ask: they take devices, have no meaning
here, call Python, or are gone before a program is partitioned."""


def executable_ops(*, spmd: bool) -> list[str]:
    """Return the executable operations of per-device programs, or of all programs."""
    known = [name for name in SAMPLERS if name in OPS and name not in APART]
    return [name for name in known if OPS[name].spmd is spmd]


def sampler(*names: str) -> Callable[[Callable[[Scope, str], Any]], Callable[[Scope, str], Any]]:
    """Register a function of (scope, name) as the sampler of these operations."""

    def register(function: Callable[[Scope, str], Any]) -> Callable[[Scope, str], Any]:
        def of(name: str) -> Sampler:
            return lambda s: function(s, name)

        SAMPLERS.update({name: of(name) for name in names})
        return function

    return register
