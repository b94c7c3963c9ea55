"""Zeros of both signs as constants: equal values that need separate kernels."""

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp


@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zero_constants_of_both_signs_have_separate_kernels(first: float) -> None:
    x = snp.asarray(np.arange(1, 4, dtype=np.int16))
    rows = snp.asarray(np.ones((3, 8), np.float16))
    for zero in (first, -first):
        negative = bool(np.signbit(zero))
        made = sd.jit(lambda x, zero=zero: x * zero)(x)
        assert np.signbit(made).all() == np.signbit(made).any() == negative
        least = sd.jit(lambda x, zero=zero: snp.max(x * zero, axis=1))(rows)
        assert np.signbit(least).all() == np.signbit(least).any() == negative
