"""NumPy arrays as arguments of cached native calls, which read their memory without a copy."""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads import memory
from shardir.frontend.arrays.native_import import import_natively
from shardir.frontend.errors import NumberRangeError
from tests.call_count import count_calls
from tests.frontend.dispatch.native_call_samples import (
    A,
    B,
    X,
    Y,
    insert_every_call as insert_every_call,
    plus,
    scaled,
)

INDICES = np.array([2, 0, 1], np.int32)
FAR = np.array([-3, 2])
PUT = A.copy()
np.put(PUT, FAR, B[0, :2])
PLACED = snp.asarray(INDICES)
WHOLE = snp.asarray(np.argsort(A, axis=1).astype(np.int32))
TENTH = np.float32(0.1)
OCTETS = A.tobytes()
WIDE = A.astype(np.float64)
WHOLE_WIDE = np.arange(12).reshape(3, 4) - 5
UNSIGNED_WIDE = np.arange(40, dtype=np.uint64)
COMPLEX_WIDE = WIDE + 2j * WIDE

doubled = sd.jit(lambda x: x * 2)

CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "add": (lambda: snp.add(A, B), A + B),
    "add, one is ours": (lambda: snp.add(X, B), A + B),
    "x - array": (lambda: X - B, A - B),
    "sum": (lambda: snp.sum(A, axis=0), A.sum(0)),
    "transpose": (lambda: snp.transpose(A), A.T),
    "concatenate": (lambda: snp.concatenate([A, Y, B]), np.concatenate([A, B, B])),
    "take": (lambda: snp.take(A, PLACED, axis=0, mode="clip"), A[INDICES]),
    "take with NumPy's indices": (lambda: snp.take(X, FAR, axis=0), A[FAR]),
    "x[indices]": (lambda: X[FAR], A[FAR]),
    "x[:, indices, None]": (lambda: X[:, FAR, None], A[:, FAR, None]),
    "put": (lambda: snp.put(A, FAR, B[0, :2]), PUT),
    "take along axis": (
        lambda: snp.take_along_axis(A, WHOLE, axis=1),
        np.take_along_axis(A, np.asarray(WHOLE), 1),
    ),
    "frombuffer": (lambda: snp.frombuffer(OCTETS, np.float32), A.ravel()),
    "a part of a buffer": (
        lambda: snp.frombuffer(OCTETS, dtype=np.int16, count=3, offset=8),
        np.frombuffer(A.tobytes(), np.int16, 3, 8),
    ),
    "zeros_like": (lambda: snp.zeros_like(A), np.zeros_like(A)),
    "zeros_like of f64": (lambda: snp.zeros_like(WIDE), np.zeros((3, 4), np.float32)),
    "add of f64": (lambda: snp.add(WIDE, WIDE), A + A),
    "multiply of i64": (lambda: snp.multiply(WHOLE_WIDE, 3), (WHOLE_WIDE * 3).astype(np.int32)),
    "sum of u64": (lambda: snp.sum(UNSIGNED_WIDE), UNSIGNED_WIDE.sum()),
    "conj of c128": (lambda: snp.conj(COMPLEX_WIDE), COMPLEX_WIDE.conj().astype(np.complex64)),
    "f64 as it is": (lambda: snp.ravel(WIDE), A.ravel()),
    "reshape": (lambda: snp.reshape(A, (4, 3)), A.reshape(4, 3)),
    "squeeze": (lambda: snp.squeeze(A[None]), A),
    "copy": (lambda: snp.copy(A), A),
    "jit": (lambda: doubled(A), A * 2),
    "jit, static": (lambda: scaled(A, 3), A * 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_runs_no_python_code(name: str) -> None:
    call, expected = CALLS[name]
    for _ in range(3):
        np.testing.assert_array_equal(call(), expected)
    assert count_calls(call) == count_calls(lambda: None)
    np.testing.assert_array_equal(call(), expected)


def test_every_call_reads_the_current_elements() -> None:
    array = A.copy()
    for number in range(5):
        array[1, 2] = number
        np.testing.assert_array_equal(snp.multiply(array, array), array * array)
        np.testing.assert_array_equal(X + array, A + array)


def test_results_do_not_alias_writable_arguments() -> None:
    same = sd.jit(lambda x: (x, x.reshape(-1), x * 2))
    array = np.zeros((64, 64), np.float32)
    for _ in range(4):
        array[:] = 1
        made = [
            snp.reshape(array, (32, 128)), snp.ravel(array), snp.copy(array), snp.asarray(array),
            snp.squeeze(array), snp.split(array, 2)[0], snp.broadcast_arrays(array, array)[1],
            *same(array)[:2],
        ]  # fmt: skip
        array[:] = 7
        for each in made:
            np.testing.assert_array_equal(each, np.ones(each.shape))


def test_shapes_and_dtypes_are_part_of_the_key() -> None:
    kinds = (np.float32, np.int32, np.int8, bool, np.complex64, np.float16)
    for _ in range(3):
        for kind in kinds:
            for shape in ((12,), (3, 4), (4, 3), (2, 2, 3), (1, 12)):
                array = A.astype(kind).reshape(shape)
                made = snp.sum(array, axis=0)
                assert made.shape == shape[1:]
                np.testing.assert_allclose(made, array.sum(0), rtol=1e-6)
                assert snp.add(array, array).dtype == array.dtype


def test_strided_unaligned_and_subclass_arrays() -> None:
    swapped = A.astype(">f4").astype(">f4", copy=False)
    odd = np.frombuffer(b"\0" + A.tobytes(), np.uint8)[1:].view(np.float32).reshape(A.shape)
    for _ in range(3):
        for array in (A, A.T.copy().T, np.repeat(A, 2, 1)[:, ::2], A[::-1][::-1], odd, WIDE):
            np.testing.assert_array_equal(snp.add(array, 1), A + 1)
            np.testing.assert_array_equal(array + X, A + A)
        with pytest.raises(TypeError, match="there is no element type for NumPy's >f4"):
            snp.add(swapped, 1)
        np.testing.assert_array_equal(snp.add(A.view(_Named), 1), A + 1)
        with pytest.raises(TypeError, match="masked"):
            snp.add(np.ma.masked_array(A, A > 3), 1)


class _Named(np.ndarray[Any, Any]):
    """A subclass of NumPy's array class."""


def test_every_call_reads_the_current_indices() -> None:
    indices = INDICES.copy()
    for place in (0, 2, -1, 1, -3):
        indices[1] = place
        np.testing.assert_array_equal(snp.take(X, indices, axis=0), A[indices])
        np.testing.assert_array_equal(snp.take(A, indices, axis=0), A[indices])
        np.testing.assert_array_equal(X[indices], A[indices])
        counts = np.abs(indices)
        np.testing.assert_array_equal(snp.repeat(A, counts, axis=0), np.repeat(A, counts, 0))
        np.testing.assert_array_equal(snp.roll(A, indices[1:2], 1), np.roll(A, indices[1:2], 1))
    shape = np.array([2, 3])
    for rows in (2, 4, 1):
        shape[0] = rows
        assert snp.full(shape, 1.0).shape == (rows, 3)


INDEXED: list[Callable[[Any], Any]] = [
    lambda i: X[i],
    lambda i: X[0, i],
    lambda i: X.at[i].add(1),
    lambda i: snp.take(X, i, axis=0),
    lambda i: snp.take(X, i, axis=1, mode="clip"),
]


def test_numpy_indices_out_of_range_behave_as_ours() -> None:
    for kind in (np.int8, np.int32, np.int64, np.uint64):
        indices = np.zeros(3, kind)
        for place in (1, 3, 100, -3, -4, -100):
            if place < 0 and kind is np.uint64:
                continue
            indices[1] = place
            ours = snp.asarray(indices)
            for call in INDEXED:
                np.testing.assert_array_equal(call(indices), call(ours))
    beyond = np.array([0, 2**40, -(2**40)])
    for _ in range(3):
        np.testing.assert_array_equal(X[beyond], A[[0, 2, 0]])


def test_every_call_reads_the_current_masks() -> None:
    mask = np.zeros(3, bool)
    for number in range(8):
        mask[:] = [number & 1, number & 2, number & 4]
        np.testing.assert_array_equal(X[mask], A[mask])
        np.testing.assert_array_equal(X[mask, 1], A[mask, 1])
        np.testing.assert_array_equal(X[np.array(number % 3)], A[number % 3])


def test_static_arrays_are_compared_by_their_elements() -> None:
    weighted = sd.jit(lambda x, by: x * by.weights, static_argnums=1)
    for number in (1, 2, 1):
        np.testing.assert_array_equal(weighted(A, _Static(number)), A * number)


class _Static:
    def __init__(self, number: int) -> None:
        self.weights = np.full(4, number, np.float32)


def test_enable_x64_applies_to_64_bit_arrays() -> None:
    for _ in range(3):
        assert snp.add(WIDE, WIDE).dtype == np.float32
        with sd.enable_x64():
            assert snp.add(WIDE, WIDE).dtype == np.float64


def test_calls_keep_no_reference_to_numpy_arrays() -> None:
    array = A.copy()
    before = sys.getrefcount(array)
    for _ in range(4):
        snp.add(array, X)
        snp.zeros_like(array)
        plus(array, array)
    assert sys.getrefcount(array) == before


def test_frombuffer_copies_or_keeps_its_buffer() -> None:
    for number in range(6):
        given = np.full(50 + number % 2, number, np.float32).tobytes()
        made = snp.frombuffer(given, np.float32)
        assert made.shape == (50 + number % 2,)
        del given
        others = [bytes([255]) * (200 + 4 * (number % 2)) for _ in range(20)]
        np.testing.assert_array_equal(made, np.full(made.shape, number))
        np.testing.assert_array_equal(made[3:10] * 2, np.full(7, 2 * number))
        del others
        changing = bytearray(b"\0" * 200)
        copied = snp.frombuffer(changing, np.float32)
        changing[:] = b"\1" * 200
        assert not np.asarray(copied).any()
        assert snp.frombuffer(bytes(16), np.float64).dtype == np.float32
    with pytest.raises(ValueError, match="frombuffer does not accept"):
        snp.frombuffer(bytes(203), np.float32)


def test_frombuffer_converts_every_buffer() -> None:
    for first in range(4):
        elements = np.arange(first, first + 8, dtype=np.float64)
        made = snp.frombuffer(elements.tobytes(), np.float64)
        np.testing.assert_array_equal(made, elements)


def test_numpy_scalars_keep_their_dtype_and_value() -> None:
    whole = snp.asarray(A.astype(np.int32))
    numbers: list[Any] = [
        np.float32(0.1), np.float64(0.1), np.float64(-0.0), np.int32(-7), np.int64(5),
        np.float32("nan"), np.float64(1e300), np.bool_(True), np.uint8(200), np.float16(1.5),
    ]  # fmt: skip
    for _ in range(3):
        for array in (X, whole):
            for number in numbers:
                made = snp.multiply(array, number)
                expected = sd.jit(lambda x, y: x * y)(array, snp.asarray(number))
                assert made.dtype == expected.dtype
                np.testing.assert_array_equal(made, expected)
                np.testing.assert_array_equal(np.signbit(made), np.signbit(expected))
        with pytest.raises(NumberRangeError, match="4294967296"):
            snp.add(whole, np.int64(2**32))
        for place in (np.int64(0), np.int64(2), np.int32(1)):
            np.testing.assert_array_equal(X[place], A[place])
            np.testing.assert_array_equal(snp.roll(X, place), np.roll(A, place))
            np.testing.assert_array_equal(snp.sum(X, axis=place % 2), A.sum(place % 2))
            np.testing.assert_array_equal(snp.full(3, place), np.full(3, place))
    assert count_calls(lambda: snp.multiply(X, TENTH)) == count_calls(lambda: None)


def test_numpy_scalars_are_not_weakly_typed() -> None:
    short = snp.asarray(A.astype(np.float16))
    for _ in range(3):
        assert snp.multiply(short, 2.0).dtype == np.float16
        assert snp.multiply(short, np.float64(2.0)).dtype == np.float32
        assert snp.multiply(short, 2.0).dtype == np.float16


def test_views_of_a_numpy_argument_are_views_of_a_copy() -> None:
    """The copy is made for every size, and stays valid after the argument is deallocated."""
    same = sd.jit(lambda x: (x, x.reshape(-1), x[1:]))
    for shape in ((2, 8), (64, 64), (600, 700), (1100, 1000)):
        kept = []
        for number in range(6):
            array = np.full(shape, number, np.float32)
            seen = weakref.ref(array)
            made = [snp.ravel(array), snp.reshape(array, (-1, 2)), *snp.split(array, 2)]
            made += [snp.asarray(array), *same(array)]
            array[:] = -1
            del array
            assert seen() is None
            kept.append((number, made))
        for number, made in kept:
            for each in made:
                assert (np.asarray(each) == number).all()


def test_donated_views_do_not_free_shared_memory() -> None:
    """Donation of one view neither frees nor overwrites memory that another view reads."""
    swapped = sd.jit(lambda x: x[::-1] + 1, donate_argnums=0)
    for _ in range(6):
        array = np.arange(8192, dtype=np.float32)
        first, second = snp.split(array, 2)
        np.testing.assert_array_equal(swapped(second), array[4096:][::-1] + 1)
        np.testing.assert_array_equal(first, array[:4096])
        first, second = snp.split(array, 2)
        del first
        np.testing.assert_array_equal(swapped(second), array[4096:][::-1] + 1)


def test_out_of_range_integers_are_errors_in_every_call() -> None:
    for kind, beyond in ((np.int64, 2**31), (np.int64, -(2**31) - 1), (np.uint64, 2**32)):
        for size in (5, 16, 37):
            for place in (0, size - 1):
                array = np.ones(size, kind)
                for _ in range(3):
                    np.testing.assert_array_equal(snp.add(array, array), np.full(size, 2))
                array[place] = beyond
                for _ in range(3):
                    with pytest.raises(NumberRangeError, match=str(beyond)):
                        snp.add(array, array)
                array[place] = beyond - 1 if beyond > 0 else beyond + 1
                assert int(snp.ravel(array)[place]) == array[place]


def test_wide_floats_are_rounded_as_numpy_rounds_them() -> None:
    numbers = np.array(
        [0.1, -0.1, 1e300, -1e300, 1e-300, -0.0, np.nan, np.inf, 1e-40, 16777217.0] * 5 + [2 / 3]
    )
    with np.errstate(all="ignore"):
        expected = numbers.astype(np.float32)
    for _ in range(3):
        made = np.asarray(snp.ravel(numbers))
        np.testing.assert_array_equal(made.view(np.int32), expected.view(np.int32))


def test_threads_pass_numpy_arrays_concurrently() -> None:
    failed = []

    def work(number: int) -> None:
        array = np.empty((64, 64))
        for turn in range(300):
            array[:] = number * 1000 + turn
            made, other = snp.ravel(array), snp.add(array, 1)
            array[:] = -1
            if not (np.asarray(made) == number * 1000 + turn).all() or (
                float(other[5, 5]) != number * 1000 + turn + 1
            ):
                failed.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed


def test_the_memory_limit_applies_to_copies_of_arguments() -> None:
    array = np.ones(3_000_000 // 4)
    snp.ravel(array)
    for _ in range(3):
        np.testing.assert_array_equal(snp.ravel(array)[:3], [1, 1, 1])
    kept: list[Any] = []
    with memory.limit_memory(1 << 20), pytest.raises(OutOfMemoryError, match="no memory for"):
        kept.extend(snp.ravel(array) for _ in range(1000))
    kept.clear()
    np.testing.assert_array_equal(snp.ravel(array)[:3], [1, 1, 1])


def test_native_import_copies_numpy_arrays() -> None:
    """The array has the dtype and the elements of the NumPy array at the time of the call."""
    for kind in (np.float32, np.int8, bool, np.complex64, np.float16, np.float64, np.int64):
        array = (A > 3 if kind is bool else A).astype(kind)
        expected = snp.asarray(array.tolist(), dtype=kind)
        made = [snp.asarray(array), snp.array(array), sd.device_put(array)]
        made.append(import_natively(array, made[0].signature, made[0].sharding, sd.Array))
        array[:] = array[::-1]
        for each in made:
            assert each.dtype == expected.dtype
            np.testing.assert_array_equal(each, expected)
    for array in (np.zeros((0, 3)), np.zeros(()), np.zeros((2, 0), np.int8)):
        assert snp.asarray(array).shape == array.shape
    with pytest.raises(NumberRangeError, match="4294967296"):
        snp.asarray(np.array([1, 2**32]))
    with sd.enable_x64():
        assert int(snp.asarray(np.array([1, 2**32]))[1]) == 2**32


def test_masks_may_be_written_concurrently() -> None:
    """The number of selected elements is fixed before they are collected."""
    mask, going, before = np.zeros(100_000, bool), [True], sys.getswitchinterval()
    numbers = snp.arange(mask.size)

    def write() -> None:
        while going[0]:
            mask[:] = True
            mask[:] = False

    thread = threading.Thread(target=write)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(600):
            made, places = np.asarray(numbers[mask]), np.asarray(snp.flatnonzero(mask))
            assert (np.diff(made) > 0).all()
            assert (np.diff(places) > 0).all()
    finally:
        going[0] = False
        sys.setswitchinterval(before)
        thread.join()


def test_bool_operands_may_be_written_concurrently() -> None:
    octets, going = np.zeros(3_000_000, np.uint8), [True]
    mask = octets.view(bool)

    def write() -> None:
        while going[0]:
            octets[:] = 255
            octets[:] = 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(30):
            both = np.asarray(snp.logical_and(mask, mask)).view(np.uint8)
            assert both.max() <= 1
            assert int(snp.any(mask)) in (0, 1)
            assert 0 <= int(snp.sum(mask)) <= mask.size
            assert 0 <= int(snp.argmax(mask)) < mask.size
    finally:
        going[0] = False
        thread.join()


def test_large_bool_arrays_are_read_without_a_copy() -> None:
    mask = np.zeros(16 << 20, bool)
    mask[-1] = True
    for _ in range(3):
        assert snp.any(mask)
    assert count_calls(lambda: snp.any(mask)) == count_calls(lambda: None)


def test_isin_of_numpy_integers_reads_current_elements() -> None:
    numbers = np.arange(5000, dtype=np.int32).reshape(50, 100) % 701
    tests = numbers[:20] * 3
    for _ in range(3):
        made = snp.isin(numbers, tests)
        np.testing.assert_array_equal(made, np.isin(numbers, tests))
        tests[0, :5] += 1
