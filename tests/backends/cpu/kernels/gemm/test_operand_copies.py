"""Small and skinny products whose right operand or result is copied."""

import numpy as np
import pytest

from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import TensorType
from shardir.ops import dot
from tests.backends.cpu.kernels.gemm.test_dot import (
    Array,
    check_product,
    dtype_of,
    random_elements,
    selected_kernels,
)
from tests.backends.cpu.machine_descriptions import ZEN_5
from tests.backends.cpu.phase_runner import RuleHarness, make_op


def kinds(names: list[str]) -> list[str]:
    """Return the kind of each kernel: a copy, or that of a product."""
    known = ("moves", "inner_product", "unpacked", "packed", "unrolled", "skinny")
    return [next(kind for kind in known if name.startswith(kind)) for name in names]


def kinds_for(x: Array, y: Array, dims: str) -> list[str]:
    """Return the kinds of the kernels of a product of arrays of any strides."""
    harness = RuleHarness(2, ZEN_5)
    types = [TensorType(each.shape, dtype_of(each)) for each in (x, y)]
    op = make_op(dot, *types, dims=dims)
    views = [harness.view(each) for each in (x, y, np.zeros(op.result.type.shape, x.dtype))]
    phases = RULES["dot"](op, views[:2], views[2:], harness)
    assert phases is not None
    return kinds([phase.kernel.name for phase in phases])


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "dtype", "is_copied"),
    [
        (200, 300, 4, "f32", True),
        (200, 100, 4, "f32", False),
        (12, 300, 4, "f32", False),
        (200, 300, 7, "f64", True),
        (200, 300, 8, "f64", False),
    ],
)
def test_few_columns_of_long_sums_are_copied(
    rows: int, steps: int, columns: int, dtype: str, is_copied: bool
) -> None:
    """Sums are long, rows are several times as many as columns, and columns fill no vector."""
    names = selected_kernels(ZEN_5, "mk,kn->mn", dtype, m=rows, k=steps, n=columns)
    assert kinds(names) == (["moves", "inner_product"] if is_copied else ["unpacked"])


@pytest.mark.parametrize(("rows", "is_copied"), [(7, False), (8, True)])
def test_columns_with_gaps_are_copied_for_enough_rows(rows: int, is_copied: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = random_elements(rng, (rows, 30), "f32"), random_elements(rng, (30, 100), "f32")[:, ::2]
    assert ("moves" in kinds_for(x, y, "mk,kn->mn")) == is_copied
    check_product(x, y, "mk,kn->mn")


def test_contiguous_columns_are_not_copied() -> None:
    """Their K steps are pages apart."""
    x, y = np.zeros((300, 1200), np.float32), np.zeros((1200, 4096), np.float32)[:, :128]
    assert "moves" not in kinds_for(x, y, "mk,kn->mn")


@pytest.mark.parametrize(
    ("dims", "found"),
    [("kl,lk->", ["moves", "inner_product"]), ("mkl,lk->m", ["packed"])],
)
def test_steps_in_another_order_are_copied_for_a_result_of_one_element(
    dims: str, found: list[str]
) -> None:
    rng, sizes = np.random.default_rng(0), {"k": 40, "l": 30, "m": 20}
    x, y = (
        random_elements(rng, tuple(sizes[c] for c in term), "f32")
        for term in dims.partition("->")[0].split(",")
    )
    assert kinds_for(x, y, dims) == found
    check_product(x, y, dims)


@pytest.mark.parametrize(
    ("dims", "sizes", "is_copied"),
    [
        ("km,kn->mn", {"k": 30, "m": 200, "n": 4}, True),
        ("zkm,zkn->zmn", {"z": 3, "k": 30, "m": 200, "n": 4}, False),
        ("km,kn->mn", {"k": 30, "m": 200, "n": 16}, False),
        ("km,kn->mn", {"k": 30, "m": 40, "n": 4}, False),
        ("mk,kn->mn", {"k": 30, "m": 200, "n": 4}, False),
        ("km,kn->nm", {"k": 30, "m": 200, "n": 4}, False),
        ("km,kn->mn", {"k": 2000, "m": 2000, "n": 12}, False),
    ],
)
def test_transposed_results_are_copied_for_contiguous_rows(
    dims: str, sizes: dict[str, int], is_copied: bool
) -> None:
    """There is one product, columns fill no vector but rows several, and the transposed product is
    not packed."""
    found = kinds(selected_kernels(ZEN_5, dims, "f32", **sizes))
    assert (found == ["unpacked", "moves"]) == is_copied
    assert ("moves" in found) == is_copied
