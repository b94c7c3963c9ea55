"""`vectorize` with a signature applies a function to the last dimensions of its arguments."""

from typing import Any

import numpy as np
import pytest

import shardir.numpy as snp
from shardir import jit
from shardir.frontend.errors import ArgumentError, ShapeError

A = np.arange(24.0, dtype="float32").reshape(2, 3, 4)
B = np.arange(12.0, dtype="float32").reshape(3, 4)


@pytest.mark.parametrize(
    ("function", "signature", "args"),
    [
        (lambda a: a.sum(), "(n)->()", (A,)),
        (lambda a: a.sum(), "(n)->()", (A[0, 0],)),
        (lambda a, b: a @ b, "(n),(n)->()", (A, B)),
        (lambda a, b: a @ b, "(m, n),(n)->(m)", (A, B[0])),
        (lambda a, b: (a * b, a[0] - b), "(n),()->(n),()", (A, B[:, 0])),
    ],
)
def test_it_agrees_with_numpy(function: Any, signature: str, args: Any) -> None:
    expected = np.vectorize(function, signature=signature)(*args)
    ours = snp.vectorize(function, signature=signature)
    for made in (ours(*args), jit(ours)(*args)):
        parts = (
            zip(made, expected, strict=True) if isinstance(expected, tuple) else [(made, expected)]
        )
        for one, other in parts:
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_excluded_arguments_have_no_signature_entry() -> None:
    scaled = snp.vectorize(lambda a, k: a[::-1] * k, excluded={1}, signature="(n)->(n)")
    np.testing.assert_array_equal(scaled(B, 2), B[:, ::-1] * 2)


@pytest.mark.parametrize(
    ("error", "signature", "args", "message"),
    [
        (ArgumentError, "n->()", (B,), "vectorize cannot read the signature 'n->()'; write '(n)"),
        (ArgumentError, "(n)->()", (B, B), "is for 1 argument, and it was called with 2"),
        (ShapeError, "(n)->()", (1.0,), "takes 1 dimension of argument 0, got shape ()"),
        (ShapeError, "(n),(n)->()", (B, B[0, :2]), "has 'n' for sizes that differ, 4 and 2"),
    ],
)
def test_mismatched_signatures_are_errors(
    error: Any, signature: str, args: Any, message: str
) -> None:
    with pytest.raises(error) as caught:
        snp.vectorize(lambda *x: x[0].sum(), signature=signature)(*args)
    assert message in str(caught.value)
