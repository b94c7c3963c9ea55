"""Elementwise operations whose operands may be scalars: `select` and `clamp`."""

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Value, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.linearity import select_by_condition
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.elementwise import numerics
from shardir.ops.elementwise.elementwise import elementwise_factors
from shardir.ops.type_checks import ORDERED, common_type


def _select_type(
    pred: TensorType, x: TensorType, y: TensorType, *, result: TensorType | None
) -> TensorType:
    common_type(x, y)
    if pred.dtype != "bool" or pred.shape not in ((), x.shape):
        raise TypeError(f"its condition must be bool[] or {x.with_dtype('bool')}, got {pred}")
    return x


def _select_vjp(b: Builder, g: Value, pred: Value, x: Value, y: Value, z: Value) -> Cotangents:
    zero = b.full(0, g.type)
    return None, b.select(pred, g, zero), b.select(pred, zero, g)


select = define_op(
    "select",
    type=_select_type,
    factors=elementwise_factors,
    reference=lambda pred, x, y, *, result: np.where(pred, x, y),
    vjp=_select_vjp,
    jvp=linear_tangent,
    selection=select_by_condition,
    elementwise=True,
    arithmetic=None,
)
"""`x` where the condition is true, else `y`; the condition may be a scalar."""


def _clamp_type(
    low: TensorType, x: TensorType, high: TensorType, *, result: TensorType | None
) -> TensorType:
    ORDERED.check(x)
    for name, bound in (("lower", low), ("upper", high)):
        if bound.dtype != x.dtype or bound.shape not in ((), x.shape):
            raise TypeError(f"its {name} bound must be {x.with_shape(())} or {x}, got {bound}")
    return x


def _clamp_vjp(b: Builder, g: Value, low: Value, x: Value, high: Value, z: Value) -> Cotangents:
    """Return the cotangents: a bound that exceeds `x` gets it; for equal values no operand does."""

    def whole(bound: Value) -> Value:
        return bound if bound.type == x.type else b.broadcast(bound, dims=(), result=x.type)

    def sum_to_bound(part: Value, bound: Value) -> Value:
        if bound.type == x.type:
            return part
        return b.sum(part, dims=tuple(range(x.type.rank)))

    zero = b.full(0, g.type)
    low_bound, high_bound = whole(low), whole(high)
    inside = b.and_(b.gt(x, low_bound), b.lt(x, high_bound))
    below, above = b.select(b.gt(low_bound, x), g, zero), b.select(b.lt(high_bound, x), g, zero)
    return sum_to_bound(below, low), b.select(inside, g, zero), sum_to_bound(above, high)


clamp = define_op(
    "clamp",
    type=_clamp_type,
    factors=elementwise_factors,
    reference=lambda low, x, high, *, result: numerics.clamp(low, x, high),
    vjp=_clamp_vjp,
    elementwise=True,
)
"""minimum(maximum(x, low), high); each bound may be a scalar."""
