"""Outcomes of several trials: JAX's numbers."""

from typing import Any

import jax
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import RandomError


@pytest.mark.parametrize(
    ("n", "p", "options"),
    [
        (10.0, [0.2, 0.3, 0.5], {}),
        ([5.0, 50.0], [[0.1, 0.9], [0.5, 0.5]], {}),
        (8, [0.0, 1.0, 0.0], {"shape": (2, 3), "dtype": "int32"}),
    ],
)
def test_multinomial_numbers_are_those_of_jax(n: Any, p: Any, options: Any) -> None:
    n, p = np.asarray(n, "f"), np.asarray(p, "f")
    found = sd.random.multinomial(sd.random.key(3), n, p, **options)
    wanted = jax.random.multinomial(jax.random.key(3), n, p, **options)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype


def test_a_chance_without_outcomes() -> None:
    with pytest.raises(RandomError) as caught:
        sd.random.multinomial(sd.random.key(0), 3, 0.5)
    assert str(caught.value).startswith(
        "multinomial has outcomes along the last axis of p, got a scalar\n"
    )
