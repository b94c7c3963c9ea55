"""The pseudo-inverse, whose derivative needs no singular vectors."""

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Value, define_op
from shardir.ir.types import REAL_OF, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.ops.linalg.matrices import Array, Matrix, apply_per_matrix, matrix_shape


def _type(x: TensorType, cutoff: TensorType, *, result: TensorType | None) -> TensorType:
    rows, columns = matrix_shape(x)
    if cutoff != TensorType(x.shape[:-2], REAL_OF.get(x.dtype, x.dtype)):
        raise TypeError(f"takes one real number for each matrix of {x}, not {cutoff}")
    return x.with_shape((*x.shape[:-2], columns, rows))


def _factors(x: TensorType, cutoff: TensorType, *, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape, cutoff.shape], [result.shape])
    row, column = x.rank - 2, x.rank - 1
    for d in range(row):
        builder.add([d, d], [d], x.shape[d])
    builder.add([row, None], [column], x.shape[row], FactorKind.REPLICATE)
    builder.add([column, None], [row], x.shape[column], FactorKind.REPLICATE)
    return builder.build()


def _reference(x: Array, cutoff: Array, *, result: TensorType) -> Array:
    size = min(x.shape[-2:])
    parts = [
        TensorType((*x.shape[:-1], size), "c128" if x.dtype.kind == "c" else "f64"),
        TensorType((*x.shape[:-2], size), "f64"),
        TensorType((*x.shape[:-2], size, x.shape[-1]), "c128" if x.dtype.kind == "c" else "f64"),
    ]
    if not size:
        return np.zeros(result.shape, result.numpy)
    u, values, vh = apply_per_matrix(lambda m: tuple(np.linalg.svd(m, False)), x, parts)
    with np.errstate(all="ignore"):
        large = values > cutoff[..., None] * values[..., :1]
        inverse = np.where(large | np.isnan(values), 1 / np.where(values == 0, 1, values), 0)
        inverse_matrix = np.swapaxes(vh.conj(), -1, -2) @ (
            inverse[..., None] * np.swapaxes(u.conj(), -1, -2)
        )
    narrow: Array = inverse_matrix.astype(result.numpy)
    return narrow


def _vjp(b: Builder, g: Value, x: Value, cutoff: Value, y: Value) -> Cotangents:
    """Return the cotangent.

    Source: G. H. Golub and V. Pereyra, "The differentiation of pseudo-inverses" (1973).
    """
    grad, matrix, inverse = Matrix(b, g).conjugate(), Matrix(b, x), Matrix(b, y)
    left = grad - grad @ matrix @ inverse
    right = grad - inverse @ matrix @ grad
    both = (left.H @ inverse) @ inverse.H + inverse.H @ (inverse @ right.H)
    return (both - inverse.H @ grad @ inverse.H).conjugate().value, None


pinv = define_op(
    "pinv",
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=ShiftDims(),
    vjp=_vjp,
)
"""The pseudo-inverse of matrices; singular values of at most `cutoff` times the largest count as 0.

The derivative assumes a constant rank.
"""
