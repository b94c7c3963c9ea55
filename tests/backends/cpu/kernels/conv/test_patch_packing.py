"""Packing of patches that are all inside of the image, as in gradients of filters."""

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import TensorType
from shardir.ops import convolution
from tests.backends.cpu.kernels.conv.test_convolution import (
    Array,
    assert_convolution,
    assert_shape,
    attributes,
)
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, selected_kernel_names

FILTER_GRADIENT = "f01b,i01o->01bf"
SMALL = (4, 20, 21, 3), (4, 18, 19, 24)
"""An image and a gradient of the result, without padding."""


@pytest.mark.parametrize("machine", [ZEN_3, ZEN_5], ids=["Zen 3", "Zen 5"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_runs_of_lines_are_packed_as_vectors(dtype: str, machine: HostDescription) -> None:
    """The lines of a patch are the rows of a window, each a contiguous run."""
    types = [TensorType(shape, dtype) for shape in ((16, 34, 34, 3), (16, 32, 32, 32))]
    op = make_op(convolution, *types, **attributes(2, FILTER_GRADIENT))
    first, *_ = selected_kernel_names(RULES["convolution"], op, machine)
    assert first.startswith("packed_gemm")
    assert first.endswith("_lhs0")


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "f16", "bf16", "c64"])
@pytest.mark.parametrize(
    "given",
    [{}, {"rhs_dilation": (2, 1)}, {"strides": (1, 2)}],
    ids=["dense", "strided convolution", "dilated convolution"],
)
def test_gradients_of_filters_without_padding_match_the_reference(
    given: dict[str, tuple[int, int]], dtype: str
) -> None:
    image, gradient = SMALL
    if "rhs_dilation" in given:
        image = (4, 37, 21, 3)
    assert_shape(FILTER_GRADIENT, image, gradient, given, dtype)


@pytest.mark.parametrize("isa", ["avx2", "sse"])
@pytest.mark.parametrize("features", [1, 5, 13])
def test_narrow_vectors_pack_the_same_elements(features: int, isa: str) -> None:
    rng = np.random.default_rng(0)
    x: Array = random_elements(rng, (4, 20, 21, features), "f32")
    w: Array = random_elements(rng, (4, 18, 19, 24), "f32")
    attrs = attributes(2, FILTER_GRADIENT)
    op = make_op(convolution, TensorType(x.shape, "f32"), TensorType(w.shape, "f32"), **attrs)
    out = np.full(op.result.type.shape, np.nan, np.float32)
    machine = host_machine().limited_to(isa)
    assert lower_and_run(RULES["convolution"], op, [x, w], [out], machine=machine)
    assert_convolution(out, x, w, op.result.type, attrs)


def test_windows_side_by_side_are_packed_with_their_padding() -> None:
    """Windows of 32 elements, which fill a tile, are contiguous, but some are partly outside."""
    given = {"rhs_dilation": (32,), "padding": ((5, 3),)}
    assert_shape("fb0,io0->bf0", (1, 1, 19192), (1, 27, 600), given, "f32")
