"""Direct matrix factorizations: QR and LU."""

from math import prod
from typing import Any

import numpy as np

from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder
from shardir.ir.operation import OPS, Cotangents, Result, Value, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.ops.linalg.matrices import (
    Array,
    Matrix,
    apply_per_matrix,
    batch_factors,
    matrix_shape,
    widen,
)


def _qr_type(x: TensorType, *, full: bool, result: Result) -> tuple[TensorType, TensorType]:
    rows, columns = matrix_shape(x)
    size = rows if full else min(rows, columns)
    outer = x.shape[:-2]
    return x.with_shape((*outer, rows, size)), x.with_shape((*outer, size, columns))


def _qr_factors(x: TensorType, *, full: bool, result: Result) -> FactorRule:
    row, column = x.rank - 2, x.rank - 1
    builder = batch_factors(x, *result)
    builder.add([row], [row, None], x.shape[row], FactorKind.REPLICATE)
    builder.add([column], [None, column], x.shape[column], FactorKind.REPLICATE)
    builder.add([None], [column, row], result[1].shape[row], FactorKind.REPLICATE)
    return builder.build()


def _qr_reference(x: Array, *, full: bool, result: Result) -> tuple[Array, ...]:
    def decompose(matrix: Array) -> tuple[Array, ...]:
        return tuple(np.linalg.qr(matrix, "complete" if full else "reduced"))

    return apply_per_matrix(decompose, x, result)


def _qr_vjp(b: Builder, g: Any, x: Value, q: Any, r: Any, *, full: bool) -> Cotangents:
    """Return the cotangent.

    Source: S. F. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions"
    (2010). For wide matrices the columns beyond the square are Q^H times those of the matrix.
    """
    rows, columns = x.type.shape[-2:]
    if full and rows > columns:
        raise DifferentiateError(
            f"qr of {x.type} with full=true has no derivative, because the columns of Q beyond "
            "those of the matrix are not unique; use full=false"
        )
    size = min(rows, columns)
    q, r = Matrix(b, q), Matrix(b, r)
    of_q, of_r = (
        value.full(0) if grad is None else Matrix(b, grad).conjugate()
        for value, grad in zip((q, r), g, strict=True)
    )
    beyond = None
    if columns > size:
        rest = Matrix(b, x).columns(size, columns - size)
        of_rest = of_r.columns(size, columns - size)
        beyond = q @ of_rest
        of_q = of_q + rest @ of_rest.H
        r, of_r = r.columns(0, size), of_r.columns(0, size)
    inner = (of_r @ r.H - q.H @ of_q).triangle("le")
    inner = inner + inner.H
    grad = of_q + q @ (inner - inner.triangle("eq") * 0.5)
    grad = r.solve(grad.H, lower=False).H
    if beyond is not None:
        grad = grad.append_columns(beyond)
    return (grad.conjugate().value,)


qr = define_op(
    "qr",
    type=_qr_type,
    factors=_qr_factors,
    reference=_qr_reference,
    batch=ShiftDims(),
    vjp=_qr_vjp,
)
"""Q with orthonormal columns and upper triangular R with Q R = x, by Householder reflections.

With `full` Q is square; otherwise it has min(rows, columns) columns.
"""


def _lu_type(x: TensorType, *, result: Result) -> tuple[TensorType, TensorType, TensorType]:
    rows, columns = matrix_shape(x)
    outer = x.shape[:-2]
    pivots = TensorType((*outer, min(rows, columns)), "i32")
    return x, pivots, TensorType((*outer, rows), "i32")


def _lu_factors(x: TensorType, *, result: Result) -> FactorRule:
    row, column = x.rank - 2, x.rank - 1
    builder = batch_factors(x, *result)
    builder.add([row], [None, None, None], x.shape[row], FactorKind.REPLICATE)
    builder.add([column], [column, None, None], x.shape[column], FactorKind.REPLICATE)
    builder.add([None], [None, row, None], result[1].shape[row], FactorKind.REPLICATE)
    # The rows of the factors are in the order of the permutation: they are not those of `x`.
    builder.add([None], [row, None, row], x.shape[row], FactorKind.REPLICATE)
    return builder.build()


def _lu_reference(x: Array, *, result: Result) -> tuple[Array, Array, Array]:
    """Factorize all matrices of the batch at the same time, column by column with row pivoting."""
    rows, columns = x.shape[-2:]
    size = min(rows, columns)
    left = widen(x).reshape(prod(x.shape[:-2]), rows, columns)
    count = np.arange(len(left))
    pivots = np.zeros((len(left), size), np.int32)
    order = np.tile(np.arange(rows, dtype=np.int32), (len(left), 1))
    with np.errstate(all="ignore"):
        for i in range(size):
            best = i + np.argmax(_pivot_magnitude(left[:, i:, i]), -1)
            pivots[:, i] = best
            for array in (left, order):
                array[count, i], array[count, best] = array[count, best], array[count, i].copy()
            pivot = left[:, i, i, None]
            left[:, i + 1 :, i] /= np.where(pivot == 0, 1, pivot)
            left[:, i + 1 :, i + 1 :] -= left[:, i + 1 :, i, None] * left[:, i, None, i + 1 :]
    lu_type, places, permutation = result
    return (
        left.reshape(x.shape).astype(lu_type.numpy),
        pivots.reshape(places.shape),
        order.reshape(permutation.shape),
    )


def _pivot_magnitude(x: Array) -> Array:
    """Return the pivot criterion of LAPACK: |re| + |im| for complex elements."""
    size: Array = np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)
    return size


def _lu_vjp(
    b: Builder, g: Any, x: Value, packed: Value, pivots: Value, permutation: Value
) -> Cotangents:
    """Return the cotangent of x[permutation] = L U, with its rows permuted back."""
    rows, columns = x.type.shape[-2:]
    size = min(rows, columns)
    both, grad = Matrix(b, packed), Matrix(b, g[0]).conjugate()
    tall, broad = both.columns(0, size).triangle("gt"), both.rows(0, size).triangle("le")
    lower = tall + tall.identity()
    of_lower, of_upper = grad.columns(0, size).triangle("gt"), grad.rows(0, size).triangle("le")
    corner, head = lower.rows(0, size), broad.columns(0, size)
    inner_upper = of_upper.columns(0, size) @ head.H
    inner_lower = corner.H @ of_lower.rows(0, size)
    beside = under = None
    if columns > size:
        beside = of_upper.columns(size, columns - size)
        inner_lower = inner_lower - beside @ broad.columns(size, columns - size).H
    if rows > size:
        under = of_lower.rows(size, rows - size)
        inner_upper = inner_upper - lower.rows(size, rows - size).H @ under
    inner = inner_lower.triangle("gt") + inner_upper.triangle("le")
    cotangent = head.solve(inner.H, lower=False).H
    if under is not None:
        cotangent = cotangent.append_rows(head.solve(under.H, lower=False).H)
    top = corner.solve(cotangent.rows(0, size), lower=True, transpose="adjoint")
    if beside is not None:
        top = top.append_columns(corner.solve(beside, lower=True, transpose="adjoint"))
    if under is not None:
        top = top.append_rows(cotangent.rows(size, rows - size))
    positions = b.iota(dim=x.type.rank - 2, result=permutation.type)
    _, back = b.emit(OPS["sort"], permutation, positions, dim=x.type.rank - 2, keys=1, stable=True)
    return (take_rows(b, top.conjugate().value, back),)


def take_rows(b: Builder, x: Value, places: Value) -> Value:
    """Return the rows of matrices at given positions, for each matrix of the batch."""
    rank = x.type.rank
    batch = tuple(range(rank - 2))
    pointers = b.reshape(places, result=places.type.with_shape((*places.type.shape, 1)))
    return b.gather(
        x,
        pointers,
        offset_dims=(rank - 1,),
        collapsed_dims=(rank - 2,),
        start_index_map=(rank - 2,),
        operand_batching_dims=batch,
        indices_batching_dims=batch,
        result=x.type.with_shape((*places.type.shape, x.type.shape[-1])),
    )


lu = define_op(
    "lu",
    type=_lu_type,
    factors=_lu_factors,
    reference=_lu_reference,
    batch=ShiftDims(),
    vjp=_lu_vjp,
)
"""L and U of x[permutation] = L U in one matrix, the pivots, and the row permutation.

L is unit lower triangular (or trapezoidal) without its diagonal, U is upper triangular. Step i
exchanged row i with row `pivots[i]`, counted from 0, as in LAPACK's `getrf`.
"""
