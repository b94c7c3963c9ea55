"""Tangent (JVP) rules of operations.

A symbolic zero tangent is `None` and costs nothing. Where an operation is linear, the tangent of
the result is the operation applied to tangents; such operations declare `jvp=linear_tangent` or
`jvp=multilinear_tangent`. Where each element of the result depends only on the same element of the
operands, the vjp already contains the derivatives (`diagonal_tangent`). The tangents of operations
without a rule are derived from the vjp by `shardir.passes.autodiff.pushforward`.
"""

from collections.abc import Sequence
from functools import reduce

from shardir.ir.builder import Builder
from shardir.ir.operation import Op, Tangents, Value
from shardir.ir.types import COMPLEX, INEXACT


def linear_tangent(b: Builder, op: Op, tangents: Tangents) -> Tangents:
    """Return the tangent of an operation that is jointly linear in its floating-point operands."""
    if op.result.type.dtype not in INEXACT:
        return (None,)
    operands = [
        operand
        if operand.type.dtype not in INEXACT
        else b.full(0, operand.type)
        if tangent is None
        else tangent
        for operand, tangent in zip(op.operands, tangents, strict=True)
    ]
    return (_apply_to(b, op, operands),)


def multilinear_tangent(b: Builder, op: Op, tangents: Tangents) -> Tangents:
    """Return the tangent of a product: linear in each operand with the others fixed."""
    parts = []
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            parts.append(_apply_to(b, op, [*op.operands[:i], tangent, *op.operands[i + 1 :]]))
    return (reduce(b.add, parts),)


def diagonal_tangent(b: Builder, op: Op, tangents: Tangents) -> Tangents | None:
    """Return the tangent of an elementwise operation: its vjp applied to tangents.

    For complex types this holds only where the operation has a complex derivative.
    """
    (y,) = op.results
    moving = [x for x, tangent in zip(op.operands, tangents, strict=True) if tangent is not None]
    if any(x.type != y.type for x in moving):
        return None
    if y.type.dtype in COMPLEX and not op.spec.holomorphic:
        return None
    parts = []
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            assert op.spec.vjp is not None
            parts.append(op.spec.vjp(b, tangent, *op.operands, y, **op.rule_arguments)[i])
    terms = [part for part in parts if part is not None]
    return (reduce(b.add, terms) if terms else None,)


def _apply_to(b: Builder, op: Op, operands: Sequence[Value]) -> Value:
    """Return the operation applied to other operands."""
    y = op.result
    result: Value = b.emit(op.spec, *operands, result=y.type, sharding=y.sharding, **op.attrs)
    return result
