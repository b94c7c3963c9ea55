"""argmax and argmin: the first NaN, or the first of equal extrema."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.kernels.selection import argminmax
from shardir.backends.cpu.kernels.selection.argminmax import RULES
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OPS
from shardir.ir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.kernels.random_layouts import random_array
from tests.backends.cpu.kernels.reference_check import (
    check_against_reference,
    random_operations,
    reference_results,
)
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import lower_and_run, make_op, run_rule, selected_kernels
from tests.dtype_groups import DTYPES

ORDERED_DTYPES = [name for name in DTYPES if NUMPY_DTYPES[name].kind != "c" and name not in KEYS]


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=60)
@given(st.data())
def test_argminmax_equals_the_reference(name: str, data: st.DataObject) -> None:
    assert check_against_reference(data, RULES, data.draw(random_operations([name])))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("dtype", ORDERED_DTYPES)
@pytest.mark.parametrize("shape", [(150, 70), (20, 3000), (131,)])
def test_long_lines_of_few_distinct_values_match_the_reference(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(2)
    plain = (random_array(dtype, shape), rng.integers(0, 2, shape).astype(NUMPY_DTYPES[dtype]))
    for x in plain:
        for dim in range(len(shape)):
            left = tuple(n for d, n in enumerate(shape) if d != dim)
            for to in ("i32", "i64", "u16") if dtype == "f32" else ("i32",):
                result = TensorType(left, to)
                op = make_op(OPS[name], TensorType(shape, dtype), dim=dim, result=result)
                (out,) = run_rule(RULES[name], op, [x])
                np.testing.assert_array_equal(out, reference_results(op, [x])[0])


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("dtype", argminmax.CHUNKED_DTYPES)
@pytest.mark.parametrize("shape", [(40_000,), (2, 3, 9_999), (1, 8192)])
def test_few_long_lines_are_split(
    name: str, dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extremum may be in any part; the first of equal elements wins, and NaN before all
    others."""
    monkeypatch.setattr(argminmax, "PART_BYTES", 1 << 12)
    rng = np.random.default_rng(5)
    op = make_op(OPS[name], TensorType(shape, dtype), dim=len(shape) - 1,
               result=TensorType(shape[:-1], "i32"))  # fmt: skip
    for special in (0, 1, 3):
        x = rng.integers(0, 100, shape).astype(NUMPY_DTYPES[dtype])
        places = rng.integers(0, shape[-1], special)
        x[..., places] = np.nan if dtype[0] == "f" else 101
        out = np.zeros(shape[:-1], np.int32)
        phases = lower_and_run(RULES[name], op, [x], [out], 3)
        assert phases is not None
        assert len(phases) >= 2
        np.testing.assert_array_equal(out, reference_results(op, [x])[0])


@pytest.mark.parametrize("name", sorted(RULES))
def test_argminmax_treats_signed_zeros_as_equal(name: str) -> None:
    for first in (0.0, -0.0):
        x = np.full(5000, first, np.float32)
        x[1000:3000] = -first
        op = make_op(OPS[name], TensorType((5000,), "f32"), dim=0, result=TensorType((), "i32"))
        (out,) = run_rule(RULES[name], op, [x])
        assert out == 0


@pytest.mark.parametrize("cpu", ["skylake-avx512", "znver4"])
def test_lines_are_prefetched_with_wide_registers(cpu: str) -> None:
    """A Zen 4 reads lines faster without prefetches."""
    op = make_op(
        OPS["argmax"], TensorType((20, 3000), "f32"), dim=1, result=TensorType((20,), "i32")
    )
    for machine in (replace(ZEN_5, cpu=cpu), replace(ZEN_3, cpu=cpu)):
        (kernel,) = selected_kernels(RULES["argmax"], op, machine)
        prefetches = machine.vector_bytes == 64 and cpu != "znver4"
        assert ("llvm.prefetch" in kernel.text(machine)) == prefetches
