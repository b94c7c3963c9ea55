"""Python scalars as arguments of functions that are called outside of traces."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.dispatch import scalar_arguments
from shardir.frontend.dispatch.programs.runnable import Runnable
from shardir.frontend.errors import NumberRangeError

NUMBERS = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("number", [1, 1.0, True, 0, 0.0, -0.0, False, 2.5, float("nan"), 1j])
def test_scalars_of_different_types_have_separate_programs(number: Any) -> None:
    x, whole = snp.asarray(NUMBERS), snp.asarray(NUMBERS.astype(np.int32))
    for _ in range(3):
        for array in (x, whole):
            made, expected = array * number, sd.jit(lambda x: x * number)(array)
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made, expected)
            np.testing.assert_array_equal(np.signbit(made.real), np.signbit(expected.real))
        assert snp.add(number, number).weak_type == (type(number) is not bool)


def test_scalars_by_keyword_and_as_static_arguments() -> None:
    x = snp.asarray(NUMBERS)
    for low, high in ((0, 7), (1.5, 7), (1, 7.5)):
        for _ in range(3):
            np.testing.assert_array_equal(snp.clip(x, low, high), np.clip(NUMBERS, low, high))
            got = snp.clip(x, max=high, min=low)
            np.testing.assert_array_equal(got, np.clip(NUMBERS, low, high))
            np.testing.assert_allclose(snp.sum(x, axis=int(low)), NUMBERS.sum(int(low)))


def test_out_of_range_scalars_are_errors() -> None:
    x = snp.asarray(NUMBERS.astype(np.int32))
    for _ in range(3):
        with pytest.raises(NumberRangeError, match="3000000000"):
            x + 3000000000
    with sd.enable_x64():
        for _ in range(3):
            assert (snp.asarray(np.int64(1)) + 3000000000).item() == 3000000001
    assert (snp.asarray(np.int32(1)) + 3).dtype == np.int32


def test_the_second_call_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    x = snp.asarray(NUMBERS)
    for number in (1.5, 2.5):
        assert (x + number)[0, 0] == number
    called: list[Any] = []
    monkeypatch.setattr(Runnable, "__call__", lambda *_: called.append(1))
    np.testing.assert_array_equal(x + 3.5, NUMBERS + np.float32(3.5))
    assert not called


def test_cached_scalars_are_evicted() -> None:
    for number in range(scalar_arguments.MAX_CACHED_SCALARS + 10):
        scalar_arguments.number_as_array(number)
    assert len(scalar_arguments._scalar_arrays) <= scalar_arguments.MAX_CACHED_SCALARS
