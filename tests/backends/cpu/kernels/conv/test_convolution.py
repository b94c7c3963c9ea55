"""Convolutions of the native CPU backend: all attributes, element types and layouts."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.conv.convolution import convolution_products
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES, RULES
from shardir.ir.types import COMPLEX, NUMPY_DTYPES, TensorType
from shardir.ops import convolution
from tests.backends.cpu.kernels.gemm.test_dot import EPSILON, dtype_of, random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule, selected_kernel_names
from tests.case_pairs import cross_cases
from tests.dtype_groups import INTEGERS

pytestmark = pytest.mark.sample(5)

Array = npt.NDArray[Any]


def attributes(rank: int, dims: str, **given: Any) -> dict[str, Any]:
    return {
        "strides": (1,) * rank, "padding": ((0, 0),) * rank, "lhs_dilation": (1,) * rank,
        "rhs_dilation": (1,) * rank, "dims": dims, **given,
    }  # fmt: skip


def assert_convolution(got: Array, x: Array, w: Array, result: TensorType, attrs: Any) -> None:
    """Assert that a result equals the reference up to the rounding errors of its sums."""
    reference = convolution.reference
    assert reference is not None
    attrs = convolution.rule_arguments(attrs)
    expected = np.asarray(reference(x, w, result=result, **attrs))
    assert got.shape == expected.shape
    if result.dtype in INTEGERS:
        np.testing.assert_array_equal(got, expected)
        return
    wide = TensorType(result.shape, "c128" if result.dtype in COMPLEX else "f64")
    exact = [a.astype(wide.numpy) for a in (x, w)]
    scale = np.asarray(reference(*map(np.abs, exact), result=wide.with_dtype("f64"), **attrs))
    error = np.abs(got.astype(wide.numpy) - reference(*exact, result=wide, **attrs))
    assert (error <= EPSILON[result.dtype] * scale + 1e-30).all()


def check_convolution(x: Array, w: Array, attrs: Any, **more: Any) -> Array:
    types = [TensorType(a.shape, dtype_of(a)) for a in (x, w)]
    op = make_op(convolution, *types, **attrs)
    (got,) = run_rule(RULES["convolution"], op, [x, w], LAYOUT_RULES["convolution"], **more)
    assert_convolution(got, x, w, op.result.type, attrs)
    return got


def assert_shape(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    """Check a convolution against the reference; one and three workers must give equal bits."""
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, left, dtype), random_elements(rng, right, dtype)
    attrs = attributes(len(left) - 2, dims, **given)
    one, three = (check_convolution(x, w, attrs, workers=workers).tobytes() for workers in (1, 3))
    assert one == three


def permute_term(draw: st.DrawFn, term: str) -> str:
    return "".join(draw(st.permutations(term)))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, Any]]:
    rank = draw(st.integers(0, 3))
    digits = "012"[:rank]
    dims = (
        f"{permute_term(draw, 'bf' + digits)},{permute_term(draw, 'io' + digits)}"
        f"->{permute_term(draw, 'bf' + digits)}"
    )
    groups, batch_groups = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)]))
    sizes = {
        "i": draw(st.sampled_from((1, 2, 3, 4, 5, 9))), "b": draw(st.integers(1, 3)) * batch_groups,
        "o": draw(st.integers(1, 5)) * groups * batch_groups,
    }  # fmt: skip
    sizes["f"] = sizes["i"] * groups
    for digit in digits:
        sizes["x" + digit] = draw(st.integers(1, 9))
        sizes["w" + digit] = draw(st.integers(1, 4))
    small = st.integers(1, 3)
    pad = st.integers(-1, 3)
    attrs = attributes(
        rank,
        dims,
        strides=tuple(draw(small) for _ in digits),
        padding=tuple((draw(pad), draw(pad)) for _ in digits),
        lhs_dilation=tuple(draw(small) for _ in digits),
        rhs_dilation=tuple(draw(small) for _ in digits),
        groups=groups,
        batch_groups=batch_groups,
    )
    return sizes, attrs


@given(st.data(), convolutions(), st.sampled_from(("f32", "f32", "f64", "i32", "bf16", "c64")))
def test_random_convolutions_match_the_reference(
    data: st.DataObject, drawn_convolution: tuple[dict[str, int], dict[str, Any]], dtype: str
) -> None:
    sizes, attrs = drawn_convolution
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    first, second = attrs["dims"].partition("->")[0].split(",")
    x = random_elements(rng, tuple(sizes.get(c, sizes.get("x" + c, 0)) for c in first), dtype)
    w = random_elements(rng, tuple(sizes.get(c, sizes.get("w" + c, 0)) for c in second), dtype)
    op = make_op(convolution, TensorType(x.shape, dtype), TensorType(w.shape, dtype), **attrs)
    order = data.draw(st.permutations(range(x.ndim)))
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    shape = op.result.type.shape
    out = np.full([shape[d] for d in order], 7, NUMPY_DTYPES[dtype]).transpose(np.argsort(order))
    assert lower_and_run(RULES["convolution"], op, [x, w], [out]) is not None
    assert_convolution(out, x, w, op.result.type, attrs)


def test_padded_positions_are_zero_if_outermost_in_memory() -> None:
    """The columns of the product are not contiguous in this layout, and include padded
    positions."""
    rng = np.random.default_rng(0)
    attrs = attributes(1, "0fb,0io->0fb", padding=((1, 1),))
    x, w = random_elements(rng, (2, 1, 20), "f64"), random_elements(rng, (1, 1, 2), "f64")
    op = make_op(convolution, TensorType(x.shape, "f64"), TensorType(w.shape, "f64"), **attrs)
    out = np.full((4, 2, 20), 7.0)
    assert lower_and_run(RULES["convolution"], op, [x, w], [out]) is not None
    assert_convolution(out, x, w, op.result.type, attrs)


LARGE = [
    ("b01f,01io->b01f", (3, 17, 19, 16), (3, 3, 16, 40), {"padding": ((1, 1), (1, 1))}),
    ("b01f,01io->b01f", (2, 32, 32, 3), (3, 3, 3, 32), {"padding": ((1, 1), (1, 1))}),
    ("b01f,01io->b01f", (2, 30, 31, 3), (7, 7, 3, 40),
     {"padding": ((3, 3), (3, 3)), "strides": (2, 2)}),
    ("b01f,01io->b01f", (2, 9, 3, 3), (5, 7, 3, 20), {"padding": ((2, 2), (5, 5))}),
    ("b01f,01io->b01f", (2, 20, 21, 13), (7, 7, 13, 40), {"padding": ((3, 3), (3, 3))}),
    ("b0f,0io->b0f", (3, 70, 5), (6, 5, 40), {"padding": ((-1, 4),), "strides": (3,)}),
    ("bf01,oi01->bf01", (2, 20, 32, 32), (40, 20, 3, 3), {"padding": ((1, 1), (1, 1))}),
    ("bf01,oi01->bf01", (2, 3, 30, 31), (8, 3, 5, 5), {"strides": (2, 2)}),
    ("b01f,01io->b01f", (2, 15, 15, 24), (3, 3, 24, 16),
     {"lhs_dilation": (2, 2), "padding": ((1, 2), (2, 1))}),
    ("b01f,01io->b01f", (2, 9, 11, 70), (3, 3, 70, 150), {"padding": ((1, 2), (2, 1))}),
    ("b01f,01io->b01f", (2, 9, 11, 50), (3, 3, 50, 12),
     {"padding": ((2, 2), (2, 2)), "rhs_dilation": (2, 2), "strides": (1, 2)}),
    ("b01f,01oi->b01f", (2, 12, 13, 40), (5, 5, 30, 20),
     {"padding": ((2, 2), (2, 2)), "groups": 2}),
    ("f01b,i01o->01bf", (4, 16, 16, 24), (4, 16, 16, 40), {"padding": ((1, 1), (1, 1))}),
    ("fb01,io01->bf01", (4, 24, 16, 32), (4, 40, 16, 32), {"padding": ((1, 1), (1, 1))}),
    ("f01b,i01o->01bf", (37, 32, 32, 3), (37, 32, 32, 8), {"padding": ((1, 1), (1, 1))}),
    ("f01b,i01o->01bf", (3, 17, 19, 48), (3, 17, 19, 40), {"padding": ((2, 2), (2, 2))}),
    ("f01b,i01o->01bf", (5, 50, 52, 32), (5, 50, 52, 64), {"padding": ((1, 1), (1, 1))}),
    ("f01b,i01o->01bf", (4, 18, 19, 32), (4, 9, 9, 40),
     {"padding": ((1, 0), (2, -1)), "rhs_dilation": (2, 2)}),
    ("bf01,oi01->bf01", (2, 20, 9, 48), (40, 20, 3, 5), {"padding": ((1, 1), (2, 2))}),
    ("f01b,i01o->01bf", (4, 16, 16, 24), (4, 8, 8, 40),
     {"padding": ((1, 0), (1, 0)), "rhs_dilation": (2, 2)}),
    ("b01f,01io->b01f", (2, 9, 9, 64), (1, 1, 64, 70), {}),
    ("b01f,01io->b01f", (2, 9, 9, 33), (3, 3, 1, 66), {"groups": 33}),
    ("b01f,01io->b01f", (2, 9, 11, 150), (3, 5, 1, 150),
     {"groups": 150, "padding": ((1, 1), (2, 2)), "strides": (2, 1)}),
    ("bf01,oi01->bf01", (2, 6, 9, 70), (6, 1, 3, 3), {"groups": 6, "padding": ((1, 1), (1, 1))}),
    ("bf01,oi01->bf01", (2, 6, 9, 70), (1, 6, 3, 3), {"padding": ((1, 1), (1, 1))}),
    ("bf01,oi01->bf01", (2, 6, 9, 70), (6, 1, 3, 3),
     {"groups": 6, "padding": ((1, 1), (1, 1)), "strides": (2, 2)}),
    ("bf01,oi01->bf01", (2, 6, 9, 141), (6, 1, 3, 4), {"groups": 6, "strides": (1, 2)}),
    ("bf01,oi01->bf01", (2, 20, 32, 32), (40, 20, 3, 3),
     {"padding": ((1, 1), (1, 1)), "strides": (2, 2)}),
    ("bf01,oi01->bf01", (3, 20, 23, 41), (40, 20, 3, 3),
     {"padding": ((2, 1), (1, 1)), "strides": (1, 2)}),
    ("bf01,oi01->bf01", (3, 20, 17, 19), (40, 20, 3, 5), {"padding": ((0, 1), (2, 2))}),
    ("f01b,i01o->01bf", (5, 17, 19, 40), (5, 17, 19, 40),
     {"batch_groups": 40, "padding": ((1, 1), (1, 1))}),
    ("b01f,01io->b01f", (2, 9, 9, 16), (1, 1, 16, 20), {"lhs_dilation": (2, 2)}),
    ("bf01,io01->bf01", (2, 16, 9, 9), (16, 20, 1, 1), {"lhs_dilation": (2, 2)}),
    ("b01f,01io->b01f", (3, 18, 17, 20), (3, 3, 20, 24), {}),
    ("b01f,01io->b01f", (3, 19, 20, 3), (3, 5, 3, 40), {"strides": (2, 1)}),
    ("b01f,01io->b01f", (3, 19, 20, 40), (1, 1, 40, 56), {"strides": (2, 2)}),
    ("b01f,01io->b01f", (2, 18, 19, 16), (3, 3, 16, 16), {"rhs_dilation": (2, 3)}),
    ("b0f,0io->b0f", (3, 90, 16), (5, 16, 72), {}),
    ("b0f,0io->b0f", (1, 90, 16), (5, 16, 72), {}),
    ("b0f,0io->b0f", (3, 90, 16), (5, 16, 1), {}),
    ("f01b,i01o->01bf", (5, 16, 18, 32), (5, 14, 16, 24), {}),
    ("bf01,oi01->bf01", (3, 20, 18, 34), (32, 20, 3, 3), {}),
    ("bf01,oi01->bf01", (3, 20, 18, 21), (43, 20, 3, 3), {}),
    ("f01b,i01o->01bf", (7, 14, 13, 24), (7, 14, 13, 24), {"padding": ((1, 1), (1, 1))}),
    ("f01b,i01o->01bf", (9, 20, 21, 3), (9, 10, 10, 70),
     {"padding": ((3, 2), (2, 3)), "rhs_dilation": (2, 2)}),
    ("f01b,i01o->01bf", (9, 12, 11, 1), (9, 12, 11, 20), {"padding": ((2, 2), (1, 3))}),
    ("f01b,i01o->01bf", (9, 12, 11, 40), (9, 12, 13, 21), {"padding": ((-1, 2), (2, 2))}),
    ("fb01,io01->bf01", (9, 24, 14, 14), (9, 20, 14, 14), {"padding": ((1, 1), (1, 1))}),
    ("fb01,io01->bf01", (9, 2, 17, 14), (9, 33, 17, 14), {"padding": ((1, 1), (2, 2))}),
    ("fb01,io01->bf01", (3, 40, 30, 30), (3, 36, 15, 15),
     {"padding": ((1, 0), (1, 0)), "rhs_dilation": (2, 2)}),
    ("fb01,io01->bf01", (3, 190, 9, 10), (3, 170, 9, 10), {"padding": ((1, 1), (1, 1))}),
    ("fb01,io01->fb01", (3, 190, 9, 10), (3, 170, 9, 10), {"padding": ((1, 1), (1, 1))}),
    ("f01b,i01o->01bf", (7, 9, 10, 190), (7, 9, 10, 350), {"padding": ((1, 1), (1, 1))}),
    ("bf01,io01->bf01", (3, 40, 17, 19), (40, 36, 3, 3), {"padding": ((1, 1), (1, 1))}),
    ("bf01,oi01->bf01", (3, 20, 17, 18), (36, 20, 3, 3),
     {"lhs_dilation": (2, 2), "padding": ((1, 2), (2, 1))}),
    ("bf01,io01->bf01", (3, 40, 8, 9), (40, 3, 7, 5),
     {"lhs_dilation": (2, 3), "padding": ((3, 4), (1, 1)), "rhs_dilation": (1, 2)}),
    ("bf01,oi01->bf01", (5, 64, 7, 7), (48, 64, 1, 1), {}),
    ("bf01,oi01->bf01", (3, 30, 29, 31), (48, 30, 3, 5), {"strides": (3, 4)}),
    ("bf01,oi01->bf01", (3, 36, 29, 31), (48, 12, 3, 5), {"strides": (3, 4), "groups": 3}),
    ("bf01,oi01->bf01", (3, 128, 7, 7), (128, 128, 3, 3), {"padding": ((1, 1), (1, 1))}),
    ("bf0,io0->bf0", (3, 40, 90), (40, 30, 9), {"padding": ((-1, 4),), "strides": (2,)}),
    ("f0b,i0o->0bf", (9, 100, 7), (9, 100, 40), {"padding": ((3, 3),)}),
    ("fb0,io0->bf0", (9, 7, 100), (9, 40, 95), {"padding": ((0, 2),)}),
    ("b01f,01io->b01f", (3, 23, 29, 1), (5, 5, 1, 32), {"padding": ((2, 2), (2, 2))}),
    ("b01f,01io->b01f", (3, 23, 29, 1), (5, 4, 1, 18), {}),
    ("b01f,01io->b01f", (3, 23, 29, 1), (3, 3, 1, 6),
     {"padding": ((1, 2), (-1, 4)), "rhs_dilation": (2, 3)}),
    ("bf01,oi01->bf01", (3, 1, 23, 29), (32, 1, 5, 5), {"padding": ((2, 2), (2, 2))}),
    ("bf01,oi01->bf01", (3, 1, 23, 29), (12, 1, 5, 5),
     {"padding": ((2, 2), (2, 2)), "strides": (2, 2)}),
    ("b0f,0io->b0f", (3, 900, 1), (25, 1, 8), {"padding": ((12, 12),)}),
    ("b01f,01io->b01f", (3, 18, 19, 33), (3, 3, 33, 1), {"padding": ((1, 1), (1, 1))}),
    ("b01f,01io->b01f", (3, 18, 19, 33), (3, 3, 33, 1), {}),
    ("b01f,01io->b01f", (3, 18, 19, 80), (3, 3, 80, 2),
     {"padding": ((2, 1), (1, 2)), "strides": (2, 1)}),
    ("b01f,01oi->b01f", (3, 48, 49, 64), (3, 3, 3, 64), {"padding": ((1, 1), (1, 1))}),
    ("b01f,01io->b01f", (3, 18, 19, 24), (3, 3, 8, 15),
     {"padding": ((1, 1), (1, 1)), "groups": 3}),
    ("b01f,01io->b01f", (3, 28, 19, 3), (5, 5, 3, 1), {"padding": ((2, 2), (2, 2))}),
    ("b01f,01io->b01f", (3, 28, 19, 40), (3, 3, 40, 6),
     {"padding": ((2, 2), (-1, 3)), "rhs_dilation": (2, 2)}),
    ("b01f,01io->b01f", (3, 15, 15, 16), (3, 3, 16, 3),
     {"lhs_dilation": (2, 2), "padding": ((1, 2), (2, 1))}),
    ("b0f,0io->b0f", (3, 900, 32), (5, 32, 12), {"padding": ((2, 2),)}),
    ("bf01,oi01->bf01", (2, 6, 19, 70), (1, 6, 3, 3), {}),
    ("b01f,01io->b01f", (2, 11, 13, 40), (3, 3, 1, 40),
     {"groups": 40, "padding": ((1, 1), (1, 1))}),
    ("b01f,01io->b01f", (2, 11, 17, 72), (5, 5, 1, 72),
     {"groups": 72, "padding": ((2, 2), (-1, 4)), "strides": (1, 3), "rhs_dilation": (2, 1)}),
    ("bf01,oi01->bf01", (2, 6, 23, 29), (6, 1, 5, 5),
     {"groups": 6, "padding": ((2, 2), (2, 2)), "strides": (2, 2)}),
    ("bf0,oi0->bf0", (2, 1, 900), (1, 1, 701), {"padding": ((700, 700),)}),
    ("fb01,io01->bf01", (5, 24, 17, 19), (5, 24, 17, 19),
     {"batch_groups": 24, "padding": ((1, 1), (1, 1))}),
    *(
        ("b01f,01io->b01f", (2, 11, 13, 20), (3, 3, 1, 20 * times),
         {"groups": 20, "padding": ((1, 1), (1, 2)), "strides": (1, 2)})
        for times in (2, 3, 4)
    ),
    ("b01f,01io->b01f", (2, 9, 17, 20), (3, 7, 1, 20),
     {"groups": 20, "padding": ((1, 1), (6, 6)), "rhs_dilation": (1, 2)}),
    ("b01f,01io->b01f", (1, 5, 40, 20), (2, 9, 1, 20), {"groups": 20, "strides": (1, 2)}),
    ("b01f,01io->b01f", (1, 3, 2, 20), (5, 5, 1, 20), {"groups": 20, "padding": ((2, 2), (2, 2))}),
    ("bf01,oi01->bf01", (2, 5, 17, 19), (5, 1, 7, 3),
     {"groups": 5, "padding": ((6, 6), (2, 2)), "rhs_dilation": (2, 2)}),
    ("bf01,oi01->bf01", (2, 20, 9, 7), (20, 1, 3, 3),
     {"groups": 20, "lhs_dilation": (2, 2), "padding": ((1, 2), (1, 2))}),
    ("fb01,io01->bf01", (3, 20, 18, 16), (3, 20, 9, 8),
     {"batch_groups": 20, "rhs_dilation": (2, 2), "padding": ((1, 0), (1, 0))}),
    ("f01b,io01->bf01", (3, 17, 19, 24), (3, 24, 17, 19),
     {"batch_groups": 24, "padding": ((1, 1), (1, 1))}),
    ("b0f,0io->b0f", (2, 1000, 1), (40, 1, 1), {"padding": ((20, 19),)}),
    ("bf0,oi0->bf0", (1, 1, 1024), (1, 1, 25), {}),
    ("bf0,oi0->bf0", (3, 1, 999), (1, 1, 333), {"padding": ((-7, 400),)}),
    ("b01f,01io->b01f", (8, 7, 7, 64), (5, 5, 64, 48), {}),
    ("bf01,oi01->bf01", (8, 64, 7, 7), (48, 64, 5, 5), {}),
]  # fmt: skip


# The next test runs all of them for f32.
@pytest.mark.parametrize(
    ("dims", "left", "right", "given", "dtype"), cross_cases(LARGE, ("f64", "bf16", "i16"))
)
def test_convolutions_of_many_shapes_match_the_reference(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any], dtype: str
) -> None:
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, left, dtype), random_elements(rng, right, dtype)
    check_convolution(x, w, attributes(len(left) - 2, dims, **given))


@pytest.mark.parametrize(("dims", "left", "right", "given"), LARGE)
def test_convolutions_do_not_depend_on_the_worker_count(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], given: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, left, "f32"), random_elements(rng, right, "f32")
    attrs = attributes(len(left) - 2, dims, **given)
    one, *others = (
        check_convolution(x, w, attrs, workers=workers).tobytes() for workers in (1, 2, 7)
    )
    assert all(other == one for other in others)


@pytest.mark.parametrize(("features", "steps"), [(3, [5, 15]), (20, [5, 5, 20])])
def test_a_window_row_with_few_features_is_one_run_of_taps(features: int, steps: list[int]) -> None:
    """Each run of taps has a fixed cost; with many features, a run is long enough."""
    image = TensorType((2, 30, 31, features), "f32")
    attrs = attributes(2, "b01f,01io->b01f", padding=((2, 2), (2, 2)))
    op = make_op(convolution, image, TensorType((5, 5, features, 8), "f32"), **attrs)
    views = [
        BufferView(slot, 0, type.shape, row_major_strides(type), "f32")
        for slot, type in enumerate([*(v.type for v in op.operands), op.result.type], 1)
    ]
    (work,) = convolution_products(op.attrs, views[0], views[1], views[2], ZEN_5)
    assert [loop.extent for loop in work.inner] == steps


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("features", [32, 40])
def test_patches_with_contiguous_channels_are_not_packed(features: int, padding: int) -> None:
    """f32 patches are read in place; other element types are converted during packing."""

    def kernels(dtype: str) -> set[str]:
        rng = np.random.default_rng(0)
        x = random_elements(rng, (2, 9, 9, features), dtype)
        w = random_elements(rng, (3, 3, features, 24), dtype)
        attrs = attributes(2, "b01f,01io->b01f", padding=((padding, padding),) * 2)
        op = make_op(convolution, TensorType(x.shape, dtype), TensorType(w.shape, dtype), **attrs)
        out = np.empty(op.result.type.shape, NUMPY_DTYPES[dtype])
        phases = lower_and_run(RULES["convolution"], op, [x, w], [out])
        assert phases is not None
        return {phase.kernel.name for phase in phases}

    found = kernels("f32")
    assert found
    assert all("straight" in name for name in found)
    assert not any("straight" in name for name in kernels("bf16"))


@pytest.mark.parametrize(
    ("machine", "dtype", "channels", "is_transformed"),
    [(ZEN_3, "f32", 3, False), (ZEN_3, "f32", 16, True), (ZEN_3, "f32", 128, True),
     (ZEN_5, "f32", 128, False), (ZEN_5, "bf16", 3, False), (ZEN_5, "bf16", 128, True)],
)  # fmt: skip
def test_images_of_many_channels_are_transformed_to_nhwc(
    machine: HostDescription, dtype: str, channels: int, is_transformed: bool
) -> None:
    """The transform pays off if it takes little time relative to the product. With AVX-512, it pays
    off for filters that are contiguous along the K steps only if the copies have pairs."""
    shapes = (2, channels, 24, 24), (128, channels, 3, 3)
    attrs = attributes(2, "bf01,oi01->bf01", padding=((1, 1), (1, 1)))
    op = make_op(convolution, *(TensorType(shape, dtype) for shape in shapes), **attrs)
    names = selected_kernel_names(RULES["convolution"], op, machine)
    assert any(name.startswith("moves_copy") for name in names) == is_transformed


@pytest.mark.parametrize(
    ("machine", "rows", "is_transformed"),
    [(ZEN_3, 4, False), (ZEN_3, 28, True), (ZEN_5, 7, True), (ZEN_5, 28, True), (ZEN_5, 3, False)],
)
def test_gradients_of_images_are_transformed_to_nhwc(
    machine: HostDescription, rows: int, is_transformed: bool
) -> None:
    """Their filter is not contiguous along the K steps. With AVX-512, more expensive copies of a
    filter pay off for a small image."""
    shapes = (1, 512, rows, rows), (512, 512, 3, 3)
    names = selected_kernels("bf01,io01->bf01", *shapes, machine, padding=((1, 1), (1, 1)))
    assert any(name.startswith("moves_copy_tiles") for name in names) == is_transformed


@pytest.mark.parametrize(
    ("dims", "left", "right", "padding", "read"),
    [("bf01,oi01->bf01", (2, 32, 24, 32), (24, 32, 1, 1), 0, "_planes1"),
     ("bf01,oi01->bf01", (4, 64, 7, 7), (24, 64, 1, 1), 0, "_planes1"),
     ("bf01,oi01->bf01", (2, 3, 15, 31), (24, 3, 3, 3), 1, "_planes1"),
     ("bf01,oi01->bf01", (2, 3, 15, 31), (24, 3, 3, 3), 0, "_planes1")],
)  # fmt: skip
def test_patches_with_contiguous_columns_are_not_packed(
    dims: str, left: tuple[int, ...], right: tuple[int, ...], padding: int, read: str
) -> None:
    """These are positions in NCHW layouts."""
    names = selected_kernels(dims, left, right, padding=((padding, padding),) * (len(left) - 2))
    products = [name for name in names if name.startswith("packed_gemm")]
    assert products
    assert all(read in name for name in products)


def selected_kernels(
    dims: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    machine: HostDescription = ZEN_5,
    **given: Any,
) -> list[str]:
    """Return the names of the kernels that are selected for a convolution."""
    types = [TensorType(shape, "f32") for shape in (left, right)]
    op = make_op(convolution, *types, **attributes(len(left) - 2, dims, **given))
    return selected_kernel_names(RULES["convolution"], op, machine)


@pytest.mark.parametrize("filter", ["io", "oi"])
@pytest.mark.parametrize("features", [1, 3])
def test_convolutions_to_few_features_use_inner_products(features: int, filter: str) -> None:
    """Register tiles would consist of mostly empty vectors of columns."""
    right = (3, 3, 32, features) if filter == "io" else (3, 3, features, 32)
    names = selected_kernels(
        f"b01f,01{filter}->b01f", (2, 16, 16, 32), right, padding=((1, 1), (1, 1))
    )
    copies = features > 1 and filter == "io"
    assert [name.partition("_")[0] for name in names[:-1]] == ["moves"] * copies
    assert names[-1].startswith("patch_inner_product")


def test_runs_of_taps_merge_if_contiguous_in_the_filter_copy() -> None:
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, (1, 3, 3, 3), "f32"), random_elements(rng, (1, 3, 3, 2), "f32")
    x = x.transpose(2, 0, 1, 3)  # one run of positions and features
    check_convolution(x, w, attributes(2, "0b1f,o0i1->bf01"))


@pytest.mark.parametrize(
    ("dims", "left", "right"),
    [("b01f,01io->b01f", (2, 14, 14, 40), (3, 3, 1, 40)),
     ("bf01,oi01->bf01", (2, 40, 14, 14), (40, 1, 3, 3))],
)  # fmt: skip
def test_depthwise_kernels_reuse_elements(
    dims: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """A tile has several positions or rows of positions, which share the elements of the filter.
    Taps that read the same elements of the image are unrolled if those are close to each other."""

    def find_tile(strides: int, dilation: int) -> tuple[str, str, str]:
        (name,) = selected_kernels(
            dims, left, right, groups=40, padding=((1, 1), (1, 1)), strides=(strides,) * 2,
            rhs_dilation=(dilation,) * 2,
        )  # fmt: skip
        kind, _, size, *_ = name.split("_")
        return kind, size, name.partition("_run")[2]

    # All seven positions of a row are in one tile, so that it has three rows of positions.
    vectors, half = (3, "3x7x1") if dims == "b01f,01io->b01f" else (1, "7x1")
    assert find_tile(1, 1) == ("depthwise", f"7x{vectors}", "3_1_1")
    assert find_tile(2, 1) == ("depthwise", half, "3_2_1")
    assert find_tile(1, 2) == ("depthwise", f"6x{vectors}", "3_1_2")
    assert find_tile(1, 3) == ("depthwise", f"5x{vectors}", "")


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i8", "i32"])
def test_depthwise_convolutions_of_all_real_types_are_not_packed(dtype: str) -> None:
    """Without the depthwise kernel, they take 60 times as long."""
    rng = np.random.default_rng(0)
    shapes = (2, 14, 14, 40), (3, 3, 1, 40)
    attrs = attributes(2, "b01f,01io->b01f", groups=40, padding=((1, 1), (1, 1)))
    x, w = (random_elements(rng, shape, dtype) for shape in shapes)
    op = make_op(convolution, *(TensorType(shape, dtype) for shape in shapes), **attrs)
    (name,) = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert name.startswith(f"depthwise_{dtype}_")
    check_convolution(x, w, attrs)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_long_depthwise_sums_of_half_precision_are_rounded_once(dtype: str) -> None:
    """Sums of more taps than a table holds are stored as f32 in between."""
    rng, shape = np.random.default_rng(0), (1, 97, 97, 16)
    x, w = random_elements(rng, shape, dtype), random_elements(rng, shape, dtype)
    attrs = attributes(2, "f01b,i01o->01bf", batch_groups=16, padding=((1, 1), (0, 0)))
    op = make_op(convolution, *(TensorType(shape, dtype) for _ in range(2)), **attrs)
    first, last = selected_kernel_names(RULES["convolution"], op, ZEN_5)
    assert first.startswith(f"depthwise_{dtype}_f32_")
    assert last.startswith("moves_cast")
    single = check_convolution(x.astype(np.float32), w.astype(np.float32), attrs)
    np.testing.assert_array_equal(check_convolution(x, w, attrs), single.astype(x.dtype))


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_an_image_of_only_padding_gives_zeros(size: tuple[int, int]) -> None:
    attrs = attributes(2, "b01f,01io->b01f", padding=((3, 0), (2, 3)))
    x, w = np.ones((2, *size, 1), np.float32), np.ones((3, 2, 1, 32), np.float32)
    assert not check_convolution(x, w, attrs).any()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_long_filters_ignore_elements_outside_of_their_window(dtype: str) -> None:
    """Taps outside of the image must not contribute to a sum: zero times infinity is NaN."""
    attrs = attributes(1, "bf0,oi0->bf0", padding=((15, 16),))
    rng = np.random.default_rng(0)
    x, w = random_elements(rng, (1, 1, 1000), dtype), random_elements(rng, (1, 1, 32), dtype)
    w[w == 0] = 1
    x[0, 0, [5, 100, 101, 600]] = np.inf, -np.inf, np.nan, np.inf
    op = make_op(convolution, *(TensorType(a.shape, dtype) for a in (x, w)), **attrs)
    out = np.full(op.result.type.shape, 7, NUMPY_DTYPES[dtype])
    phases = lower_and_run(RULES["convolution"], op, [x, w], [out])
    assert phases is not None
    affected = np.zeros(1000, bool)
    for place in (5, 100, 101, 600):
        affected[max(0, place - 16) : place + 16] = True
    np.testing.assert_array_equal(np.isfinite(out[0, 0]), ~affected)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("dims", ["b01f,01io->b01f", "bf01,01io->bf01"])
@pytest.mark.parametrize("features", [3, 40])
def test_zeros_between_elements_of_an_image_are_not_multiplied(
    features: int, dims: str, dtype: str
) -> None:
    """The middle of the filter is NaN: results at other positions than those of elements are
    finite."""
    x = np.ones((1, 5, 5, 20) if dims.startswith("b01f") else (1, 20, 5, 5), NUMPY_DTYPES[dtype])
    w = np.ones((3, 3, 20, features), x.dtype)
    w[1, 1, 7] = np.nan
    attrs = attributes(2, dims, padding=((1, 1), (1, 1)), lhs_dilation=(2, 2))
    op = make_op(convolution, *(TensorType(a.shape, dtype) for a in (x, w)), **attrs)
    (got,) = run_rule(RULES["convolution"], op, [x, w], LAYOUT_RULES["convolution"])
    got = np.moveaxis(got, dims.partition("->")[2].index("f"), -1)
    is_element = np.logical_and.outer(*(np.arange(9) % 2 == 0 for _ in "01"))
    np.testing.assert_array_equal(np.isnan(got[0]), np.repeat(is_element[..., None], features, 2))


def test_two_output_features_per_group_are_lanes() -> None:
    """Both output features read the same image element."""
    right = (3, 3, 1, 80)
    (name,) = selected_kernels("b01f,01io->b01f", (2, 14, 14, 40), right, groups=40)
    assert name.startswith("depthwise")
    assert "_each2_" in name


@pytest.mark.parametrize(
    ("machine", "dims", "side", "given", "transposed"),
    [(ZEN_5, "bf01,io01->bf01", 28, {}, True), (ZEN_3, "bf01,oi01->bf01", 28, {}, True),
     (ZEN_3, "bf01,oi01->bf01", 14, {}, True), (ZEN_5, "bf01,oi01->bf01", 14, {}, False),
     (ZEN_5, "bf01,01io->bf01", 14, {}, False), (ZEN_5, "b01f,io01->b01f", 28, {}, False),
     (ZEN_5, "bf01,io01->bf01", 28, {"groups": 2}, False),
     (ZEN_5, "bf01,oi01->bf01", 28, {"lhs_dilation": (2, 2)}, True),
     (ZEN_5, "bf01,oi01->bf01", 28, {"strides": (3, 3)}, True)],
)  # fmt: skip
def test_images_are_transposed_to_make_features_contiguous(
    machine: HostDescription, dims: str, side: int, given: dict[str, Any], transposed: bool
) -> None:
    """Gradients and large strides, without AVX-512 also small images: the operands are transposed
    before, and the result after."""
    left, right = dims.partition("->")[0].split(",")
    sizes = {"b": 8, "f": 64, "0": side, "1": side, "i": 64 // given.get("groups", 1), "o": 64}
    window = sizes | {"0": 3, "1": 3}
    shapes = tuple(sizes[c] for c in left), tuple(window[c] for c in right)
    names = selected_kernels(dims, *shapes, machine, padding=((1, 1), (1, 1)), **given)
    copies = [i for i, name in enumerate(names) if re.match("moves_copy_(split_)?tiles4", name)]
    assert copies == ([0, 1, len(names) - 1] if transposed else [])
    assert any("straight" in name for name in names) or not transposed


def test_images_of_1x1_filters_and_of_depthwise_convolutions_are_not_transposed() -> None:
    image, dims = (2, 1024, 28, 28), "bf01,oi01->bf01"
    names = selected_kernels(dims, image, (1024, 1024, 1, 1), strides=(3, 3))
    names += selected_kernels(dims, image, (1024, 1, 3, 3), groups=1024)
    assert not any(name.startswith("moves") for name in names)


def test_images_of_few_features_are_not_transposed() -> None:
    """The copies take more than a tenth of the time of the products."""
    few = selected_kernels("bf01,oi01->bf01", (8, 8, 28, 28), (8, 8, 3, 3))
    assert not any(name.startswith("moves") for name in few)


@pytest.mark.parametrize(
    ("dims", "image", "filter", "given"),
    [("fb01,io01->bf01", (2, 40, 14, 14), (2, 40, 14, 14), {"batch_groups": 40}),
     ("bf01,oi01->bf01", (2, 40, 14, 14), (40, 1, 3, 3),
      {"groups": 40, "lhs_dilation": (2, 2)})],
)  # fmt: skip
def test_channels_are_made_contiguous_for_gradients_of_depthwise_convolutions(
    dims: str, image: tuple[int, ...], filter: tuple[int, ...], given: dict[str, Any]
) -> None:
    names = selected_kernels(dims, image, filter, padding=((1, 1), (1, 1)), **given)
    kinds = [name.partition("_")[0] for name in names]
    assert kinds == ["moves"] * 2 + ["depthwise"] * (len(kinds) - 3) + ["moves"]


def test_a_large_filter_of_a_small_image_is_read_in_place() -> None:
    names = selected_kernels(
        "bf01,oi01->bf01", (1, 256, 7, 7), (256, 256, 3, 3), padding=((1, 1),) * 2
    )
    assert not any(name.startswith("moves") for name in names)


def test_a_gradient_of_a_1x1_filter_needs_no_copy() -> None:
    shape = (8, 64, 14, 14)
    names = selected_kernels("fb01,io01->bf01", shape, shape)
    assert not any(name.startswith("moves") for name in names)


@pytest.mark.parametrize("inputs", [16, 0])
def test_strided_filters_may_be_broadcast_over_the_window(inputs: int) -> None:
    """The filter is broadcast over the window, with or without input features."""
    rng = np.random.default_rng(0)
    x, each = (
        random_elements(rng, (2, inputs, 16, 30), "f32"),
        random_elements(rng, (24, 2 * inputs), "f32"),
    )
    w = np.broadcast_to(each[:, ::2, None, None], (24, inputs, 3, 3))
    check_convolution(x, w, attributes(2, "bf01,oi01->bf01", padding=((1, 1), (1, 1))))


@pytest.mark.parametrize(("window", "steps"), [(3, [3, 3, 3]), (7, [3, 7, 7])])
def test_inner_loops_avoid_contiguous_positions_that_cross_the_border(
    window: int, steps: list[int]
) -> None:
    """Positions of a row are contiguous in NCHW layouts, so the inner loop runs over channels or
    rows of taps."""
    image = TensorType((2, 3, 30, 31), "f32")
    attrs = attributes(2, "bf01,oi01->bf01", padding=((window // 2,) * 2,) * 2)
    op = make_op(convolution, image, TensorType((8, 3, window, window), "f32"), **attrs)
    views = [
        BufferView(slot, 0, type.shape, row_major_strides(type), "f32")
        for slot, type in enumerate([*(v.type for v in op.operands), op.result.type], 1)
    ]
    (work,) = convolution_products(op.attrs, views[0], views[1], views[2], ZEN_5)
    assert [loop.extent for loop in work.inner] == steps
    assert work.inner[-1].lhs != 4
