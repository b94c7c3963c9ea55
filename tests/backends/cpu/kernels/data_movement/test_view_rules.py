"""Rules of operations that rearrange data."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir import ops
from shardir.backends.cpu.kernels.data_movement.view_rules import RULES
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.random_layouts import integer_array
from tests.backends.cpu.kernels.reference_check import check_against_reference, random_operations
from tests.backends.cpu.phase_runner import make_op, run_rule


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=40)
@given(st.data())
def test_view_operations_equal_the_reference(name: str, data: st.DataObject) -> None:
    assert check_against_reference(data, RULES, data.draw(random_operations([name])))


def test_a_reshape_without_a_strided_view_copies() -> None:
    x = integer_array((4, 6), "f4")
    op = make_op(ops.reshape, TensorType((6, 4), "f32"), result=TensorType((8, 3), "f32"))
    (out,) = run_rule(RULES["reshape"], op, [x.T], lambda op, views: (1, 0))
    np.testing.assert_array_equal(out, x.T.reshape(8, 3))


def test_pad_matches_numpy() -> None:
    x = TensorType((3, 4), "f32")
    op = make_op(ops.pad, x, x.with_shape(()), low=(1, 0), high=(2, 1), interior=(0, 0))
    x_in = integer_array((3, 4), "f4")
    (out,) = run_rule(RULES["pad"], op, [x_in, np.array(7, np.float32)])
    np.testing.assert_array_equal(out, np.pad(x_in, ((1, 2), (0, 1)), constant_values=7))
