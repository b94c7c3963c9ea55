"""Tiles of depthwise convolutions, and rounding of their results."""

from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.conv.depthwise import _count_planes
from shardir.backends.cpu.kernels.gemm.matrix_product import ProductLoop
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.kernels.conv.test_convolution import attributes, check_convolution
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, selected_kernel_names

INSTRUCTION_SETS = ["avx512", "avx2", "sse"]


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
@pytest.mark.parametrize("channels", [16, 32, 48, 64, 70])
def test_sums_of_depthwise_convolutions_are_rounded_to_nearest_even(
    channels: int, limit: str
) -> None:
    """Results are those of one product: also ties, overflow, NaN with and without quiet bits."""
    kind = NUMPY_DTYPES["bf16"]
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 0x7F80, (2, 9, 11, channels), np.uint16)
    x = (bits | rng.integers(0, 2, bits.shape, np.uint16) << 15).view(kind)
    x[0, :, :, -1] = np.uint16(0x7F81).view(kind)
    w = np.zeros((3, 3, 1, channels), kind)
    # Products with 1.5 and 1.0078125 have one and seven further bits.
    w[1, 1, 0] = rng.choice([1.5, -1.0078125, 3.0], channels)
    attrs = attributes(2, "b01f,01io->b01f", padding=((1, 1), (1, 1)), groups=channels)
    op = make_op(convolution, *(TensorType(a.shape, "bf16") for a in (x, w)), **attrs)
    machine = host_machine().limited_to(limit)
    (name,) = selected_kernel_names(RULES["convolution"], op, machine)
    assert name.startswith("depthwise_bf16_")
    out = np.empty(op.result.type.shape, kind)
    lower_and_run(RULES["convolution"], op, [x, w], [out], machine=machine)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) * w[1, 1, 0].astype(np.float32)).astype(kind)
    is_nan = np.isnan(expected.astype(np.float32))
    assert is_nan.sum() == 9 * 11
    np.testing.assert_array_equal(np.isnan(out.astype(np.float32)), is_nan)
    # A sum with zeros of both signs is positive.
    same = (out.view(np.uint16) == expected.view(np.uint16)) | (expected == 0)
    assert (same | is_nan).all()


FILTER_GRADIENT, NHWC, NCHW = "f01b,i01o->01bf", "b01f,01io->b01f", "bf01,oi01->bf01"


def tile_of(
    machine: HostDescription, dims: str, left: tuple[int, ...], right: tuple[int, ...],
    given: dict[str, Any], workers: int = 1,
) -> str:  # fmt: skip
    """Return the tile of the kernel that is selected for a convolution of f32, from its name."""
    types = [TensorType(shape, "f32") for shape in (left, right)]
    op = make_op(convolution, *types, **attributes(len(left) - 2, dims, **given))
    (name,) = selected_kernel_names(RULES["convolution"], op, machine, workers)
    assert name.startswith("depthwise_f32_")
    size, partial, *_ = name.split("_")[2:]
    return f"{size} partial" if partial == "partial" else size


@pytest.mark.parametrize(
    ("machine", "window", "channels", "tile"),
    [(ZEN_5, (3, 3), 40, "3x3x2"), (ZEN_5, (5, 5), 40, "5x5x1"), (ZEN_5, (3, 3), 16, "3x3x1"),
     (ZEN_5, (7, 7), 40, "3x7x1 partial"), (ZEN_5, (5, 4), 40, "5x4x1"),
     (ZEN_5, (9, 9), 40, "5x3 partial"), (ZEN_3, (3, 3), 40, "3x3x1"), (ZEN_3, (5, 5), 40, "5x1"),
     (ZEN_3, (4, 3), 40, "2x3x1")],
)  # fmt: skip
def test_a_tile_of_a_filter_gradient_contains_lines_of_several_rows_of_a_filter(
    machine: HostDescription, window: tuple[int, int], channels: int, tile: str
) -> None:
    """All taps of a filter read an element of the gradient of the result, which is loaded once."""
    shape = 2, 21, 21, channels
    padding = tuple((n // 2, n - 1 - n // 2) for n in window)
    given = {"batch_groups": channels, "padding": padding}
    assert tile_of(machine, FILTER_GRADIENT, shape, shape, given) == tile


def test_tiles_have_lines_of_one_row_if_there_are_too_few_for_all_threads() -> None:
    shape, given = (4, 64, 64, 32), {"batch_groups": 32, "padding": ((1, 1), (1, 1))}
    assert tile_of(ZEN_5, FILTER_GRADIENT, shape, shape, given) == "3x3x2"
    assert tile_of(ZEN_5, FILTER_GRADIENT, shape, shape, given, workers=2) == "3x2"


def test_tiles_are_partial_also_if_there_are_fewer_than_threads() -> None:
    """One dimension has no lines of several rows."""
    left, right = (1, 40_010, 16), (40_000, 1, 16)
    tile = tile_of(ZEN_5, "b0f,0io->b0f", left, right, {"groups": 16}, workers=4)
    assert tile == "6x1 partial"


def test_lines_of_a_tile_share_the_right_operand_and_move_along_two_dimensions() -> None:
    line = ProductLoop(3, 4, 0, 4, (0, 1))
    assert _count_planes([line, ProductLoop(6, 40, 0, 12, (1, 0))], 4) == 3
    assert _count_planes([line, ProductLoop(6, 40, 4, 12, (1, 0))], 4) == 1
    assert _count_planes([line, ProductLoop(6, 40, 0, 12, (0, 3))], 4) == 1
    assert _count_planes([line], 4) == 1


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("dims", "left", "right", "given"),
    [(FILTER_GRADIENT, (2, 9, 19, 40), (2, 9, 19, 40),
      {"batch_groups": 40, "padding": ((1, 1), (1, 1))}),
     (FILTER_GRADIENT, (2, 14, 13, 70), (2, 14, 13, 70),
      {"batch_groups": 70, "padding": ((2, 2), (2, 2))}),
     (FILTER_GRADIENT, (2, 9, 16, 24), (2, 9, 16, 24),
      {"batch_groups": 24, "padding": ((4, 2), (2, 4))}),
     (FILTER_GRADIENT, (3, 17, 18, 24), (3, 9, 9, 24),
      {"batch_groups": 24, "padding": ((1, 1), (1, 0)), "rhs_dilation": (2, 2)}),
     (FILTER_GRADIENT, (3, 7, 9, 24), (3, 5, 7, 24), {"batch_groups": 24}),
     (NHWC, (3, 7, 7, 40), (3, 3, 1, 40), {"groups": 40, "padding": ((1, 1), (1, 1))}),
     (NHWC, (3, 8, 6, 40), (3, 3, 1, 40), {"groups": 40, "padding": ((3, 3), (0, 2))}),
     (NHWC, (3, 13, 13, 40), (5, 5, 1, 40),
      {"groups": 40, "padding": ((2, 2), (2, 2)), "strides": (2, 2)}),
     (NCHW, (3, 24, 4, 40), (24, 1, 3, 3), {"groups": 24, "padding": ((1, 1), (1, 1))})],
)  # fmt: skip
def test_tiles_of_lines_of_two_dimensions(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any],
    dtype: str, limit: str,
) -> None:  # fmt: skip
    """Windows are partly outside of the image along both dimensions, tiles are partial, and a tile
    may contain all lines."""
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, left, dtype), random_elements(rng, right, dtype)
    attrs, machine = attributes(2, dims, **given), host_machine().limited_to(limit)
    one, three = (
        check_convolution(x, w, attrs, workers=workers, machine=machine).tobytes()
        for workers in (1, 3)
    )
    assert one == three
