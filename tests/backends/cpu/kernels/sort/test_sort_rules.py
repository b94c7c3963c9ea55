"""Sorts of lines in SIMD lanes equal the reference; zeros keep their order."""

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.sort import samplesort
from shardir.backends.cpu.kernels.sort.argsort import argsort_phases
from shardir.backends.cpu.kernels.sort.network_lines import word_type
from shardir.backends.cpu.kernels.sort.sort_rules import RULES
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import Array, random_array
from tests.backends.cpu.kernels.reference_check import assert_equal_bits, reference_results
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import (
    RuleHarness,
    lower_and_run,
    make_op,
    run_rule,
    selected_kernel_names,
)
from tests.dtype_groups import DTYPES

REAL_DTYPES = [name for name in DTYPES if NUMPY_DTYPES[name].kind != "c" and name not in KEYS]


@pytest.fixture
def no_lane_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a processor without instructions that pack lanes."""
    monkeypatch.setattr(samplesort, "has_compress", lambda size, machine: False)


@pytest.mark.usefixtures("no_lane_packing")
def test_a_sort_of_words_that_is_not_possible_takes_no_memory() -> None:
    bench = RuleHarness()
    x, y = np.zeros((3, 700), np.float32), np.zeros((3, 700), np.int32)
    views = bench.view(x), bench.view(y)
    assert argsort_phases(*views, 1, None, bench) is None
    assert len(bench.buffers) == 2


def check(x: Array, dtype: str, dim: int) -> None:
    op = make_op(OPS["sort"], TensorType(x.shape, dtype), dim=dim)
    out = np.zeros_like(x)
    assert lower_and_run(RULES["sort"], op, [x], [out]) is not None
    assert_equal_bits(out, reference_results(op, [x])[0])


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize("shape", [(40, 100), (5, 33), (17, 1), (4, 300)])
def test_sorted_lines_equal_the_reference(dtype: str, shape: tuple[int, ...]) -> None:
    """The lines have many equal elements, zeros of both signs, NaN and infinities."""
    x = random_array(dtype, shape)
    check(x, dtype, 1)
    check(x.T.copy(), dtype, 0)
    check(x[::2, ::-1] if shape[0] > 8 else x[:, ::-1], dtype, 1)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "dtype", [name for name in REAL_DTYPES if NUMPY_DTYPES[name].itemsize <= 4]
)
@pytest.mark.parametrize("shape", [(40, 100), (5, 33), (4, 300)])
def test_other_operands_are_permuted_by_the_keys(dtype: str, shape: tuple[int, ...]) -> None:
    x, y = random_array(dtype, shape), random_array("c128", shape)
    places = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    types = [TensorType(shape, name) for name in (dtype, "i32", "c128")]
    for turn in (False, True):
        arrays = [np.asfortranarray(a) if turn else a for a in (x, places, y)]
        op = make_op(OPS["sort"], *types, dim=1)
        outs = [np.zeros_like(a, order="F" if turn else "C") for a in arrays]
        assert lower_and_run(RULES["sort"], op, arrays, outs) is not None
        for out, want in zip(outs, reference_results(op, arrays), strict=True):
            assert_equal_bits(out, want)


@pytest.mark.sample(3)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("shape", [(40, 100), (2, 16), (1, 5000), (9, 1)])
def test_several_keys_are_sorted_lexicographically(
    shape: tuple[int, ...], alone: bool, count: int
) -> None:
    """Each key has many equal elements; elements with equal keys keep their order."""
    dtypes = ["u8", "f32", "bf16"] if shape[0] > 2 else ["bool", "f64", "i64"]
    dtypes = dtypes[:count]
    places = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
    rng = np.random.default_rng(count)
    rows = [rng.integers(0, 4, shape).astype(NUMPY_DTYPES[name]) for name in dtypes]
    rows[1][rows[1] == 1] = np.nan
    rows[1][:, ::3] *= -1
    arrays = [*rows, places, random_array("c64", shape)]
    types = [TensorType(shape, name) for name in (*dtypes, "i32", "c64")]
    for dim, turn in ((1, False), (0, True)):
        given = [a.T for a in arrays] if turn else arrays
        kinds = [TensorType(a.shape, t.dtype) for a, t in zip(given, types, strict=True)]
        more = {"order": count} if alone else {}
        op = make_op(OPS["sort"], *kinds, dim=dim, keys=count, **more)
        outs = [np.zeros_like(a) for a in given]
        assert lower_and_run(RULES["sort"], op, given, outs) is not None
        for k, (out, want) in enumerate(zip(outs, reference_results(op, given), strict=True)):
            if not alone or k == count:
                assert_equal_bits(out, want)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "u8", "u32"])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_top_k_equals_the_reference(dtype: str, count: int) -> None:
    x = random_array(dtype, (40, 100))
    if dtype == "f32":
        x = np.where(x != x, np.copysign(x, np.arange(100) % 2 - 0.5).astype(np.float32), x)
    some = (TensorType((40, count), dtype), TensorType((40, count), "i32"))
    op = make_op(OPS["top_k"], TensorType(x.shape, dtype), result=some)
    for out, want in zip(
        run_rule(RULES["top_k"], op, [x]), reference_results(op, [x]), strict=True
    ):
        assert_equal_bits(out, want)


@pytest.mark.usefixtures("no_lane_packing")
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 127, 500, 1030])
def test_lines_of_every_length_are_sorted(length: int) -> None:
    rng = np.random.default_rng(length)
    check(rng.standard_normal((20, length)).astype(np.float32), "f32", 1)
    check(rng.integers(-(2**60), 2**60, (20, length)), "i64", 1)


def test_limits_of_types_are_sorted() -> None:
    x = np.array([2**31 - 1, -(2**31), 0, 2**31 - 1, -1] * 7, np.int32)
    check(np.stack([x] * 5), "i32", 1)
    check(np.stack([x.view(np.uint32)] * 5), "u32", 1)


@pytest.mark.parametrize("dtype", ["f64", "i64", "u64"])
def test_64_bit_positions_of_many_short_lines_are_left_to_numpy(dtype: str) -> None:
    """A word has no space for key and position, and tables cost too much for short lines, so the
    rule has no phases."""
    x, places = random_array(dtype, (5, 33)), np.zeros((5, 33), np.int32)
    types = [TensorType(x.shape, name) for name in (dtype, "i32")]
    outs = [np.zeros_like(x), places]
    assert (
        lower_and_run(RULES["sort"], make_op(OPS["sort"], *types, dim=1), [x, places], outs) is None
    )
    some = (types[0], types[1])
    op = make_op(OPS["top_k"], types[0], result=some)
    assert lower_and_run(RULES["top_k"], op, [x], outs) is None


FEW_OR_LONG_LINES = [
    ((1,), 0),
    ((5,), 0),
    ((3, 700), 1),
    ((300, 3), 0),
    ((5, 530), 1),
    ((100_000,), 0),
]


@pytest.mark.sample(3)
@pytest.mark.usefixtures("no_lane_packing")
@pytest.mark.parametrize("dtype", REAL_DTYPES)
@pytest.mark.parametrize(("shape", "dim"), FEW_OR_LONG_LINES)
def test_few_or_long_lines_are_sorted_by_radix(
    dtype: str, shape: tuple[int, ...], dim: int
) -> None:
    x = random_array(dtype, shape)
    check(x, dtype, dim)
    check(x[::-1], dtype, dim)
    along = [-1 if d == dim else 1 for d in range(len(shape))]
    places = np.broadcast_to(np.arange(shape[dim], dtype=np.int32).reshape(along), shape)
    types = [TensorType(shape, name) for name in (dtype, "i32")]
    for order in ({}, {"order": 1}):
        op = make_op(OPS["sort"], *types, dim=dim, **order)
        outs = [np.zeros_like(x), np.zeros(shape, np.int32)]
        assert lower_and_run(RULES["sort"], op, [x, places], outs) is not None
        for out, want in list(zip(outs, reference_results(op, [x, places]), strict=True))[
            len(order) :
        ]:
            assert_equal_bits(out, want)


@pytest.mark.usefixtures("no_lane_packing")
@pytest.mark.parametrize("dtype", ["f32", "i32", "u64", "i16"])
def test_constant_digits_are_skipped_correctly(dtype: str) -> None:
    """In some lines, all words have one equal digit or are equal."""
    kind = NUMPY_DTYPES[dtype]
    x = np.stack([np.arange(600) % 7, np.full(600, 5), np.arange(600)[::-1]]).astype(kind)
    check(x, dtype, 1)
    check(np.repeat(x, 200, 1), dtype, 1)


@pytest.mark.usefixtures("no_lane_packing")
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_radix_sort_is_stable_for_any_worker_count(workers: int) -> None:
    x = np.random.default_rng(0).integers(-3, 3, 200_000).astype(np.int32)
    places = np.arange(x.size, dtype=np.int32)
    types = [TensorType(x.shape, "i32")] * 2
    op = make_op(OPS["sort"], *types, dim=0, order=1)
    out = np.zeros_like(places)
    assert (
        lower_and_run(RULES["sort"], op, [x, places], [np.zeros_like(x), out], workers) is not None
    )
    assert_equal_bits(out, np.argsort(x, kind="stable").astype(np.int32))


@pytest.mark.parametrize(
    ("dtype", "lines", "steps", "is_partial", "is_faster"),
    [
        ("f32", 1000, 448, False, False), ("f32", 1000, 449, False, True),
        ("f32", 4, 65, False, True), ("f32", 4, 64, False, False), ("f32", 3, 64, False, True),
        ("f64", 1000, 2048, False, False), ("f64", 1000, 2048, True, True),
        ("i16", 1000, 448, False, False), ("i16", 1000, 449, False, True),
        ("i8", 1, 10_000, False, False),
    ],
)  # fmt: skip
def test_quicksort_is_used_for_long_or_few_lines(
    dtype: str, lines: int, steps: int, is_partial: bool, is_faster: bool
) -> None:
    context = RuleHarness(machine=ZEN_5)
    assert samplesort.is_compress_sort_faster(dtype, lines, steps, is_partial, context) == is_faster


@pytest.mark.parametrize("machine", [ZEN_3, ZEN_5])
@pytest.mark.parametrize(("dtype", "steps"), [("i8", 512), ("i16", 1024), ("u16", 5000)])
def test_permutations_of_short_keys_are_computed_by_radix_sort(
    machine: HostDescription, dtype: str, steps: int
) -> None:
    types = [TensorType((64, steps), name) for name in (dtype, "i32")]
    op = make_op(OPS["sort"], *types, dim=1, order=1)
    names = selected_kernel_names(RULES["sort"], op, machine)
    assert all(name.startswith("moves_radix") for name in names)


@pytest.mark.parametrize(
    ("dtype", "lines", "elements", "is_network"),
    [
        ("i16", 16, 1 << 14, True),
        ("i16", 16, 1 << 15, False),
        ("i16", 4, 1 << 12, True),
        ("i16", 4, 1 << 13, False),
        ("bf16", 16, 1 << 14, True),
        ("u8", 16, 1 << 12, True),
        ("u8", 16, 1 << 13, False),
        ("f32", 4, 1 << 15, True),
    ],
)
def test_the_network_sorts_lines_of_short_keys_that_fill_the_lanes(
    dtype: str, lines: int, elements: int, is_network: bool
) -> None:
    op = make_op(OPS["sort"], TensorType((lines, elements), dtype), dim=1)
    names = selected_kernel_names(RULES["sort"], op, ZEN_3)
    assert (names == [f"moves_sort_tiles_{dtype}"]) == is_network


def test_the_network_compares_short_keys_as_words_of_16_bits() -> None:
    types = {dtype: word_type(dtype, "") for dtype in ("bool", "i8", "u16", "bf16", "f32", "i64")}
    assert types == {
        "bool": "i16", "i8": "i16", "u16": "i16", "bf16": "i16", "f32": "i32", "i64": "i64",
    }  # fmt: skip
    assert word_type("i16", "places") == "i64"
