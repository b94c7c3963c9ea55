"""Annotations: sharding constraints, resharding, barriers and checkpoint names."""

from dataclasses import replace

from shardir.ir.builder import Builder
from shardir.ir.module import DataFlowEdge, Op
from shardir.ir.operation import Cotangents, Result, Tangents, Value, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import BatchedOp
from shardir.op_rules.factors import FactorRule, RuleBuilder, pointwise_rule
from shardir.op_rules.tangents import linear_tangent


def _constraint_vjp(b: Builder, g: Value, x: Value, y: Value) -> Cotangents:
    if y.sharding is None:
        return (g,)
    return (b.sharding_constraint(g, sharding=replace(y.sharding, unreduced=())),)


sharding_constraint = define_op(
    "sharding_constraint",
    type=lambda x, *, result: x,
    factors=lambda x, *, result: pointwise_rule([x.shape], [x.shape]),
    reference=lambda x, *, result: x,
    vjp=_constraint_vjp,
    jvp=linear_tangent,
    elementwise=True,
    arithmetic=None,
)
"""`x` with the sharding of the result as a constraint, which propagation preserves."""


def _reshard_vjp(b: Builder, g: Value, x: Value, y: Value) -> Cotangents:
    if x.sharding is None:
        return (g,)
    return (b.reshard(g, sharding=replace(x.sharding, unreduced=())),)


reshard = define_op(
    "reshard",
    type=lambda x, *, result: x,
    reference=lambda x, *, result: x,
    vjp=_reshard_vjp,
    jvp=linear_tangent,
    elementwise=True,
    arithmetic=None,
)
"""`x` resharded from its sharding to that of the result; propagation does not pass through it."""


def _barrier_type(*xs: TensorType, result: Result) -> tuple[TensorType, ...]:
    if not xs:
        raise TypeError("takes at least one operand")
    return xs


def _barrier_factors(*xs: TensorType, result: Result) -> FactorRule:
    """Return the rule in which each operand shares its factors only with its own result."""
    shapes = [x.shape for x in xs]
    builder = RuleBuilder(shapes, shapes)
    for i, shape in enumerate(shapes):
        for dim, size in enumerate(shape):
            own = [dim if k == i else None for k in range(len(xs))]
            builder.add(own, own, size)
    return builder.build()


def _barrier_batch(b: Builder, many: BatchedOp, *xs: Value) -> Value | tuple[Value, ...]:
    """Keep operands without the batch dimension as they are."""
    result: Value | tuple[Value, ...] = b.emit(optimization_barrier, *xs)
    return result


def _barrier_edges(op: Op) -> tuple[DataFlowEdge, ...]:
    return tuple(DataFlowEdge((x,), (y,)) for x, y in zip(op.operands, op.results, strict=True))


def _barrier_vjp(b: Builder, g: Value | Cotangents, *values: Value) -> Cotangents:
    return g if isinstance(g, tuple) else (g,)


def _barrier_jvp(b: Builder, op: Op, tangents: Tangents) -> Tangents:
    return [None if x is None else b.optimization_barrier(x) for x in tangents]


optimization_barrier = define_op(
    "optimization_barrier",
    type=_barrier_type,
    factors=_barrier_factors,
    reference=lambda *xs, result: xs if len(xs) > 1 else xs[0],
    batch=_barrier_batch,
    vjp=_barrier_vjp,
    jvp=_barrier_jvp,
    edges=_barrier_edges,
    arithmetic=None,
)
"""The operands; passes move and merge nothing across the barrier."""


def _group_type(x: TensorType, *, group: int, result: Result) -> tuple[TensorType, ...]:
    if group < 0:
        raise TypeError(f"group={group} must be at least 0")
    return ()


sharding_group = define_op(
    "sharding_group",
    type=_group_type,
    factors=lambda x, *, group, result: RuleBuilder([x.shape], []).add_pointwise(x.shape).build(),
    reference=lambda x, *, group, result: (),
    vjp=lambda b, g, x, *, group: (None,),
    batch=lambda b, many, x, *, group: b.sharding_group(x, group=group),
    effect=True,
    arithmetic=None,
)
"""A constraint that all members of a group have one sharding. It has no result."""

DIRECTIONS = ("none", "forward", "backward")


def _propagation_barrier_type(x: TensorType, *, direction: str, result: Result) -> TensorType:
    if direction not in DIRECTIONS:
        raise TypeError(f"direction={direction} is not one of {', '.join(DIRECTIONS)}")
    return x


propagation_barrier = define_op(
    "propagation_barrier",
    type=_propagation_barrier_type,
    factors=lambda x, *, direction, result: pointwise_rule([x.shape], [x.shape]),
    reference=lambda x, *, direction, result: x,
    vjp=lambda b, g, x, y, *, direction: (g,),
    elementwise=True,
    arithmetic=None,
)
"""`x`; shardings propagate through it only in the given direction."""


checkpoint_name = define_op(
    "checkpoint-name",
    type=lambda x, *, label, result: x,
    factors=lambda x, *, label, result: pointwise_rule([x.shape], [x.shape]),
    reference=lambda x, *, label, result: x,
    vjp=lambda b, g, x, y, *, label: (g,),
    jvp=lambda b, op, tangents: tangents,
    elementwise=True,
    arithmetic=None,
)
"""`x` with a name by which a checkpoint policy can select it for saving."""
