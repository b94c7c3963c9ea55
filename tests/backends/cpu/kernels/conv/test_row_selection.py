"""Convolutions whose parts multiply only the rows that are inside of the image."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.module import Op
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.guard_pages import Array, copy_after_guard_page, copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import assert_convolution, attributes
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, selected_kernel_names

NHWC, NCHW = "b01f,01io->b01f", "bf01,oi01->bf01"
NHWC_FILTER_GRADIENT = "f01b,i01o->01bf"
PAD_BY_ONE = ((1, 1), (1, 1))


def operation(
    image: tuple[int, ...], filter: tuple[int, ...], dtype: str = "f16", dims: str = NHWC,
    **given: Any,
) -> Op:  # fmt: skip
    attrs = attributes(len(image) - 2, dims, **{"padding": PAD_BY_ONE, **given})
    return make_op(convolution, *(TensorType(shape, dtype) for shape in (image, filter)), **attrs)


def selects_rows(op: Op, machine: HostDescription = ZEN_5) -> bool:
    return any(
        "_selected" in name for name in selected_kernel_names(RULES["convolution"], op, machine)
    )


def check(op: Op, x: Array, w: Array, out: Array) -> None:
    """Check the result of the host, and that it does not depend on the number of workers."""
    results = []
    for workers in (1, 2, 7):
        out[...] = 0
        assert lower_and_run(RULES["convolution"], op, [x, w], [out], workers=workers)
        assert_convolution(out, x, w, op.result.type, op.attrs)
        results.append(out.tobytes())
    assert len(set(results)) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "c64", "i32"])
@pytest.mark.parametrize(
    ("image", "filter", "given"),
    [
        ((2, 7, 7, 128), (3, 3, 128, 96), {}),
        ((1, 5, 9, 130), (3, 3, 130, 93), {}),
        ((3, 4, 4, 1032), (3, 3, 1032, 35), {}),
        ((2, 6, 7, 128), (5, 5, 128, 70), {"padding": ((2, 2), (3, 1))}),
        ((2, 9, 9, 128), (3, 3, 128, 97), {"strides": (2, 2)}),
        ((2, 7, 7, 128), (3, 3, 128, 96), {"rhs_dilation": (2, 3), "padding": ((2, 2), (3, 3))}),
        ((1, 3, 5, 128), (3, 3, 128, 96), {"padding": ((4, 5), (0, 3))}),
        ((2, 5, 5, 256), (3, 3, 128, 160), {"groups": 2}),
        ((4, 1, 1, 128), (3, 3, 128, 96), {}),
    ],
)
def test_selected_rows_match_the_reference(
    image: tuple[int, ...], filter: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    """Some taps are outside for all positions of a block."""
    op = operation(image, filter, dtype, **given)
    assert selects_rows(op)
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, dtype) for value in op.operands)
    check(op, x, w, np.empty(op.result.type.shape, x.dtype))


@pytest.mark.parametrize("dims", [NCHW, "bf01,io01->bf01"])
def test_copies_of_images_in_nchw_layout_select_rows(dims: str) -> None:
    """Pairs of channels are contiguous in the copy of the filter."""
    op = operation((2, 128, 7, 7), (128, 128, 3, 3), "bf16", dims)
    assert selects_rows(op)
    names = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert not any("interleave" in name for name in names)
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, "bf16") for value in op.operands)
    check(op, x, w, np.empty(op.result.type.shape, x.dtype))


@pytest.mark.parametrize(
    "given",
    [
        {"image": (2, 56, 56, 128)},
        {"image": (2, 7, 7, 32), "filter": (3, 3, 32, 40)},
        {"padding": ((0, 0), (0, 0))},
        {"image": (50, 7, 7, 128)},
        {"image": (2, 7, 7, 1031), "filter": (3, 3, 1031, 40)},
        {"image": (2, 7, 7, 256), "filter": (3, 3, 256, 96), "dtype": "bf16",
         "machine": SAPPHIRE_RAPIDS},
        {"image": (2, 128, 7, 7), "filter": (5, 128, 3, 3), "dtype": "c64", "dims": NCHW},
        {"image": (700, 3, 3, 16), "filter": (700, 5, 5, 40), "dtype": "bf16",
         "dims": NHWC_FILTER_GRADIENT, "padding": ((2, 2), (2, 2))},
        {"image": (2, 4, 30, 16), "filter": (2, 6, 200, 40), "dtype": "f32",
         "dims": NHWC_FILTER_GRADIENT, "padding": ((2, 2), (86, 86))},
        {"image": (2, 7, 7, 128), "filter": (2, 2, 128, 96), "dtype": "f16"},
    ],
)  # fmt: skip
def test_other_convolutions_multiply_all_rows(given: dict[str, Any]) -> None:
    """Few elements are outside, parts are short or of different lengths, rows are many, tiles are
    those of AMX, patches are the right operand, packing makes pairs, parts run along positions, or
    sums of one part are stored as f16."""
    given = {"image": (2, 7, 7, 128), "filter": (3, 3, 128, 96), **given}
    machine = given.pop("machine", ZEN_5)
    assert not selects_rows(operation(**given), machine)


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize(
    ("image", "filter", "given"),
    [
        ((1, 4, 8, 160), (2, 3, 160, 93), {"lhs_dilation": (1, 2), "rhs_dilation": (2, 2)}),
        ((2, 5, 56, 2), (1, 1, 1, 4), {"groups": 2, "padding": ((2, 2), (3, 0))}),
    ],
)
def test_sums_of_no_steps_or_of_one_step_have_no_parts(
    image: tuple[int, ...], filter: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    """No element of the image, or one channel, belongs to a result between or around elements."""
    op = operation(image, filter, dtype, **given)
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, dtype) for value in op.operands)
    check(op, x, w, np.empty(op.result.type.shape, x.dtype))


def test_elements_around_an_image_are_not_read() -> None:
    """NaN surrounds the array in memory, so a read outside of the image would make a result NaN."""
    rng = np.random.default_rng(0)
    surrounded = np.full((2, 11, 11, 128), np.nan, NUMPY_DTYPES["bf16"])
    x = surrounded[:, 2:9, 2:9]
    x[...] = random_elements(rng, x.shape, "bf16")
    op = operation(x.shape, (3, 3, 128, 96), "bf16")
    assert selects_rows(op)
    w = random_elements(rng, (3, 3, 128, 96), "bf16")
    out = np.empty(op.result.type.shape, x.dtype)
    check(op, x, w, out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("copy", [copy_after_guard_page, copy_before_guard_page])
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_elements_before_and_after_operands_are_not_accessed(
    copy: Callable[[Array], Array], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    op = operation((2, 5, 7, 130), (3, 3, 130, 61), dtype)
    assert selects_rows(op)
    x, w = (copy(random_elements(rng, value.type.shape, dtype)) for value in op.operands)
    check(op, x, w, copy(np.zeros(op.result.type.shape, x.dtype)))


def test_a_result_of_taps_that_are_all_outside_is_zero() -> None:
    op = operation((1, 2, 2, 128), (3, 3, 128, 96), padding=((9, 9), (9, 9)))
    assert selects_rows(op)
    x, w = (np.ones(value.type.shape, value.type.numpy) for value in op.operands)
    out = np.full(op.result.type.shape, np.nan, x.dtype)
    check(op, x, w, out)
    assert (out[:, :7] == 0).all()


@pytest.mark.parametrize("columns", [96, 93])
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64", "c64"])
def test_infinite_and_nan_elements_of_a_filter_are_multiplied_by_zeros_outside(
    dtype: str, columns: int
) -> None:
    """The products are NaN, as in the reference; all other channels are finite."""
    rng = np.random.default_rng(0)
    op = operation((2, 7, 7, 128), (3, 3, 128, columns), dtype)
    assert selects_rows(op)
    x, w = (rng.uniform(1, 2, value.type.shape).astype(value.type.numpy) for value in op.operands)
    w[0, 0, 3, 5], w[1, 1, 2, 7] = np.inf, np.nan
    out = np.empty(op.result.type.shape, x.dtype)
    for workers in (1, 3):
        lower_and_run(RULES["convolution"], op, [x, w], [out], workers=workers)
        got = out.astype(np.complex128)
        assert np.isnan(got[:, 0, :, 5]).all()
        assert np.isnan(got[:, :, 0, 5]).all()
        assert np.isinf(got[:, 1:, 1:, 5]).all()
        assert np.isnan(got[..., 7]).all()
        assert np.isfinite(np.delete(got, [5, 7], axis=-1)).all()


@pytest.mark.parametrize("dtype", ["bf16", "f32", "c64"])
def test_infinite_elements_of_taps_that_are_all_outside_are_multiplied_by_zeros(dtype: str) -> None:
    """No row is inside at such a tap."""
    op = operation((4, 1, 1, 128), (3, 3, 128, 96), dtype)
    assert selects_rows(op)
    x, w = (np.ones(value.type.shape, value.type.numpy) for value in op.operands)
    w[0, 0, 3, 5], w[2, 1, 127, 95] = np.inf, np.nan
    out = np.empty(op.result.type.shape, x.dtype)
    lower_and_run(RULES["convolution"], op, [x, w], [out])
    got = out.astype(np.complex128)
    assert np.isnan(got[..., [5, 95]]).all()
    assert (np.delete(got, [5, 95], axis=-1) == 128).all()


@pytest.mark.parametrize("columns", [96, 93])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e20])
def test_sums_of_rows_inside_that_are_not_finite_leave_those_of_other_rows(
    value: float, columns: int
) -> None:
    """An element of the image is not finite, or its products are not: (1e20)^2 of f32."""
    op = operation((2, 7, 7, 128), (3, 3, 128, columns), "f32")
    assert selects_rows(op)
    x, w = (np.ones(value.type.shape, np.float32) for value in op.operands)
    x[1, 0, 0, 9], w[..., columns - 1] = value, 1e20
    out = np.empty(op.result.type.shape, np.float32)
    lower_and_run(RULES["convolution"], op, [x, w], [out])
    is_finite = np.isfinite(out[..., columns - 1])
    assert not is_finite[1, :2, :2].any()
    assert is_finite.sum() == 98 - 4
    assert np.isfinite(np.delete(out, slice(0, 2), axis=2)).all()
    assert np.isfinite(out[..., : columns - 1]).all() == (value == 1e20)


@pytest.mark.parametrize(
    ("image", "filter", "given", "is_transformed"),
    [
        ((2, 256, 7, 7), (256, 256, 3, 3), {}, True),
        ((2, 128, 9, 9), (128, 128, 3, 3), {"strides": (2, 1), "padding": ((2, 2), (3, 2))}, True),
        ((2, 128, 9, 9), (128, 128, 3, 3), {"padding": ((0, 0), (0, 0))}, False),
        (
            (2, 128, 9, 9),
            (128, 128, 3, 3),
            {"rhs_dilation": (2, 2), "padding": ((2, 2),) * 2},
            True,
        ),
        ((1, 512, 4, 4), (512, 512, 3, 3), {}, False),
        ((2, 64, 28, 28), (64, 64, 3, 3), {}, False),
        ((2, 24, 9, 9), (128, 24, 3, 3), {}, False),
    ],
)
def test_small_images_of_f32_are_transformed_to_select_rows(
    image: tuple[int, ...], filter: tuple[int, ...], given: dict[str, Any], is_transformed: bool
) -> None:
    """The rows that are left out save more time than the copies take."""
    op = operation(image, filter, "f32", NCHW, **given)
    assert selects_rows(op) == is_transformed
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, "f32") for value in op.operands)
    check(op, x, w, np.empty(op.result.type.shape, x.dtype))
