"""The sharding in the type of a value: the mesh axes of each dimension, and unreduced axes."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.frontend.shardings.partition_spec import format_axes, format_summed_axes
from shardir.ir.key_implementations import KEY_IMPLEMENTATIONS
from shardir.ir.module import Op
from shardir.ir.types import TensorType

AxisNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardingType:
    """The axis names of each dimension of a value, major first, and its unreduced and reduced axes.

    Devices hold partial sums along unreduced axes. They hold copies along reduced axes, and the
    gradient of the value is unreduced along these.
    """

    dims: tuple[AxisNames, ...]
    unreduced: frozenset[str] = frozenset()
    reduced: frozenset[str] = frozenset()

    @property
    def is_replicated(self) -> bool:
        return not self.unreduced and not self.reduced and not any(self.dims)


def replicated_type(rank: int) -> ShardingType:
    """Return the type of a value of which every device holds all elements."""
    return ShardingType(((),) * rank)


def format_type(type: TensorType, sharding: ShardingType | None) -> str:
    """Return a type as text, such as `float32[8@x,16]{U:y}`."""
    dims = sharding.dims if sharding is not None else ((),) * type.rank
    sizes = ",".join(
        f"{size}@{format_axes(axes)}" if axes else str(size)
        for size, axes in zip(type.shape, dims, strict=True)
    )
    key = KEY_IMPLEMENTATIONS.get(type.dtype)
    name = type.numpy.name if key is None else f"key<{key.tag}>"
    if sharding is None:
        return f"{name}[{sizes}]"
    return f"{name}[{sizes}]{format_summed_axes(sharding.unreduced, sharding.reduced)}"


class TypeConflictError(Exception):
    """An operation does not accept the shardings of its operands; the message states why."""


Types = Sequence[ShardingType | None]
"""The sharding types of operands; `None` for values that adopt the sharding of other operands."""

RESHARD = "reshard it first (sharding.reshard)"


def describe(op: Op, operand: int, types: Types) -> str:
    """Return an operand with its type, such as `operand 0 of add, float32[8@x],`."""
    type = format_type(op.operands[operand].type, types[operand])
    return f"operand {operand} of {op.name}, {type},"


def quote(axes: AxisNames) -> str:
    """Return names of axes as text, such as `'x' and 'y'`."""
    return " and ".join(map(repr, axes))
