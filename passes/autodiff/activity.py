"""Activity analysis: which values of a function need derivatives.

A value is active if it is a floating-point or complex number that depends on one of the chosen
values. Only active values have cotangents; the backward computation skips all others.
"""

from collections.abc import Sequence

from shardir import ops
from shardir.ir.module import Block, Value
from shardir.ir.types import INEXACT
from shardir.ops.elementwise.elementwise import zero_vjp


def active_values(block: Block, chosen: Sequence[Value]) -> set[Value]:
    """Return the active values of a block and of all nested blocks."""
    active = {value for value in chosen if value.type.dtype in INEXACT}
    _mark_block(block, active)
    return active


def backward_reachable(block: Block, starts: Sequence[Value], active: set[Value]) -> set[Value]:
    """Return the active values whose cotangents may be nonzero if those of `starts` are.

    The result is conservative: all operands of an operation with blocks count as used by all its
    results.
    """
    result = {value for value in starts if value in active}
    for op in reversed(block.ops):
        if any(value in result for value in op.results):
            result.update(value for value in op.uses() if value in active)
    return result


def _mark_block(block: Block, active: set[Value]) -> None:
    for op in block.ops:
        if op.spec is ops.while_:
            _mark_loop(op.operands, op.blocks[1], op.results, active)
        elif op.spec is ops.scan:
            n = op.attrs["carries"]
            (body,) = op.blocks
            _mark(body.params[n:], op.operands[n:], active)
            _mark_loop(op.operands[:n], body, op.results[:n], active)
            _mark(op.results[n:], body.returns[n:], active)
        elif op.spec in (ops.checkpoint, ops.manual_computation):
            (body,) = op.blocks
            _mark(body.params, op.operands, active)
            _mark_block(body, active)
            _mark(op.results, body.returns, active)
        elif op.spec is ops.case:
            for branch in op.blocks:
                _mark_block(branch, active)
                _mark(op.results, branch.returns, active)
        elif op.spec.vjp is not zero_vjp and any(value in active for value in op.uses()):
            active.update(value for value in op.results if value.type.dtype in INEXACT)


def _mark_loop(
    inits: Sequence[Value], body: Block, results: Sequence[Value], active: set[Value]
) -> None:
    """Mark carried values until a fixed point: a value that one iteration makes active is active in
    the next."""
    carried = body.params[: len(inits)]
    _mark(carried, inits, active)
    before = -1
    while before != len(active):
        before = len(active)
        _mark_block(body, active)
        _mark(carried, body.returns[: len(inits)], active)
    _mark(results, carried, active)


def _mark(targets: Sequence[Value], sources: Sequence[Value], active: set[Value]) -> None:
    """Mark each target whose source is active."""
    active.update(t for t, s in zip(targets, sources, strict=True) if s in active)
