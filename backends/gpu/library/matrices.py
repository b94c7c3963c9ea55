"""Matrix decompositions in the last two dimensions; NaN for each matrix that has none."""

import math

import torch
from torch import Tensor


def finite_matrices(x: Tensor) -> Tensor:
    """Return for each matrix whether all its elements are finite."""
    return x.isfinite().all(-1).all(-1)


def without_endless(x: Tensor) -> Tensor:
    """Return the matrices, with zeros for those that have an infinity or a NaN."""
    return torch.where(finite_matrices(x)[..., None, None], x, torch.zeros_like(x))


def only_where(found: Tensor, made: Tensor) -> Tensor:
    """Return the results for matrices, with NaN where `found` is false."""
    inner = made.dim() - found.dim()
    return torch.where(found.reshape(*found.shape, *[1] * inner), made, math.nan)


def cholesky_factor(x: Tensor) -> Tensor:
    """Return the lower triangular factor; only the lower triangle of `x` is read."""
    factor, failed = torch.linalg.cholesky_ex(without_endless(x.tril()))
    return only_where((failed == 0) & finite_matrices(x.tril()), factor)


def pivoted_factors(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return L and U in one matrix, the pivot rows, and the permutation."""
    factors, exchanged, _ = torch.linalg.lu_factor_ex(x)
    pivots = exchanged - 1
    rows = torch.arange(x.shape[-2], dtype=torch.int32, device=x.device)
    order = rows.expand(*x.shape[:-1]).clone()
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].to(torch.int64)
        here, there = order[..., i : i + 1].clone(), order.gather(-1, other)
        order = order.scatter(-1, other, here)
        order[..., i : i + 1] = there
    return factors, pivots, order


def singular_values(x: Tensor) -> Tensor:
    """Return the singular values in descending order."""
    return only_where(finite_matrices(x), torch.linalg.svdvals(without_endless(x)))


def singular_vectors(x: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, the singular values, and V^H."""
    found = finite_matrices(x)
    u, values, vh = torch.linalg.svd(without_endless(x), full_matrices=full)
    return only_where(found, u), only_where(found, values), only_where(found, vh)


def hermitian_values(x: Tensor) -> Tensor:
    """Return the eigenvalues of Hermitian matrices, ascending; the lower triangle is read."""
    found = finite_matrices(x.tril())
    return only_where(found, torch.linalg.eigvalsh(without_endless(x.tril()), UPLO="L"))


def hermitian_vectors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of Hermitian matrices, ascending, and eigenvectors as columns."""
    found = finite_matrices(x.tril())
    values, vectors = torch.linalg.eigh(without_endless(x.tril()), UPLO="L")
    return only_where(found, values), only_where(found, vectors)


def on_the_host(x: Tensor) -> Tensor:
    """Copy the matrices to the host, in double precision."""
    wide = torch.complex128 if x.is_complex() else torch.float64
    return without_endless(x).to("cpu", wide)


def general_values(x: Tensor) -> Tensor:
    """Return the eigenvalues of square matrices, computed on the host."""
    narrow = torch.complex128 if x.dtype in (torch.float64, torch.complex128) else torch.complex64
    values = torch.linalg.eigvals(on_the_host(x)).to(x.device, narrow)
    return only_where(finite_matrices(x), values)


def general_vectors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, and eigenvectors as columns, of square matrices; computed on the host."""
    narrow = torch.complex128 if x.dtype in (torch.float64, torch.complex128) else torch.complex64
    values, vectors = torch.linalg.eig(on_the_host(x))
    found = finite_matrices(x)
    values, vectors = values.to(x.device, narrow), vectors.to(x.device, narrow)
    return only_where(found, values), only_where(found, vectors)


def pseudo_inverse(x: Tensor, cutoff: Tensor) -> Tensor:
    """Return the pseudo-inverse; singular values up to `cutoff` times the largest count as 0."""
    if not min(x.shape[-2:]):
        return x.mT.clone()
    u, values, vh = singular_vectors(x, full=False)
    large = values > cutoff[..., None] * values[..., :1]
    safe = torch.where(values == 0, 1, values)
    inverse = torch.where(large | values.isnan(), 1 / safe, 0)
    return vh.mH @ (inverse[..., None] * u.mH)
