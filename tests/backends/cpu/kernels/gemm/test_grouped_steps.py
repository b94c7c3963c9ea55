"""Products with instructions for pairs of K steps."""

from dataclasses import replace

import numpy as np
import pytest

from shardir.backends.cpu.codegen.dot_product_instructions import DOT_PRODUCT_INSTRUCTIONS
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution, dot
from tests.backends.cpu.kernels.conv.test_convolution import attributes, check_convolution
from tests.backends.cpu.kernels.gemm.test_dot import (
    check_product,
    random_elements,
    selected_kernels,
)
from tests.backends.cpu.machine_descriptions import ZEN_5
from tests.backends.cpu.phase_runner import make_op, run_rule, selected_kernel_names

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


@pytest.mark.parametrize("dims", ["ak,bk->ab", "ak,kb->ab", "ka,kb->ab", "zak,kb->zab"])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i16"])
def test_integers_are_multiplied_as_groups_of_i16(dtype: str, dims: str) -> None:
    """Sums of 32 bits wrap around, as in the reference."""
    left, right, output = dims.replace("->", ",").split(",")
    x_type, y_type, result = (
        TensorType(tuple(SIZES[c] for c in term), each)
        for term, each in ((left, dtype), (right, dtype), (output, "i32"))
    )
    op = make_op(dot, x_type, y_type, dims=dims, result=result)
    found = selected_kernel_names(RULES["dot"], op, ZEN_5)
    assert sum(name.startswith("moves_cast") for name in found) == (0 if dtype == "i16" else 2)
    assert any("_groups_i16_" in name for name in found)
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


def test_other_machines_have_no_groups() -> None:
    sizes = {"m": 100, "k": 64, "n": 100}
    without = replace(ZEN_5, features=ZEN_5.features.replace("+avx512bf16", "-avx512bf16"))
    for machine in (without, ZEN_5.limited_to("avx2")):
        found = selected_kernels(machine, "mk,kn->mn", "bf16", **sizes)
        assert not any(GROUPS in name for name in found)


@pytest.mark.skipif(
    not DOT_PRODUCT_INSTRUCTIONS["bf16"].is_supported_by(host_machine()),
    reason="the processor has no instruction for pairs of bf16",
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
