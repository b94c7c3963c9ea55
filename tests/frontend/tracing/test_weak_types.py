"""Results of operations have the weak types of operands, those of marked functions have none."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
from shardir import eval_shape, jit, lax, numpy as snp, typeof
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.pytree import tree
from tests.optional_dependencies import require

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


LIKE_JAX: dict[str, Callable[[Any, Any, Any], Any]] = {
    "angle": lambda np_, nn_, x: np_.angle(x),
    "polyint": lambda np_, nn_, x: np_.polyint(x),
    "polydiv": lambda np_, nn_, x: np_.polydiv(x, x[:2]),
    "gradient": lambda np_, nn_, x: np_.gradient(x, x),
    "gradient of given coordinates": lambda np_, nn_, x: np_.gradient(x, np_.arange(3.0)),
    "roll": lambda np_, nn_, x: np_.roll(x, np_.asarray([1])),
    "soft_sign": lambda np_, nn_, x: nn_.soft_sign(x),
    "softplus": lambda np_, nn_, x: nn_.softplus(x),
    "mish": lambda np_, nn_, x: nn_.mish(x),
    "argpartition": lambda np_, nn_, x: np_.argpartition(x.real, 1),
    "histogram2d": lambda np_, nn_, x: np_.histogram2d(x.real, x.real, bins=[x.real, x.real]),
    "setdiff1d": lambda np_, nn_, x: np_.setdiff1d(x, np_.zeros(2, complex), size=2),
}


@pytest.mark.parametrize("name", LIKE_JAX)
@pytest.mark.parametrize("number", [True, 1, 1.0, 1j])
def test_weak_types_of_functions_are_those_of_jax(name: str, number: complex) -> None:
    require("jax")
    import jax

    def results(top: Any, numpy: Any, nn: Any) -> list[tuple[object, bool]]:
        x = numpy.stack([numpy.asarray(number)] * 3)
        return [
            (np.dtype(leaf.dtype), leaf.weak_type)
            for leaf in tree.leaves(top.eval_shape(lambda: LIKE_JAX[name](numpy, nn, x)))
        ]

    if number is True and name == "argpartition":
        return  # JAX refuses bools.
    found = results(shardir, snp, shardir.nn)
    expected = results(jax, jax.numpy, jax.nn)
    if name == "setdiff1d":
        found, expected = ([(dtype, False) for dtype, _ in each] for each in (found, expected))
    assert found == expected
