"""Images laid out in lines: convolutions of few features."""

from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.contraction_rules import RULES
from shardir.backends.cpu.kernels.conv.convolution import convolution_products
from shardir.backends.cpu.kernels.conv.padded_nhwc import PaddedNhwcProduct, find_padded_nhwc_layout
from shardir.backends.cpu.kernels.conv.padded_nhwc_kernel import ColumnTiles
from shardir.backends.cpu.kernels.gemm.microkernel import RegisterTile
from shardir.ir.types import TensorType
from shardir.ops import convolution
from tests.backends.cpu.kernels.conv.test_convolution import assert_shape, attributes, convolved
from tests.backends.cpu.kernels.gemm.test_dot import numbers
from tests.backends.cpu.machine_descriptions import ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op

AROUND = ((1, 1), (1, 1))
NONE = ((0, 0), (0, 0))
CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("b01f,01io->b01f", (2, 32, 32, 3), (3, 3, 3, 32), {"padding": AROUND}),
    ("b01f,01io->b01f", (5, 14, 14, 24), (3, 3, 24, 24), {"padding": AROUND}),
    ("b01f,01io->b01f", (2, 28, 28, 1), (5, 5, 1, 72), {"padding": ((2, 2), (2, 2))}),
    ("b01f,01io->b01f", (2, 56, 57, 3), (7, 7, 3, 64),
     {"padding": ((3, 3), (3, 3)), "strides": (2, 2)}),
    ("b01f,01io->b01f", (2, 56, 57, 3), (3, 3, 3, 40), {"padding": NONE, "strides": (1, 2)}),
    ("b01f,01io->b01f", (2, 56, 57, 5), (3, 3, 5, 40),
     {"padding": ((2, 3), (5, 1)), "rhs_dilation": (2, 3)}),
    ("b01f,01oi->b01f", (2, 13, 17, 5), (3, 3, 40, 5), {"padding": ((2, 3), (5, 1))}),
    ("b01f,01io->b01f", (2, 20, 17, 6), (3, 3, 3, 40), {"padding": AROUND, "groups": 2}),
    ("b01f,01io->b01f", (2, 20, 17, 20), (3, 3, 20, 17), {"padding": AROUND, "strides": (3, 2)}),
    ("b0f,0io->b0f", (2, 200, 7), (5, 7, 24), {"padding": ((2, 2),)}),
    ("b0f,0io->b0f", (1, 3000, 7), (5, 7, 24), {"padding": ((2, 2),)}),
    ("b012f,012io->b012f", (2, 9, 10, 17, 3), (3, 3, 3, 3, 24), {"padding": ((1, 1),) * 3}),
    ("b01f,01io->b01f", (2, 20, 21, 4), (3, 3, 4, 24),
     {"padding": ((-1, 3), (4, -2)), "strides": (3, 2)}),
    ("b01f,01io->b01f", (2, 20, 21, 4), (3, 3, 4, 24), {"padding": ((5, 5), (5, 5))}),
    ("b01f,01io->b01f", (2, 20, 4, 4), (3, 3, 4, 24), {"padding": ((40, 1), (30, 30))}),
    ("b01f,01io->b01f", (2, 10, 11, 12), (3, 3, 12, 24),
     {"padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)}),
    ("b01f,01io->b01f", (1, 300, 300, 3), (3, 3, 3, 20), {"padding": AROUND}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i32"])
@pytest.mark.parametrize(("dims", "left", "right", "given"), CASES)
def test_shapes(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    assert_shape(dims, left, right, given, dtype)


@pytest.mark.parametrize("places", [7, 13, 32])
@pytest.mark.parametrize("features", range(1, 60))
def test_any_number_of_features_is_made(features: int, places: int) -> None:
    """Columns that fill no vector, or half of one, are written without what follows them."""
    rng = np.random.default_rng(0)
    x, w = numbers(rng, (2, 5, places, 3), "f32"), numbers(rng, (3, 3, 3, features), "f32")
    convolved(x, w, attributes(2, "b01f,01io->b01f", padding=AROUND))


def test_rows_share_half_of_a_vector() -> None:
    """Where there is a whole one beside it, and the widest registers have halves; more rows have
    room then, unless whole tiles need it."""
    tile = RegisterTile(12, 2, 16, halved=True)
    for columns, folded, height, parts in (
        (24, True, 16, [32]), (17, True, 16, [32]), (25, False, 12, [32]), (8, False, 12, [8]),
        (56, True, 12, [32, 32]), (40, False, 12, [32, 8]), (64, False, 12, [32]),
    ):  # fmt: skip
        tiles = ColumnTiles.of(columns, tile)
        found = [part.columns for part in (tiles.whole, tiles.last) if part]
        assert (tiles.folded, tiles.height, found) == (folded, height, parts)
    assert not ColumnTiles.of(12, RegisterTile(6, 2, 8)).folded


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 2)])
def test_nothing_outside_an_image_is_read(strides: tuple[int, int]) -> None:
    """Surround the array in memory by NaN, so that a product that reads beyond it is NaN."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, "b01f,01io->b01f", padding=((1, 2), (2, 1)), strides=strides)
    around = np.full((3, 17, 26, 3), np.nan, np.float32)
    x = around[1:2, 2:15, 3:22]
    x[...] = numbers(rng, x.shape, "f32")
    w = numbers(rng, (3, 3, 3, 20), "f32")
    op = make_op(convolution, *(TensorType(a.shape, "f32") for a in (x, w)), **attrs)
    out = np.empty(op.result.type.shape, np.float32)
    phases = lower_and_run(RULES["convolution"], op, [x, w], [out])
    assert [phase.kernel.name[:11] for phase in phases or ()] == ["padded_nhwc"]
    assert np.isfinite(out).all()


def found(
    image: tuple[int, ...], window: tuple[int, ...], padding: int = 1, stride: int = 1
) -> PaddedNhwcProduct | None:
    """How an image is laid out."""
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


def test_lines_have_what_their_windows_meet() -> None:
    """Places outside and inside; steps of a window where they are from its place on."""
    here = found((2, 10, 12, 3), (3, 3, 3, 8), stride=2)
    assert here is not None
    assert (
        here.position_pitch,
        here.line_distance,
        here.image_layout.padding_lines,
        here.image_layout.width,
    ) == (
        6,
        2,
        2,
        5 * 6 + 9,
    )
    assert here.image_layout.planes == ((0, 3, 3 + 36, 1, 11),)
    assert here.image_layout.taps[8:11] == ((0, 0, 8), (0, 1, 0), (0, 1, 1))


@pytest.mark.parametrize(
    ("image", "window", "padding", "stride"),
    [((2, 16, 16, 32), (3, 3, 32, 8), 1, 1), ((2, 16, 16, 3), (4, 4, 3, 8), 0, 4),
     ((2, 16, 3, 3), (3, 3, 3, 8), 1, 1), ((2, 16, 16, 8), (9, 9, 8, 8), 4, 1),
     ((2, 16, 16, 3), (3, 3, 3, 4000), 1, 1)],
)  # fmt: skip
def test_what_is_better_read_as_it_lies(
    image: tuple[int, ...], window: tuple[int, ...], padding: int, stride: int
) -> None:
    """Many features, windows side by side, short lines, long sums and large filters."""
    assert found(image, window, padding, stride) is None
