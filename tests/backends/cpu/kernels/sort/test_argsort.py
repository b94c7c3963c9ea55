"""argsort with packed words: stable for equal keys, and signs of elements are preserved."""

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.sort.argsort import argsort_phases
from shardir.backends.cpu.kernels.sort.sort_keys import has_compress
from shardir.backends.cpu.kernels.sort.sort_rules import RULES
from shardir.backends.cpu.kernels.sort.tuning import MIN_RADIX_ARGSORT_ELEMENTS
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import random_array
from tests.backends.cpu.kernels.reference_check import assert_equal_bits, reference_results
from tests.backends.cpu.phase_runner import RuleHarness, lower_and_run, make_op
from tests.dtype_groups import DTYPES

if not has_compress(8, host_machine()):
    pytest.skip("the processor does not pack lanes", allow_module_level=True)

NARROW_DTYPES = [
    name for name in DTYPES if NUMPY_DTYPES[name].kind != "c" and NUMPY_DTYPES[name].itemsize <= 4
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", NARROW_DTYPES)
@pytest.mark.parametrize(
    ("shape", "dim"), [((5,), 0), ((3, 700), 1), ((300, 3), 0), ((9, 530), 1), ((70_000,), 0)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_other_operands_are_permuted_by_the_keys(
    dtype: str, shape: tuple[int, ...], dim: int, turned: bool
) -> None:
    x, y = random_array(dtype, shape), random_array("c128", shape, 3)
    types = [TensorType(shape, name) for name in (dtype, "c128")]
    op = make_op(OPS["sort"], *types, dim=dim)
    arrays = [np.asfortranarray(a) if turned else a for a in (x, y)]
    outs = [np.zeros_like(a, order="F" if turned else "C") for a in arrays]
    assert lower_and_run(RULES["sort"], op, arrays, outs, 3) is not None
    for out, want in zip(outs, reference_results(op, arrays), strict=True):
        assert_equal_bits(out, want)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u32"])
@pytest.mark.parametrize("count", [1, 2, 1000, 40_001])
@pytest.mark.parametrize("most", [1, 3, 10**9])
def test_positions_and_elements_match_numpy(dtype: str, count: int, most: int) -> None:
    random = np.random.default_rng(count)
    x = random.integers(0, most, count).astype(NUMPY_DTYPES[dtype])
    if dtype != "u32":
        x = np.where(random.random(count) < 0.5, -x, x)
    bench = RuleHarness(2)
    places, values = np.zeros(count, np.int32), np.zeros_like(x)
    views = [bench.view(each) for each in (x, places, values)]
    phases = argsort_phases(views[0], views[1], 0, views[2], bench)
    assert phases is not None
    bench.run(phases)
    want = np.argsort(x, kind="stable").astype(np.int32)
    assert_equal_bits(places, want)
    assert_equal_bits(values, x[want])


@pytest.mark.parametrize(("dtype", "count"), [("f64", 9), ("f32", MIN_RADIX_ARGSORT_ELEMENTS[4])])
def test_64_bit_keys_and_long_lines_use_other_kernels(dtype: str, count: int) -> None:
    bench = RuleHarness(2)
    x, y = (bench.view(np.zeros(count, each)) for each in (NUMPY_DTYPES[dtype], np.int32))
    assert argsort_phases(x, y, 0, None, bench) is None
