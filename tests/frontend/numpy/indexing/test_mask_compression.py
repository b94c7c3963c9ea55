"""Selection by concrete masks, in native code and without it."""

from typing import Any, cast

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu import is_available
from shardir.frontend.dispatch.composed import ComposedFunction
from shardir.frontend.errors import IndexingError
from shardir.frontend.numpy.indexing import mask_compression
from shardir.frontend.numpy.indexing.getitem import getitem
from tests.error_assertions import error_line

X = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
RNG = np.random.default_rng(7)


@pytest.fixture(params=[True, False], ids=["machine", "numpy"])
def made_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(mask_compression, "is_available", lambda: False)


@pytest.mark.usefixtures("made_by")
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i2", "bool", "c8"])
def test_numpy_arrays_are_read_without_a_copy(dtype: str) -> None:
    whole = X.reshape(24, 5).astype(dtype)
    odd = np.frombuffer(b"\0" + whole.tobytes(), np.uint8)[1:].view(dtype).reshape(24, 5)
    rows, both = RNG.random(24) > 0.5, RNG.random((24, 5)) > 0.5
    for given in (whole, np.asfortranarray(whole), whole[::-1], odd):
        for mask in (rows, snp.asarray(rows), np.repeat(rows, 3)[::3]):
            made = snp.compress(mask, given, axis=0)
            np.testing.assert_array_equal(made, given[rows].astype(np.asarray(made).dtype))
            assert made.dtype == snp.asarray(whole).dtype
        np.testing.assert_array_equal(snp.extract(both, given), given[both])
    made = snp.compress(rows, whole, axis=0)
    before = np.array(made)
    whole[:] = 0
    np.testing.assert_array_equal(made, before)


@pytest.mark.usefixtures("made_by")
@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "complex64", "float16"])
def test_masks_as_indices(dtype: str) -> None:
    whole = X.astype(dtype)
    x = snp.asarray(whole)
    for begin in range(4):
        for end in range(begin + 1, 5):
            mask = RNG.integers(0, 2, X.shape[begin:end]).astype(bool)
            index: Any = (*(slice(None),) * begin, mask)
            for given in (index, (*index[:-1], snp.asarray(mask))):
                found = x[given]
                assert found.dtype == whole.dtype
                np.testing.assert_array_equal(found, whole[index])
    np.testing.assert_array_equal(x[X > 50], whole[X > 50])
    assert x[np.zeros(2, bool)].shape == (0, 3, 4, 5)


@pytest.mark.usefixtures("made_by")
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress(axis: Any) -> None:
    size = X.size if axis is None else X.shape[axis]
    mask = RNG.integers(0, 2, size).astype(bool)
    for given in (mask, snp.asarray(mask), mask.tolist()):
        np.testing.assert_array_equal(snp.compress(given, X, axis), np.compress(mask, X, axis))
        found = snp.compress(given, snp.asarray(X), axis)
        np.testing.assert_array_equal(found, np.compress(mask, X, axis))
    short = mask[:-1]
    np.testing.assert_array_equal(
        snp.compress(short, snp.asarray(X), axis), np.compress(short, X, axis)
    )
    np.testing.assert_array_equal(snp.extract(X > 3, snp.asarray(X)), np.extract(X > 3, X))


@pytest.mark.usefixtures("made_by")
def test_nonzero_of_masks() -> None:
    for numbers in (X > 60, X - 3, np.zeros(5, bool), np.zeros((0, 3), bool)):
        x = snp.asarray(numbers)
        found = snp.nonzero(x)
        for one, other in zip(found, np.nonzero(numbers), strict=True):
            assert one.dtype == np.int32
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(snp.flatnonzero(x), np.flatnonzero(numbers))
        np.testing.assert_array_equal(snp.argwhere(x), np.argwhere(numbers))


def test_mismatched_masks_and_sharded_arrays() -> None:
    x = snp.asarray(X)
    with pytest.raises(IndexingError, match="a mask of shape"):
        x[np.ones(3, bool)]
    placed = sd.device_put(X, sd.devices()[1])
    found = placed[X > 5]
    assert found.devices() == placed.devices()
    np.testing.assert_array_equal(found, X[X > 5])


def test_transposed_masks_select_in_row_major_order() -> None:
    mask = np.asarray(RNG.integers(0, 2, (5, 4)).astype(bool).T)
    x = snp.asarray(X[0, 0])
    np.testing.assert_array_equal(x[mask], X[0, 0][mask])
    np.testing.assert_array_equal(x[snp.asarray(mask)], X[0, 0][mask])


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_true_conditions_outside_of_the_array_are_errors(axis: int | None) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    extent = x.size if axis is None else x.shape[axis]
    long = np.zeros(extent + 3, bool)
    long[extent - 1] = True
    np.testing.assert_array_equal(snp.compress(long, x, axis), np.compress(long, x, axis))
    long[extent + 1] = True
    expected = f"a condition is true at {extent + 1}, and there are {extent} elements"
    assert error_line(IndexingError, lambda: snp.compress(long, snp.asarray(x), axis)) == expected
    if axis is None:
        assert error_line(IndexingError, lambda: snp.extract(long, snp.asarray(x))) == expected


@pytest.mark.skipif(not is_available(), reason="without machine code nothing is learned")
def test_masks_do_not_count_as_uncacheable_indices() -> None:
    x, mask = snp.asarray(X[0, 0]), snp.asarray(X[0, 0] > 3)
    for _ in range(3):
        x[1:3]
    answers = cast(ComposedFunction, getitem).call_cache
    assert answers is not None
    before = answers.table.failed_inserts
    for index in (mask, np.asarray(mask), (slice(None), mask[0])):
        x[index]
    assert answers.table.failed_inserts == before
