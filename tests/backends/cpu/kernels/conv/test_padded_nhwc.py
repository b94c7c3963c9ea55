"""Convolutions of few features in padded NHWC layout."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.conv.convolution import convolution_products
from shardir.backends.cpu.kernels.conv.padded_nhwc import PaddedNhwcProduct, find_padded_nhwc_layout
from shardir.backends.cpu.kernels.conv.padded_nhwc_kernel import ColumnTiles
from shardir.backends.cpu.kernels.gemm.microkernel import RegisterTile
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.guard_pages import copy_after_guard_page, copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import (
    assert_convolution,
    assert_shape,
    attributes,
    check_convolution,
)
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op

pytestmark = pytest.mark.sample(5)

PAD_BY_ONE = ((1, 1), (1, 1))
NO_PADDING = ((0, 0), (0, 0))
Case = tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]
CASES: list[Case] = [
    ("b01f,01io->b01f", (2, 32, 32, 3), (3, 3, 3, 32), {"padding": PAD_BY_ONE}),
    ("b01f,01io->b01f", (5, 14, 14, 24), (3, 3, 24, 24), {"padding": PAD_BY_ONE}),
    ("b01f,01io->b01f", (2, 28, 28, 1), (5, 5, 1, 72), {"padding": ((2, 2), (2, 2))}),
    ("b01f,01io->b01f", (2, 56, 57, 3), (7, 7, 3, 64),
     {"padding": ((3, 3), (3, 3)), "strides": (2, 2)}),
    ("b01f,01io->b01f", (2, 56, 57, 3), (3, 3, 3, 40), {"padding": NO_PADDING, "strides": (1, 2)}),
    ("b01f,01io->b01f", (2, 56, 57, 5), (3, 3, 5, 40),
     {"padding": ((2, 3), (5, 1)), "rhs_dilation": (2, 3)}),
    ("b01f,01oi->b01f", (2, 13, 17, 5), (3, 3, 40, 5), {"padding": ((2, 3), (5, 1))}),
    ("b01f,01io->b01f", (2, 20, 17, 6), (3, 3, 3, 40), {"padding": PAD_BY_ONE, "groups": 2}),
    ("b01f,01io->b01f", (2, 20, 17, 20), (3, 3, 20, 17),
     {"padding": PAD_BY_ONE, "strides": (3, 2)}),
    ("b0f,0io->b0f", (2, 200, 7), (5, 7, 24), {"padding": ((2, 2),)}),
    ("b0f,0io->b0f", (1, 3000, 7), (5, 7, 24), {"padding": ((2, 2),)}),
    ("b012f,012io->b012f", (2, 9, 10, 17, 3), (3, 3, 3, 3, 24), {"padding": ((1, 1),) * 3}),
    ("b01f,01io->b01f", (2, 20, 21, 4), (3, 3, 4, 24),
     {"padding": ((-1, 3), (4, -2)), "strides": (3, 2)}),
    ("b01f,01io->b01f", (2, 20, 21, 4), (3, 3, 4, 24), {"padding": ((5, 5), (5, 5))}),
    ("b01f,01io->b01f", (2, 20, 4, 4), (3, 3, 4, 24), {"padding": ((40, 1), (30, 30))}),
    ("b01f,01io->b01f", (2, 10, 11, 12), (3, 3, 12, 24),
     {"padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)}),
    ("b01f,01io->b01f", (1, 300, 300, 3), (3, 3, 3, 20), {"padding": PAD_BY_ONE}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32"])
@pytest.mark.parametrize(("dims", "left", "right", "given"), CASES)
def test_padded_nhwc_convolutions_match_the_reference(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    assert_shape(dims, left, right, given, dtype)


@pytest.mark.parametrize(("places", "dtype"), [(7, "f32"), (13, "f32"), (32, "f32"), (13, "bf16")])
@pytest.mark.parametrize("features", range(1, 60))
def test_any_number_of_output_features_is_supported(features: int, places: int, dtype: str) -> None:
    """Columns that fill only a part of a vector are stored without the following elements."""
    rng = np.random.default_rng(0)
    x, w = (
        random_elements(rng, (2, 5, places, 3), dtype),
        random_elements(rng, (3, 3, 3, features), dtype),
    )
    check_convolution(x, w, attributes(2, "b01f,01io->b01f", padding=PAD_BY_ONE))


def test_two_rows_share_a_half_empty_vector() -> None:
    """Two rows share a vector if the last vector is at most half full, another vector is full, and
    the widest registers have halves. Then more rows fit, unless full tiles need the registers."""
    tile = RegisterTile(12, 2, 16, halved=True)
    for columns, folded, height, parts in (
        (24, True, 16, [32]), (17, True, 16, [32]), (25, False, 12, [32]), (8, False, 12, [8]),
        (56, True, 12, [32, 32]), (40, False, 12, [32, 8]), (64, False, 12, [32]),
    ):  # fmt: skip
        tiles = ColumnTiles.of(columns, tile)
        found = [part.columns for part in (tiles.whole, tiles.last) if part]
        assert (tiles.folded, tiles.height, found) == (folded, height, parts)
    assert not ColumnTiles.of(12, RegisterTile(6, 2, 8)).folded


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 2)])
def test_elements_outside_of_an_image_are_not_read(strides: tuple[int, int], dtype: str) -> None:
    """NaN surrounds the array in memory, so a read outside of the image would make a result NaN."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, "b01f,01io->b01f", padding=((1, 2), (2, 1)), strides=strides)
    surrounded = np.full((3, 17, 26, 3), np.nan, NUMPY_DTYPES[dtype])
    x = surrounded[1:2, 2:15, 3:22]
    x[...] = random_elements(rng, x.shape, dtype)
    w = random_elements(rng, (3, 3, 3, 20), dtype)
    op = make_op(convolution, *(TensorType(a.shape, dtype) for a in (x, w)), **attrs)
    out = np.empty(op.result.type.shape, NUMPY_DTYPES[dtype])
    phases = lower_and_run(RULES["convolution"], op, [x, w], [out])
    # Channels of bf16 may be copied as pairs first.
    assert [phase.kernel.name[:11] for phase in phases or ()][-1:] == ["padded_nhwc"]
    assert np.isfinite(out).all()


def test_elements_before_and_after_an_image_are_not_accessed() -> None:
    """Windows of a feature group read a part of each position, and padding follows the last one."""
    rng = np.random.default_rng(0)
    cases: list[Case] = [
        ("b0f,0io->b0f", (4, 9, 16), (1, 8, 104),
         {"padding": ((0, 2),), "lhs_dilation": (2,), "rhs_dilation": (2,), "groups": 2}),
        ("b0f,0io->b0f", (2, 40, 20), (3, 5, 48), {"padding": ((1, 1),), "groups": 4}),
        ("b01f,01io->b01f", (2, 9, 11, 16), (3, 3, 8, 48),
         {"padding": ((1, 1), (1, 3)), "groups": 2}),
        ("b01f,01io->b01f", (2, 9, 12, 18), (3, 3, 6, 72),
         {"padding": ((0, 0), (3, 2)), "strides": (1, 2), "groups": 3}),
        ("b01f,01io->b01f", (2, 9, 11, 3), (3, 3, 3, 24), {"padding": PAD_BY_ONE}),
    ]  # fmt: skip
    copies = copy_before_guard_page, copy_after_guard_page
    for (dims, left, right, given), dtype, copy in product(cases, ("f32", "bf16"), copies):
        x, w = (copy(random_elements(rng, shape, dtype)) for shape in (left, right))
        attrs = attributes(len(left) - 2, dims, **given)
        op = make_op(convolution, *(TensorType(a.shape, dtype) for a in (x, w)), **attrs)
        out = copy(np.zeros(op.result.type.shape, x.dtype))
        machine = host_machine().limited_to("avx2")
        phases = lower_and_run(RULES["convolution"], op, [x, w], [out], machine=machine)
        assert any(phase.kernel.name.startswith("padded_nhwc") for phase in phases or ())
        assert_convolution(out, x, w, op.result.type, attrs)


def padded_layout(
    image: tuple[int, ...], window: tuple[int, ...], padding: int = 1, stride: int = 1
) -> PaddedNhwcProduct | None:
    """Return the padded NHWC layout of an image, or None."""
    attrs = attributes(
        2, "b01f,01io->b01f", padding=((padding, padding),) * 2, strides=(stride, stride)
    )
    op = make_op(convolution, TensorType(image, "f32"), TensorType(window, "f32"), **attrs)
    types = [*(v.type for v in op.operands), op.result.type]
    views = [
        BufferView(i, 0, type.shape, row_major_strides(type), "f32")
        for i, type in enumerate(types, 1)
    ]
    (work,) = convolution_products(op.attrs, views[0], views[1], views[2], ZEN_5)
    return find_padded_nhwc_layout(work)


def test_lines_contain_padding_and_taps_of_their_windows() -> None:
    """A line has padded positions and image elements; taps start at the position of their
    window."""
    layout = padded_layout((2, 10, 12, 3), (3, 3, 3, 8), stride=2)
    assert layout is not None
    assert (
        layout.position_pitch,
        layout.line_distance,
        layout.image_layout.padding_lines,
        layout.image_layout.width,
    ) == (
        6,
        2,
        2,
        5 * 6 + 9,
    )
    assert layout.image_layout.planes == ((0, 3, 3 + 36, 1, 11),)
    assert layout.image_layout.taps[8:11] == ((0, 0, 8), (0, 1, 0), (0, 1, 1))


@pytest.mark.parametrize(
    ("image", "window", "padding", "stride"),
    [((2, 16, 16, 32), (3, 3, 32, 8), 1, 1), ((2, 16, 16, 3), (4, 4, 3, 8), 0, 4),
     ((2, 16, 3, 3), (3, 3, 3, 8), 1, 1), ((2, 16, 16, 8), (9, 9, 8, 8), 4, 1),
     ((2, 16, 16, 3), (3, 3, 3, 4000), 1, 1)],
)  # fmt: skip
def test_unsuitable_convolutions_have_no_padded_layout(
    image: tuple[int, ...], window: tuple[int, ...], padding: int, stride: int
) -> None:
    """Many features, non-overlapping windows, short lines, long sums and large filters use other
    strategies."""
    assert padded_layout(image, window, padding, stride) is None
