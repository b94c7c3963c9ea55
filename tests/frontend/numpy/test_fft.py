"""Fourier transforms against NumPy's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.kernels.fft.passes import factor_long_rows
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, AxisError, ShapeError
from shardir.frontend.numpy import api as snp
from tests.error_assertions import assert_raises_exactly
from tests.namespace import close, eagerly, run, same, words

pytestmark = pytest.mark.sample(3)

GENERATOR = np.random.default_rng(23)
REAL = GENERATOR.normal(size=(3, 4, 5, 6)).astype("f")
COMPLEX = (REAL + 1j * GENERATOR.normal(size=REAL.shape)).astype("c8")


def both(name: str, *args: Any, **options: Any) -> None:
    """Check `fft.name` against NumPy, traced and in execution."""
    expected = getattr(np.fft, name)(*args, **options)
    for way in (run, eagerly):
        close(way(getattr(snp.fft, name), *args, **options), expected, 1e-4)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", words("fft ifft hfft irfft"))
def test_along_one_axis(name: str, norm: Any) -> None:
    both(name, COMPLEX, norm=norm)
    both(name, COMPLEX, 4, norm=norm)
    both(name, COMPLEX, 9, axis=1, norm=norm)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", words("fft ifft rfft ihfft"))
def test_of_real_numbers(name: str, norm: Any) -> None:
    both(name, REAL, norm=norm)
    both(name, REAL, 5, axis=0, norm=norm)


@pytest.mark.parametrize("name", words("fftn ifftn irfftn fft2 ifft2 irfft2"))
def test_along_some_axes(name: str) -> None:
    both(name, COMPLEX)
    both(name, COMPLEX, axes=(2, 0))
    both(name, COMPLEX, s=(7, 3), axes=(0, 3), norm="ortho")


@pytest.mark.parametrize("name", words("rfftn rfft2"))
def test_along_some_axes_of_real_numbers(name: str) -> None:
    both(name, REAL)
    both(name, REAL, axes=(2, 0))
    both(name, REAL, s=(7, 3), axes=(0, 3), norm="forward")


def test_along_no_axes() -> None:
    both("fftn", COMPLEX, axes=())


def test_integers_and_narrow_floats() -> None:
    close(run(snp.fft.fft, np.arange(6)), np.fft.fft(np.arange(6)))
    close(run(snp.fft.fft, REAL.astype("f2")), np.fft.fft(REAL.astype("f2")), 1e-3)


def test_64_bit_numbers() -> None:
    with config(enable_x64=True):
        got = eagerly(snp.fft.rfft, REAL.astype("f8"))
    assert got.dtype == np.complex128
    np.testing.assert_allclose(got, np.fft.rfft(REAL.astype("f8")))


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_frequencies(count: int) -> None:
    same(np.asarray(snp.fft.fftfreq(count, 0.5)), np.fft.fftfreq(count, 0.5), dtype="f32")
    same(np.asarray(snp.fft.rfftfreq(count)), np.fft.rfftfreq(count), dtype="f32")
    assert snp.fft.fftfreq(count, dtype="float16").dtype == np.float16


def test_shifts() -> None:
    for axes in (None, 1, (0, 2)):
        both("fftshift", REAL, axes)
        both("ifftshift", REAL, axes)


ERRORS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: snp.fft.rfft(x), ArgumentError,
     "rfft takes real numbers, got c64[3, 4, 5, 6]; use fft"),
    (lambda x: snp.fft.fft(x, norm="both"), ArgumentError,
     "fft takes norm 'backward', 'ortho', 'forward' or None, got 'both'"),
    (lambda x: snp.fft.fft(x, n=0), ShapeError,
     "fft has length 0 along axis 3; the length of a transform, which is the size of the axis or "
     "an argument (n or s), must be at least 1"),
    (lambda x: snp.fft.fftn(x, axes=(0, 0)), AxisError,
     "axes (0, 0) of fftn name one dimension twice"),
    (lambda x: snp.fft.fftn(x, s=(2, 3), axes=(0,)), ArgumentError,
     "fftn takes one length for each axis, got s=(2, 3) for axes (0,)"),
    (lambda x: snp.fft.fft2(x, axes=(0,)), ArgumentError, "fft2 takes two axes, got (0,)"),
    (lambda x: snp.fft.fftfreq(0), ArgumentError,
     "n of fftfreq is 0; it must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_invalid_arguments_are_errors(
    call: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    assert_raises_exactly(lambda: run(call, COMPLEX), kind, message)


@pytest.mark.parametrize("length", [2**62, 10**30])
def test_factors_of_huge_lengths_are_not_searched_for(length: int) -> None:
    assert factor_long_rows(length, 8) is None
