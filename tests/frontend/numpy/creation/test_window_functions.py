"""Window functions against NumPy: short and long ones, eagerly and traced."""

from functools import partial

import numpy as np
import pytest

from shardir import enable_x64, jit
from shardir.backends.cpu.codegen import kernel_table
from shardir.frontend.errors import ArgumentError, TracedValueError
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.creation.window_functions import MAX_TRACED_WINDOW_BYTES
from shardir.frontend.tracing.operands import MAX_CONSTANT_BYTES

WINDOWS: list[tuple[str, tuple[float, ...]]] = [
    *((name, ()) for name in ("bartlett", "blackman", "hamming", "hanning")),
    *(("kaiser", (beta,)) for beta in (0.0, 3.5, -14.0, 200.0)),
]
LENGTHS = [0, 1, 2, 9, MAX_CONSTANT_BYTES // 8, MAX_CONSTANT_BYTES // 8 + 1, 1000, 20011]


@pytest.mark.sample(3)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("name", "rest"), WINDOWS)
def test_windows_agree_with_numpy(name: str, rest: tuple[float, ...], length: int) -> None:
    expected = getattr(np, name)(length, *rest)
    single = getattr(snp, name)(length, *rest)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=2e-7, atol=1e-12)
    with enable_x64():
        double = getattr(snp, name)(length, *rest)
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, rtol=2e-13, atol=1e-15)


def test_a_window_of_large_shape_does_not_overflow() -> None:
    made = np.asarray(snp.kaiser(1001, 2000.0))
    assert made[500] == 1
    assert np.isfinite(made).all()


@pytest.mark.parametrize(("name", "rest"), WINDOWS)
def test_traced_and_eager_windows_agree(name: str, rest: tuple[float, ...]) -> None:
    got = jit(lambda x: x * getattr(snp, name)(100, *rest))(np.ones(100, np.float32))
    np.testing.assert_allclose(got, getattr(snp, name)(100, *rest), rtol=2e-7, atol=1e-12)


def test_a_traced_program_computes_long_windows() -> None:
    count = MAX_TRACED_WINDOW_BYTES // 8 + 1
    traced = jit(lambda x: x * snp.hanning(count))
    np.testing.assert_allclose(traced(1.0), np.hanning(count), rtol=2e-7, atol=1e-12)
    with pytest.raises(MemoryError, match="no memory for"):
        jit(lambda x: x * snp.hanning(10**30))(1.0)


def test_a_length_must_be_an_integer() -> None:
    with pytest.raises(TypeError, match="integer"):
        snp.hanning(2.5)  # type: ignore[arg-type]


def test_lengths_and_shapes_must_be_numbers() -> None:
    with pytest.raises(ArgumentError, match=r"M of hanning is 2\.5; it must be an integer"):
        snp.hanning(2.5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="M of kaiser is 'a'; it must be an integer"):
        snp.kaiser("a", 3.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="kaiser takes a real number as beta, got None"):
        snp.kaiser(8, None)  # type: ignore[arg-type]
    with pytest.raises(TracedValueError, match="has no float value"):
        jit(lambda beta: snp.kaiser(8, beta))(3.0)


def test_one_kernel_computes_windows_of_all_lengths() -> None:
    for make in (snp.hanning, partial(snp.kaiser, beta=3.0)):
        make(1000)
        known = set(kernel_table._kernel_addresses)
        for length in (1001, 1500, 1003):
            make(length)
        assert set(kernel_table._kernel_addresses) == known
    for beta in (3.5, -4.0, 80.0):
        snp.kaiser(1000, beta)
    assert set(kernel_table._kernel_addresses) == known


def test_a_donated_window_is_computed_again() -> None:
    taken = jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(4):
        window = snp.hamming(20)
        np.testing.assert_allclose(window, np.hamming(20), rtol=2e-7)
        taken(window)
