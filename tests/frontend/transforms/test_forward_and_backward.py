"""`fwd_and_bwd` returns both passes of a derivative, each compiled once."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.errors import ArgumentError


def product(x: Any, w: Any) -> Any:
    return snp.sin(x) @ w


def test_passes_return_results_and_gradients() -> None:
    x, w = np.ones((2, 3), "f"), np.full((3, 4), 2.0, "f")
    passes: Any = sd.fwd_and_bwd(product, (0, 1))
    forward, backward = passes
    for step in range(3):
        result, residuals = forward(x + step, w)
        gradients = backward(residuals, snp.ones_like(result))
        wanted_result, pullback = sd.vjp(product, x + step, w)
        np.testing.assert_allclose(result, wanted_result, rtol=1e-6)
        for got, expected in zip(gradients, pullback(snp.ones_like(result)), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert forward.cache_info().currsize == backward.cache_info().currsize == 1


def test_one_argument_has_one_gradient() -> None:
    forward, backward = sd.fwd_and_bwd(lambda x, w: (x * w, x), -1, has_aux=True, jitted=False)
    result, residuals, aux = forward(2.0, 3.0)
    assert (float(result), float(aux)) == (6.0, 2.0)
    assert float(backward(residuals, 1.0)) == 2.0


def test_argnums_outside_of_the_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="argnums of fwd_and_bwd is at most 0, got 1"):
        sd.fwd_and_bwd(snp.sin, 1, jitted=False)[0](1.0)
    with pytest.raises(ArgumentError, match=r"argnums of fwd_and_bwd must be an integer, got 1\.5"):
        sd.fwd_and_bwd(snp.sin, 1.5, jitted=False)[0](1.0)  # type: ignore[arg-type]
