"""The Schur decomposition of square matrices.

The vectors are unique only up to a sign, for complex matrices up to a phase, and the order of the
eigenvalues is that of `eig`. There is no derivative.
"""

import numpy as np

from shardir.ir.operation import Result, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.ops.linalg.matrices import Array, batch_factors, square_size, widen


def _schur_type(
    x: TensorType, *, vectors: bool, result: Result
) -> tuple[TensorType, TensorType] | TensorType:
    square_size(x)
    return (x, x) if vectors else x


def _schur_factors(x: TensorType, *, vectors: bool, result: Result) -> FactorRule:
    row, column = x.rank - 2, x.rank - 1
    results = (result,) if isinstance(result, TensorType) else result
    builder = batch_factors(x, *results)
    for dim in (row, column):
        builder.add([dim], [dim] * len(results), x.shape[dim], FactorKind.REPLICATE)
    return builder.build()


def _schur_reference(x: Array, *, vectors: bool, result: Result) -> Array | tuple[Array, Array]:
    """Return the decomposition by deflation: one eigenvector or pair of them after the other."""
    forms, bases = widen(x), np.empty_like(widen(x, False))
    for index in np.ndindex(x.shape[:-2]):
        forms[index], bases[index] = _decompose(forms[index])
    if isinstance(result, TensorType):
        return forms.astype(result.numpy)
    form, basis = (
        each.astype(type.numpy) for each, type in zip((forms, bases), result, strict=True)
    )
    return form, basis


def _decompose(matrix: Array) -> tuple[Array, Array]:
    size = len(matrix)
    form, basis = matrix.copy(), np.eye(size, dtype=matrix.dtype)
    if not np.isfinite(matrix).all():
        return np.full_like(form, np.nan), np.full_like(form, np.nan)
    order = np.linalg.eigvals(matrix)
    done = 0
    while done < size:
        values, vectors = np.linalg.eig(form[done:, done:])
        chosen = np.argmin(np.abs(values - order[done]))
        vector = vectors[:, chosen]
        columns = [vector]
        if matrix.dtype.kind == "f":
            columns = [vector.real, vector.imag] if values[chosen].imag else [vector.real]
        count = len(columns)
        _rotate(form, basis, done, _complete_basis(np.stack(columns, 1)))
        form[done + count :, done : done + count] = 0
        if count == 2:
            _rotate(form, basis, done, _equalize_diagonal(form[done : done + 2, done : done + 2]))
        done += count
    return form, basis


def _complete_basis(columns: Array) -> Array:
    """Return a unitary matrix whose first columns span the given ones."""
    return np.linalg.qr(np.concatenate([columns, np.eye(len(columns))], 1))[0]


def _rotate(form: Array, basis: Array, start: int, by: Array) -> None:
    """Change the basis of the rows and columns from `start` on."""
    at = slice(start, start + len(by))
    form[at] = by.conj().T @ form[at]
    form[:, at] = form[:, at] @ by
    basis[:, at] = basis[:, at] @ by


def _equalize_diagonal(block: Array) -> Array:
    """Return the rotation after which both elements of the diagonal of a block are equal."""
    (a, b), (c, d) = block
    angle = np.arctan2(d - a, b + c) / 2
    sine, cosine = np.sin(angle), np.cos(angle)
    return np.array([[cosine, -sine], [sine, cosine]])


schur = define_op(
    "schur",
    type=_schur_type,
    factors=_schur_factors,
    reference=_schur_reference,
    batch=ShiftDims(),
)
"""T and unitary Z with Z T Z^H = x.

T is upper triangular if `x` is complex. If `x` is real, T has blocks of two rows on its diagonal
for pairs of conjugate eigenvalues, with equal diagonal elements. Without `vectors`, T is the only
result.
"""
