"""Results and derivatives of special cases that once differed from JAX and NumPy."""

import enum
from typing import Any

import numpy as np
import pytest

import shardir
from shardir import numpy as snp
from shardir.frontend.errors import ArgumentError, NotAnArrayError


def test_derivatives_of_piecewise_functions() -> None:
    second = shardir.grad(shardir.grad(snp.sinc))
    np.testing.assert_allclose(second(0.0), -(np.pi**2) / 3, rtol=1e-6)
    np.testing.assert_allclose(shardir.grad(shardir.grad(second))(0.0), np.pi**4 / 5, rtol=1e-6)
    np.testing.assert_allclose(shardir.grad(snp.sinc)(1e30), 0.0, atol=1e-29)
    assert shardir.grad(snp.i0)(0.0) == 0.0
    np.testing.assert_allclose(shardir.grad(shardir.grad(snp.i0))(0.0), 0.5, rtol=1e-5)


def test_masked_elements_have_zero_derivative() -> None:
    x = np.array([np.nan, 1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(shardir.grad(snp.nanvar)(x), [0, -0.75, -0.25, 0.25, 0.75])
    assert not np.isnan(np.asarray(shardir.grad(snp.nanstd)(x))).any()


@pytest.mark.parametrize("ddof", [2, 3, 4])
def test_variance_of_too_few_elements_is_nan(ddof: int) -> None:
    assert np.isnan(snp.var(snp.arange(2), ddof=ddof))
    assert np.isnan(snp.std(snp.arange(3), ddof=ddof, where=np.array([True, True, False])))


def test_covariances_of_empty_arrays_are_nan() -> None:
    assert np.isnan(snp.cov(np.ones(0)))
    assert np.isnan(np.asarray(snp.cov(np.ones((3, 0))))).all()


def test_variance_of_complex_numbers_is_computed_in_a_complex_dtype() -> None:
    x = np.array([1j, 2], np.complex64)
    assert snp.var(x).dtype == np.float32
    assert snp.var(x, dtype=np.complex64).dtype == np.complex64
    with pytest.raises(ArgumentError) as caught:
        snp.std(x, dtype=np.float32)
    assert str(caught.value).partition("\n")[0] == (
        "std of complex numbers is computed in a complex type, got dtype <class 'numpy.float32'>; "
        "leave it out, and convert the result, which is real, with .astype"
    )


def test_variance_about_a_given_mean() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2
    mean = x.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(snp.var(x, axis=1, mean=mean), x.var(axis=1), rtol=1e-6)
    np.testing.assert_allclose(snp.nanstd(x, axis=1, mean=mean), x.std(axis=1), rtol=1e-6)


@pytest.mark.parametrize("axis", [(2, 0), (0, 2), (1, 0, 2)])
def test_weights_follow_the_order_of_the_axes(axis: tuple[int, ...]) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    weights = np.arange(1, 1 + int(np.prod([x.shape[i] for i in axis])), dtype=np.float32)
    weights = weights.reshape([x.shape[i] for i in axis])
    np.testing.assert_allclose(
        snp.average(x, axis=axis, weights=weights), np.average(x, axis=axis, weights=weights),
        rtol=1e-6,
    )  # fmt: skip


def test_negative_indices_count_from_the_end_before_they_are_clipped() -> None:
    x, at = np.arange(10.0, dtype=np.float32), np.array([-11, -10, -1, 3, 10])
    np.testing.assert_array_equal(snp.take_along_axis(x, at, 0, mode="clip"), [0, 0, 9, 3, 9])


def test_cumulative_sums_accept_bools() -> None:
    x = np.array([0, 2, 0], np.int32)
    np.testing.assert_array_equal(snp.cumsum(x, dtype=bool), [False, True, True])
    np.testing.assert_array_equal(snp.cumprod(x + 1, dtype=bool), [True, True, True])


def test_lists_have_the_dtype_of_their_strongly_typed_elements() -> None:
    assert snp.array([0, np.float16(1)]).dtype == np.float16
    assert snp.array([0.5, np.int8(1)]).dtype == np.float32
    assert snp.array([1, np.int8(1)]).dtype == np.int8
    assert snp.array([np.uint8(1), np.int8(1)]).dtype == np.int16


@pytest.mark.parametrize("text", ["0", "-1", "0,2", "0,2,0", "1,2,0"])
def test_omitted_entries_of_a_directive_have_defaults(text: str) -> None:
    parts: Any = (text, [1, 2, 3], [4, 5, 6])
    np.testing.assert_array_equal(snp.c_[parts], np.c_[parts])
    np.testing.assert_array_equal(snp.r_[parts], np.r_[parts])


def test_concatenation_directives_make_rows_or_columns() -> None:
    assert snp.r_["r", [1, 2], 3].shape == (1, 3)
    assert snp.r_["c", [1, 2], 3].shape == (3, 1)


def test_bincount_has_the_stated_length() -> None:
    counts = snp.bincount(np.array([1, 2, 7]), minlength=20, length=8)
    np.testing.assert_array_equal(counts, [0, 1, 1, 0, 0, 0, 0, 1])


def test_lcm_wraps_around_as_products_do() -> None:
    x, y = np.array([26, -4], np.int8), np.array([5, 6], np.int8)
    np.testing.assert_array_equal(snp.lcm(x, y), np.array([-126, 12], np.int8))


def test_masked_arrays_are_errors() -> None:
    x = np.ma.array([1.0, 2.0], mask=[True, False])
    with pytest.raises(NotAnArrayError) as caught:
        shardir.jit(lambda x: x)(x)
    assert "is a masked array, which shardir does not support; pass x.filled(number)" in str(caught)


def test_objects_with_jax_array_method_are_arrays() -> None:
    class Held:
        def __init__(self, numbers: Any) -> None:
            self.numbers = numbers

        def __jax_array__(self) -> Any:
            return self.numbers

    held = Held(snp.arange(3.0))
    np.testing.assert_array_equal(snp.asarray(held), [0, 1, 2])  # type: ignore[arg-type]
    np.testing.assert_array_equal(snp.add(held, 1), [1, 2, 3])  # type: ignore[arg-type]
    kind: Any = shardir.tree_util.register_dataclass(Held, ["numbers"], [])
    moved = shardir.jit(lambda x: kind(snp.sin(x) * 2))(held)
    np.testing.assert_allclose(moved.numbers, 2 * np.sin(np.arange(3)), rtol=1e-6)


def test_enum_members_may_be_results() -> None:
    class Count(enum.IntEnum):
        one = 1

    assert shardir.jit(lambda: Count.one)() == 1


def test_conjugate_returns_a_complex_dtype() -> None:
    assert shardir.lax.conj(np.float32(3)).dtype == np.complex64
    assert shardir.grad(lambda x: shardir.lax.conj(x).real)(3.0) == 1.0


def test_integers_of_any_size_become_floats() -> None:
    assert shardir.lax.convert_element_type(2**100, np.float32) == np.float32(2**100)


def test_traced_values_have_no_concrete_attributes() -> None:
    def place(x: Any) -> Any:
        assert not hasattr(x, "sharding")
        return x

    shardir.jit(place)(1.0)
    with pytest.raises(ValueError, match=r"^a traced i32\[0\] has no single truth value while "):
        shardir.jit(bool)(np.zeros(0, np.int32))


def test_reads_in_mode_drop_fill_out_of_bounds_elements() -> None:
    x = snp.arange(5.0)
    at = np.array([-1, -7, 2, 9])
    for mode in ("drop", "fill"):
        np.testing.assert_array_equal(x.at[at].get(mode=mode, fill_value=99), [4, 99, 2, 99])
    with pytest.raises(ArgumentError, match="wrap_negative_indices is True or False"):
        x.at[at].get(wrap_negative_indices=np.ones(2))
