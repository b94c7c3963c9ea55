"""Decompositions of matrices in the last two dimensions; NaN for each that has none."""

import math

import torch
from torch import Tensor


def finite_matrices(x: Tensor) -> Tensor:
    """Which matrices have no infinity and no NaN."""
    return x.isfinite().all(-1).all(-1)


def without_endless(x: Tensor) -> Tensor:
    """The matrices, zeros for those with an infinity or a NaN."""
    return torch.where(finite_matrices(x)[..., None, None], x, torch.zeros_like(x))


def only_where(found: Tensor, made: Tensor) -> Tensor:
    """What was made of matrices, NaN for those of which nothing was found."""
    inner = made.dim() - found.dim()
    return torch.where(found.reshape(*found.shape, *[1] * inner), made, math.nan)


def cholesky_factor(x: Tensor) -> Tensor:
    """The lower triangular factor; of `x` only the lower triangle is read."""
    factor, failed = torch.linalg.cholesky_ex(without_endless(x.tril()))
    return only_where((failed == 0) & finite_matrices(x.tril()), factor)


def pivoted_factors(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one matrix, the row that each was exchanged with, and the permutation."""
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
    """The singular values, falling."""
    return only_where(finite_matrices(x), torch.linalg.svdvals(without_endless(x)))


def singular_vectors(x: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, the singular values, and V^H."""
    found = finite_matrices(x)
    u, values, vh = torch.linalg.svd(without_endless(x), full_matrices=full)
    return only_where(found, u), only_where(found, values), only_where(found, vh)


def hermitian_values(x: Tensor) -> Tensor:
    """The eigenvalues of Hermitian matrices, rising; the lower triangle is read."""
    found = finite_matrices(x.tril())
    return only_where(found, torch.linalg.eigvalsh(without_endless(x.tril()), UPLO="L"))


def hermitian_vectors(x: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of Hermitian matrices, rising, and eigenvectors as columns."""
    found = finite_matrices(x.tril())
    values, vectors = torch.linalg.eigh(without_endless(x.tril()), UPLO="L")
    return only_where(found, values), only_where(found, vectors)


def on_the_host(x: Tensor) -> Tensor:
    """The matrices on the host, in double precision."""
    wide = torch.complex128 if x.is_complex() else torch.float64
    return without_endless(x).to("cpu", wide)


def general_values(x: Tensor) -> Tensor:
    """The eigenvalues of square matrices, computed on the host."""
    narrow = torch.complex128 if x.dtype in (torch.float64, torch.complex128) else torch.complex64
    values = torch.linalg.eigvals(on_the_host(x)).to(x.device, narrow)
    return only_where(finite_matrices(x), values)


def general_vectors(x: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of square matrices and eigenvectors as columns, computed on the host."""
    narrow = torch.complex128 if x.dtype in (torch.float64, torch.complex128) else torch.complex64
    values, vectors = torch.linalg.eig(on_the_host(x))
    found = finite_matrices(x)
    values, vectors = values.to(x.device, narrow), vectors.to(x.device, narrow)
    return only_where(found, values), only_where(found, vectors)


def pseudo_inverse(x: Tensor, cutoff: Tensor) -> Tensor:
    """The pseudo-inverse, with singular values of at most `cutoff` times the largest as 0."""
    if not min(x.shape[-2:]):
        return x.mT.clone()
    u, values, vh = singular_vectors(x, full=False)
    large = values > cutoff[..., None] * values[..., :1]
    safe = torch.where(values == 0, 1, values)
    inverse = torch.where(large | values.isnan(), 1 / safe, 0)
    return vh.mH @ (inverse[..., None] * u.mH)
