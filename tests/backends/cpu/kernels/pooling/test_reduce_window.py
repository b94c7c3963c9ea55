"""Window reductions and their gradients."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.kernels.pooling import reduce_window, select_and_scatter
from shardir.ir.operation import OPS, Symbol
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.random_layouts import random_array
from tests.backends.cpu.kernels.reference_check import (
    check_against_reference,
    random_operations,
    reference_results,
)
from tests.backends.cpu.phase_runner import make_op, run_rule
from tests.op_evaluation import infer_types

pytestmark = pytest.mark.sample(2)

RULES = {**reduce_window.RULES, **select_and_scatter.RULES}


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=100)
@given(st.data())
def test_window_operations_equal_the_reference(name: str, data: st.DataObject) -> None:
    op = data.draw(random_operations([name]))
    exact = op.attrs["op"] in ("max", "min") or op.results[0].type.numpy.kind in "iu"
    narrow = op.results[0].type.numpy.itemsize == 2
    tolerance = 1e-300 if exact else 1e-2 if narrow else 1e-5
    done = check_against_reference(data, RULES, op, tolerance=tolerance)
    assert done or op.operands[-1].type.size == 0


@pytest.mark.parametrize("op", ["add", "max", "min", "mul"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "u8", "f64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_windows_of_all_kinds_equal_the_reference(op: str, dtype: str, order: str) -> None:
    shape = (2, 9, 8, 70)
    x = (random_array("i8", shape) % 3).astype(TensorType((), dtype).numpy)
    if order == "F":
        x = np.asfortranarray(x)
    applied = make_op(
        OPS["reduce_window"],
        TensorType(shape, dtype),
        op=Symbol(op),
        window=(1, 3, 2, 1),
        strides=(1, 2, 1, 1),
        padding=((0, 0), (1, 2), (-1, 3), (0, 0)),
        base_dilation=(1, 2, 1, 1),
        window_dilation=(1, 2, 3, 1),
    )
    (out,) = run_rule(RULES["reduce_window"], applied, [x])
    want = reference_results(applied, [x])[0]
    np.testing.assert_array_equal(out.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "f64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_select_and_scatter_of_overlapping_windows_matches_the_reference(
    op: str, dtype: str, order: str
) -> None:
    shape, to = (2, 9, 8, 70), TensorType((), dtype).numpy
    attrs = {
        "op": Symbol(op),
        "window": (1, 3, 2, 1),
        "strides": (1, 2, 1, 1),
        "padding": ((0, 0), (1, 2), (-1, 3), (0, 0)),
        "base_dilation": (1, 1, 1, 1),
        "window_dilation": (1, 2, 3, 1),
    }
    x = random_array(dtype, shape) if dtype != "i32" else random_array("i8", shape).astype(to) % 3
    type = TensorType(shape, dtype)
    places = infer_types(OPS["reduce_window"], type, **attrs)
    source = random_array("i8", places.shape, 1).astype(to)
    if order == "F":
        x, source = np.asfortranarray(x), np.asfortranarray(source)
    applied = make_op(OPS["select_and_scatter"], type, places, **attrs)
    (out,) = run_rule(RULES["select_and_scatter"], applied, [x, source])
    want = reference_results(applied, [x, source])[0]
    np.testing.assert_array_equal(out.astype(np.float64), want.astype(np.float64))
