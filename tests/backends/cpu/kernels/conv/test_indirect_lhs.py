"""Convolutions whose tiles read patches through the address of each K step."""

from typing import Any

import numpy as np
import pytest

from shardir.backends.cpu.codegen.dot_product_instructions import BF16_PAIRS
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.conv import layout_transform
from shardir.backends.cpu.kernels.conv.indirect_lhs import is_lhs_indirect
from shardir.backends.cpu.kernels.gemm import product_dispatch
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct
from shardir.backends.cpu.kernels.gemm.microkernel import RegisterTile
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.module import Op
from shardir.ir.types import TensorType
from shardir.ops import convolution
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import attributes, check_convolution
from tests.backends.cpu.kernels.gemm.test_dot import random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import make_op, run_rule, selected_kernel_names

INSTRUCTION_SETS = ["avx512", "avx2", "sse"]
NHWC, NCHW = "f01b,i01o->01bf", "fb01,io01->bf01"


def gradient(
    channels: int, features: int, dtype: str = "f32", dims: str = NHWC, result: str = "",
    rows: int = 9, **given: Any,
) -> Op:  # fmt: skip
    """Return the gradient of a filter of 3 by 3 positions; NHWC unless `dims` differ."""
    shapes = [(2, rows, 8, count) for count in (channels, features)]
    if dims == NCHW:
        shapes = [(n, c, h, w) for n, h, w, c in shapes]
    types = [TensorType(shape, dtype) for shape in shapes]
    attrs = attributes(2, dims, **{"padding": ((1, 1), (1, 1)), **given})
    computed = make_op(convolution, *types, **attrs).result.type
    return make_op(convolution, *types, **attrs, result=computed.with_dtype(result or dtype))


def kernels(op: Op, machine: HostDescription = ZEN_5) -> list[str]:
    return selected_kernel_names(RULES["convolution"], op, machine)


@pytest.mark.parametrize(
    ("machine", "channels", "features", "dtype", "is_indirect"),
    [(ZEN_5, 16, 40, "f32", True), (ZEN_5, 12, 40, "f32", False),
     (ZEN_5, 18, 40, "f32", False), (ZEN_5, 20, 40, "f32", True),
     (ZEN_5, 20, 16, "f32", False), (ZEN_5, 24, 16, "f32", True),
     (ZEN_5, 1024, 40, "f32", True), (ZEN_5, 1028, 40, "f32", False),
     (ZEN_5, 512, 40, "f64", True), (ZEN_5, 516, 40, "f64", False),
     (ZEN_5, 32, 40, "i32", True), (ZEN_5, 32, 40, "bf16", False),
     (ZEN_5, 32, 40, "c64", False), (ZEN_3, 18, 40, "f32", True),
     (ZEN_3, 17, 40, "f32", False)],
)  # fmt: skip
def test_gradients_of_filters_with_whole_tiles_of_channels_are_not_packed(
    machine: HostDescription, channels: int, features: int, dtype: str, is_indirect: bool
) -> None:
    """Tiles do not read beyond the channels of a pixel, or beyond the zeros outside of the
    image."""
    names = kernels(gradient(channels, features, dtype), machine)
    assert any("indirect" in name for name in names) == is_indirect


def test_only_patches_whose_elements_have_the_type_of_the_sums_are_not_packed() -> None:
    assert not any("indirect" in name for name in kernels(gradient(32, 40, result="f64")))
    assert any("indirect" in name for name in kernels(gradient(32, 40, "f64")))


@pytest.mark.parametrize(
    ("dims", "image", "features", "access"),
    [
        ("f01b,i01o->01fb", (2, 9, 8, 32), 40, "rhs2"),
        ("01bf,i01o->01bf", (9, 8, 32, 2), 400, "lhs2"),
    ],
)
def test_patches_that_are_columns_or_not_contiguous_are_packed(
    dims: str, image: tuple[int, ...], features: int, access: str
) -> None:
    """The features of the gradient of the result are the rows of the first product; between the
    channels of the second image are those of the other image."""
    shapes, attrs = (image, (2, 9, 8, features)), attributes(2, dims, padding=((1, 1), (1, 1)))
    op = make_op(convolution, *(TensorType(shape, "f32") for shape in shapes), **attrs)
    assert all(name.endswith(access) for name in kernels(op))
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, shape, "f32") for shape in shapes)
    check_convolution(x, w, attrs)


def test_products_of_pairs_or_without_patches_have_no_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pairs of K steps of bf16 are elements of 32 bits, as those of f32 are."""
    products = []

    def record_product(work: MatrixProduct, tile: RegisterTile) -> bool:
        products.append((work, tile))
        return is_lhs_indirect(work, tile)

    monkeypatch.setattr(product_dispatch, "is_lhs_indirect", record_product)
    kernels(gradient(32, 40))
    ((work, tile),) = products
    assert is_lhs_indirect(work, tile)
    assert not is_lhs_indirect(work._replace(patches=None), tile)
    assert not is_lhs_indirect(work._replace(grouped=BF16_PAIRS), tile)


def test_rows_that_are_positions_of_the_image_are_packed() -> None:
    """They are contiguous in an image of one channel, but not all of them are inside."""
    types = [TensorType((2, 20, 32, 1), "f32"), TensorType((5, 5, 1, 40), "f32")]
    op = make_op(convolution, *types, **attributes(2, "b01f,01io->b01f", padding=((2, 2), (2, 2))))
    assert not any("indirect" in name for name in kernels(op))


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
@pytest.mark.parametrize(
    ("channels", "features", "given"),
    [(32, 40, {}), (20, 70, {"padding": ((1, 2), (0, 3))}), (36, 16, {"padding": ((4, 4), (5, 5))}),
     (64, 33, {"padding": ((0, 0), (0, 0)), "rhs_dilation": (1, 1), "strides": (2, 3)}),
     (48, 24, {"padding": ((7, 7), (6, 6)), "rhs_dilation": (2, 2)}),
     (24, 8, {"padding": ((1, 1), (1, 1)), "lhs_dilation": (2, 1)}),
     (64, 64, {"batch_groups": 2})],
)  # fmt: skip
def test_sums_are_those_of_packed_patches(
    channels: int, features: int, given: dict[str, Any], dtype: str, limit: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Also the order of summation is the same, for any number of workers."""
    op, machine = gradient(channels, features, dtype, **given), host_machine().limited_to(limit)
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, dtype) for value in op.operands)
    attrs = attributes(2, NHWC, **{"padding": ((1, 1), (1, 1)), **given})
    one, three = (
        check_convolution(x, w, attrs, workers=workers, machine=machine).tobytes()
        for workers in (1, 3)
    )
    monkeypatch.setattr(product_dispatch, "is_lhs_indirect", lambda work, tile: False)
    assert one == three == check_convolution(x, w, attrs, workers=2, machine=machine).tobytes()


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
def test_patches_that_are_inside_of_the_image_need_no_positions(limit: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, s, "f32") for s in ((3, 11, 10, 32), (3, 9, 8, 40)))
    op = make_op(convolution, *(TensorType(a.shape, "f32") for a in (x, w)), **attributes(2, NHWC))
    assert any("lhs0_indirect" in name for name in kernels(op))
    check_convolution(x, w, attributes(2, NHWC), machine=host_machine().limited_to(limit))


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
def test_long_sums_and_many_taps_have_blocks_of_whole_taps(limit: str) -> None:
    """Several parts of K steps, and several blocks of rows, each with all channels of its taps."""
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, (3, 20, 19, n), "f32") for n in (96, 40))
    attrs = attributes(2, NHWC, padding=((2, 2), (2, 2)))
    for workers in (1, 5):
        machine = host_machine().limited_to(limit)
        check_convolution(x, w, attrs, workers=workers, machine=machine)


@pytest.mark.parametrize("dims", ["01fb,01io->01bf", "0f1b,01io->f0b1"])
def test_images_whose_batch_is_innermost_are_not_packed(dims: str) -> None:
    """The images of a batch are adjacent rows, and K steps are the positions of the filter."""
    sizes = {"f": 3, "0": 6, "1": 7, "b": 32, "i": 3, "o": 24}
    left, _, rest = dims.partition(",")
    filter_sizes = {**sizes, "0": 3, "1": 2}
    x_shape = tuple(sizes[c] for c in left)
    w_shape = tuple(filter_sizes[c] for c in rest.partition("->")[0])
    types = [TensorType(shape, "f32") for shape in (x_shape, w_shape)]
    attrs = attributes(2, dims, padding=((1, 1), (0, 1)))
    assert any("indirect" in name for name in kernels(make_op(convolution, *types, **attrs)))
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, type.shape, "f32") for type in types)
    check_convolution(x, w, attrs)


@pytest.mark.parametrize("limit", INSTRUCTION_SETS)
@pytest.mark.parametrize(("channels", "features"), [(20, 40), (24, 16), (28, 40), (32, 70)])
def test_tiles_do_not_read_behind_the_image(channels: int, features: int, limit: str) -> None:
    op, machine = gradient(channels, features), host_machine().limited_to(limit)
    rng = np.random.default_rng(0)
    x, w = (
        copy_before_guard_page(random_elements(rng, value.type.shape, "f32"))
        for value in op.operands
    )
    check_convolution(x, w, attributes(2, NHWC, padding=((1, 1), (1, 1))), machine=machine)


def test_zeros_outside_of_the_image_are_multiplied() -> None:
    """The product of a zero and an infinite element of the gradient of the result is NaN."""
    op = gradient(32, 40)
    x, w = (np.ones(value.type.shape, np.float32) for value in op.operands)
    w[0, 0, 3, 5] = np.inf
    (out,) = run_rule(RULES["convolution"], op, [x, w])
    is_outside = np.zeros((3, 3, 32, 40), bool)
    is_outside[0, :, :, 5] = True
    np.testing.assert_array_equal(np.isnan(out), is_outside)


@pytest.mark.parametrize(
    ("channels", "features", "rows", "given", "is_transformed"),
    [(64, 64, 14, {}, True), (18, 64, 14, {}, False), (64, 64, 1, {}, False),
     (64, 600, 14, {}, False), (64, 64, 14, {"lhs_dilation": (2, 1)}, False)],
)  # fmt: skip
def test_images_in_nchw_layout_are_copied_if_that_takes_less_time_than_packing(
    channels: int, features: int, rows: int, given: dict[str, Any], is_transformed: bool
) -> None:
    """Each element of the image, the gradient and the filter is copied once, and packing would copy
    an element of the image for each position of the filter."""
    op = gradient(channels, features, dims=NCHW, rows=rows, **given)
    copies = [name for name in kernels(op) if name.startswith("moves")]
    assert bool(copies) == is_transformed
    rng = np.random.default_rng(0)
    x, w = (random_elements(rng, value.type.shape, "f32") for value in op.operands)
    check_convolution(x, w, attributes(2, NCHW, **{"padding": ((1, 1), (1, 1)), **given}))


def test_images_in_nhwc_layout_need_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = kernels(gradient(64, 64))
    monkeypatch.setattr(layout_transform, "_plan_copies", None)
    assert kernels(gradient(64, 64)) == expected
