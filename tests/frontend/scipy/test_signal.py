"""`shardir.scipy.signal`: convolutions and correlations, compared with SciPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import ShardirError
from shardir.scipy import signal
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
SHAPES = [
    *(((7,), (3,)), ((3,), (8,)), ((5,), (5,)), ((9,), (1,))),
    *(((6, 7), (3, 2)), ((3, 2), (6, 7)), ((4, 5, 6), (2, 3, 2))),
]


def draw(shape: tuple[int, ...], dtype: str) -> Any:
    x = RNG.standard_normal(shape) * 5
    return (x + 1j * RNG.standard_normal(shape) if dtype == "complex64" else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("first", "second"), SHAPES)
def test_values_are_those_of_scipy(first: Any, second: Any, mode: str, dtype: str) -> None:
    require("jax")  # It installs SciPy.
    import scipy.signal

    x, y = draw(first, dtype), draw(second, dtype)
    names = ["convolve", "correlate", "fftconvolve"]
    for name in (*names, "convolve2d", "correlate2d") if x.ndim == 2 else names:
        expected = getattr(scipy.signal, name)(x, y, mode)
        for options in ({}, {"method": "fft"}) if name in names[:2] else ({},):
            made = getattr(signal, name)(x, y, mode, **options)
            assert made.dtype == dtype
            np.testing.assert_allclose(made, expected, 1e-3, 1e-3)


def test_other_dimensions_are_not_convolved_and_may_be_sharded() -> None:
    x, y = draw((8, 6), "float32"), draw((8, 3), "float32")
    sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"))
    convolve = sd.jit(lambda x, y: signal.fftconvolve(x, y, "same", axes=1))
    placed = sd.device_put(x, sharding), sd.device_put(y, sharding)
    assert convolve.lower(*placed).compile().collectives() == []
    expected = [np.convolve(*rows, "same") for rows in zip(x, y, strict=True)]
    np.testing.assert_allclose(convolve(*placed), expected, 1e-4, 1e-4)
    integers = signal.convolve(np.arange(4), np.array([1, 2]))
    np.testing.assert_allclose(integers, [0, 1, 4, 7, 6])
    gradient = sd.grad(lambda x: signal.convolve(x, y[0], "valid").sum())(x[0])
    np.testing.assert_allclose(gradient, np.convolve(np.ones(4), y[0][::-1]), 1e-5, 1e-5)


X = np.ones((4, 3), np.float32)
FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: signal.convolve(X, X, "whole"),
     "the mode of convolve is 'whole'; it is one of 'full', 'same', 'valid'"),
    (lambda: signal.correlate(X, X, method="slow"),
     "the method of correlate is 'slow'; it is one of 'auto', 'direct', 'fft'"),
    (lambda: signal.convolve(X, X[0]),
     "convolve got shapes (4, 3) and (3,); they need the same number of dimensions, elements in "
     "each, and equal sizes of dimensions that it does not convolve"),
    (lambda: signal.fftconvolve(X, X[:2], axes=1),
     "fftconvolve got shapes (4, 3) and (2, 3); they need the same number of dimensions, elements "
     "in each, and equal sizes of dimensions that it does not convolve"),
    (lambda: signal.convolve(X, X.T, "valid"),
     "convolve got shapes (4, 3) and (3, 4); with the mode 'valid', one of them is at least as "
     "large as the other in every dimension"),
    (lambda: signal.convolve2d(X, X, boundary="wrap"),
     "convolve2d has boundary 'wrap' and fillvalue 0; it supports 'fill' and 0, so pad the first "
     "operand with snp.pad"),
    (lambda: signal.correlate2d(X[0], X[0]),
     "correlate2d takes matrices, got shapes (3,) and (3,)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_calls_are_errors(call: Any, message: str) -> None:
    with pytest.raises(ShardirError) as caught:
        call()
    assert str(caught.value).split("\n")[0] == message
