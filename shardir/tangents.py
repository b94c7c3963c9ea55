"""How an operation changes when its operands do.

A tangent is a direction in which a value moves. What has none stands still, and costs nothing.
Where an operation is linear, the tangent of its result is the operation itself, done to tangents;
such operations declare `jvp=linear` or `jvp=multilinear`. Where each element of the result depends
on the same element of the operands only, the vjp already has the slopes (`diagonal`). What
declares no rule has its tangents derived from its vjp, by `shardir.passes.pushforward`.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from shardir.types import COMPLEX, INEXACT

if TYPE_CHECKING:
    from shardir.ir import Op, Value

Tangents = Sequence["Value | None"]
Rule = Callable[[Any, "Op", Tangents], Tangents | None]
"""What an operation declares as its `jvp`: (builder, operation, tangents of its operands) ->
tangents of its results. `None` is zero; `None` for all: no rule for this case, derive it."""


def linear(b: Any, op: "Op", tangents: Tangents) -> Tangents:
    """The rule of what is linear in all its floating operands at once."""
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
    return (_again(b, op, operands),)


def multilinear(b: Any, op: "Op", tangents: Tangents) -> Tangents:
    """The rule of products: linear in each operand while the others stay."""
    parts = []
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            parts.append(_again(b, op, [*op.operands[:i], tangent, *op.operands[i + 1 :]]))
    return (reduce(b.add, parts),)


def diagonal(b: Any, op: "Op", tangents: Tangents) -> Tangents | None:
    """The rule of elementwise operations: what multiplies a cotangent multiplies a tangent.

    Of complex numbers that holds where the operation has a complex derivative.
    """
    (y,) = op.results
    moving = [x for x, tangent in zip(op.operands, tangents, strict=True) if tangent is not None]
    if any(x.type != y.type for x in moving):
        return None
    if y.type.dtype in COMPLEX and op.name in NOT_HOLOMORPHIC:
        return None
    parts = []
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            assert op.spec.vjp is not None
            parts.append(op.spec.vjp(b, tangent, *op.operands, y, **op.attrs)[i])
    given = [part for part in parts if part is not None]
    return (reduce(b.add, given) if given else None,)


NOT_HOLOMORPHIC = ("sign",)
"""Elementwise operations from complex to complex numbers that have no complex derivative and are
not linear either."""


def _again(b: Any, op: "Op", operands: Sequence["Value"]) -> "Value":
    """The operation, done to other operands."""
    y = op.result
    made: Value = b.emit(op.spec, *operands, result=y.type, sharding=y.sharding, **op.attrs)
    return made
