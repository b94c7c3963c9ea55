"""Fourier transforms of rows in scratch memory: as accurate as NumPy's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.codegen.target import architecture, host_machine
from shardir.backends.cpu.kernels.fft.passes import factor_radices, fft_lanes, unit_roots
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops.linalg.fft import TRANSFORMS
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule

pytestmark = pytest.mark.sample(5)

MAX_ERROR_RATIO = 1.05 if architecture(host_machine().triple) == "x86_64" else 1.1
"""The largest ratio of an error to the error of NumPy, whose code differs between processors."""

Array = npt.NDArray[Any]
KINDS = ("fft", "ifft", "rfft", "irfft")
COMPLEX = {"f32": "c64", "f64": "c128"}
NUMPY_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "fft": np.fft.fft, "ifft": np.fft.ifft, "rfft": np.fft.rfft, "irfft": np.fft.irfft,
}  # fmt: skip
SHORT_LENGTHS = [n for n in range(1, 65) if factor_radices(n) is not None]


def random_input(kind: str, dtype: str, *shape: int) -> Array:
    """Return random input rows; for `irfft`, the length is that of the result."""
    rng = np.random.default_rng(sum(shape))
    if kind == "rfft":
        return rng.standard_normal(shape).astype(NUMPY_DTYPES[dtype])
    if kind == "irfft":
        shape = (*shape[:-1], shape[-1] // 2 + 1)
    numbers = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return numbers.astype(NUMPY_DTYPES[COMPLEX[dtype]])


def transform(kind: str, dtype: str, x: Array, rank: int, length: int) -> Op:
    """Run the transform; `length` is the size of the last dimension, for `irfft` that of the
    result."""
    operand = TensorType(x.shape, dtype if kind == "rfft" else COMPLEX[dtype])
    result = TensorType((*x.shape[:-1], length), dtype) if kind == "irfft" else None
    return make_op(OPS["fft"], operand, result=result, kind=Symbol(kind), rank=rank)


def exact(kind: str, x: Array, *lengths: int) -> Array:
    """Return the transform in extended precision, if the machine has it."""
    wide = x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)
    return np.asarray(TRANSFORMS[kind](wide, lengths, tuple(range(-len(lengths), 0))))


def error(found: Array, expected: Array) -> float:
    """Return the root mean square error."""
    return float(np.sqrt(np.mean(np.abs(found - expected) ** 2, dtype=np.longdouble)))


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_of_short_rows_are_accurate(kind: str) -> None:
    for n in SHORT_LENGTHS:
        dtype, close = ("f32", 2e-7) if n % 4 < 2 else ("f64", 1e-15)
        x = random_input(kind, dtype, 3, n)
        (found,) = run_rule(RULES["fft"], transform(kind, dtype, x, 1, n), [x])
        expected = exact(kind, x, n)
        np.testing.assert_allclose(found, expected, rtol=0, atol=close * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [128, 143, 360, 1000, 1024, 4096])
def test_errors_are_at_most_those_of_numpy(kind: str, dtype: str, n: int) -> None:
    x = random_input(kind, dtype, 17, n)
    (found,) = run_rule(RULES["fft"], transform(kind, dtype, x, 1, n), [x])
    expected, other = exact(kind, x, n), NUMPY_FUNCTIONS[kind](x, n)
    assert error(found, expected) <= MAX_ERROR_RATIO * error(other, expected)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [19, 113, 199, 323, 211, 422, 1009, 1016])
def test_transforms_with_large_prime_factors_are_accurate(kind: str, dtype: str, n: int) -> None:
    """Factors up to a limit have their own passes; larger ones use convolutions of a suitable
    length."""
    x = random_input(kind, dtype, 9, n)
    (found,) = run_rule(RULES["fft"], transform(kind, dtype, x, 1, n), [x])
    expected, other = exact(kind, x, n), NUMPY_FUNCTIONS[kind](x, n)
    # NumPy uses shorter sums for real numbers.
    assert error(found, expected) <= (2 if kind[:-3] in ("r", "ir") else 1.2) * error(
        other, expected
    )
    for workers in (1, 5):
        part = np.asfortranarray(x)[2:7]
        (again,) = run_rule(
            RULES["fft"], transform(kind, dtype, part, 1, n), [part], workers=workers
        )
        np.testing.assert_array_equal(again, found[2:7])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [(), (0,), (1,), (3,), (17,), (2, 1, 5)])
def test_batches_of_transforms_are_accurate(kind: str, batch: tuple[int, ...]) -> None:
    x = random_input(kind, "f32", *batch, 24)
    (found,) = run_rule(RULES["fft"], transform(kind, "f32", x, 1, 24), [x])
    np.testing.assert_allclose(found, exact(kind, x, 24), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_transforms_of_any_layout_are_accurate(kind: str, dtype: str) -> None:
    """Rows are contiguous, reversed, strided or broadcast; results as well."""
    for rows, n in ((5, 12), (8, 12), (19, 20), (19, 6)):
        x = random_input(kind, dtype, rows, n)
        op = transform(kind, dtype, x, 1, n)
        (straight,) = run_rule(RULES["fft"], op, [x])
        apart = np.zeros((2 * rows, 3 * x.shape[1]), x.dtype)[::2, ::3]
        apart[...] = x
        for given in (np.asfortranarray(x), apart, x[::-1, ::-1].copy()[::-1, ::-1]):
            dense = np.zeros((2, *straight.shape), straight.dtype)
            for out in (np.asfortranarray(dense[0]), dense[1], np.repeat(dense[0], 2, 1)[:, ::2]):
                assert lower_and_run(RULES["fft"], op, [given], [out]) is not None
                np.testing.assert_array_equal(out, straight)
        (same,) = run_rule(RULES["fft"], op, [np.broadcast_to(x[:1], x.shape)])
        np.testing.assert_array_equal(same, np.broadcast_to(straight[:1], straight.shape))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(4, 6, 10), (2, 3, 4, 9), (9, 8, 16)])
@pytest.mark.parametrize("rank", [2, 3])
def test_multidimensional_transforms_are_accurate(
    kind: str, shape: tuple[int, ...], rank: int
) -> None:
    x = random_input(kind, "f64", *shape)
    (found,) = run_rule(RULES["fft"], transform(kind, "f64", x, rank, shape[-1]), [x])
    expected = exact(kind, x, *shape[-rank:])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_nonfinite_elements_affect_only_their_row(kind: str) -> None:
    x = random_input(kind, "f32", 17, 12)
    op = transform(kind, "f32", x, 1, 12)
    (clean,) = run_rule(RULES["fft"], op, [x])
    for bad in (np.nan, np.inf):
        x[3, 1] = bad
        (found,) = run_rule(RULES["fft"], op, [x])
        assert not np.isfinite(found[3]).any()
        np.testing.assert_array_equal(np.delete(found, 3, 0), np.delete(clean, 3, 0))


def test_irfft_ignores_imaginary_parts_of_the_ends() -> None:
    for n in (1, 2, 7, 8):
        x = random_input("irfft", "f64", 3, n)
        wild = x.copy()
        wild[:, 0] += 1j * np.inf
        if n % 2 == 0:
            wild[:, -1] += 1j * np.inf
        wild.real = x.real
        op = transform("irfft", "f64", x, 1, n)
        one, other = (run_rule(RULES["fft"], op, [given])[0] for given in (x, wild))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_transforms_do_not_depend_on_workers_or_lanes(kind: str) -> None:
    x = random_input(kind, "f64", 41, 60)
    op = transform(kind, "f64", x, 1, 60)
    (found,) = run_rule(RULES["fft"], op, [x], workers=1)
    for workers in (2, 5):
        np.testing.assert_array_equal(run_rule(RULES["fft"], op, [x], workers=workers)[0], found)
    for start, end in ((0, 1), (5, 13), (33, 41)):
        part = x[start:end]
        (alone,) = run_rule(RULES["fft"], transform(kind, "f64", part, 1, 60), [part])
        np.testing.assert_array_equal(alone, found[start:end])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft"])
@pytest.mark.parametrize("shape", [(4096,), (2, 6000), (3, 2, 2000), (9, 1 << 15)])
def test_transforms_of_long_rows_are_accurate(
    kind: str, dtype: str, shape: tuple[int, ...]
) -> None:
    """Few long rows, and rows larger than scratch memory."""
    x = random_input(kind, dtype, *shape)
    op = transform(kind, dtype, x, 1, shape[-1])
    (found,) = run_rule(RULES["fft"], op, [x])
    expected, other = exact(kind, x, shape[-1]), NUMPY_FUNCTIONS[kind](x)
    assert error(found, expected) <= MAX_ERROR_RATIO * error(other, expected)
    turned = np.asfortranarray(x)
    for workers in (1, 5):
        (again,) = run_rule(RULES["fft"], op, [turned], workers=workers)
        np.testing.assert_array_equal(again, found)


def is_left_to_numpy(shape: tuple[int, ...], rank: int) -> bool:
    x = np.zeros(shape, np.complex128)
    return (
        lower_and_run(RULES["fft"], transform("fft", "f64", x, rank, shape[-1]), [x], [x]) is None
    )


@pytest.mark.parametrize("shape", [(2, 131101), (1 << 20,)])
def test_very_long_rows_are_left_to_numpy(shape: tuple[int, ...]) -> None:
    assert is_left_to_numpy(shape, 1)


@pytest.mark.parametrize(("shape", "rank"), [((3, 1009), 1), ((1 << 12, 3), 2), ((1031, 3, 1), 3)])
def test_rows_that_fill_few_lanes_are_left_to_numpy(shape: tuple[int, ...], rank: int) -> None:
    """These are three rows of a large prime length, and long rows of planes."""
    assert is_left_to_numpy(shape, rank) == (fft_lanes(host_machine()) > 2 * 3)


def test_twiddle_factors_are_exact_at_special_angles() -> None:
    eighth = np.sqrt(0.5)
    table = [1, eighth * (1 - 1j), -1j, -eighth * (1 + 1j), -1]
    np.testing.assert_array_equal(unit_roots(8)[:5], table)
    assert unit_roots(12)[2] == np.complex128(0.5 - 1j * unit_roots(12)[1].real)
