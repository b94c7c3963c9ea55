"""Results of operations have the weak types of operands, those of marked functions have none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir import eval_shape, jit, lax, numpy as snp, typeof
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.pytree import tree

WEAK = ShapeDtypeStruct((4,), np.float32, weak_type=True)
STRONG = ShapeDtypeStruct((4,), np.float32)


def weak_types(fun: Callable[..., Any], *args: object) -> list[bool]:
    """Return whether each result is weakly typed."""
    return [leaf.weak_type for leaf in tree.leaves(eval_shape(fun, *args))]


def test_an_operation_is_weakly_typed_if_all_operands_are() -> None:
    pad = lambda x, value: lax.pad(x, value, [(1, 1, 0)])  # noqa: E731
    scalar, strong = (
        ShapeDtypeStruct((), np.float32, weak_type=is_weak) for is_weak in (True, False)
    )
    assert weak_types(pad, WEAK, scalar) == [True]
    assert weak_types(pad, WEAK, strong) == [False]
    assert weak_types(pad, STRONG, scalar) == [False]
    assert weak_types(lax.is_finite, WEAK) == [False]
    assert weak_types(lambda x: lax.clamp(0.0, x, 1.0), WEAK) == [True]
    assert weak_types(lambda: lax.iota(np.float32, 3)) == [False]


def test_each_result_of_a_sort_has_the_weak_type_of_its_operand() -> None:
    assert weak_types(lambda x, y: lax.sort((x, y)), WEAK, STRONG) == [True, False]
    assert weak_types(lambda x, y: lax.sort((x, y)), STRONG, WEAK) == [False, True]
    assert weak_types(lax.optimization_barrier, (WEAK, STRONG)) == [True, False]
    assert weak_types(lambda x: lax.top_k(x, 2), WEAK) == [True, True]


def test_reductions_are_weakly_typed_if_operands_and_initial_values_are() -> None:
    def reduce(x: Any, y: Any) -> Any:
        return lax.reduce(x, y[0], lambda a, b: a + b * b, (0,))

    assert weak_types(reduce, WEAK, WEAK) == [True]
    assert weak_types(reduce, WEAK, STRONG) == [False]
    assert weak_types(reduce, STRONG, WEAK) == [False]


@pytest.mark.parametrize("call", [lambda fun: fun, jit])
def test_constants_of_jax_remove_weak_types(call: Callable[..., Any]) -> None:
    scalar = snp.asarray(2.0)
    array = from_numpy(np.ones(4, np.float32), weak=True)
    half = snp.ones(4, snp.bfloat16)
    assert not typeof(call(snp.log10)(scalar)).weak_type
    assert typeof(call(snp.deg2rad)(scalar)).weak_type
    assert not typeof(call(snp.deg2rad)(array)).weak_type
    assert (call(snp.log10)(array) + half).dtype == np.float32
    assert (call(snp.exp)(array) + half).dtype == snp.bfloat16


def test_functions_of_concrete_arrays_remove_weak_types() -> None:
    array: Array = from_numpy(np.ones(4, np.float32), weak=True)
    assert not snp.compress(np.array([True, False]), array).weak_type
    assert not snp.extract(np.array([True] * 4), array).weak_type
