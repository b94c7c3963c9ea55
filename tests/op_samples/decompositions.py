"""Samples of Fourier transforms and matrix decompositions."""

from collections.abc import Iterator

import numpy as np

from shardir import ops
from shardir.ir.types import TensorType
from tests.op_sample import Array, Sample, any_values, between, exactly, t


def definite(rng: np.random.Generator, type: TensorType) -> Array:
    """Return Hermitian positive definite matrices, with unused noise above the diagonal."""
    x = any_values(rng, type).astype(np.complex128 if type.numpy.kind == "c" else np.float64)
    made = x @ np.swapaxes(x.conj(), -1, -2) + 2 * np.eye(type.shape[-1])
    return np.asarray(np.tril(made) + np.triu(x, 1)).astype(type.numpy)


def regular(rng: np.random.Generator, type: TensorType) -> Array:
    """Return well-conditioned matrices with separated pivots and eigenvalues."""
    x = between(-1, 1)(rng, type)
    size = min(type.shape[-2:])
    steps = np.zeros(type.shape[-2:])
    steps[np.arange(size), np.arange(size)[::-1]] = 3 * np.arange(1, size + 1)
    return np.asarray(x + steps).astype(type.numpy)


def triangular(rng: np.random.Generator, type: TensorType) -> Array:
    """Return upper triangular matrices, whose Schur vectors are those of the identity."""
    x = np.triu(any_values(rng, type).astype(np.complex128))
    made = x + np.diag(8.0 * np.arange(1, type.shape[-1] + 1))
    return np.asarray(made if type.numpy.kind == "c" else made.real).astype(type.numpy)


def _fourier() -> Iterator[Sample]:
    for kind in ("fft", "ifft"):
        yield Sample(ops.fft, (t("c64", 4, 6),), {"kind": kind, "rank": 1})
        yield Sample(ops.fft, (t("c128", 2, 3, 4),), {"kind": kind, "rank": 2})
    yield Sample(ops.fft, (t("f32", 4, 6),), {"kind": "rfft", "rank": 1})
    yield Sample(ops.fft, (t("f64", 2, 3, 4, 5),), {"kind": "rfft", "rank": 3})
    yield Sample(ops.fft, (t("f32", 1),), {"kind": "rfft", "rank": 1})
    yield Sample(ops.fft, (t("c64", 4, 4),), {"kind": "irfft", "rank": 1}, t("f32", 4, 6))
    yield Sample(ops.fft, (t("c64", 2, 4, 4),), {"kind": "irfft", "rank": 2}, t("f32", 2, 4, 7))
    yield Sample(ops.fft, (t("c64", 0, 3),), {"kind": "fft", "rank": 1})
    yield Sample(ops.fft, (t("c64", 0, 3),), {"kind": "irfft", "rank": 2}, t("f32", 0, 4))


def _triangular() -> Iterator[Sample]:
    for dtype in ("f32", "c64"):
        yield Sample(ops.cholesky, (t(dtype, 2, 3, 3),), sources=(definite,))
        for lower, transpose, unit in (
            (True, "no", False),
            (False, "transpose", False),
            (True, "adjoint", True),
        ):
            yield Sample(
                ops.triangular_solve,
                (t(dtype, 2, 3, 3), t(dtype, 2, 3, 4)),
                {"lower": lower, "transpose": transpose, "unit": unit},
                sources=(definite, any_values),
            )
    yield Sample(ops.cholesky, (t("f64", 4, 4),), sources=(definite,))


def _qr_and_lu() -> Iterator[Sample]:
    for dtype in ("f32", "c64"):
        for shape in ((2, 4, 3), (3, 3), (2, 3, 5)):
            x = t(dtype, *shape)
            yield Sample(ops.qr, (x,), {"full": False}, sources=(regular,))
            yield Sample(ops.lu, (x,), sources=(regular,))
    yield Sample(ops.qr, (t("f32", 2, 2, 3),), {"full": True}, sources=(regular,))


def _eigen() -> Iterator[Sample]:
    for dtype in ("f32", "c64"):
        smooth = dtype == "f32"
        both, alone = {"vectors": True}, {"vectors": False}
        for shape in ((2, 4, 3), (3, 3), (2, 3, 5)):
            x = t(dtype, *shape)
            yield Sample(ops.svd, (x,), {"full": False, **both}, sources=(regular,), smooth=smooth)
        yield Sample(ops.svd, (t(dtype, 2, 3, 4),), {"full": True, **alone}, sources=(regular,))
        for spec in (ops.eigh, ops.eig):
            x = t(dtype, 2, 3, 3)
            whole = smooth and spec is ops.eigh
            yield Sample(spec, (x,), both, sources=(regular,), smooth=whole)
            yield Sample(spec, (x,), alone, sources=(regular,))
        for flag in (True, False):
            yield Sample(
                ops.schur, (t(dtype, 2, 3, 3),), {"vectors": flag}, sources=(triangular,),
                smooth=False,
            )  # fmt: skip
        for shape in ((2, 4, 3), (2, 3, 4)):
            x, cutoff = t(dtype, *shape), t("f32", 2)
            limits = exactly([1e-6, 1e-5])
            yield Sample(ops.pinv, (x, cutoff), sources=(regular, limits))
            y = t(dtype, *shape[:-1], 2)
            yield Sample(ops.least_squares, (x, y, cutoff), sources=(regular, any_values, limits))
    yield Sample(ops.svd, (t("f64", 3, 3),), {"full": True, **both}, sources=(regular,))


SAMPLES = [*_fourier(), *_triangular(), *_qr_and_lu(), *_eigen()]
