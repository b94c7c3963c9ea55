"""Discrete cosine transforms, compared with their definition."""

from typing import Any

import numpy as np
import pytest

from shardir import NamedSharding, P, device_put, make_mesh
from shardir.errors import ShardirError
from shardir.frontend.scipy import cosine_transforms as fft
from tests.error_assertions import error_line

SIGNAL = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)


def definition(x: np.ndarray, norm: str | None = None) -> np.ndarray:
    """Return the transform of type 2 along the last dimension, as a matrix product."""
    size = x.shape[-1]
    n, k = np.arange(size)[:, None], np.arange(size)
    matrix = 2 * np.cos(np.pi * k * (2 * n + 1) / (2 * size))
    if norm == "ortho":
        matrix = matrix / np.sqrt(2 * size) * np.where(k == 0, np.sqrt(0.5), 1)
    transformed: np.ndarray = x @ matrix
    return transformed


@pytest.mark.sample(5)
@pytest.mark.parametrize("size", [1, 2, 5, 6, 9])
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_transform_of_even_and_odd_lengths(size: int, norm: str | None) -> None:
    resized = np.zeros((8, size), np.float32)
    resized[:, :6] = SIGNAL[:, :size]
    got = fft.dct(SIGNAL, n=size, norm=norm)
    np.testing.assert_allclose(got, definition(resized, norm), atol=2e-5)
    np.testing.assert_allclose(fft.idct(got, norm=norm), resized, atol=2e-6)


def test_several_axes_sharded_and_complex() -> None:
    expected = definition(definition(SIGNAL).T).T
    mesh = make_mesh((4, 2), ("a", "b"))
    sharded = device_put(SIGNAL, NamedSharding(mesh, P("a", "b")))
    got = fft.dctn(sharded)
    np.testing.assert_allclose(got, expected, atol=1e-4)
    np.testing.assert_allclose(fft.idctn(got, axes=(1, 0)), SIGNAL, atol=2e-6)
    turned = fft.dctn(1j * SIGNAL)
    assert turned.dtype == np.complex64
    np.testing.assert_allclose(turned, 1j * expected, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"type": 1}, "dct has type 2, got type=1"),
        ({"norm": "forward"}, "dct takes norm 'backward', 'ortho' or None, got 'forward'"),
        (
            {"n": 0},
            "dct has length 0 along axis 1; the length of a transform, which is the size of the "
            "axis or an argument (n or s), must be at least 1",
        ),
    ],
)
def test_unknown_options_are_errors(options: dict[str, Any], expected: str) -> None:
    assert error_line(ShardirError, lambda: fft.dct(SIGNAL, **options)) == expected
