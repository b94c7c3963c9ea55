"""Choice of shardings in types where they conflict: in lenient mode, and before `out_sharding=`.

The operand with the most bytes keeps its sharding.
"""

from collections.abc import Mapping
from math import prod

from shardir.frontend.tracing.partial_sum_rules import infer_reduced, infer_unreduced
from shardir.frontend.tracing.sharding_type import (
    AxisNames,
    ShardingType,
    TypeConflictError,
    Types,
    replicated_type,
)
from shardir.frontend.tracing.sharding_type_rules import CUMULATIVE, MOVABLE, Sizes, major_factor
from shardir.ir.module import Op
from shardir.op_rules.factors import FactorKind, FactorRule


def choose_results(op: Op, types: Types, sizes: Sizes) -> list[ShardingType]:
    """Return sharding types of the results for any shardings of the operands.

    Operands with more bytes are considered first; the axes of the others are gathered where they
    conflict. Partial results of reduced factors are combined.
    """
    rule = op.factors()
    if rule is None:
        return [replicated_type(result.type.rank) for result in op.results]
    axes_of: dict[int, AxisNames] = {}
    used: set[str] = set()
    order = sorted(range(len(types)), key=lambda i: -op.operands[i].type.nbytes)
    for operand in order:
        type = types[operand]
        for dim, axes in enumerate(type.dims if type is not None else ()):
            if not axes or used.intersection(axes):
                continue
            factor = major_factor(rule, rule.operands[operand][dim])
            kind = rule.factors[factor].kind
            if factor in axes_of or kind is FactorKind.REDUCE:
                continue
            if kind is FactorKind.REPLICATE and op.spec not in MOVABLE:
                continue
            if op.spec in CUMULATIVE and dim == op.attrs["dim"]:
                continue
            axes_of[factor] = axes
            used.update(axes)
    try:
        unreduced, reduced = infer_unreduced(op, types), infer_reduced(op, types)
    except TypeConflictError:
        unreduced = reduced = frozenset()
    return [
        ShardingType(_feasible_dims(op, rule, axes_of, i, sizes), unreduced, reduced)
        for i in range(len(op.results))
    ]


def _feasible_dims(
    op: Op, rule: FactorRule, axes_of: Mapping[int, AxisNames], result: int, sizes: Sizes
) -> tuple[AxisNames, ...]:
    dims: list[AxisNames] = []
    for size, factors in zip(op.results[result].type.shape, rule.results[result], strict=True):
        axes = axes_of.get(major_factor(rule, factors), ()) if factors else ()
        count = prod(sizes[axis] for axis in axes)
        dims.append(() if size % count else axes)
    return tuple(dims)
