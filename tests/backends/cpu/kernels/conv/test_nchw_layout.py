"""Convolutions in NCHW layout, whose positions are the columns of a matrix product."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.conv.convolution import convolution_products
from shardir.backends.cpu.kernels.conv.nchw_layout import (
    ImageLayout,
    NchwProduct,
    find_nchw_layout,
)
from shardir.backends.cpu.kernels.conv.tuning import (
    MIN_NCHW_BLOCK_COLUMNS,
    MIN_NCHW_PART_STEPS,
    MIN_SEPARATE_IMAGE_POSITIONS,
)
from shardir.backends.cpu.kernels.gemm.product_record import RECORD_FIELDS
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_BLOCK_LINES,
    MAX_PART_STEPS,
    PACKED_RHS_BYTES,
)
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import TensorType
from shardir.ops import convolution
from tests.backends.cpu.guard_pages import copy_after_guard_page, copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import (
    assert_convolution,
    assert_shape,
    attributes,
    check_convolution,
)
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import (
    lower_and_run,
    lower_for_machine,
    make_op,
    selected_kernel_names,
)

pytestmark = pytest.mark.sample(5)

PAD_BY_ONE = ((1, 1), (1, 1))
NO_PADDING = ((0, 0), (0, 0))
CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("bf01,oi01->bf01", (2, 5, 32, 32), (40, 5, 3, 3), {"padding": PAD_BY_ONE}),
    ("bf01,oi01->bf01", (2, 60, 14, 14), (64, 60, 3, 3), {"padding": PAD_BY_ONE}),
    ("bf01,oi01->bf01", (3, 70, 7, 7), (64, 70, 3, 3), {"padding": PAD_BY_ONE}),
    ("bf01,oi01->bf01", (3, 20, 14, 14), (130, 20, 3, 3), {"padding": PAD_BY_ONE}),
    ("bf01,oi01->bf01", (1, 3, 60, 61), (24, 3, 7, 7),
     {"padding": ((3, 3), (3, 3)), "strides": (2, 2)}),
    ("bf01,oi01->bf01", (2, 30, 30, 33), (24, 30, 3, 3),
     {"padding": NO_PADDING, "strides": (2, 1)}),
    ("bf01,oi01->bf01", (2, 30, 30, 33), (24, 30, 3, 3),
     {"padding": ((2, 1), (1, 3)), "strides": (1, 2), "rhs_dilation": (2, 3)}),
    ("bf01,oi01->bf01", (1, 12, 40, 33), (24, 12, 3, 3),
     {"padding": PAD_BY_ONE, "strides": (3, 1), "rhs_dilation": (2, 1)}),
    ("bf01,io01->bf01", (2, 30, 30, 33), (30, 24, 3, 3), {"padding": PAD_BY_ONE}),
    ("bf01,oi01->bf01", (2, 30, 40, 33), (24, 15, 3, 3), {"padding": PAD_BY_ONE, "groups": 2}),
    ("bf01,oi01->bf01", (2, 1, 40, 33), (24, 1, 5, 5), {"padding": ((2, 2), (2, 2))}),
    ("bf01,oi01->bf01", (2, 40, 9, 9), (24, 40, 1, 1), {"padding": NO_PADDING}),
    ("bf01,oi01->bf01", (1, 40, 9, 9), (24, 40, 1, 1), {"padding": PAD_BY_ONE}),
    ("bf0,oi0->bf0", (2, 10, 600), (24, 10, 5), {"padding": ((2, 2),)}),
    ("bf0,oi0->bf0", (20, 10, 60), (24, 10, 5), {"padding": ((2, 2),)}),
    ("bf012,oi012->bf012", (2, 6, 9, 10, 17), (24, 6, 3, 3, 3), {"padding": ((1, 1),) * 3}),
    ("bf012,oi012->bf012", (1, 6, 1, 20, 17), (24, 6, 3, 3, 3), {"padding": ((1, 1),) * 3}),
    ("bf01,oi01->bf01", (2, 12, 20, 21), (24, 12, 3, 3),
     {"padding": ((-1, 3), (4, -2)), "strides": (3, 2)}),
    ("bf01,oi01->bf01", (2, 12, 20, 21), (24, 12, 3, 3), {"padding": ((5, 5), (5, 5))}),
    ("bf01,oi01->bf01", (2, 12, 10, 11), (24, 12, 3, 3),
     {"padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)}),
    ("bf01,oi01->bf01", (1, 6, 9, 170), (24, 6, 3, 5),
     {"padding": ((9, 0), (5, 50)), "strides": (2, 2), "rhs_dilation": (1, 9)}),
    ("bf01,oi01->bf01", (2, 6, 9, 170), (24, 6, 3, 3), {"padding": ((1, 1), (1, 200))}),
    ("bf01,oi01->bf01", (2, 3, 9, 1), (24, 3, 3, 3),
     {"padding": ((1, 1), (130, 130)), "strides": (1, 2)}),
    ("fb01,oi01->bf01", (12, 2, 20, 21), (24, 12, 3, 3), {"padding": PAD_BY_ONE}),
    ("bf01,oi01->b0f1", (2, 12, 20, 21), (24, 12, 3, 3), {"padding": PAD_BY_ONE}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i32", "u8"])
@pytest.mark.parametrize(("dims", "left", "right", "given"), CASES)
def test_nchw_convolutions_match_the_reference(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    assert_shape(dims, left, right, given, dtype)


def test_elements_outside_of_an_image_are_not_read() -> None:
    """NaN surrounds the array in memory, so a read outside of the image would make a result NaN."""
    rng = np.random.default_rng(0)
    for strides in ((1, 1), (2, 2), (1, 2)):
        attrs = attributes(2, "bf01,oi01->bf01", padding=((1, 2), (2, 1)), strides=strides)
        surrounded = np.full((3, 9, 17, 26), np.nan, np.float32)
        x = surrounded[1:2, 1:8, 2:15, 3:22]
        x[...] = random_elements(rng, x.shape, "f32")
        w = random_elements(rng, (20, 7, 3, 3), "f32")
        op = make_op(convolution, *(TensorType(a.shape, "f32") for a in (x, w)), **attrs)
        out = np.empty(op.result.type.shape, np.float32)
        phases = lower_and_run(RULES["convolution"], op, [x, w], [out])
        assert phases is not None
        assert np.isfinite(out).all()
        # Other machines transpose small images.
        names = selected_kernel_names(RULES["convolution"], op, ZEN_5)
        assert any("planes" in name for name in names)


@pytest.mark.parametrize(
    ("dtype", "strides", "planes"),
    [("f32", 1, True), ("bf16", 2, True), ("f32", 3, False), ("c64", 1, False)],
)
def test_planes_are_used_for_strides_up_to_two(dtype: str, strides: int, planes: bool) -> None:
    attrs = attributes(2, "bf01,oi01->bf01", padding=PAD_BY_ONE, strides=(strides, strides))
    types = (TensorType(shape, dtype) for shape in ((2, 8, 30, 30), (16, 8, 3, 3)))
    names = selected_kernel_names(
        RULES["convolution"], make_op(convolution, *types, **attrs), ZEN_5
    )
    assert any("planes" in name for name in names) == planes


@pytest.mark.parametrize(
    ("dtype", "channels", "machine", "is_direct"),
    [
        ("bf16", 5, ZEN_5, True), ("f16", 5, ZEN_5, True), ("f32", 5, ZEN_5, False),
        ("f16", 60, ZEN_5, False), ("bf16", 5, ZEN_3, False),
    ],
)  # fmt: skip
def test_tiles_store_sums_of_one_part_as_half_precision(
    dtype: str, channels: int, machine: HostDescription, is_direct: bool
) -> None:
    """Longer sums are added in several parts, and other machines lack masked stores of 16 bits."""
    attrs = attributes(2, "bf01,oi01->bf01", padding=PAD_BY_ONE)
    types = (TensorType(shape, dtype) for shape in ((2, channels, 23, 31), (17, channels, 3, 3)))
    op = make_op(convolution, *types, **attrs)
    names = selected_kernel_names(RULES["convolution"], op, machine)
    assert any("_direct" in name and "planes" in name for name in names) == is_direct
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, dtype) for value in op.operands)
    for copy in (copy_after_guard_page, copy_before_guard_page):
        for workers in (1, 3):
            out = copy(np.zeros(op.result.type.shape, x.dtype))
            arrays = [copy(x), copy(w)]
            assert lower_and_run(RULES["convolution"], op, arrays, [out], workers=workers)
            assert_convolution(out, x, w, op.result.type, attrs)


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    ("left", "right", "padding"),
    [
        ((1, 256, 4, 4), (256, 256, 3, 3), 1), ((1, 300, 2, 7), (512, 300, 3, 3), 1),
        ((1, 2, 18, 18), (900, 2, 15, 15), 0),
    ],
)  # fmt: skip
def test_rows_of_long_parts_fit_into_scratch_memory(
    left: tuple[int, ...], right: tuple[int, ...], padding: int, dtype: str
) -> None:
    """Tiles of one vector of columns have shorter parts than those of the NCHW layout, and more
    packed rows."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, "bf01,oi01->bf01", padding=((padding, padding),) * 2)
    x, w = (random_elements(rng, shape, dtype) for shape in (left, right))
    op = make_op(convolution, TensorType(left, dtype), TensorType(right, dtype), **attrs)
    out = np.empty(op.result.type.shape, x.dtype)
    assert lower_and_run(RULES["convolution"], op, [x, w], [out], workers=1)
    assert_convolution(out, x, w, op.result.type, attrs)


def nchw_product(
    image: tuple[int, ...],
    window: tuple[int, ...],
    dims: str = "bf01,oi01->bf01",
    **given: Any,
) -> NchwProduct | None:
    """Return the loops of a convolution of f32 in NCHW layout."""
    attrs = attributes(len(image) - 2, dims, **{"padding": PAD_BY_ONE, **given})
    op = make_op(convolution, TensorType(image, "f32"), TensorType(window, "f32"), **attrs)
    types = [*(v.type for v in op.operands), op.result.type]
    views = [
        BufferView(i, 0, type.shape, row_major_strides(type), "f32")
        for i, type in enumerate(types, 1)
    ]
    (work,) = convolution_products(op.attrs, views[0], views[1], views[2], ZEN_5)
    return find_nchw_layout(work.transpose())


def layout_and_channels(
    image: tuple[int, ...], window: tuple[int, ...], stride: int = 1
) -> tuple[ImageLayout, int]:
    """Return the NCHW layout of an image and its number of channels."""
    found = nchw_product(image, window, strides=(stride, stride))
    assert found is not None
    return found.image_layout(), found.channels


def test_window_rows_share_planes() -> None:
    """There is one plane per tap of a window row; with a stride, one per remainder; if several
    images form one run of positions, one per tap."""
    one, _ = layout_and_channels((1, 4, 30, 30), (8, 4, 3, 3))
    assert (len(one.planes), one.padding_lines) == (3, 2)
    assert one.taps[:4] == ((0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0))
    second, _ = layout_and_channels((1, 4, 30, 30), (8, 4, 3, 3), 2)
    assert (len(second.planes), second.padding_lines) == (6, 1)
    small, _ = layout_and_channels((2, 4, 7, 7), (8, 4, 3, 3))
    assert (len(small.planes), small.padding_lines, small.lines) == (9, 0, 7)


@given(
    st.integers(1, 600), st.integers(20, 300), st.integers(20, 300), st.integers(2, 7),
    st.integers(1, 2), st.sampled_from((4, 8)),
)  # fmt: skip
def test_the_planes_of_a_block_fit_into_scratch_memory(
    channels: int, width: int, height: int, window: int, stride: int, size: int
) -> None:
    found, count = layout_and_channels(
        (1, channels, height, width), (8, channels, window, window), stride
    )
    steps, most = found.block_sizes(count, size, ZEN_5)
    assert steps % len(found.taps) == 0
    assert steps <= MAX_PART_STEPS
    assert most <= MAX_BLOCK_LINES
    for columns in filter(None, (most, found.align_block_to_lines(10**5, 100, most, 1))):
        if columns > most:
            continue
        # A block may start at any position of a line.
        lines = (found.width - 1 + columns - 1) // found.width + 1 + found.padding_lines
        plane = (lines * found.width * size + 127) // 64 * 64 | 64
        assert steps // len(found.taps) * len(found.planes) * plane + 128 <= PACKED_RHS_BYTES


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 2048), st.integers(1, 9))
def test_blocks_consist_of_full_lines_if_possible(
    count: int, columns: int, most: int, parts: int
) -> None:
    found, _ = layout_and_channels((1, 4, 30, 30), (8, 4, 3, 3))
    some = found.align_block_to_lines(count, columns, most, parts)
    assert some == columns if most < found.width else some % found.width == 0 < some <= most


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("image", "window", "given"),
    [
        ((1, 8, 1, 1), (16, 8, 3, 3), {}),
        ((1, 1, 20, 30), (16, 1, 1, 1), {}),
        ((2, 8, 6, 6, 6), (128, 8, 3, 3, 3), {"padding": ((0, 0), (1, 1), (1, 1))}),
    ],
)
def test_other_products_have_no_planes(
    image: tuple[int, ...], window: tuple[int, ...], given: dict[str, Any]
) -> None:
    """There is one position or one K step, or there are too many loops over positions."""
    dims = "bf012,oi012->bf012" if len(image) == 5 else "bf01,oi01->bf01"
    assert nchw_product(image, window, dims, **given) is None
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, image, "f32"), random_elements(rng, window, "f32")
    attrs = attributes(len(image) - 2, dims, **{"padding": PAD_BY_ONE, **given})
    check_convolution(x, w, attrs)


@pytest.mark.sample(1)
@pytest.mark.parametrize("padding", [NO_PADDING, PAD_BY_ONE])
@pytest.mark.parametrize("flipped", [(1,), (2,), (3,), (1, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("image", [(2, 8, 20, 30), (3, 8, 7, 9)])
def test_reversed_images_match_the_reference(
    image: tuple[int, ...], flipped: tuple[int, ...], padding: Any
) -> None:
    """Lines, positions or channels have negative strides."""
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, image, "f32"), random_elements(rng, (24, 8, 3, 3), "f32")
    check_convolution(np.flip(x, flipped), w, attributes(2, "bf01,oi01->bf01", padding=padding))


def test_channels_are_no_lines() -> None:
    """The distance of the two channels is less than the extent of the padded lines."""
    found = nchw_product((1, 2, 20, 21), (24, 2, 1, 3))
    assert found is not None
    assert (found.down, found.channels) == (None, 2)
    assert_shape("bf01,oi01->bf01", (1, 2, 20, 21), (24, 2, 1, 3), {"padding": PAD_BY_ONE}, "f32")


def test_taps_of_distant_lines_have_planes_of_their_own() -> None:
    """A window spans more lines than the result has."""
    found = nchw_product((1, 8, 20, 30), (24, 8, 3, 3), rhs_dilation=(6, 1))
    assert found is not None
    assert found.down is None
    near = nchw_product((1, 8, 20, 30), (24, 8, 3, 3), rhs_dilation=(5, 1))
    assert near is not None
    assert near.down is not None


def test_a_loop_over_taps_is_not_one_over_channels() -> None:
    """All taps of a window of one channel belong to one set of planes."""
    found = nchw_product((1, 1, 30, 30), (8, 1, 3, 3), padding=NO_PADDING)
    assert found is not None
    assert found.channel is None
    laid = found.image_layout()
    assert (len(laid.planes), len(laid.taps), laid.padding_lines) == (3, 9, 2)


def test_large_images_are_products_by_themselves() -> None:
    """Images stay in one product if all their positions are contiguous in the result; lines of one
    image stay in one product."""
    large = (4, 8, 30, MIN_SEPARATE_IMAGE_POSITIONS // 30 + 1)
    images = nchw_product(large, (256, 8, 3, 3))
    assert images is not None
    assert (len(images.work.batch), images.image) == (1, None)
    contiguous = nchw_product(large, (256, 8, 3, 3), "bf01,oi01->fb01")
    assert contiguous is not None
    assert contiguous.work.batch == ()
    assert contiguous.image is not None
    lines = nchw_product((1, 8, 5, MIN_SEPARATE_IMAGE_POSITIONS), (256, 8, 3, 3), "bf01,oi01->b0f1")
    assert lines is not None
    assert lines.line.extent == 5


def test_parts_are_shortened_until_their_planes_fit_the_l2_cache() -> None:
    """Parts of few K steps, or of one channel, may take all scratch memory instead."""
    machine = replace(ZEN_5, l2_bytes=128 << 10)
    found, channels = layout_and_channels((1, 32, 60, 60), (8, 32, 3, 3))
    steps, columns = found.block_sizes(channels, 4, ZEN_5)
    assert (steps, columns) == (288, MAX_BLOCK_LINES)
    steps, columns = found.block_sizes(channels, 4, machine)
    assert MIN_NCHW_PART_STEPS // 2 < steps <= MIN_NCHW_PART_STEPS
    assert columns > MIN_NCHW_BLOCK_COLUMNS
    wide, channels = layout_and_channels((1, 32, 60, 4000), (8, 32, 3, 3))
    steps, columns = wide.block_sizes(channels, 4, ZEN_5)
    assert MIN_NCHW_PART_STEPS // 2 < steps <= MIN_NCHW_PART_STEPS
    window, channels = layout_and_channels((1, 4, 60, 60), (8, 4, 15, 15))
    assert window.block_sizes(channels, 4, machine)[0] == 225


def test_lines_that_exceed_scratch_memory_have_no_planes() -> None:
    """Fifteen planes of a line, one for each tap, are copied for each line of a block."""
    attrs = attributes(2, "bf01,oi01->bf01", padding=((1, 1), (7, 7)))
    types = (TensorType(shape, "f32") for shape in ((1, 1, 4, 12000), (16, 1, 3, 15)))
    op = make_op(convolution, *types, **attrs)
    assert not any(
        "planes" in name for name in selected_kernel_names(RULES["convolution"], op, ZEN_5)
    )
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, "f32") for value in op.operands)
    check_convolution(x, w, attrs)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("dtype", "channels", "dims", "is_direct", "is_staged"),
    [
        ("f32", 5, "bf01,oi01->bf01", False, False),
        ("f32", 5, "bf01,oi01->b0f1", False, True),
        ("f16", 5, "bf01,oi01->bf01", True, False),
        ("f16", 5, "bf01,oi01->b0f1", False, True),
        ("f16", 60, "bf01,oi01->bf01", False, True),
    ],
)
def test_sums_are_staged_unless_tiles_store_them_in_the_result(
    dtype: str, channels: int, dims: str, is_direct: bool, is_staged: bool
) -> None:
    """Positions are not contiguous in the result, or sums of several parts are rounded once."""
    attrs = attributes(2, dims, padding=PAD_BY_ONE)
    types = (TensorType(shape, dtype) for shape in ((1, channels, 23, 31), (17, channels, 3, 3)))
    op = make_op(convolution, *types, **attrs)
    (phase,) = lower_for_machine(RULES["convolution"], op, ZEN_5)
    assert "planes" in phase.kernel.name
    assert ("_direct" in phase.kernel.name) == is_direct
    assert phase.record[RECORD_FIELDS.index("staged")] == is_staged
