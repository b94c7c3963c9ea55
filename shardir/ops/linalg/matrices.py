"""Batches of matrices: formulas for derivatives, and NumPy functions applied per matrix.

A `Matrix` is a term whose last two dimensions are rows and columns; the other dimensions are batch.
Derivatives of decompositions use it. The literature states them for cotangents that pair as
Re(conj(g) * dz); cotangents here pair without the conjugation, hence the `conj` at both ends.
"""

from collections.abc import Callable, Sequence
from string import ascii_letters

import numpy as np

from shardir.ir.module import Value
from shardir.ir.operation import Symbol
from shardir.ir.types import COMPLEX, NumpyArray, TensorType
from shardir.op_rules.factors import RuleBuilder
from shardir.ops.elementwise.term import Term
from shardir.ops.type_checks import DtypeDomain

Array = NumpyArray

FIELD = DtypeDomain("f32, f64, c64 or c128", ("f32", "f64", "c64", "c128"))


def matrix_shape(x: TensorType) -> tuple[int, int]:
    """Return rows and columns of the matrices in the last two dimensions; may raise `TypeError`."""
    FIELD.check(x)
    if x.rank < 2:
        raise TypeError(f"takes matrices in the last two dimensions, got {x}")
    return x.shape[-2], x.shape[-1]


def square_size(x: TensorType) -> int:
    """Return the number of rows of square matrices; raise `TypeError` for others."""
    rows, columns = matrix_shape(x)
    if rows != columns:
        raise TypeError(f"takes square matrices, got {x}")
    return rows


def batch_factors(x: TensorType, *results: TensorType) -> RuleBuilder:
    """Return a rule with one pass-through factor per batch dimension."""
    builder = RuleBuilder([x.shape], [result.shape for result in results])
    for d in range(x.rank - 2):
        builder.add([d], [d] * len(results), x.shape[d])
    return builder


def widen(x: Array, copy: bool = True) -> Array:
    """Return `x` in f64 or c128, in which all decompositions are computed."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=copy)


def apply_per_matrix(
    function: Callable[[Array], Array | tuple[Array, ...]], x: Array, results: Sequence[TensorType]
) -> tuple[Array, ...]:
    """Return `function` of all matrices, with NaN for each matrix on which it fails."""
    # NumPy itself widens single precision per matrix and rounds the results.
    single = x.dtype.char in "fF" and all(type.dtype in ("f32", "c64") for type in results)
    with np.errstate(all="ignore"):
        try:
            return _round_results(function(x if single else widen(x, False)), results)
        except np.linalg.LinAlgError:
            arrays = tuple(np.full(type.shape, np.nan).astype(type.numpy) for type in results)
            if x.ndim > 2:
                inner = [type.with_shape(type.shape[x.ndim - 2 :]) for type in results]
                for index in np.ndindex(x.shape[:-2]):
                    for result_array, part in zip(
                        arrays, apply_per_matrix(function, x[index], inner), strict=True
                    ):
                        result_array[index] = part
            return arrays


def _round_results(
    arrays: Array | tuple[Array, ...], results: Sequence[TensorType]
) -> tuple[Array, ...]:
    each = arrays if isinstance(arrays, tuple) else (arrays,)
    return tuple(
        np.asarray(x).astype(t.numpy, copy=False) for x, t in zip(each, results, strict=True)
    )


class Matrix(Term):
    """A value whose last two dimensions are rows and columns."""

    __slots__ = ()

    @property
    def type(self) -> TensorType:
        return self.value.type

    @property
    def is_complex(self) -> bool:
        return self.type.dtype in COMPLEX

    @property
    def T(self) -> "Matrix":
        rank = self.type.rank
        perm = (*range(rank - 2), rank - 1, rank - 2)
        return Matrix(self.b, self.b.transpose(self.value, perm=perm))

    @property
    def H(self) -> "Matrix":
        return self.T.conjugate()

    def conjugate(self) -> "Matrix":
        return self.conj() if self.is_complex else self

    def __matmul__(self, other: "Matrix") -> "Matrix":
        batch = ascii_letters[3 : self.type.rank + 1]
        dims = f"{batch}ab,{batch}bc->{batch}ac"
        return Matrix(self.b, self.b.dot(self.value, other.value, dims=dims))

    def broadcast_along(self, values: Value, axis: int) -> "Matrix":
        """Return vectors, one per batch element, broadcast along the rows (-2) or columns (-1)."""
        rank = self.type.rank
        dims = (*range(rank - 2), rank + axis)
        result = self.b.broadcast(values, dims=dims, result=self.type.with_dtype(values.type.dtype))
        if self.is_complex and values.type.dtype not in COMPLEX:
            result = self.b.convert(result, result=self.type)
        return Matrix(self.b, result)

    def triangle_mask(self, comparison: str) -> Term:
        """Return the mask of elements whose row number compares with the column number."""
        kind = self.type.with_dtype("i32")
        row, column = (self.b.iota(dim=kind.rank + axis, result=kind) for axis in (-2, -1))
        return Term(self.b, getattr(self.b, comparison)(row, column))

    def triangle(self, comparison: str) -> "Matrix":
        """Return the elements whose row number compares with the column number, else 0.

        `gt` is the strict lower triangle, `ge` the lower one, `lt` and `le` the upper ones, `eq`
        the diagonal.
        """
        return self.where(self.triangle_mask(comparison), 0)

    def identity(self) -> "Matrix":
        """Return identity matrices of the same type."""
        return self.full(1).triangle("eq")

    def diagonal(self) -> Value:
        """Return the diagonals of square matrices as vectors."""
        result: Value = self.b.sum(self.triangle("eq").value, dims=(self.type.rank - 1,))
        return result

    def columns(self, start: int, size: int) -> "Matrix":
        """Return a range of columns."""
        return self.slice_dim(self.type.rank - 1, start, size)

    def rows(self, start: int, size: int) -> "Matrix":
        """Return a range of rows."""
        return self.slice_dim(self.type.rank - 2, start, size)

    def slice_dim(self, dim: int, start: int, size: int) -> "Matrix":
        if self.type.shape[dim] == size:
            return self
        rank = self.type.rank
        shape = tuple(size if d == dim else n for d, n in enumerate(self.type.shape))
        starts = tuple(start if d == dim else 0 for d in range(rank))
        result = self.type.with_shape(shape)
        sliced = self.b.slice(self.value, starts=starts, strides=(1,) * rank, result=result)
        return Matrix(self.b, sliced)

    def append_columns(self, other: "Matrix") -> "Matrix":
        """Return the matrices with additional columns."""
        result = self.b.concatenate(self.value, other.value, dim=self.type.rank - 1)
        return Matrix(self.b, result)

    def append_rows(self, other: "Matrix") -> "Matrix":
        """Return the matrices with additional rows."""
        result = self.b.concatenate(self.value, other.value, dim=self.type.rank - 2)
        return Matrix(self.b, result)

    def solve(self, other: "Matrix", *, lower: bool, transpose: str = "no") -> "Matrix":
        """Return the solution x of triangular systems with these coefficients."""
        result = self.b.triangular_solve(
            self.value, other.value, lower=lower, transpose=Symbol(transpose), unit=False
        )
        return Matrix(self.b, result)

    def hermitian(self) -> "Matrix":
        """Return a cotangent of Hermitian matrices as a cotangent of their lower triangles.

        An element below the diagonal represents two elements; on the diagonal only the real part
        counts.
        """
        both = self + self.H
        return both.triangle("gt") + both.triangle("eq") * 0.5
