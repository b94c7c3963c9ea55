"""Reduce a tile along one side, directly or with an accumulator."""

from collections.abc import Mapping

import numpy as np

from shardir import ops
from shardir.backends.gpu.dtypes import COMPUTE_TYPES, TRITON_TYPES
from shardir.backends.gpu.kernels.terms import KernelTerm, number_term
from shardir.ir.module import Op
from shardir.ir.types import FLOATS, INTEGERS, NUMPY_DTYPES

COMBINE_FUNCTIONS: Mapping[str, str] = {
    "prod": "product", "max": "maximum", "min": "minimum", "any": "either", "all": "both",
}  # fmt: skip
"""Functions that combine two elements; sums use `tl.sum`."""


def identity_element(op: Op) -> KernelTerm:
    """Return the identity element of a reduction."""
    dtype = op.result.type.dtype
    if op.spec in (ops.sum_, ops.any_):
        return number_term(0, dtype)
    if op.spec in (ops.prod, ops.all_):
        return number_term(1, dtype)
    if dtype in FLOATS:
        return number_term(-np.inf if op.spec is ops.max_ else np.inf, dtype)
    if dtype == "bool":
        return number_term(op.spec is ops.min_, dtype)
    limits = np.iinfo(NUMPY_DTYPES[dtype])
    return number_term(limits.min if op.spec is ops.max_ else limits.max, dtype)


def mask_out_of_bounds(op: Op, x: KernelTerm, mask: str) -> str:
    """Return the tile with out-of-bounds elements replaced by the identity element."""
    return f"tl.where({mask}, {x.text}, {identity_element(op).text})" if mask else x.text


def reduce_tile(op: Op, x: KernelTerm, mask: str, axis: str) -> str:
    """Return the reduction of a tile."""
    text = mask_out_of_bounds(op, x, mask)
    if op.spec is not ops.sum_:
        axis, _, keep = axis.partition(", ")
        return f"tl.reduce({text}, {axis}, {COMBINE_FUNCTIONS[op.name]}{keep and f', {keep}'})"
    text = f"tl.sum({text}, {axis})"
    short = x.dtype in INTEGERS and NUMPY_DTYPES[x.dtype].itemsize < 4
    return f"{text}.to({TRITON_TYPES[x.dtype]})" if short else text


def initial_accumulator(op: Op, tile: str) -> str:
    """Return the initial accumulator, one element per element of the tile."""
    return f"tl.full({tile}, {identity_element(op).text}, {COMPUTE_TYPES[op.result.type.dtype]})"


def accumulate(op: Op, accumulator: str, x: str) -> str:
    """Return the accumulator combined with another tile."""
    if op.spec is ops.sum_:
        return f"{accumulator} + {x}"
    return f"{COMBINE_FUNCTIONS[op.name]}({accumulator}, {x})"
