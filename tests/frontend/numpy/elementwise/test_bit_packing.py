"""`packbits`, `unpackbits`, and functions applied to each element."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, close, eagerly, run

X = np.random.default_rng(23).normal(size=(2, 3, 4)).astype("f")


def test_functions_are_applied_to_each_element() -> None:
    def clipped(a: Any, b: Any, least: Any) -> Any:
        """The larger of a - b and least."""
        return snp.maximum(a - b, least)

    function = snp.vectorize(clipped, excluded={2})
    assert function.__doc__ == clipped.__doc__
    close(run(lambda x: function(x, x[0], 0.5), X), np.maximum(X - X[0], 0.5))
    assert np.asarray(function(3.0, 1.0, 0.5)) == 2
    pair = snp.vectorize(lambda a: (a + 1, -a))
    assert [x.tolist() for x in eagerly(pair, X[0, 0])] == [(X[0, 0] + 1).tolist(),
                                                            (-X[0, 0]).tolist()]  # fmt: skip


BYTES = np.random.default_rng(3).integers(0, 256, (3, 5)).astype("u1")


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_bits_are_packed_into_bytes(axis: Any, bitorder: Any) -> None:
    check("unpackbits", BYTES, axis, bitorder=bitorder)
    for count in (3, 30, -2, 200):
        check("unpackbits", BYTES, axis, count, bitorder)
    check("packbits", X[0] > 0, axis, bitorder)
    check("packbits", BYTES.astype("i4") % 3, axis, bitorder)
    with pytest.raises(ArgumentError, match="packbits has no bitorder 'odd'; it is 'big' or 'lit"):
        run(snp.packbits, BYTES, bitorder="odd")


@pytest.mark.parametrize("bitorder", ["big", "little"])
def test_bits_at_any_alignment_are_packed(bitorder: Any) -> None:
    bits = np.random.default_rng(4).integers(0, 2, 1000).astype(bool)
    for start in range(5):
        found = snp.packbits(snp.asarray(bits)[start : start + 800], bitorder=bitorder)
        assert np.array_equal(found, np.packbits(bits[start : start + 800], bitorder=bitorder))
    backwards = sd.jit(lambda x: snp.packbits(x[::-1], bitorder=bitorder))(bits)
    assert np.array_equal(backwards, np.packbits(bits[::-1], bitorder=bitorder))


def test_bits_are_packed_without_copies() -> None:
    bits, found = snp.zeros(1 << 10, bool), snp.zeros(1 << 7, np.uint8)
    for function, x in ((snp.packbits, bits), (snp.unpackbits, found)):
        text = sd.jit(function).lower(x).compile().as_text("schedule")
        assert "native call of 2 phases" in text
        assert "copy" not in text
