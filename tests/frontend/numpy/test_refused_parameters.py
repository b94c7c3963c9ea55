"""Parameters with values that functions do not apply are refused instead of ignored."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError, RandomError

X = np.arange(3, dtype="float32")


@pytest.mark.parametrize(
    ("compute", "error", "message"),
    [
        (lambda: snp.sort(X, order="f"), OperationTypeError,
         "sort has order='f', and arrays have no fields; leave order out, or sort the positions of "
         "several arrays with lexsort"),
        (lambda: snp.argsort(X, order="f"), OperationTypeError,
         "argsort has order='f', and arrays have no fields; leave order out, or sort the positions "
         "of several arrays with lexsort"),
        (lambda: sd.scipy.special.factorial(X, exact=True), ArgumentError,
         "factorial computes in floating point; leave exact out, and call math.factorial for exact "
         "integers"),
        (lambda: sd.scipy.special.sph_harm_y(np.array([1]), np.array([0]), X[:1], X[:1], 1),
         ArgumentError,
         "sph_harm_y has diff_n=1, and returns no derivatives; leave diff_n out, and differentiate "
         "the function with jacfwd"),
        (lambda: sd.random.choice(sd.random.key(0), 3, mode="medium"), RandomError,
         "the mode of choice is 'low' or 'high', got 'medium'"),
    ],
)  # fmt: skip
def test_refused_values(compute: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        compute()
    assert str(caught.value).partition("\n")[0] == message


def test_the_mode_of_choice_determines_the_numbers() -> None:
    jax = pytest.importorskip("jax")
    p = np.full(20, 0.05, "float32")
    for mode in (None, "low", "high"):
        options: dict[str, Any] = {"replace": False, "p": p, "mode": mode}
        made = sd.random.choice(sd.random.key(3), 20, (8,), **options)
        expected = jax.random.choice(jax.random.key(3), 20, (8,), **options)
        np.testing.assert_array_equal(np.asarray(made), np.asarray(expected))
