"""Reduce a tile along one side, directly or with an accumulator."""

from collections.abc import Mapping

import numpy as np

from shardir.backends.gpu.kernels.terms import HELD, OWN, Term, number
from shardir.ir.module import Op
from shardir.ir.types import FLOATS, INTEGERS, NUMPY_DTYPES

COMBINE: Mapping[str, str] = {
    "prod": "product", "max": "maximum", "min": "minimum", "any": "either", "all": "both",
}  # fmt: skip
"""Functions that combine two elements; sums use `tl.sum`."""


def neutral(op: Op) -> Term:
    """Return the identity element of a reduction."""
    dtype = op.result.type.dtype
    if op.name in ("sum", "any"):
        return number(0, dtype)
    if op.name in ("prod", "all"):
        return number(1, dtype)
    if dtype in FLOATS:
        return number(-np.inf if op.name == "max" else np.inf, dtype)
    if dtype == "bool":
        return number(op.name == "min", dtype)
    limits = np.iinfo(NUMPY_DTYPES[dtype])
    return number(limits.min if op.name == "max" else limits.max, dtype)


def existing(op: Op, x: Term, mask: str) -> str:
    """Return the tile with out-of-bounds elements replaced by the identity element."""
    return f"tl.where({mask}, {x.text}, {neutral(op).text})" if mask else x.text


def reduced(op: Op, x: Term, mask: str, axis: str) -> str:
    """Return the reduction of a tile."""
    text = existing(op, x, mask)
    if op.name != "sum":
        axis, _, keep = axis.partition(", ")
        return f"tl.reduce({text}, {axis}, {COMBINE[op.name]}{keep and f', {keep}'})"
    text = f"tl.sum({text}, {axis})"
    short = x.dtype in INTEGERS and NUMPY_DTYPES[x.dtype].itemsize < 4
    return f"{text}.to({OWN[x.dtype]})" if short else text


def neutral_tile(op: Op, tile: str) -> str:
    """Return the initial accumulator, one element per element of the tile."""
    return f"tl.full({tile}, {neutral(op).text}, {HELD[op.result.type.dtype]})"


def combined(op: Op, accumulator: str, x: str) -> str:
    """Return the accumulator combined with another tile."""
    if op.name == "sum":
        return f"{accumulator} + {x}"
    return f"{COMBINE[op.name]}({accumulator}, {x})"
