"""Triangular matrices: Cholesky factorization and triangular solve."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.operation import Cotangents, Partitioning, Result, Symbol, Value, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import default_shardable_factors
from shardir.ops.linalg.matrices import (
    Array,
    Matrix,
    apply_per_matrix,
    matrix_shape,
    square_size,
    widen,
)
from shardir.ops.type_checks import common_dtype


def _cholesky_type(x: TensorType, *, result: TensorType | None) -> TensorType:
    square_size(x)
    return x


def _cholesky_factors(x: TensorType, *, result: TensorType) -> FactorRule:
    builder = RuleBuilder([x.shape], [x.shape])
    for d, size in enumerate(x.shape):
        builder.add([d], [d], size, FactorKind.PASS if d < x.rank - 2 else FactorKind.REPLICATE)
    return builder.build()


def _cholesky_reference(x: Array, *, result: TensorType) -> Array:
    (factor,) = apply_per_matrix(np.linalg.cholesky, x, (result,))
    return factor


def _cholesky_vjp(b: Builder, g: Value, x: Value, y: Value) -> Cotangents:
    """Return the cotangent.

    Source: S. F. Walter, "Structured higher-order algorithmic differentiation" (2012), 4.3.
    """
    grad, factor = Matrix(b, g).conjugate(), Matrix(b, y)
    inner = (factor.H @ grad).triangle("ge")
    inner = inner - inner.triangle("eq") * 0.5
    left = factor.solve(inner, lower=True, transpose="adjoint")
    both = factor.solve(left.T, lower=True, transpose="transpose").T
    return (both.hermitian().conjugate().value,)


cholesky = define_op(
    "cholesky",
    type=_cholesky_type,
    factors=_cholesky_factors,
    reference=_cholesky_reference,
    batch=ShiftDims(),
    vjp=_cholesky_vjp,
)
"""The lower triangular L of a Hermitian positive definite matrix L L^H, whose lower triangle is
read. The result is NaN if the matrix is not positive definite.
"""


TRANSPOSES = ("no", "transpose", "adjoint")


@dataclass(frozen=True, slots=True)
class TriangularSolveAttributes(Attributes):
    """The attributes of `triangular_solve`."""

    lower: bool
    transpose: str
    unit: bool


def _solve_type(
    a: TensorType,
    y: TensorType,
    *,
    attributes: TriangularSolveAttributes,
    result: TensorType | None,
) -> TensorType:
    transpose = attributes.transpose
    if transpose not in TRANSPOSES:
        raise TypeError(f"transpose={transpose} is not one of {', '.join(TRANSPOSES)}")
    common_dtype(a, y)
    size = square_size(a)
    rows, _ = matrix_shape(y)
    if rows != size or a.shape[:-2] != y.shape[:-2]:
        raise TypeError(f"{a} does not multiply {y} from the left")
    return y


def _solve_factors(
    a: TensorType, y: TensorType, *, attributes: TriangularSolveAttributes, result: TensorType
) -> FactorRule:
    """Return the factors: rows of the solution, rows of the equations, and right-hand sides."""
    builder = RuleBuilder([a.shape, y.shape], [y.shape])
    row, column = a.rank - 2, a.rank - 1
    for d in range(row):
        builder.add([d, d], [d], a.shape[d])
    free, contracted = (row, column) if attributes.transpose == "no" else (column, row)
    builder.add([free, row], [None], a.shape[free], FactorKind.REPLICATE)
    builder.add([None, column], [column], y.shape[column], FactorKind.REPLICATE)
    builder.add([contracted, None], [row], a.shape[contracted], FactorKind.REPLICATE)
    return builder.build()


def _solve_shardable(
    rule: FactorRule, *types: TensorType, result: Result, **_: object
) -> Iterable[int]:
    """Return the shardable factors, including right-hand sides, which are independent."""
    rank = len(rule.results[0])
    return (*default_shardable_factors(rule), rank - 1)


def _solve_reference(
    a: Array, y: Array, *, attributes: TriangularSolveAttributes, result: TensorType
) -> Array:
    """Solve by substitution, row by row."""
    lower, transpose = attributes.lower, attributes.transpose
    if transpose != "no":
        a = np.swapaxes(a, -1, -2)
        a, lower = (a.conj() if transpose == "adjoint" else a), not lower
    a, x = widen(a), widen(y)
    size = a.shape[-1]
    with np.errstate(all="ignore"):
        for i in range(size) if lower else reversed(range(size)):
            solved = slice(0, i) if lower else slice(i + 1, size)
            x[..., i, :] -= np.squeeze(a[..., i : i + 1, solved] @ x[..., solved, :], -2)
            if not attributes.unit:
                x[..., i, :] /= a[..., i, i, None]
        return x.astype(result.numpy)


def _solve_vjp(
    b: Builder, g: Value, a: Value, y: Value, x: Value, *, attributes: TriangularSolveAttributes
) -> Cotangents:
    lower, transpose, unit = attributes.lower, attributes.transpose, attributes.unit
    coefficients = Matrix(b, a).conjugate().value if transpose == "adjoint" else a
    turned = Symbol("transpose" if transpose == "no" else "no")
    back = b.triangular_solve(coefficients, g, lower=lower, transpose=turned, unit=unit)
    grad = -(Matrix(b, back) @ Matrix(b, x).T)
    if transpose != "no":
        grad = grad.T if transpose == "transpose" else grad.H
    triangle = ("gt" if unit else "ge") if lower else ("lt" if unit else "le")
    return grad.triangle(triangle).value, back


triangular_solve = define_op(
    "triangular_solve",
    attributes=TriangularSolveAttributes,
    type=_solve_type,
    factors=_solve_factors,
    reference=_solve_reference,
    batch=ShiftDims(),
    vjp=_solve_vjp,
    partition=Partitioning(shardable=_solve_shardable),
)
"""The x of a x = y for triangular matrices `a`; only one triangle is read.

`lower` selects the triangle, `transpose` (`no`, `transpose`, `adjoint`) is applied to it, and with
`unit` the diagonal counts as ones and is not read.
"""
