"""Multinomial samples agree with `jax.random` 0.10.2."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import RandomError


@pytest.mark.parametrize(
    ("n", "p", "options", "expected"),
    [
        ([5.0, 50.0], [[0.1, 0.9], [0.5, 0.5]], {}, [[1, 4], [25, 25]]),
        (8, [0.0, 1.0, 0.0], {"shape": (2, 3), "dtype": "int32"}, [[0, 8, 0], [0, 8, 0]]),
    ],
)
def test_numbers_agree_with_jax(n: Any, p: Any, options: Any, expected: Any) -> None:
    p = np.asarray(p, "f")
    found = sd.random.multinomial(sd.random.key(3), np.asarray(n, "f"), p, **options)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == options.get("dtype", "float32")


def test_scalar_probabilities_are_errors() -> None:
    with pytest.raises(RandomError) as caught:
        sd.random.multinomial(sd.random.key(0), 3, 0.5)
    assert str(caught.value).startswith(
        "multinomial has outcomes along the last axis of p, got a scalar\n"
    )
