"""Iterative matrix decompositions: singular values and eigenvalues.

Vectors are unique only up to a sign, for complex matrices up to a phase, and for equal values up to
a rotation. Derivatives are those of functions that do not depend on this choice; equal values do
not contribute to the derivatives of each other's vectors.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardir.errors import DifferentiateError
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder, as_values
from shardir.ir.operation import OPS, Cotangents, Result, Value, define_op
from shardir.ir.types import COMPLEX_OF, REAL_OF, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.ops.linalg.factorizations import take_rows
from shardir.ops.linalg.matrices import (
    Array,
    Matrix,
    apply_per_matrix,
    batch_factors,
    matrix_shape,
    square_size,
)


def _as_tuple(result: Result) -> tuple[TensorType, ...]:
    return (result,) if isinstance(result, TensorType) else result


def _drop_vectors(results: tuple[Array, ...], vectors: bool) -> Array | tuple[Array, ...]:
    return results if vectors else results[0]


def _divide_by_gaps(inner: Matrix, values: Value) -> Matrix:
    """Return each element divided by its column's value minus its row's value; 0 where equal."""
    gap = inner.broadcast_along(values, -1) - inner.broadcast_along(values, -2)
    equal = gap.eq(0)
    return inner.full(0).where(equal, inner / gap.full(1).where(equal, gap))


@dataclass(frozen=True, slots=True)
class SingularValueAttributes(Attributes):
    """The attributes of `svd`."""

    full: bool
    vectors: bool


def _svd_type(x: TensorType, *, attributes: SingularValueAttributes, result: Result) -> object:
    rows, columns = matrix_shape(x)
    size, outer = min(rows, columns), x.shape[:-2]
    values = TensorType((*outer, size), REAL_OF.get(x.dtype, x.dtype))
    if not attributes.vectors:
        return values
    left, right = (rows, columns) if attributes.full else (size, size)
    return x.with_shape((*outer, rows, left)), values, x.with_shape((*outer, right, columns))


def _svd_factors(
    x: TensorType, *, attributes: SingularValueAttributes, result: Result
) -> FactorRule:
    row, column = x.rank - 2, x.rank - 1
    builder = batch_factors(x, *_as_tuple(result))
    if not attributes.vectors:
        builder.add([row], [None], x.shape[row], FactorKind.REPLICATE)
        builder.add([column], [None], x.shape[column], FactorKind.REPLICATE)
        return builder.add([None], [row], result.shape[row], FactorKind.REPLICATE).build()
    left, values, right = result
    builder.add([row], [row, None, None], x.shape[row], FactorKind.REPLICATE)
    builder.add([column], [None, None, column], x.shape[column], FactorKind.REPLICATE)
    builder.add([None], [column, None, None], left.shape[column], FactorKind.REPLICATE)
    builder.add([None], [None, row, None], values.shape[row], FactorKind.REPLICATE)
    return builder.add([None], [None, None, row], right.shape[row], FactorKind.REPLICATE).build()


def _svd_reference(
    x: Array, *, attributes: SingularValueAttributes, result: Result
) -> Array | tuple[Array, ...]:
    def decompose(matrix: Array) -> Array | tuple[Array, ...]:
        if attributes.vectors:
            return tuple(np.linalg.svd(matrix, attributes.full))
        return np.linalg.svd(matrix, compute_uv=False)

    return _drop_vectors(apply_per_matrix(decompose, x, _as_tuple(result)), attributes.vectors)


def _svd_vjp(
    b: Builder, g: Any, x: Value, *results: Value, attributes: SingularValueAttributes
) -> Cotangents:
    """Return the cotangent.

    Source: J. Townsend, "Differentiating the singular value decomposition" (2016).
    """
    full, vectors = attributes.full, attributes.vectors
    rows, columns = x.type.shape[-2:]
    cotangents = g if vectors else (None, g, None)
    plain = cotangents[0] is None and cotangents[2] is None
    if full and rows != columns and not plain:
        raise DifferentiateError(
            f"svd of {x.type} with full=true has no derivative, because the vectors beyond the "
            "singular values are not unique; use full=false"
        )
    if not vectors or (full and rows != columns):
        results = b.emit(OPS["svd"], x, full=False, vectors=True)
    u, vh, values = Matrix(b, results[0]), Matrix(b, results[2]), results[1]
    inner = _svd_inner(b, cotangents, u, vh, values)
    if plain:
        return ((u @ inner @ vh).conjugate().value,)
    of_u, of_vh = _cotangent_or_zero(b, cotangents[0], u), _cotangent_or_zero(b, cotangents[2], vh)
    size = min(rows, columns)
    if rows > size:
        part = of_u / _zeros_to_ones(of_u.broadcast_along(values, -1))
        return (((u @ inner + part - u @ (u.H @ part)) @ vh).conjugate().value,)
    if columns > size:
        part = of_vh / _zeros_to_ones(of_vh.broadcast_along(values, -2))
        return ((u @ (inner @ vh + part - (part @ vh.H) @ vh)).conjugate().value,)
    return ((u @ inner @ vh).conjugate().value,)


def _svd_inner(b: Builder, cotangents: Cotangents, u: Matrix, vh: Matrix, values: Value) -> Matrix:
    """Return the inner factor of the cotangent between U and V^H."""
    core = Matrix(b, b.full(0, u.type.with_shape((*values.type.shape, values.type.shape[-1]))))
    inner = core
    if cotangents[1] is not None:
        inner = core.broadcast_along(cotangents[1], -1).triangle("eq")
    if cotangents[0] is None and cotangents[2] is None:
        return inner
    turned_u = u.H @ _cotangent_or_zero(b, cotangents[0], u)
    turned_v = vh @ _cotangent_or_zero(b, cotangents[2], vh).H
    turned_u, turned_v = turned_u - turned_u.H, turned_v - turned_v.H
    squares = b.mul(values, values)
    row, column = core.broadcast_along(values, -2), core.broadcast_along(values, -1)
    inner = (
        inner
        + _divide_by_gaps(turned_u, squares) * column
        + row * _divide_by_gaps(turned_v, squares)
    )
    if core.is_complex:
        inner = inner + (turned_u / _zeros_to_ones(column * 2)).triangle("eq")
    return inner


def _cotangent_or_zero(b: Builder, grad: Value | None, like: Matrix) -> Matrix:
    return like.full(0) if grad is None else Matrix(b, grad).conjugate()


def _zeros_to_ones(x: Matrix) -> Matrix:
    """Return the matrix with zeros replaced by ones."""
    return x.full(1).where(x.eq(0), x)


svd = define_op(
    "svd",
    attributes=SingularValueAttributes,
    type=_svd_type,
    factors=_svd_factors,
    reference=_svd_reference,
    batch=ShiftDims(),
    vjp=_svd_vjp,
)
"""U, the singular values in descending order, and V^H, with U diag(values) V^H = x.

With `full` both matrices are square; otherwise they have one vector per value. Without `vectors`
the values are the only result.
"""


def _eigh_type(
    x: TensorType, *, vectors: bool, result: Result
) -> tuple[TensorType, TensorType] | TensorType:
    size = square_size(x)
    values = TensorType((*x.shape[:-2], size), REAL_OF.get(x.dtype, x.dtype))
    return (values, x) if vectors else values


def _eigen_factors(x: TensorType, *, vectors: bool, result: Result) -> FactorRule:
    row, column = x.rank - 2, x.rank - 1
    builder = batch_factors(x, *_as_tuple(result))
    builder.add([row], [None, row] if vectors else [None], x.shape[row], FactorKind.REPLICATE)
    builder.add(
        [column], [row, column] if vectors else [row], x.shape[column], FactorKind.REPLICATE
    )
    return builder.build()


def _eigh_reference(x: Array, *, vectors: bool, result: Result) -> Array | tuple[Array, ...]:
    def decompose(matrix: Array) -> Array | tuple[Array, ...]:
        return tuple(np.linalg.eigh(matrix)) if vectors else np.linalg.eigvalsh(matrix)

    return _drop_vectors(apply_per_matrix(decompose, x, _as_tuple(result)), vectors)


def _eigh_vjp(b: Builder, g: Any, x: Value, *results: Value, vectors: bool) -> Cotangents:
    """Return the cotangent.

    Source: M. B. Giles, "Collected matrix derivative results" (2008), 3.1.
    """
    of_values, of_vectors = g if vectors else (g, None)
    values, eigenvectors = results if vectors else as_values(b.emit(OPS["eigh"], x, vectors=True))
    basis = Matrix(b, eigenvectors)
    inner = basis.full(0)
    if of_vectors is not None:
        inner = _divide_by_gaps(basis.H @ Matrix(b, of_vectors).conjugate(), values)
    if of_values is not None:
        inner = inner + basis.broadcast_along(of_values, -1).triangle("eq")
    return ((basis @ inner @ basis.H).hermitian().conjugate().value,)


eigh = define_op(
    "eigh",
    type=_eigh_type,
    factors=_eigen_factors,
    reference=_eigh_reference,
    batch=ShiftDims(),
    vjp=_eigh_vjp,
)
"""The eigenvalues of Hermitian matrices in ascending order, and the eigenvectors as columns.

Only the lower triangle is read. Without `vectors` the values are the only result.
"""


def _eig_type(
    x: TensorType, *, vectors: bool, result: Result
) -> tuple[TensorType, TensorType] | TensorType:
    size = square_size(x)
    dtype = COMPLEX_OF.get(x.dtype, x.dtype)
    values = TensorType((*x.shape[:-2], size), dtype)
    return (values, x.with_dtype(dtype)) if vectors else values


def _eig_reference(x: Array, *, vectors: bool, result: Result) -> Array | tuple[Array, ...]:
    def decompose(matrix: Array) -> Array | tuple[Array, ...]:
        return tuple(np.linalg.eig(matrix)) if vectors else np.linalg.eigvals(matrix)

    return _drop_vectors(apply_per_matrix(decompose, x, _as_tuple(result)), vectors)


def _eig_vjp(b: Builder, g: Any, x: Value, *results: Value, vectors: bool) -> Cotangents:
    """Return the cotangent.

    Source: C. Boeddeker et al., "On the computation of complex-valued gradients" (2017), 4.4.
    """
    of_values, of_vectors = g if vectors else (g, None)
    values, eigenvectors = results if vectors else as_values(b.emit(OPS["eig"], x, vectors=True))
    basis = Matrix(b, eigenvectors)
    inner = basis.full(0)
    if of_vectors is not None:
        # Vectors have norm 1, so the component that would change the norm is removed.
        turned = basis.H @ Matrix(b, of_vectors).conjugate()
        length = b.real(turned.diagonal())
        turned = turned - (basis.H @ basis) * turned.broadcast_along(length, -1)
        inner = _divide_by_gaps(turned, b.conj(values))
    if of_values is not None:
        inner = inner + basis.broadcast_along(b.conj(of_values), -1).triangle("eq")
    grad = _solve_lu(basis.H, inner @ basis.H).conjugate()
    return (grad.value if x.type.dtype in REAL_OF else b.real(grad.value),)


def _solve_lu(a: Matrix, y: Matrix) -> Matrix:
    """Return the solution x of a x = y."""
    packed, _, order = a.b.emit(OPS["lu"], a.value)
    factors, permuted = Matrix(a.b, packed), Matrix(a.b, take_rows(a.b, y.value, order))
    lower = factors.triangle("gt") + factors.identity()
    return factors.solve(lower.solve(permuted, lower=True), lower=False)


eig = define_op(
    "eig",
    type=_eig_type,
    factors=_eigen_factors,
    reference=_eig_reference,
    batch=ShiftDims(),
    vjp=_eig_vjp,
)
"""The eigenvalues of square matrices in no particular order, and unit eigenvectors as columns.

Both are complex. Without `vectors` the values are the only result.
"""
