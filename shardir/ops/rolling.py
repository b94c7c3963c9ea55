"""Circular shifts.

Programs express a roll as two concatenated slices; the pass `merge-shifts` replaces these, since a
roll moves a few rows between neighbouring devices where the slices would be resharded.
"""

from typing import Any

import numpy as np

from shardir.batching import further
from shardir.factors import FactorRule, Kind, RuleBuilder
from shardir.ops.check import dim_of
from shardir.ops.shape_pieces import roll_pieces
from shardir.ops.slicing_pieces import moving_cuts
from shardir.opset import define
from shardir.partitioning import Partitioning
from shardir.tangents import linear
from shardir.types import TensorType


def _type(x: TensorType, *, dim: int, shift: int, result: TensorType | None) -> TensorType:
    size = x.shape[dim_of(x, dim)]
    if not 0 <= shift < max(size, 1):
        raise TypeError(f"shift={shift} must be at least 0 and less than the {size} of {x}")
    return x


def _factors(x: TensorType, *, dim: int, shift: int, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [x.shape])
    for d, size in enumerate(x.shape):
        builder.add([d], [d], size, Kind.PERMUTE if d == dim else Kind.PASS)
    return builder.build()


def _vjp(b: Any, g: Any, x: Any, y: Any, *, dim: int, shift: int) -> Any:
    size = x.type.shape[dim]
    return (b.roll(g, dim=dim, shift=(size - shift) % size if size else 0),)


roll = define(
    "roll",
    type=_type,
    factors=_factors,
    partition=Partitioning(roll_pieces, moving_cuts, uneven=moving_cuts),
    reference=lambda x, *, dim, shift, result: np.roll(x, shift, dim),
    batch=further("dim"),
    vjp=_vjp,
    jvp=linear,
)
"""Move element i along `dim` to i + `shift`, wrapping around the end."""
