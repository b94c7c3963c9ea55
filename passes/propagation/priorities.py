"""Operation priorities: through which operations, and in which direction, axes move in each of five
rounds.

Propagation by operation priority runs to a fixed point five times; each round allows the directions
of the earlier rounds, and more. Operations without communication come first: elementwise ones, then
all along pass-through factors, then contractions and the like, and last broadcasts forward, which
would shard tensors that no annotation requests to shard.

round 0  elementwise operations, reshape, transpose, edges and transfers between memories
             both ways, dynamic slices forward; only where every operand has this one use
    round 1  the same without that condition
    round 2  all operations along pass-through factors; broadcasts only backward
    round 3  all factors; broadcasts still only backward
    round 4  everything

`PropagationDirection` states the direction along a factor: from operands to results, backward, both
or neither.
"""

from enum import Enum, IntFlag
from functools import lru_cache

from shardir import ops
from shardir.ir.module import Op
from shardir.op_rules.factors import FactorKind, FactorRule


class PropagationDirection(IntFlag):
    """Set of directions: union is `|`, intersection is `&`."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


FactorDirections = tuple[PropagationDirection, ...]
"""Direction of each factor of an operation."""


ROUND_COUNT = 5
LAST_ROUND = ROUND_COUNT - 1
"""The round in which all directions are allowed; the only one without operation priorities."""


class PriorityKind(Enum):
    """Kind of an operation with respect to priorities."""

    THROUGH = "elementwise, reshape, transpose, edge, transfer between memories"
    SLICE = "dynamic slice or update"
    BROADCAST = "broadcast"
    OTHER = "other"
    NOWHERE = "barrier"
    ONWARD = "barrier that lets forward"
    BACK = "barrier that lets backward"


BARRIER_KINDS = {
    "none": PriorityKind.NOWHERE,
    "forward": PriorityKind.ONWARD,
    "backward": PriorityKind.BACK,
}
BARRIER_DIRECTIONS = {
    PriorityKind.NOWHERE: PropagationDirection.NONE,
    PriorityKind.ONWARD: PropagationDirection.FORWARD,
    PriorityKind.BACK: PropagationDirection.BACKWARD,
}
"""Directions of a barrier in every round."""


TRANSFERS = ("stablehlo.custom_call @MoveToDevice", "stablehlo.custom_call @MoveToHost")
"""Opaque operations that copy a value to another memory of the same devices."""
ELEMENTWISE = ("stablehlo.reduce_precision", "stablehlo.round_nearest_afz")
"""Opaque operations that MLIR declares elementwise."""


def priority_kind(op: Op) -> PriorityKind:
    if op.spec is ops.propagation_barrier:
        return BARRIER_KINDS[op.attrs["direction"]]
    if is_elementwise(op) or op.spec in (ops.reshape, ops.transpose):
        return PriorityKind.THROUGH
    if op.spec is ops.opaque and op.attrs["operation"] in TRANSFERS:
        return PriorityKind.THROUGH
    if op.spec in (ops.dynamic_slice, ops.dynamic_update_slice):
        return PriorityKind.SLICE
    return PriorityKind.BROADCAST if op.spec is ops.broadcast else PriorityKind.OTHER


def is_elementwise(op: Op) -> bool:
    """Return whether an operation counts as elementwise; a bitcast does if the shape stays the
    same."""
    if op.spec is ops.bitcast:
        return op.operands[0].type.shape == op.result.type.shape
    if op.spec is ops.opaque:
        return op.attrs["operation"] in ELEMENTWISE
    return op.spec.elementwise


@lru_cache(maxsize=1 << 12)
def round_directions(
    rule: FactorRule, kind: PriorityKind, *, single_use: bool, round: int
) -> FactorDirections:
    """Return the directions along each factor in a round.

    `single_use` states that no operand of rank above 0 has another use.
    """
    return tuple(
        PropagationDirection.NONE
        if factor.blocked
        else _direction(kind, factor.kind is FactorKind.PASS, single_use, round)
        for factor in rule.factors
    )


def _direction(
    kind: PriorityKind, passes: bool, single_use: bool, round: int
) -> PropagationDirection:
    if kind in BARRIER_DIRECTIONS:
        return BARRIER_DIRECTIONS[kind]
    allowed = PropagationDirection.NONE
    if round >= 1 or single_use:
        if kind is PriorityKind.THROUGH:
            allowed |= PropagationDirection.BOTH
        elif kind is PriorityKind.SLICE:
            allowed |= PropagationDirection.FORWARD
    if round >= 3 or (round == 2 and passes):
        allowed |= (
            PropagationDirection.BACKWARD
            if kind is PriorityKind.BROADCAST
            else PropagationDirection.BOTH
        )
    if round >= LAST_ROUND:
        allowed |= PropagationDirection.BOTH
    return allowed
