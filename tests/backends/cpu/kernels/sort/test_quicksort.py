"""Vectorized quicksort: correct bits for many patterns, in lines and in buckets."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernel_api import BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.sort import quicksort, samplesort
from shardir.backends.cpu.kernels.sort.quicksort import quicksort_phases
from shardir.backends.cpu.kernels.sort.samplesort import (
    compress_sort_phases,
    is_compress_sort_faster,
    samplesort_phases,
)
from shardir.backends.cpu.kernels.sort.sort_keys import has_compress
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import Array, random_array
from tests.backends.cpu.kernels.reference_check import assert_equal_bits, reference_results
from tests.backends.cpu.phase_runner import RuleHarness, make_op

PhaseFactory = Callable[[BufferView, BufferView, int, LoweringContext], Sequence[Phase] | None]

DTYPES = [
    name
    for name, dtype in NUMPY_DTYPES.items()
    if dtype.kind != "c" and name not in KEYS and has_compress(dtype.itemsize, host_machine())
]
if not DTYPES:
    pytest.skip("the processor does not pack lanes", allow_module_level=True)


def sort_lines(
    x: BufferView, y: BufferView, dim: int, context: LoweringContext
) -> Sequence[Phase] | None:
    return quicksort_phases(x, y, dim, (), context)


def sort_any_layout(
    x: BufferView, y: BufferView, dim: int, context: LoweringContext
) -> Sequence[Phase] | None:
    return compress_sort_phases(x, y, dim, (), context)


def sort_with(make: PhaseFactory, x: Array, dtype: str, workers: int = 2) -> Array:
    bench = RuleHarness(workers)
    out = np.full(x.size + 64, 7).astype(x.dtype)  # reveals writes beyond the end
    line = out[: x.size].reshape(x.shape)
    source = bench.view(x, dtype)
    bench.buffers.append(out)
    phases = make(source, BufferView(2, 0, x.shape, line.strides, dtype), x.ndim - 1, bench)
    assert phases is not None
    bench.run(phases)
    assert (out[x.size :] == np.full(1, 7).astype(x.dtype)).all()
    return line


def sorted_keys(x: Array) -> Array:
    """Return the sorted keys, with zeros with a sign before other zeros."""
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x
    if wide.dtype.kind != "f":
        return np.sort(x, axis=-1)
    return np.take_along_axis(x, np.lexsort((~np.signbit(wide), wide), axis=-1), -1)


def patterns(count: int, dtype: str) -> dict[str, Array]:
    random = np.random.default_rng(count)
    rising = np.arange(count)
    kind: Any = NUMPY_DTYPES[dtype]
    whole = kind.kind in "iu"
    low, high = (np.iinfo(kind).min, np.iinfo(kind).max) if whole else (-np.inf, np.inf)
    normal = random.normal(size=count) * 1e4
    some = {
        "normal": normal,
        "rising": rising,
        "falling": rising[::-1],
        "organ pipes": np.minimum(rising, rising[::-1]),
        "saw": rising % 17,
        "equal": np.full(count, 3),
        "few": random.integers(0, 5, count),
        "nearly equal": np.where(random.random(count) < 0.9, 7, normal),
    }
    with np.errstate(all="ignore"):
        made = {
            name: (abs(x) if dtype[0] == "u" else x).astype(np.int64 if whole else float)
            for name, x in some.items()
        }
        made = {name: x.astype(kind) for name, x in made.items()}
    for name, end in (("least", low), ("largest", high)):
        made[name] = np.full(count, end, kind)
        made[f"some {name}"] = np.where(random.random(count) < 0.4, made[name], made["normal"])
    if not whole:
        ends = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1, -1]).astype(kind)
        made["ends"] = ends[random.integers(0, ends.size, count)]
    return made


LENGTHS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 127, 128, 129, 255, 256, 257, 511, 512]
LENGTHS += [513, 700, 1023, 1024, 1025, 2047, 2049, 4100, 9999, 40_003]


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", LENGTHS)
def test_lines_of_every_pattern_are_sorted(dtype: str, count: int) -> None:
    for name, x in patterns(count, dtype).items():
        out = sort_with(sort_lines, x, dtype)
        assert_equal_bits(out, sorted_keys(x), name)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [32_768, 50_001, 262_144 + 33])
@pytest.mark.parametrize("workers", [1, 3])
def test_buckets_of_every_pattern_are_sorted(dtype: str, count: int, workers: int) -> None:
    for name, x in patterns(count, dtype).items():
        out = sort_with(samplesort_phases, x, dtype, workers)
        assert_equal_bits(out, sorted_keys(x), name)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_keys_are_sorted(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    kind: Any = NUMPY_DTYPES[dtype]
    word = np.dtype(f"i{kind.itemsize}")
    limits = np.iinfo(word)
    words = data.draw(st.lists(st.integers(int(limits.min), int(limits.max)), min_size=1))
    times = data.draw(st.integers(1, 200))
    x = np.tile(np.array(words, word), times).view(kind)
    assert_equal_bits(sort_with(sort_lines, x, dtype), sorted_keys(x))


def test_bad_partitions_fall_back_to_the_sorting_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run time is bounded: without recursion levels, the sorting network sorts everything."""
    monkeypatch.setattr(quicksort, "max_partitions", lambda steps: 0)
    for count in (1, 1000, 5000, 12_345):
        for x in patterns(count, "i32").values():
            assert_equal_bits(sort_with(sort_lines, x, "i32"), sorted_keys(x))


def test_buckets_larger_than_scratch_memory_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(-(2**62), 2**62, 1_300_000)
    monkeypatch.setattr(samplesort, "MIN_BUCKETS", 1)
    monkeypatch.setattr(samplesort, "MAX_BUCKETS", 1)
    assert_equal_bits(sort_with(samplesort_phases, x, "i64", 1), np.sort(x))


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 700), (9, 1100), (1, 1, 40_000), (2, 150_000)])
def test_zeros_of_both_signs_keep_their_order(dtype: str, shape: tuple[int, ...]) -> None:
    x = random_array(dtype, shape)
    want = reference_results(
        make_op(OPS["sort"], TensorType(shape, dtype), dim=len(shape) - 1), [x]
    )[0]
    assert_equal_bits(sort_with(sort_any_layout, x, dtype), want)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [3, 1000, 30_000])
def test_partial_sorts_place_the_requested_positions(dtype: str, count: int) -> None:
    wanted = sorted({0, count // 3, count // 2, count - 2, count - 1})
    for x in patterns(count, dtype).values():
        out = sort_with(lambda x, y, dim, own: quicksort_phases(x, y, dim, wanted, own), x, dtype)
        assert_equal_bits(out[wanted] + 0, sorted_keys(x)[wanted] + 0)


def test_many_short_or_strided_lines_use_other_kernels() -> None:
    bench = RuleHarness(2)
    x, y = np.zeros((10, 64), np.float32), np.zeros((10, 64), np.float32)
    a, b = bench.view(x), bench.view(y)
    assert not is_compress_sort_faster("f32", 10, 64, False, bench)
    assert compress_sort_phases(a, b, 1, (), bench) is not None
    wide = np.zeros((3, 900, 2), np.float32)
    gaps = bench.view(wide[..., 0])
    dense = bench.view(np.zeros((3, 900), np.float32))
    assert compress_sort_phases(gaps, dense, 1, (), bench) is None
    small = bench.view(np.zeros(900, np.int8))
    assert compress_sort_phases(small, small, 0, (), bench) is None
