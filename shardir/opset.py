"""Operations and the tables of rules about them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from shardir.errors import NoRule
from shardir.factors import FactorRule
from shardir.types import TensorType

if TYPE_CHECKING:
    from shardir.batching import Rule as BatchRule
    from shardir.ir import Edge, Op
    from shardir.partitioning import Partitioning
    from shardir.tangents import Rule as TangentRule
    from shardir.vma import Rule as VmaRule

Rule = TypeVar("Rule")


class Symbol(str):
    """A bare word in the text, such as an element type or a reduction."""

    __slots__ = ()


class Dense:
    """An array as an attribute: frozen, compared and hashed by its bytes, shape and type."""

    __slots__ = ("_hash", "array")

    def __init__(self, array: npt.ArrayLike) -> None:
        frozen = np.array(array, order="C")
        frozen.setflags(write=False)
        self.array: npt.NDArray[Any] = frozen
        self._hash = hash((frozen.shape, frozen.dtype.str, frozen.tobytes()))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Dense)
            and self.array.dtype == other.array.dtype
            and self.array.shape == other.array.shape
            and self.array.tobytes() == other.array.tobytes()
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Dense({self.array!r})"


Attr = Any  # bool | int | float | complex | str | Symbol | Axis | Dense | tuple[Attr, ...]
Result = Any  # TensorType of the only result, or a tuple of them


@dataclass(frozen=True, slots=True, eq=False)
class OpSpec:
    """Everything the compiler knows about an operation that no target owns.

    One calling convention for all rules: operands by position, attributes by name, and `result`,
    the type stated for the result (`None` while building; a tuple for several results).
    No attribute repeats a shape that the result type states, so that the same attributes serve a
    program over global shapes and the program over local shapes that it is partitioned into.
    """

    name: str
    type: Callable[..., Result]
    """(operand types..., result, attributes; blocks if it has any) -> result type or types.
    Raises `TypeError` with a sentence that starts after the operation's name."""
    factors: Callable[..., FactorRule] | None = None
    """(operand types..., result, attributes) -> the loops; `None`: cannot be cut."""
    reference: Callable[..., Any] | None = None
    """(arrays..., result, attributes) -> array or tuple of arrays; what the operation means."""
    exchange: Callable[..., Any] | None = None
    """(mesh, parts, result, attributes) -> one array (or tuple) a device, for operations of
    per-device programs that depend on the device or on other devices. `parts` holds, for every
    device in row-major order of the mesh, the tuple of its operands. Devices that end with the
    same value are given the same array."""
    vjp: Callable[..., Any] | None = None
    """(builder, cotangent, operands..., results..., attributes) -> cotangents of the operands,
    `None` where there is none. Several results: a tuple of cotangents, `None` where unused."""
    jvp: "TangentRule | None" = None
    """How its results move when its operands do, where that is simpler than what follows from the
    vjp. See `shardir.tangents`."""
    batch: "BatchRule | None" = None
    """How it gets one more dimension in front; elementwise operations need none. See
    `shardir.batching`."""
    partition: "Partitioning | None" = None
    """What the default derivation from the factors cannot do; see `shardir.partitioning`."""
    linear: tuple[tuple[int, ...], ...] | Callable[..., tuple[tuple[int, ...], ...]] | None = None
    """Groups of operands in which it is linear together, or (attributes) -> them, where its jvp
    does not say so; see `shardir.linearity`."""
    vma: "VmaRule | None" = None
    """Along which manual axes its operands have to vary and its results do; `None`: all along the
    same. See `shardir.vma`."""
    edges: Callable[["Op"], tuple["Edge", ...]] | None = None
    """How values flow into and out of its blocks (operations with blocks only)."""
    elementwise: bool = False
    """Whether each element of the result depends on the same element of the operands only."""
    collective: bool = False
    """Whether the devices of a mesh must execute it together."""
    spmd: bool = False
    """Whether it makes sense only in a per-device program."""
    effect: bool = False
    """Whether it is there for more than its results: kept, once, although nobody uses them."""
    blocks: int = 0
    """How many blocks it has; -1: any number, at least one."""

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, OpSpec] = {}


def define(name: str, **rules: Any) -> OpSpec:
    """Declare an operation once, with every target-independent rule about it."""
    if name in OPS:
        raise ValueError(f"operation {name!r} is defined twice")
    return OPS.setdefault(name, OpSpec(name, **rules))


@lru_cache(maxsize=1 << 16)
def factor_rule(
    spec: OpSpec,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Attr], ...],
) -> FactorRule | None:
    """The loops of one application of an operation; layers of one shape share the answer."""
    if spec.factors is None:
        return None
    return spec.factors(
        *operands, result=results[0] if len(results) == 1 else results, **dict(attrs)
    )


class Table(Generic[Rule]):
    """One target's rules, keyed by operation."""

    def __init__(self, target: str, file: str) -> None:
        self.target = target
        self.file = file
        self._rules: dict[OpSpec, Rule] = {}

    def rule(self, *specs: OpSpec) -> Callable[[Rule], Rule]:
        def register(rule: Rule) -> Rule:
            for spec in specs:
                if spec in self._rules:
                    raise ValueError(f"{self.target} already has a rule for {spec.name}")
                self._rules[spec] = rule
            return rule

        return register

    def of(self, op: "Op") -> Rule:
        """The rule for an operation; raises `NoRule` that names it and its line."""
        if op.spec not in self._rules:
            names = ", ".join(f"%{value.name}" for value in op.results)
            where = (f" {names}" if names else "") + (f" ({op.loc})" if op.loc else "")
            raise NoRule(self.target, op.spec.name, where, self.file)
        return self._rules[op.spec]

    def __contains__(self, spec: OpSpec) -> bool:
        return spec in self._rules

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self._rules)
