"""Helpers of rules with `symbolic_zeros`."""

import numpy as np
import pytest

import shardir as sd
from shardir import custom_derivatives
from shardir.frontend.errors import ArgumentError


def test_zeros_have_the_tangent_types_of_values() -> None:
    values = {"a": np.ones(3, "f"), "b": np.int32(2)}
    arrays = custom_derivatives.zero_from_primal(values)
    np.testing.assert_array_equal(arrays["a"], np.zeros(3, "f"))
    assert arrays["b"].shape == ()
    assert arrays["b"].dtype == sd.float0
    symbolic = custom_derivatives.zero_from_primal(values, symbolic_zeros=True)
    assert {type(each) for each in symbolic.values()} == {custom_derivatives.SymbolicZero}


def test_plain_values_of_a_forward_rule() -> None:
    primal = custom_derivatives.CustomVJPPrimal
    plain = custom_derivatives.custom_vjp_primal_tree_values([primal(1.0), {"x": primal(2.0)}])
    assert plain == [1.0, {"x": 2.0}]
    with pytest.raises(ArgumentError, match=r"whose leaves are CustomVJPPrimal, got 3\.0"):
        custom_derivatives.custom_vjp_primal_tree_values([3.0])
