"""How an operation is run on one device's pieces.

Most operations need nothing here: with the loops of their factor rule cut, the same attributes
on local shapes do the local part of the work. `Partitioning` is for the others: those that must
know which piece of the whole they make (running numbers, random bits), those with attributes that
count something that is cut (groups of a convolution), and those that can run with a loop cut
although the rule alone does not say how.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from shardir.factors import FactorRule, Kind
from shardir.mesh import Mesh
from shardir.placement import Axes, size_of
from shardir.types import COMPLEX, FLOATS, TensorType

if TYPE_CHECKING:
    from shardir.ir import Op, Value


@dataclass(frozen=True, slots=True)
class Partitioning:
    """What an operation declares as its `partition`.

    `lower(builder, local, operands..., attributes)` appends the per-device operations and returns
    the local result, or a tuple of them; `local` is a `Local`, the operands are local values. It
    is called when anything is cut. Without `lower`, the operation runs as it is on local types.

    `cuts(rule, operand types..., result, attributes)` lists the factors that may be cut; without
    it these are `natural_cuts`. Any other factor is gathered before the operation.

    `reduction(attributes)` says how results that are pending over cut reduced factors combine;
    without it the rule's `reduction` does, and without that `lower` leaves nothing pending.

    `uneven(rule, operand types..., result, attributes)` lists the factors that may be cut into
    pieces of different sizes: those of the pieces that are shorter are filled up with padding, of
    which nothing is known. Without it these are the pass-through factors and, if results combine,
    the reduced ones; never those that share a dimension with others.

    `masked` are the operands in which padding along cut reduced factors is replaced by what
    changes nothing before the operation runs; without it these are all.

    `loops(operand types..., result, attributes)` are the factors that partitioning sees, where
    they are others than propagation does; as `OpSpec.factors`.
    """

    lower: Callable[..., Any] | None = None
    cuts: Callable[..., Iterable[int]] | None = None
    reduction: Callable[..., str] | None = None
    uneven: Callable[..., Iterable[int]] | None = None
    masked: tuple[int, ...] | None = None
    loops: Callable[..., FactorRule] | None = None


def natural_cuts(rule: FactorRule) -> tuple[int, ...]:
    """The factors along which the same operation on local shapes is right.

    These are the pass-through ones that a result has, and the reduced ones if partial results
    combine.
    """
    kept = {i for mapping in rule.results for dim in mapping for i in dim}
    return tuple(
        i
        for i, factor in enumerate(rule.factors)
        if (factor.kind is Kind.PASS and i in kept)
        or (factor.kind is Kind.REDUCE and rule.reduction is not None)
    )


def every_loop(rule: FactorRule, *_: object, **__: object) -> range:
    """The factors along which an operation is cut that can be along all of them."""
    return range(len(rule.factors))


def loops_in_pieces(rule: FactorRule, *_: object, **__: object) -> list[int]:
    """All factors but those that every device needs whole."""
    return [i for i, factor in enumerate(rule.factors) if factor.kind is not Kind.REPLICATE]


@dataclass(frozen=True)
class Local:
    """One application of an operation as one device sees it.

    `op` is the operation on whole tensors, whose values carry their (closed) shardings.
    """

    op: "Op"
    mesh: Mesh

    @cached_property
    def operands(self) -> tuple[TensorType, ...]:
        """The types of the local operands."""
        return tuple(map(local_type, self.op.operands))

    @cached_property
    def results(self) -> tuple[TensorType, ...]:
        """The types of the local results."""
        return tuple(map(local_type, self.op.results))

    @property
    def result(self) -> TensorType:
        """The type of the only local result."""
        (result,) = self.results
        return result

    def axes(self, value: "Value", dim: int) -> Axes:
        """The axes along which a dimension of one of the operation's values is cut."""
        return value.sharding.dims[dim].axes if value.sharding else ()

    def count(self, value: "Value", dim: int) -> int:
        """Into how many pieces a dimension of one of the operation's values is cut."""
        return size_of(self.axes(value, dim))

    def start(self, b: Any, value: "Value", dim: int, dtype: str = "i32") -> "Value | None":
        """Where the device's piece of `value` begins along `dim`: an integer of rank 0.

        `None` when the dimension is whole.
        """
        axes = self.axes(value, dim)
        if not axes:
            return None
        place: Value = b.axis_index(axes=axes, name=f"{value.name}.place")
        if dtype != "i32":
            place = b.convert(place, result=TensorType((), dtype))
        size = b.full(local_type(value).shape[dim], place.type)
        start: Value = b.mul(place, size, name=f"{value.name}.start")
        return start

    def is_uneven(self, value: "Value", dim: int) -> bool:
        """Whether the last pieces of `value` along `dim` are shorter, and so have padding."""
        sharding = value.sharding
        return sharding is not None and value.type.shape[dim] % sharding.dims[dim].pieces != 0

    def inside(self, b: Any, value: "Value", dim: int) -> "Value | None":
        """Which positions of the device's piece of `value` along `dim` there are: bool, rank 1.

        `None` when all pieces are full.
        """
        if not self.is_uneven(value, dim):
            return None
        line = TensorType((local_type(value).shape[dim],), "i32")
        index = b.add(
            b.iota(dim=0, result=line),
            b.broadcast(self.start(b, value, dim), dims=(), result=line),
        )
        inside: Value = b.lt(index, b.full(value.type.shape[dim], line))
        return inside

    def masked(
        self, b: Any, piece: "Value", value: "Value", dims: Iterable[int], filler: complex
    ) -> "Value":
        """The device's `piece` of `value` with `filler` for its padding along `dims`."""
        everywhere = None
        for dim in dims:
            if (inside := self.inside(b, value, dim)) is not None:
                here = b.broadcast(inside, dims=(dim,), result=piece.type.with_dtype("bool"))
                everywhere = here if everywhere is None else b.and_(everywhere, here)
        if everywhere is None:
            return piece
        masked: Value = b.select(everywhere, piece, b.full(filler, piece.type))
        return masked

    def is_first(self, b: Any, axes: Axes) -> "Value":
        """Whether the device is the first along `axes`: a bool of rank 0."""
        place = b.axis_index(axes=axes)
        first: Value = b.eq(place, b.full(0, place.type))
        return first


def local_type(value: "Value") -> TensorType:
    """The type of what one device holds of a value."""
    if value.sharding is None:
        return value.type
    return value.type.with_shape(value.sharding.local_shape(value.type.shape))


def identity(reduction: str, dtype: str) -> complex:
    """What leaves a value as it is when it is combined with it, negative zeros included."""
    if reduction == "mul":
        return 1
    if reduction == "add":
        return complex(-0.0, -0.0) if dtype in COMPLEX else -0.0 if dtype in FLOATS else 0
    if dtype in FLOATS:
        return -inf if reduction == "max" else inf
    if dtype == "bool":
        return reduction == "min"
    limits = np.iinfo(TensorType((), dtype).numpy)
    return int(limits.min if reduction == "max" else limits.max)
