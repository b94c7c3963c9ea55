"""Convolutions to few features as inner products of patches that are read in place."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.guard_pages import Array, copy_after_guard_page, copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import assert_convolution, attributes
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, selected_kernel_names

NHWC = "b01f,01io->b01f"


@pytest.mark.parametrize("copy", [copy_after_guard_page, copy_before_guard_page])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(
    ("image", "filter", "given"),
    [
        ((2, 16, 16, 64), (3, 3, 64, 3), {}),
        ((1, 11, 9, 37), (3, 2, 37, 1), {"strides": (2, 1)}),
        ((2, 9, 12, 8), (5, 3, 8, 5), {"rhs_dilation": (1, 2)}),
    ],
)
def test_inner_products_read_patches_of_half_precision(
    image: tuple[int, ...], filter: tuple[int, ...], given: dict[str, Any], dtype: str,
    copy: Callable[[Array], Array],
) -> None:  # fmt: skip
    """No element outside of the operands is accessed; runs outside of the image are zeros."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, NHWC, **{"padding": ((1, 1), (1, 2)), **given})
    op = make_op(convolution, *(TensorType(shape, dtype) for shape in (image, filter)), **attrs)
    for machine in (ZEN_3, ZEN_5):
        names = selected_kernel_names(RULES["convolution"], op, machine)
        assert names[-1].startswith(f"patch_inner_product_{dtype}")
    x, w = (copy(random_elements(rng, shape, dtype)) for shape in (image, filter))
    for workers in (1, 3):
        out = copy(np.zeros(op.result.type.shape, NUMPY_DTYPES[dtype]))
        assert lower_and_run(RULES["convolution"], op, [x, w], [out], workers=workers)
        assert_convolution(out, x, w, op.result.type, attrs)


def test_lines_of_few_channels_are_copied_in_f32_only() -> None:
    """A line of a window is one run, which is partly outside of the image."""
    for dtype, is_read in (("f32", True), ("bf16", False)):
        types = (TensorType(shape, dtype) for shape in ((2, 16, 16, 3), (5, 5, 3, 2)))
        op = make_op(convolution, *types, **attributes(2, NHWC, padding=((2, 2), (2, 2))))
        names = selected_kernel_names(RULES["convolution"], op, ZEN_5)
        assert any("patch_inner_product" in name for name in names) == is_read
