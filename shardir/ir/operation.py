"""Declarations of operations, and tables of per-target rules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from shardir.errors import NoRule
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule

if TYPE_CHECKING:
    from shardir.ir.module import DataFlowEdge, Op
    from shardir.op_rules.batching import BatchRule
    from shardir.op_rules.partitioning import Partitioning
    from shardir.op_rules.tangents import TangentRule
    from shardir.op_rules.vma import VmaRule

Rule = TypeVar("Rule")


class Symbol(str):
    """A bare word in the text, such as an element type or a reduction."""

    __slots__ = ()


class Dense:
    """An array attribute: immutable, compared and hashed by its bytes, shape and dtype."""

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
    """The target-independent declaration of an operation.

    All rules have one calling convention: operands by position, attributes by keyword, and
    `result`, the type stated for the result (`None` while an operation is built; a tuple for
    several results). No attribute repeats a shape that the result type states, so the same
    attributes are valid for global shapes and for the local shapes after partitioning.
    """

    name: str
    type: Callable[..., Result]
    """(operand types..., result, attributes; blocks if it has any) -> result type or types.

    Raises `TypeError` with a sentence that continues the operation's name.
    """
    factors: Callable[..., FactorRule] | None = None
    """(operand types..., result, attributes) -> the factor rule; `None`: cannot be sharded."""
    reference: Callable[..., Any] | None = None
    """(arrays..., result, attributes) -> array or tuple of arrays: the reference semantics."""
    exchange: Callable[..., Any] | None = None
    """(mesh, shards, result, attributes) -> one array (or tuple) per device, for per-device
    operations that depend on the device or on other devices. `shards` holds the tuple of operands
    of every device in row-major order of the mesh. Devices with equal results receive the same
    array object.
    """
    vjp: Callable[..., Any] | None = None
    """(builder, cotangent, operands..., results..., attributes) -> cotangents of the operands,
    `None` where there is none. For several results, the cotangent is a tuple with `None` for unused
    ones.
    """
    jvp: "TangentRule | None" = None
    """The tangents of the results given those of the operands, where that is simpler than the
    derivation from the vjp. See `shardir.op_rules.tangents`.
    """
    batch: "BatchRule | None" = None
    """How the operation is batched over a leading dimension; elementwise operations need no rule.

    See `shardir.op_rules.batching`.
    """
    partition: "Partitioning | None" = None
    """Partitioning rules beyond the default derivation from factors. See
    `shardir.op_rules.partitioning`."""
    linear: tuple[tuple[int, ...], ...] | Callable[..., tuple[tuple[int, ...], ...]] | None = None
    """Groups of operands in which the operation is jointly linear, or (attributes) -> groups, where
    its jvp does not imply them; see `shardir.op_rules.linearity`.
    """
    vma: "VmaRule | None" = None
    """The manual axes along which operands must vary and results vary; `None`: all vary along the
    same axes. See `shardir.op_rules.vma`.
    """
    edges: Callable[["Op"], tuple["DataFlowEdge", ...]] | None = None
    """The data flow edges into and out of its blocks (only operations with blocks)."""
    elementwise: bool = False
    """Whether each element of the result depends only on the same element of the operands."""
    collective: bool = False
    """Whether the devices of a mesh must execute the operation together."""
    spmd: bool = False
    """Whether the operation is valid only in a per-device program."""
    effect: bool = False
    """Whether the operation has side effects: it executes exactly once even if its results are
    unused.
    """
    blocks: int = 0
    """The number of blocks; -1: any number, at least one."""

    def __repr__(self) -> str:
        return f"<op {self.name}>"


OPS: dict[str, OpSpec] = {}


def define_op(name: str, **rules: Any) -> OpSpec:
    """Declare an operation with all its target-independent rules."""
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
    """Return the factor rule of one application of an operation; equal applications share it."""
    if spec.factors is None:
        return None
    return spec.factors(
        *operands, result=results[0] if len(results) == 1 else results, **dict(attrs)
    )


class RuleTable(Generic[Rule]):
    """The rules of one target, keyed by operation."""

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
        """Return the rule for an operation; raise `NoRule` with its name and source line."""
        if op.spec not in self._rules:
            names = ", ".join(f"%{value.name}" for value in op.results)
            where = (f" {names}" if names else "") + (f" ({op.loc})" if op.loc else "")
            raise NoRule(self.target, op.spec.name, where, self.file)
        return self._rules[op.spec]

    def __contains__(self, spec: OpSpec) -> bool:
        return spec in self._rules

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self._rules)
