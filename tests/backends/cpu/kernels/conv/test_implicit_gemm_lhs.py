"""Convolutions whose tiles read patches in place."""

from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.module import Op
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.kernels.conv.test_convolution import assert_convolution, attributes
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_5
from tests.backends.cpu.phase_runner import make_op, run_rule, selected_kernel_names


def operation(channels: int, features: int, dtype: str, result: str, **given: Any) -> Op:
    """Return a convolution in NHWC layout; the channels of a pixel are a run of K steps."""
    attrs = attributes(2, "b01f,01io->b01f", rhs_dilation=(1, 2), **given)
    types = [TensorType(s, dtype) for s in ((2, 9, 11, channels), (5, 3, channels, features))]
    computed = make_op(convolution, *types, **attrs).result.type
    return make_op(convolution, *types, **attrs, result=computed.with_dtype(result))


@pytest.mark.parametrize(
    ("channels", "features", "result", "is_in_place"),
    [
        (32, 40, "f32", True),
        (32, 40, "f64", False),
        (8, 400, "f32", True),
        (7, 400, "f32", False),
        (32, 512, "f32", True),
        (32, 513, "f32", False),
        (1024, 40, "f32", True),
        (1032, 40, "f32", False),
    ],
)
def test_patches_with_long_runs_and_few_columns_are_read_in_place(
    channels: int, features: int, result: str, is_in_place: bool
) -> None:
    """Sums have the type of the image, and its lines are at most a page apart."""
    op = operation(channels, features, "f32", result)
    names = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert any("straight" in name for name in names) == is_in_place
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, "f32") for value in op.operands)
    (got,) = run_rule(RULES["convolution"], op, [x, w])
    assert got.dtype == NUMPY_DTYPES[result]
    assert_convolution(got, x, w, op.result.type, op.attrs)
