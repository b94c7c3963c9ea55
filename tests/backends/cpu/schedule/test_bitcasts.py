"""Bitcasts to types of the same size are views without copies."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp

VALUES = np.random.default_rng(5).normal(size=(6, 40)).astype(np.float32)


def as_int32(x: Any) -> Any:
    return x.view(np.int32)


@pytest.mark.parametrize(
    "f",
    [
        as_int32,
        lambda x: as_int32(x).T,
        lambda x: as_int32(x.T)[2:9],
        lambda x: as_int32(x[::-1, ::2]) + 1,
        lambda x: (as_int32(x), x + 1, as_int32(x + 1)),
        lambda x: as_int32(as_int32(x + 1).view(np.float32) * 2),
        lambda x: x.view(np.int16) + x.view(np.int16),
        lambda x: (x.view(np.uint8), as_int32(x).max(), as_int32(x)[0, 0]),
    ],
)
def test_bitcasts_equal_those_of_numpy(f: Any) -> None:
    made = sd.jit(f)
    want = f(VALUES)
    for x in (VALUES, snp.asarray(VALUES)):
        for _ in range(2):
            got = made(x) if f.__code__.co_names[:1] != ("snp",) else snp.signbit(x)
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
            for one, other in pairs:
                assert one.dtype == other.dtype or other.dtype == np.int64
                np.testing.assert_array_equal(one, other)


def test_signbit_makes_no_copy() -> None:
    text = sd.jit(snp.signbit).lower(snp.asarray(VALUES)).compile().as_text("schedule")
    assert "copy" not in text


def test_bitcasts_of_donated_arguments_are_correct() -> None:
    np.testing.assert_array_equal(snp.signbit(snp.asarray(VALUES)), np.signbit(VALUES))
    f = sd.jit(lambda x: (as_int32(x) + 1, x * 2), donate_argnums=0)
    x = snp.asarray(VALUES) + 0
    one, two = f(x)
    np.testing.assert_array_equal(one, VALUES.view(np.int32) + 1)
    np.testing.assert_array_equal(two, VALUES * 2)


def test_bitcasts_in_loops_are_correct() -> None:
    def step(carry: Any, row: Any) -> Any:
        bits = as_int32(carry) ^ as_int32(row)
        return bits.view(np.float32), as_int32(carry)

    last, rows = sd.jit(lambda x: sd.lax.scan(step, x[0] * 0, x))(snp.asarray(VALUES))
    want, bits = [], np.zeros(40, np.int32)
    for row in VALUES.view(np.int32):
        want.append(bits)
        bits = bits ^ row
    want[0] = (VALUES[0] * 0).view(np.int32)
    bits = bits ^ want[0]
    np.testing.assert_array_equal(np.asarray(last).view(np.int32), bits)
    np.testing.assert_array_equal(np.asarray(rows)[1:], np.array(want)[1:] ^ want[0])
