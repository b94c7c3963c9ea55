"""Least-squares solutions of linear systems."""

from typing import Any

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Result, Value, define_op
from shardir.ir.types import REAL_OF, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.ops.linalg.eigen import SingularValueAttributes, svd
from shardir.ops.linalg.matrices import Array, Matrix, matrix_shape, widen
from shardir.ops.linalg.pinv import pinv


def _type(
    a: TensorType, y: TensorType, cutoff: TensorType, *, result: Result
) -> tuple[TensorType, TensorType]:
    rows, columns = matrix_shape(a)
    real = REAL_OF.get(a.dtype, a.dtype)
    if y.rank != a.rank or y.dtype != a.dtype or y.shape[:-1] != a.shape[:-1]:
        raise TypeError(f"takes a row for each row of {a}, not {y}")
    if cutoff != TensorType(a.shape[:-2], real):
        raise TypeError(f"takes one real number for each matrix of {a}, not {cutoff}")
    values = TensorType((*a.shape[:-2], min(rows, columns)), real)
    return y.with_shape((*a.shape[:-2], columns, y.shape[-1])), values


def _factors(a: TensorType, y: TensorType, cutoff: TensorType, *, result: Result) -> FactorRule:
    builder = RuleBuilder([a.shape, y.shape, cutoff.shape], [each.shape for each in result])
    row, column = a.rank - 2, a.rank - 1
    for d in range(row):
        builder.add([d] * 3, [d] * 2, a.shape[d])
    builder.add([row, row, None], [None, None], a.shape[row], FactorKind.REPLICATE)
    builder.add([column, None, None], [row, None], a.shape[column], FactorKind.REPLICATE)
    builder.add([None, column, None], [column, None], y.shape[column])
    return builder.add([None] * 3, [None, row], result[1].shape[row], FactorKind.REPLICATE).build()


def _reference(a: Array, y: Array, cutoff: Array, *, result: Result) -> tuple[Array, Array]:
    solutions, values = (np.zeros(type.shape, type.numpy) for type in result)
    if not a.size:
        return solutions, values
    for index in np.ndindex(a.shape[:-2]):
        left, right = widen(a[index], False), widen(y[index], False)
        # Non-finite elements would affect the solutions of all other columns.
        lost = ~np.isfinite(right).all(0)
        if lost.any():
            right = np.where(lost, 0, right)
        try:
            if not np.isfinite(left).all():
                raise np.linalg.LinAlgError
            solved, _, _, singular = np.linalg.lstsq(left, right, float(cutoff[index]))
        except np.linalg.LinAlgError:
            solved = singular = np.full((), np.nan)
        with np.errstate(all="ignore"):
            solutions[index], values[index] = solved, singular
        solutions[index][:, lost] = np.nan
    return solutions, values


def _vjp(
    b: Builder, g: Any, a: Value, y: Value, cutoff: Value, x: Value, values: Value
) -> Cotangents:
    """Return the cotangents through the pseudo-inverse and through the singular values."""
    assert pinv.vjp is not None
    assert svd.vjp is not None
    of_a = of_y = None
    if g[0] is not None:
        inverse = b.pinv(a, cutoff)
        cotangent = Matrix(b, g[0])
        of_y = (Matrix(b, inverse).T @ cotangent).value
        of_a, _ = pinv.vjp(b, (cotangent @ Matrix(b, y).T).value, a, cutoff, inverse)
    if g[1] is not None:
        attributes = SingularValueAttributes(full=False, vectors=False)
        (more,) = svd.vjp(b, g[1], a, values, attributes=attributes)
        of_a = more if of_a is None else b.add(of_a, more)
    return of_a, of_y, None


least_squares = define_op(
    "least_squares",
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=ShiftDims(),
    vjp=_vjp,
)
"""The x of least norm that minimizes |a x - y|, and the singular values of a.

Singular values of at most `cutoff` times the largest count as 0. The derivative assumes a constant
rank.
"""
