"""Circular shifts.

Programs express a roll as two concatenated slices; the pass `merge-shifts` replaces these, since a
roll moves a few rows between neighbouring devices where the slices would be resharded.
"""

from typing import Any

import numpy as np

from shardir.ir.operation import Partitioning, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import shift_dims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.shape.rearrangement_partitioning import partition_roll
from shardir.ops.shape.slicing_partitioning import movable_shardable
from shardir.ops.type_checks import check_dim


def _type(x: TensorType, *, dim: int, shift: int, result: TensorType | None) -> TensorType:
    size = x.shape[check_dim(x, dim)]
    if not 0 <= shift < max(size, 1):
        raise TypeError(f"shift={shift} must be at least 0 and less than the {size} of {x}")
    return x


def _factors(x: TensorType, *, dim: int, shift: int, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [x.shape])
    for d, size in enumerate(x.shape):
        builder.add([d], [d], size, FactorKind.PERMUTE if d == dim else FactorKind.PASS)
    return builder.build()


def _vjp(b: Any, g: Any, x: Any, y: Any, *, dim: int, shift: int) -> Any:
    size = x.type.shape[dim]
    return (b.roll(g, dim=dim, shift=(size - shift) % size if size else 0),)


roll = define_op(
    "roll",
    type=_type,
    factors=_factors,
    partition=Partitioning(partition_roll, movable_shardable, uneven=movable_shardable),
    reference=lambda x, *, dim, shift, result: np.roll(x, shift, dim),
    batch=shift_dims("dim"),
    vjp=_vjp,
    jvp=linear_tangent,
)
"""Move element i along `dim` to i + `shift`, wrapping around the end."""
