"""Convolutions of few channels of bf16 as products of pairs of channels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.guard_pages import Array, copy_after_guard_page, copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import (
    assert_convolution,
    attributes,
    check_convolution,
)
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS, ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import (
    lower_and_run,
    make_op,
    run_rule,
    selected_kernel_names,
)

PAD_BY_ONE, NO_PADDING = ((1, 1), (1, 1)), ((0, 0), (0, 0))
NHWC, NCHW = "b01f,01io->b01f", "bf01,oi01->bf01"


def kernels(
    dims: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    dtype: str = "bf16",
    result: str | None = None,
    machine: HostDescription = ZEN_5,
    **given: Any,
) -> list[str]:
    """Return the names of the kernels of a convolution on a machine."""
    attrs = attributes(2, dims, **{"padding": PAD_BY_ONE, **given})
    types = [TensorType(shape, dtype) for shape in (left, right)]
    computed = make_op(convolution, *types, **attrs).result.type
    op = make_op(convolution, *types, **attrs, result=computed.with_dtype(result or dtype))
    return selected_kernel_names(RULES["convolution"], op, machine)


@pytest.mark.parametrize("dims", [NHWC, NCHW])
@pytest.mark.parametrize("channels", [2, 3, 8, 15])
@pytest.mark.parametrize("result", ["bf16", "f32"])
def test_channels_are_copied_as_pairs(dims: str, channels: int, result: str) -> None:
    """An odd channel is extended with zero; a result with features first is copied."""
    shapes = (
        ((2, 32, 33, channels), (5, 5, channels, 24))
        if dims == NHWC
        else ((2, channels, 32, 33), (24, channels, 5, 5))
    )
    found = kernels(dims, *shapes, result=result)
    (product,) = (number for number, name in enumerate(found) if "padded_nhwc" in name)
    assert "_groups_bf16_" in found[product]
    assert sum("cast" in name for name in found) == 2 * (channels % 2)
    assert len(found) - product - 1 == (dims == NCHW)
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, shape, "bf16") for shape in shapes)
    attrs = attributes(2, dims, padding=((1, 2), (0, 1)), strides=(2, 1))
    types = [TensorType(shape, "bf16") for shape in shapes]
    computed = make_op(convolution, *types, **attrs).result.type
    op = make_op(convolution, *types, **attrs, result=computed.with_dtype(result))
    (got,) = run_rule(RULES["convolution"], op, [x, w])
    assert_convolution(got, x, w, op.result.type, attrs)


IMAGE, FILTER = (2, 32, 33, 3), (5, 5, 3, 48)


@pytest.mark.parametrize(
    "given",
    [
        {"dtype": "f16"},
        {"dtype": "f32"},
        {"machine": ZEN_3},
        {"machine": SAPPHIRE_RAPIDS},
        {"machine": replace(ZEN_5, features="")},
        {"left": (2, 32, 33, 1), "right": (5, 5, 1, 48)},
        {"left": (2, 32, 33, 17), "right": (5, 5, 17, 48)},
        {"left": (2, 32, 33, 6), "groups": 2},
        {"right": (5, 5, 3, 15)},
        {"left": (1, 4, 5, 3), "right": (1, 1, 3, 16)},
        {"lhs_dilation": (2, 2)},
        {"result": "f64"},
        {"left": (8, 66, 66, 3), "right": (3, 3, 3, 256), "padding": NO_PADDING, "strides": (3, 3)},
    ],
)
def test_other_convolutions_have_no_pairs_of_channels(given: dict[str, Any]) -> None:
    assert any(
        "padded_nhwc" in name and "_groups_" in name for name in kernels(NHWC, IMAGE, FILTER)
    )
    found = kernels(NHWC, **{"left": IMAGE, "right": FILTER, **given})
    assert not any("padded_nhwc" in name and "_groups_" in name for name in found)


def test_windows_without_elements_are_zero() -> None:
    """All windows of an image without rows are outside of it."""
    x, w = (np.zeros(shape, NUMPY_DTYPES["bf16"]) for shape in ((2, 0, 33, 3), FILTER))
    got = check_convolution(x, w, attributes(2, NHWC, padding=((4, 4), (2, 2))))
    assert got.shape == (2, 4, 33, 48)


def test_windows_with_contiguous_pairs_are_read_in_place() -> None:
    """Without padding, lines of windows are contiguous."""
    found = kernels(NHWC, (2, 32, 33, 4), (3, 3, 4, 32), padding=NO_PADDING)
    assert not any("padded_nhwc" in name for name in found)
    assert "_groups_bf16_" in found[-1]


@pytest.mark.parametrize("channels", [3, 4])
def test_elements_around_an_image_are_not_read(channels: int) -> None:
    """NaN surrounds the array in memory, so a read outside of the image would make a result NaN."""
    rng = np.random.default_rng(0)
    surrounded = np.full((3, 40, 49, channels), np.nan, NUMPY_DTYPES["bf16"])
    x = surrounded[1:2, 2:34, 3:45]
    x[...] = random_elements(rng, x.shape, "bf16")
    w = random_elements(rng, (3, 3, channels, 20), "bf16")
    assert np.isfinite(check_convolution(x, w, attributes(2, NHWC, padding=PAD_BY_ONE))).all()


@pytest.mark.parametrize("copy", [copy_after_guard_page, copy_before_guard_page])
def test_elements_before_and_after_operands_are_not_accessed(
    copy: Callable[[Array], Array],
) -> None:
    rng = np.random.default_rng(0)
    shapes = (2, 32, 33, 3), (3, 3, 3, 20)
    x, w = (copy(random_elements(rng, shape, "bf16")) for shape in shapes)
    attrs = attributes(2, NHWC, padding=PAD_BY_ONE)
    op = make_op(convolution, *(TensorType(shape, "bf16") for shape in shapes), **attrs)
    out = copy(np.zeros(op.result.type.shape, x.dtype))
    assert lower_and_run(RULES["convolution"], op, [x, w], [out])
    assert_convolution(out, x, w, op.result.type, attrs)
