"""Products with instructions for groups of K steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.gemm.grouped_steps import has_group_instruction
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution, dot
from tests.backends.cpu.guard_pages import copy_after_guard_page, copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import (
    assert_convolution,
    attributes,
    check_convolution,
)
from tests.backends.cpu.kernels.gemm.test_dot import (
    check_product,
    random_elements,
    selected_kernels,
)
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS, ZEN_5
from tests.backends.cpu.phase_runner import (
    lower_and_run,
    make_op,
    run_rule,
    selected_kernel_names,
)

Array = npt.NDArray[Any]
GROUPS = "_groups_bf16_"
SIZES = {"a": 40, "b": 70, "k": 66, "l": 10, "z": 3}


@pytest.mark.parametrize(
    ("dims", "copies"),
    [
        ("ak,bk->ab", 0), ("ak,kb->ab", 1), ("ka,bk->ab", 1), ("ka,kb->ab", 2),
        ("zak,zkb->zab", 1), ("azk,bzk->zab", 0), ("alk,lkb->ab", 1), ("zak,kb->zab", 1),
    ],
)  # fmt: skip
def test_products_of_groups_match_the_reference(dims: str, copies: int) -> None:
    """Operands are copied if their K steps are not contiguous."""
    found = selected_kernels(ZEN_5, dims, "bf16", **SIZES)
    assert sum(name.startswith("moves_interleave2_2") for name in found) == copies
    assert all(GROUPS in name for name in found[copies:])
    rng = np.random.default_rng(0)
    left, right = dims.partition("->")[0].split(",")
    x, y = (random_elements(rng, tuple(SIZES[c] for c in term), "bf16") for term in (left, right))
    check_product(x, y, dims)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dims", ["ak,bk->ab", "ak,kb->ab", "ka,kb->ab", "zak,kb->zab"])
@pytest.mark.parametrize(
    ("dtype", "steps", "group", "casts"),
    [("i8", 64, "i8", 1), ("i8", 66, "i16", 2), ("u8", 64, "i16", 2), ("i16", 66, "i16", 0)],
)
def test_integers_are_multiplied_in_groups(
    dtype: str, steps: int, group: str, casts: int, dims: str
) -> None:
    """Sums of 32 bits wrap around, as in the reference. Groups of i8 have four values."""
    sizes = {**SIZES, "k": steps}
    left, right, output = dims.replace("->", ",").split(",")
    x_type, y_type, result = (
        TensorType(tuple(sizes[c] for c in term), each)
        for term, each in ((left, dtype), (right, dtype), (output, "i32"))
    )
    op = make_op(dot, x_type, y_type, dims=dims, result=result)
    found = selected_kernel_names(RULES["dot"], op, ZEN_5)
    assert sum(name.startswith("moves_cast") for name in found) == casts
    assert any(f"_groups_{group}_" in name for name in found)
    rng = np.random.default_rng(0)
    x, y = (random_elements(rng, each.shape, dtype) for each in (x_type, y_type))
    x[..., :2], y[...] = np.iinfo(x.dtype).min, np.iinfo(x.dtype).min
    check_product(x, y, dims, result)


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("bf16", {"m": 31, "k": 64, "n": 100}), ("bf16", {"m": 100, "k": 64, "n": 31}),
        ("bf16", {"m": 100, "k": 65, "n": 100}), ("i16", {"m": 100, "k": 64, "n": 100}),
        ("f16", {"m": 100, "k": 64, "n": 100}),
    ],
)  # fmt: skip
def test_other_products_have_no_groups(dtype: str, sizes: dict[str, int]) -> None:
    found = selected_kernels(ZEN_5, "mk,kn->mn", dtype, **sizes)
    assert not any(GROUPS in name for name in found)


@pytest.mark.parametrize("dtype", ["bf16", "i8", "u8", "i16"])
def test_products_without_k_steps_are_zero(dtype: str) -> None:
    result = TensorType((40, 70), "bf16" if dtype == "bf16" else "i32")
    numpy_dtype = NUMPY_DTYPES[dtype]
    for machine in (ZEN_5, host_machine()):
        op = make_op(
            dot,
            TensorType((40, 0), dtype),
            TensorType((0, 70), dtype),
            dims="ak,kb->ab",
            result=result,
        )
        assert not any("moves" in name for name in selected_kernel_names(RULES["dot"], op, machine))
    check_product(
        np.zeros((40, 0), numpy_dtype), np.zeros((0, 70), numpy_dtype), "ak,kb->ab", result
    )


def test_phases_of_a_dilated_convolution_without_steps_are_zero() -> None:
    """Between the elements of a dilated image, no element of the filter meets one of the image."""
    rng = np.random.default_rng(0)
    image, weights = (
        random_elements(rng, shape, "bf16") for shape in ((3, 8, 11, 32), (1, 1, 32, 33))
    )
    check_convolution(image, weights, attributes(2, "b01f,01io->b01f", lhs_dilation=(2, 1)))


def test_other_machines_have_no_groups() -> None:
    sizes = {"m": 100, "k": 64, "n": 100}
    without = replace(ZEN_5, features=ZEN_5.features.replace("+avx512bf16", "-avx512bf16"))
    slow = SAPPHIRE_RAPIDS.limited_to("avx512")
    for machine in (without, ZEN_5.limited_to("avx2"), slow):
        found = selected_kernels(machine, "mk,kn->mn", "bf16", **sizes)
        assert not any(GROUPS in name for name in found)


def strided(rng: np.random.Generator, values: Array) -> Array:
    """Return equal values in memory with random strides, some of them negative."""
    order = rng.permutation(values.ndim)
    steps = rng.integers(1, 3, values.ndim) * rng.choice([-1, 1], values.ndim)
    sizes = np.array(values.shape) * np.abs(steps)
    memory = np.zeros(sizes[order], values.dtype).transpose(np.argsort(order))
    view = memory[tuple(slice(None, None, step) for step in steps)]
    view[...] = values
    return view


def random_values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, fraction: float = 0.003
) -> Array:
    """Return random elements. A fraction of floats are zeros, subnormal and infinite numbers, and
    NaN with different bits."""
    values = random_elements(rng, shape, dtype)
    if dtype == "bf16":
        bits = np.array([0, 0x8000, 1, 0x807F, 0x7F80, 0xFF80, 0x7F81, 0xFFC1], np.uint16)
        chosen = rng.random(shape) < fraction
        special = rng.choice(bits, shape)
        values = np.where(chosen, special, values.view(np.uint16)).view(values.dtype)
    return values


def without_subnormals(x: Array) -> Array:
    bits = x.view(np.uint16)
    return np.where(bits & 0x7F80, bits, 0).astype(np.uint16).view(x.dtype)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", ["bf16", "i8", "u8", "i16"])
def test_products_equal_those_of_other_instructions(dtype: str, seed: int) -> None:
    """Operands and result have any strides. Subnormal operands of bf16 are zero."""
    rng = np.random.default_rng(seed)
    dims = str(rng.choice(["ak,kb->ab", "zak,zbk->zab", "akz,kbz->abz", "alk,bkl->ba"]))
    sizes = {c: int(rng.integers(32, 80)) for c in "ab"}
    sizes |= {"k": 4 * int(rng.integers(1, 60)) - 2 * (seed % 2), "l": 3, "z": 2}
    left, right, output = dims.replace("->", ",").split(",")
    x, y = (random_values(rng, tuple(sizes[c] for c in term), dtype) for term in (left, right))
    result = TensorType(tuple(sizes[c] for c in output), "bf16" if dtype == "bf16" else "i32")
    op = make_op(
        dot, TensorType(x.shape, dtype), TensorType(y.shape, dtype), dims=dims, result=result
    )
    out = strided(rng, np.zeros(result.shape, result.numpy))
    lower_and_run(RULES["dot"], op, [strided(rng, x), strided(rng, y)], [out])
    if dtype == "bf16" and has_group_instruction("bf16", "bf16", host_machine()):
        x, y = (without_subnormals(a) for a in (x, y))
    expected = np.zeros(result.shape, result.numpy)
    lower_and_run(RULES["dot"], op, [x, y], [expected], machine=host_machine().limited_to("avx2"))
    if dtype != "bf16":
        np.testing.assert_array_equal(out, expected)
        return
    got, exact = out.astype(np.float32), expected.astype(np.float32)
    scale = np.einsum(
        dims, *(np.nan_to_num(np.abs(a.astype(np.float32)), posinf=0) for a in (x, y))
    )
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(exact))
    np.testing.assert_array_equal(got[~np.isfinite(got)], exact[~np.isfinite(exact)])
    finite = np.isfinite(got)
    assert (np.abs(got[finite] - exact[finite]) <= 1e-2 * scale[finite]).all()


@pytest.mark.skipif(
    not has_group_instruction("bf16", "bf16", host_machine()),
    reason="the processor has no fast instruction for groups of bf16",
)
def test_subnormal_numbers_of_groups_are_zero() -> None:
    """The instruction replaces subnormal operands by zero, and keeps infinities and NaN."""
    kind = NUMPY_DTYPES["bf16"]
    x, one = np.ones((40, 40), kind), np.eye(40, dtype=kind)
    x[0, 0], x[1, 1], x[2, 2] = 2.0**-130, np.inf, np.nan
    types = [TensorType(each.shape, "bf16") for each in (x, one)]
    (got,) = run_rule(RULES["dot"], make_op(dot, *types, dims="mk,kn->mn"), [x, one])
    assert got[0, 0] == 0
    assert np.isnan(got[1, 0])  # The product of infinity and zero.
    assert got[1, 1] == np.inf
    assert np.isnan(got[2]).all()
    assert (got[3:] == 1).all()


@pytest.mark.parametrize(
    ("dims", "image", "filter", "padding", "has_groups"),
    [
        ("b01f,01io->b01f", (2, 9, 9, 34), (3, 3, 34, 40), 1, True),
        ("b01f,01oi->b01f", (2, 9, 9, 34), (3, 3, 40, 34), 0, True),
        ("bf01,oi01->bf01", (2, 34, 9, 9), (40, 34, 1, 1), 0, True),
        ("bf01,oi01->bf01", (2, 3, 40, 40), (40, 3, 3, 3), 1, False),
    ],
)
def test_convolutions_of_groups_match_the_reference(
    dims: str, image: tuple[int, ...], filter: tuple[int, ...], padding: int, has_groups: bool
) -> None:
    """Pairs of channels are contiguous, or are copied if each patch is one pixel."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, dims, padding=((padding, padding),) * 2)
    shapes = (image, filter)
    op = make_op(convolution, *(TensorType(shape, "bf16") for shape in shapes), **attrs)
    found = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert any(GROUPS in name for name in found) == has_groups
    x, w = (random_elements(rng, shape, "bf16") for shape in shapes)
    check_convolution(x, w, attrs)


@pytest.mark.parametrize(
    ("dims", "image", "grad", "is_packed"),
    [
        ("f01b,i01o->01bf", (2, 9, 9, 18), (2, 9, 9, 33), True),
        ("f01b,i01o->01bf", (3, 20, 24, 7), (3, 20, 24, 70), True),
        ("f01b,i01o->01bf", (1, 9, 9, 18), (1, 9, 9, 33), False),
        ("f01b,i01o->01bf", (2, 9, 9, 1), (2, 9, 9, 33), False),
        ("fb01,io01->bf01", (4, 18, 13, 15), (4, 33, 13, 15), True),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_packing_makes_groups_of_gradients_of_filters(
    dims: str, image: tuple[int, ...], grad: tuple[int, ...], is_packed: bool, seed: int
) -> None:
    """The K steps are an even number of positions, which are not contiguous."""
    rng = np.random.default_rng(seed)
    attrs = attributes(2, dims, padding=((1, 1), (1, 1)))
    op = make_op(convolution, TensorType(image, "bf16"), TensorType(grad, "bf16"), **attrs)
    found = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert any("_packed_" in name for name in found) == is_packed
    x, w = (random_elements(rng, shape, "bf16") for shape in (image, grad))
    check_convolution(x, w, attrs)
    x, w = (without_subnormals(random_values(rng, shape, "bf16", 3e-4)) for shape in (image, grad))
    got, expected = (np.empty(op.result.type.shape, x.dtype) for _ in range(2))
    lower_and_run(RULES["convolution"], op, [x, w], [got])
    avx2 = host_machine().limited_to("avx2")
    lower_and_run(RULES["convolution"], op, [x, w], [expected], machine=avx2)
    singles, exact = got.astype(np.float32), expected.astype(np.float32)
    places = ~np.isfinite(exact)
    np.testing.assert_array_equal(places, ~np.isfinite(singles))
    np.testing.assert_array_equal(singles[places], exact[places])


@pytest.mark.parametrize(
    ("dims", "image", "filter", "given"),
    [
        ("b01f,01io->b01f", (2, 19, 17, 32), (3, 3, 32, 40), {}),
        ("b01f,01oi->b01f", (1, 23, 22, 18), (3, 3, 33, 18), {"strides": (2, 1)}),
        ("b01f,01io->b01f", (2, 19, 17, 50), (3, 2, 50, 70), {"rhs_dilation": (2, 3)}),
        ("b01f,01io->b01f", (1, 12, 9, 34), (3, 3, 34, 36), {"lhs_dilation": (2, 2)}),
        ("b01f,01io->b01f", (2, 14, 14, 64), (3, 3, 32, 80), {"groups": 2}),
    ],
)
@pytest.mark.parametrize("copy", [copy_after_guard_page, copy_before_guard_page])
def test_tiles_read_groups_of_patches_in_place(
    dims: str, image: tuple[int, ...], filter: tuple[int, ...], given: dict[str, Any],
    copy: Callable[[Array], Array],
) -> None:  # fmt: skip
    """Positions outside of the image are zeros; no element outside of the operands is accessed."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, dims, **{"padding": ((1, 1), (1, 2)), **given})
    op = make_op(convolution, *(TensorType(shape, "bf16") for shape in (image, filter)), **attrs)
    found = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert any(GROUPS in name and "_straight" in name for name in found)
    x, w = (copy(random_elements(rng, shape, "bf16")) for shape in (image, filter))
    out = copy(np.zeros(op.result.type.shape, x.dtype))
    for workers in (1, 3):
        lower_and_run(RULES["convolution"], op, [x, w], [out], workers=workers)
        assert_convolution(out, x, w, op.result.type, attrs)


def test_short_runs_of_groups_and_groups_of_integers_are_packed() -> None:
    for dtype, channels in (("bf16", 14), ("i16", 64)):
        attrs = attributes(2, "b01f,01io->b01f", padding=((1, 1), (1, 1)))
        types = (TensorType(each, dtype) for each in ((2, 19, 17, channels), (3, 3, channels, 40)))
        computed = make_op(convolution, *types, **attrs)
        result = computed.result.type.with_dtype("bf16" if dtype == "bf16" else "i32")
        types = (value.type for value in computed.operands)
        op = make_op(convolution, *types, **attrs, result=result)
        found = selected_kernel_names(RULES["convolution"], op, ZEN_5)
        assert not any("_straight" in name for name in found)


@pytest.mark.parametrize(
    ("image", "grad", "padding", "is_transposed"),
    [
        ((2, 20, 24, 40), (2, 20, 24, 33), 1, True),
        ((1, 31, 22, 70), (1, 31, 22, 50), 1, True),
        ((2, 22, 26, 33), (2, 20, 24, 130), 0, True),
        ((2, 20, 24, 31), (2, 20, 24, 33), 1, False),
        ((1, 12, 10, 40), (1, 12, 10, 33), 1, False),
    ],
)
def test_contiguous_lines_of_long_sums_are_columns(
    image: tuple[int, ...], grad: tuple[int, ...], padding: int, is_transposed: bool
) -> None:
    """The transposed result is copied. Short sums or few lines would not amortize it."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, "f01b,i01o->01bf", padding=((padding, padding),) * 2)
    op = make_op(convolution, TensorType(image, "bf16"), TensorType(grad, "bf16"), **attrs)
    found = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    side = "rhs" if is_transposed else "lhs"
    assert any("_packed_" in name and f"_{side}{2 * padding}" in name for name in found)
    assert any("moves" in name for name in found) == is_transposed
    x, w = (random_elements(rng, shape, "bf16") for shape in (image, grad))
    check_convolution(x, w, attrs)
