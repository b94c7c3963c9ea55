"""Linearity of operations: whether a sum of operands may be delayed until after the operation.

`f(a + b, w) = f(a, w) + f(b, w)` allows devices to apply `f` to partial sums and to add the results
afterwards. Joint linearity (`a + b`, `select`, `concatenate`) applies to the partial values of
several operands together; a product is linear in each factor while the other one is fixed.

The tangent rules imply linearity: `jvp=linear_tangent` is jointly linear in all floating-point
operands, `jvp=multilinear_tangent` in each of them. Other operations declare `linear`, as do those
with operands that are positions. Integers wrap around, so that an operation on them has the same
linearity unless it divides or converts to a wider dtype: the total may wrap before, or not.

Maxima and minima can also be delayed after operations that only select elements. Other monotonic
operations do not count: a device without elements holds an infinity, and adding to it or taking its
root can give NaN.
"""

from functools import lru_cache

from shardir.ir.dtypes import DTYPE_INFO, INEXACT, INTEGERS, REAL_OF, represents_float
from shardir.ir.module import Op
from shardir.ir.operation import Attr, OpSpec, SelectionRule
from shardir.ir.types import TensorType
from shardir.op_rules.tangents import linear_tangent, multilinear_tangent

OperandGroups = tuple[tuple[int, ...], ...]
"""Groups of operands; the operation is jointly linear in the members of a group."""


def linear_groups(op: Op) -> OperandGroups:
    """Return the groups of operands in which an operation is linear; empty if it is not linear."""
    if len(op.results) != 1 or op.blocks or op.spec.edges:
        return ()
    types = tuple(value.type for value in op.operands)
    return _groups(op.spec, types, op.result.type, tuple(op.attrs.items()))


@lru_cache(maxsize=1 << 14)
def _groups(
    spec: OpSpec,
    operands: tuple[TensorType, ...],
    result: TensorType,
    attrs: tuple[tuple[str, Attr], ...],
) -> OperandGroups:
    summed = INEXACT if result.dtype in INEXACT else INTEGERS
    if result.dtype not in summed or (summed is INTEGERS and spec.divides):
        return ()
    moving = tuple(i for i, type in enumerate(operands) if type.dtype in summed)
    is_inexact = _is_widening if summed is INTEGERS else _is_narrowing
    if spec.linear is not None:
        declared = spec.linear
        if callable(declared):
            declared = declared(**spec.rule_arguments(dict(attrs)))
        return tuple(group for group in declared if all(i in moving for i in group))
    if not moving or any(is_inexact(operands[i], result) for i in moving):
        return ()
    if spec.jvp is linear_tangent:
        return (moving,)
    if spec.jvp is multilinear_tangent:
        return tuple((i,) for i in moving)
    return ()


def commuting_groups(op: Op, reduction: str) -> OperandGroups:
    """Return the groups of operands whose partial values `reduction` may combine after the
    operation.
    """
    if reduction == "add":
        return linear_groups(op)
    if reduction not in ("max", "min") or len(op.results) != 1 or op.blocks or op.spec.edges:
        return ()
    return op.spec.selection(op, reduction) if op.spec.selection else ()


def select_from_first(op: Op, reduction: str) -> OperandGroups:
    """Apply the rule of operations that only move elements of their first operand."""
    return ((0,),)


def select_from_all(op: Op, reduction: str) -> OperandGroups:
    """Apply the rule of operations that move elements of all operands, such as `concatenate`."""
    return (tuple(range(len(op.operands))),)


def select_by_condition(op: Op, reduction: str) -> OperandGroups:
    """Apply the rule of `select`."""
    return ((1, 2),)


def select_extremum(extremum: str, *, only_bool: bool = False) -> SelectionRule:
    """Return the rule of a binary operation that selects the maximum or minimum (`extremum`).

    A bitwise operation does so only for bool (`only_bool`).
    """

    def rule(op: Op, reduction: str) -> OperandGroups:
        if only_bool and op.result.type.dtype != "bool":
            return ()
        return ((0, 1),) if reduction == extremum else ((0,), (1,))

    return rule


def reduce_to_extremum(extremum: str) -> SelectionRule:
    """Return the rule of a reduction to the maximum or minimum (`extremum`)."""
    return lambda op, reduction: ((0,),) if reduction == extremum else ()


def _is_widening(source: TensorType, result: TensorType) -> bool:
    """Return whether the result has more bits than the operand, whose sum wraps around earlier."""
    return DTYPE_INFO[source.dtype].bits < DTYPE_INFO[result.dtype].bits


def _is_narrowing(source: TensorType, result: TensorType) -> bool:
    """Return whether a conversion between the types rounds, so that sums must precede it."""
    a, b = source.dtype, result.dtype
    if (a in REAL_OF) != (b in REAL_OF):
        return False
    return not represents_float(REAL_OF.get(b, b), REAL_OF.get(a, a))
