"""Packing of contiguous K steps of patches as pairs, for gradients of filters in NCHW layout."""

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
from tests.backends.cpu.kernels.gemm.test_grouped_steps import strided
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, selected_kernel_names

NCHW_FILTER_GRADIENT = "fb01,io01->bf01"


def gradient(image: tuple[int, ...], grad: tuple[int, ...], **given: Any) -> Op:
    attrs = attributes(2, NCHW_FILTER_GRADIENT, **{"padding": ((1, 1), (1, 1)), **given})
    types = (TensorType(shape, "bf16") for shape in (image, grad))
    return make_op(convolution, *types, **attrs)


def kernels(op: Op, machine: HostDescription = ZEN_5) -> list[str]:
    return selected_kernel_names(RULES["convolution"], op, machine)


def check(op: Op, x: Array, grad: Array, out: Array) -> None:
    """Check the result of the host, and that it does not depend on the number of workers."""
    for workers in (1, 3):
        out[...] = 0
        assert lower_and_run(RULES["convolution"], op, [x, grad], [out], workers=workers)
        assert_convolution(out, x, grad, op.result.type, op.attrs)


@pytest.mark.parametrize(
    ("image", "grad", "given"),
    [
        ((2, 20, 9, 14), (2, 33, 9, 14), {}),
        ((1, 7, 13, 28), (1, 40, 13, 28), {}),
        ((3, 40, 5, 34), (3, 17, 5, 34), {"padding": ((2, 2), (2, 2))}),
        ((1, 18, 40, 70), (1, 50, 40, 66), {"padding": ((1, 1), (0, 0))}),
        ((2, 16, 4, 8), (2, 40, 4, 8), {"padding": ((2, 3), (2, 1))}),
        ((2, 16, 12, 10), (2, 20, 4, 10), {"rhs_dilation": (3, 1)}),
        ((2, 20, 9, 12), (2, 30, 9, 16), {"padding": ((1, 1), (4, 2))}),
    ],
)
def test_pairs_of_contiguous_steps_match_the_reference(
    image: tuple[int, ...], grad: tuple[int, ...], given: dict[str, Any]
) -> None:
    """Panels, runs and parts of the K steps end anywhere; windows are partly outside."""
    op = gradient(image, grad, **given)
    assert any("_pairs" in name for name in kernels(op))
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, shape, "bf16") for shape in (image, grad))
    check(op, x, w, np.empty(op.result.type.shape, x.dtype))


@pytest.mark.parametrize(
    ("image", "grad", "given"),
    [
        ((2, 20, 9, 15), (2, 33, 9, 15), {}),
        ((2, 20, 9, 6), (2, 33, 9, 6), {}),
        ((2, 20, 18, 28), (2, 33, 9, 14), {"rhs_dilation": (2, 2), "padding": ((1, 0), (1, 0))}),
        ((2, 15, 9, 14), (2, 1, 9, 14), {}),
    ],
)
def test_other_steps_are_packed_one_by_one(
    image: tuple[int, ...], grad: tuple[int, ...], given: dict[str, Any]
) -> None:
    """Runs are odd or short, steps are not contiguous, or there are few columns."""
    op = gradient(image, grad, **given)
    assert not any("_pairs" in name for name in kernels(op))
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, shape, "bf16") for shape in (image, grad))
    check(op, x, w, np.empty(op.result.type.shape, x.dtype))


def test_pairs_of_the_other_operand_are_copied_if_they_are_aligned() -> None:
    """Lines of the gradient with an odd distance are packed element by element."""
    image, grad = (2, 20, 9, 14), (2, 33, 9, 14)
    op = gradient(image, grad)
    assert any("packed_gemm_f32_i16_" in name and "_pairs" in name for name in kernels(op))
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, shape, "bf16") for shape in (image, grad))
    wide = np.zeros((2, 33, 9, 15), x.dtype)
    wide[..., 1:] = w
    check(op, x, wide[..., 1:], np.empty(op.result.type.shape, x.dtype))


@pytest.mark.parametrize("seed", range(6))
def test_pairs_match_the_reference_for_any_strides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, channels, features = (int(rng.integers(1, n)) for n in (4, 40, 40))
    rows, width = int(rng.integers(1, 20)), 2 * int(rng.integers(4, 40))
    padding = tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(2))
    image = (count, channels, rows + 2, width + 2)
    op = gradient(image, (count, features, rows, width), padding=padding)
    x, w = (random_elements(rng, value.type.shape, "bf16") for value in op.operands)
    out = strided(rng, np.zeros(op.result.type.shape, x.dtype))
    check(op, strided(rng, x) if seed % 2 else x, strided(rng, w), out)


def test_elements_around_an_image_are_not_read() -> None:
    """NaN surrounds the array in memory, so a read outside of the image would make a result NaN."""
    rng = np.random.default_rng(0)
    surrounded = np.full((2, 22, 20, 34), np.nan, NUMPY_DTYPES["bf16"])
    x = surrounded[:, 1:21, 2:18, 2:32]
    x[...] = random_elements(rng, x.shape, "bf16")
    grad = random_elements(rng, (2, 33, 16, 30), "bf16")
    op = gradient(x.shape, grad.shape)
    out = np.empty(op.result.type.shape, x.dtype)
    check(op, x, grad, out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("copy", [copy_after_guard_page, copy_before_guard_page])
@pytest.mark.parametrize("width", [8, 14, 32, 46])
def test_elements_before_and_after_operands_are_not_accessed(
    copy: Callable[[Array], Array], width: int
) -> None:
    rng = np.random.default_rng(0)
    op = gradient((1, 17, 5, width), (1, 19, 5, width), padding=((2, 2), (2, 2)))
    x, w = (copy(random_elements(rng, value.type.shape, "bf16")) for value in op.operands)
    check(op, x, w, copy(np.zeros(op.result.type.shape, x.dtype)))


def test_tile_registers_pack_pairs_too() -> None:
    found = kernels(gradient((2, 64, 14, 14), (2, 64, 14, 14)), SAPPHIRE_RAPIDS)
    assert any("_amx_" in name and "_pairs" in name for name in found)


def test_machines_without_the_instruction_have_no_pairs() -> None:
    op = gradient((2, 20, 9, 14), (2, 33, 9, 14))
    for machine in (ZEN_5.limited_to("avx2"), SAPPHIRE_RAPIDS.limited_to("avx512")):
        assert not any("_pairs" in name for name in kernels(op, machine))
