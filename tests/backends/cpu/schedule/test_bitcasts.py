"""Bits read as another type of the same size: nothing is moved for it."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp

NUMBERS = np.random.default_rng(5).normal(size=(6, 40)).astype(np.float32)


def words(x: Any) -> Any:
    return x.view(np.int32)


@pytest.mark.parametrize(
    "f",
    [
        words,
        lambda x: words(x).T,
        lambda x: words(x.T)[2:9],
        lambda x: words(x[::-1, ::2]) + 1,
        lambda x: (words(x), x + 1, words(x + 1)),
        lambda x: words(words(x + 1).view(np.float32) * 2),
        lambda x: x.view(np.int16) + x.view(np.int16),
        lambda x: (x.view(np.uint8), words(x).max(), words(x)[0, 0]),
    ],
)
def test_numbers_are_those_of_numpy(f: Any) -> None:
    made = sd.jit(f)
    want = f(NUMBERS)
    for x in (NUMBERS, snp.asarray(NUMBERS)):
        for _ in range(2):
            got = made(x) if f.__code__.co_names[:1] != ("snp",) else snp.signbit(x)
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
            for one, other in pairs:
                assert one.dtype == other.dtype or other.dtype == np.int64
                np.testing.assert_array_equal(one, other)


def test_signs_are_read_in_one_pass() -> None:
    text = sd.jit(snp.signbit).lower(snp.asarray(NUMBERS)).compile().as_text("schedule")
    assert "copy" not in text


def test_what_is_donated_is_not_mixed_up() -> None:
    np.testing.assert_array_equal(snp.signbit(snp.asarray(NUMBERS)), np.signbit(NUMBERS))
    f = sd.jit(lambda x: (words(x) + 1, x * 2), donate_argnums=0)
    x = snp.asarray(NUMBERS) + 0
    one, two = f(x)
    np.testing.assert_array_equal(one, NUMBERS.view(np.int32) + 1)
    np.testing.assert_array_equal(two, NUMBERS * 2)


def test_in_loops() -> None:
    def step(carry: Any, row: Any) -> Any:
        bits = words(carry) ^ words(row)
        return bits.view(np.float32), words(carry)

    last, rows = sd.jit(lambda x: sd.lax.scan(step, x[0] * 0, x))(snp.asarray(NUMBERS))
    want, bits = [], np.zeros(40, np.int32)
    for row in NUMBERS.view(np.int32):
        want.append(bits)
        bits = bits ^ row
    want[0] = (NUMBERS[0] * 0).view(np.int32)
    bits = bits ^ want[0]
    np.testing.assert_array_equal(np.asarray(last).view(np.int32), bits)
    np.testing.assert_array_equal(np.asarray(rows)[1:], np.array(want)[1:] ^ want[0])
