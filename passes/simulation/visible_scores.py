"""The fraction of the scores of fused products that masks do not exclude.

A mask selects between scores and a constant, and is computed from indices. It is evaluated at some
indices of each dimension.
"""

from dataclasses import replace

import numpy as np

from shardir import ops
from shardir.interpret.interpreter import apply_op
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import NumpyArray

MAX_SAMPLES = 256
"""The greatest number of indices of a dimension at which a mask is evaluated."""


def visible_fraction(block: Block, edge: float) -> float:
    """Return the fraction of the scores of a block that its kernel computes.

    `edge` are the columns that the kernel computes in each row in addition to the visible ones.
    """
    definitions = {result: op for op in block.ops for result in op.results}
    fractions = [
        min(fraction + edge / op.result.type.shape[-1], 1.0)
        for op in block.ops
        if op.spec is ops.select
        if (fraction := _selected_fraction(op, definitions)) is not None
    ]
    return max(fractions, default=1.0)


def _selected_fraction(op: Op, definitions: dict[Value, Op]) -> float | None:
    """Return the fraction of elements in which a selection does not take a constant; `None` if no
    operand is a constant, or if the mask depends on more than indices."""
    mask, *operands = op.operands
    constant = [
        value in definitions and definitions[value].spec is ops.constant for value in operands
    ]
    if constant[0] == constant[1]:
        return None
    sampled = _sample(mask, definitions)
    if sampled is None:
        return None
    visible = float(np.mean(sampled))
    return 1 - visible if constant[0] else visible


def _sample(value: Value, definitions: dict[Value, Op]) -> NumpyArray | None:
    """Return a value at some indices of each dimension; `None` if it depends on parameters."""
    op = definitions.get(value)
    if op is None or not (op.spec.elementwise or op.spec in _OF_INDICES):
        return None
    shape = tuple(min(n, MAX_SAMPLES) for n in value.type.shape)
    if op.spec is ops.iota:
        dim = op.attrs["dim"]
        extent = value.type.shape[dim]
        indices = np.arange(shape[dim]) * extent // shape[dim]
        along = [n if d == dim else 1 for d, n in enumerate(shape)]
        return np.broadcast_to(indices.astype(value.type.numpy).reshape(along), shape)
    operands = []
    for operand in op.operands:
        sampled = _sample(operand, definitions)
        if sampled is None:
            return None
        operands.append(sampled)
    smaller = Value(value.type.with_shape(shape), value.name)
    return np.asarray(apply_op(replace(op, results=(smaller,)), operands))


_OF_INDICES = frozenset({ops.broadcast, ops.constant, ops.iota, ops.reshape})
