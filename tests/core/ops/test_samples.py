"""Properties of every operation, tested over the samples."""

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import Builder, infer_types
from shardir.ir.module import Function, Value
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.op_rules.factors import Factor, FactorKind, FactorRule
from tests.dtype_groups import INEXACT
from tests.op_sample import Array, Sample
from tests.samples import ALL_SAMPLES, SMOOTH, few_of_each, samples_of, some_of_each

pytestmark = some_of_each

each = pytest.mark.parametrize("sample", ALL_SAMPLES, ids=lambda sample: sample.id)


def test_every_operation_has_a_sample() -> None:
    """Exceptions are operations that cannot run alone, and operations without results."""
    apart = {"manual_computation", "opaque", "sharding_group"}
    apart |= {
        "checkpoint",
        "checkpoint-name",
        "custom-jvp",
        "custom-partitioning",
        "custom-vjp",
        "fused",
        "fused_products",
    }
    apart |= {"callback", "inspect-sharding", "pure-callback"}
    apart |= {"pipeline", "pipeline-stage", "staged-pipeline"}
    sampled = {sample.spec.name for sample in ALL_SAMPLES} | apart
    assert [name for name, spec in OPS.items() if name not in sampled and not spec.spmd] == []


def test_few_of_each_includes_the_first_and_the_last() -> None:
    dots, transposes = samples_of("dot"), samples_of("transpose")
    few = few_of_each([*dots, *transposes], long=False)
    assert few == [dots[0], dots[(len(dots) - 1) // 2], dots[-1], *transposes]
    assert few_of_each(dots, long=True) == dots
    assert {s.spec for s in few_of_each(ALL_SAMPLES, long=False)} == {s.spec for s in ALL_SAMPLES}


@each
def test_the_interpreter_returns_the_inferred_types(sample: Sample) -> None:
    function = sample.function()
    results = evaluate(function, sample.arrays())
    for array, value in zip(results, function.body.returns, strict=True):
        assert (array.shape, array.dtype) == (value.type.shape, value.type.numpy)


@each
def test_stated_types_agree_with_inferred_types(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    types = tuple(value.type for value in op.results)
    stated = types[0] if len(types) == 1 else types
    assert infer_types(op.spec, op.operands, stated, op.attrs, op.blocks) == types


@each
def test_factors_multiply_to_the_shapes(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    rule = op.factors()
    if rule is None:
        return
    for value, dims in zip(op.tensors, rule.tensors, strict=True):
        assert len(dims) == value.type.rank
        for size, walked in zip(value.type.shape, dims, strict=True):
            factors = [rule.factors[f] for f in walked]
            if all(factor.kind is FactorKind.PASS for factor in factors):
                assert prod(factor.size for factor in factors) == size


@each
def test_reduction_factors_are_not_in_results(sample: Sample) -> None:
    (op,) = sample.function().body.ops
    rule = op.factors()
    if rule is not None:
        kept = {factor for dims in rule.results for walked in dims for factor in walked}
        assert kept.isdisjoint(rule.of_kind(FactorKind.REDUCE))


COMBINE: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}


def _places(dims: tuple[tuple[int, ...], ...], factor: int) -> list[int]:
    return [d for d, factors in enumerate(dims) if factor in factors]


def _halvable(rule: FactorRule, index: int, factor: Factor) -> bool:
    """Return whether sharding a factor halves its dimension, that is, whether the factor is
    major.
    """
    majors = all(dims[d][0] == index for dims in rule.tensors for d in _places(dims, index))
    combined = factor.kind is FactorKind.PASS or (
        factor.kind is FactorKind.REDUCE and rule.reduction is not None
    )
    return majors and combined and factor.size % 2 == 0 and factor.size > 0


@each
def test_a_sharded_factor_splits_the_operation(sample: Sample) -> None:
    """Two halves of the operands give the two halves of the result.

    Operations with a partitioning rule of their own guarantee less; see
    `tests/passes/test_sharded_evaluation.py`.
    """
    sample = sample.widened() if sample.smooth else sample
    function = sample.function()
    (op,) = function.body.ops
    rule = op.factors()
    if rule is None or sample.blocks is not None or sample.spec.partition is not None:
        return
    arrays = sample.arrays()
    whole = evaluate(function, arrays)
    for index, factor in enumerate(rule.factors):
        if not _halvable(rule, index, factor):
            continue
        halves: list[list[Array]] = []
        for half in (0, 1):
            pieces = []
            for array, dims in zip(arrays, rule.operands, strict=True):
                for d in _places(dims, index):
                    array = np.split(array, 2, d)[half]
                pieces.append(array)
            types = []
            for value, dims in zip(op.results, rule.results, strict=True):
                shape = list(value.type.shape)
                for d in _places(dims, index):
                    shape[d] //= 2
                types.append(value.type.with_shape(shape))
            halves.append(_apply(sample, pieces, types))
        for n, (array, dims) in enumerate(zip(whole, rule.results, strict=True)):
            first, second = halves[0][n], halves[1][n]
            if places := _places(dims, index):
                made = np.concatenate([first, second], places[0])
            elif factor.kind is FactorKind.PASS:
                np.testing.assert_array_equal(first, second)
                made = first
            else:
                made = COMBINE[str(rule.reduction)](first, second)
            if array.dtype.type is np.void:  # keys of four words
                np.testing.assert_array_equal(made, array)
            else:
                np.testing.assert_allclose(made, array, rtol=1e-12, atol=1e-12)


def _apply(sample: Sample, arrays: list[Array], types: list[TensorType]) -> list[Array]:
    """Apply the operation of the sample to other operands, with other stated types."""
    b = Builder()
    operands = [
        b.param(type.with_shape(array.shape))
        for type, array in zip(sample.operands, arrays, strict=True)
    ]
    stated = types[0] if len(types) == 1 else tuple(types)
    made = b.emit(sample.spec, *operands, result=stated, **sample.attrs)
    results = made if isinstance(made, tuple) else (made,)
    assert [value.type for value in results] == types
    function = Function("f", b.block(operands, results), (None,) * len(types))
    return evaluate(function, arrays)


@pytest.mark.parametrize("sample", SMOOTH, ids=lambda sample: sample.id)
def test_the_vjp_agrees_with_differences(sample: Sample) -> None:
    """The differences are central, along random directions, in f64.

    The cotangent of z pairs with dz as Re(g * dz).
    """
    sample = sample.widened()
    arrays = sample.arrays()
    forward, backward, given = sample.function(), _backward(sample), []
    rng = np.random.default_rng(1)
    for value in forward.body.returns:
        if value.type.dtype in INEXACT:
            given.append(_direction(rng, value.type))
    cotangents = evaluate(backward, [*arrays, *given])

    def measure(step: float, at: int, direction: Array) -> float:
        moved = list(arrays)
        moved[at] = arrays[at] + step * direction
        outs = [y for y in evaluate(forward, moved) if y.dtype.kind in "fc"]
        return sum(float(np.sum(g * y).real) for g, y in zip(given, outs, strict=True))

    inexact = [i for i, type in enumerate(sample.operands) if type.dtype in INEXACT]
    step = 1e-6
    for (at, cotangent), _ in product(zip(inexact, cotangents, strict=True), range(3)):
        direction = _direction(rng, sample.operands[at])
        change = (measure(step, at, direction) - measure(-step, at, direction)) / (2 * step)
        expected = float(np.sum(cotangent * direction).real)
        assert change == pytest.approx(expected, rel=1e-5, abs=1e-6)


def _direction(rng: np.random.Generator, type: TensorType) -> Array:
    numbers = rng.normal(size=type.shape)
    if type.dtype in ("c64", "c128"):
        numbers = numbers + 1j * rng.normal(size=type.shape)
    return np.asarray(numbers).astype(type.numpy)


def _backward(sample: Sample) -> Function:
    """Return the function from operands and cotangents of inexact results to cotangents of
    inexact operands.
    """
    b = Builder()
    operands = [b.param(type) for type in sample.operands]
    results = sample.emit(b, operands)
    given: list[Value | None] = [
        b.param(value.type) if value.type.dtype in INEXACT else None for value in results
    ]
    assert sample.spec.vjp is not None
    g = given[0] if len(given) == 1 else tuple(given)
    arguments = sample.spec.rule_arguments(sample.attrs)
    cotangents = sample.spec.vjp(b, g, *operands, *results, **arguments)
    returned = []
    for operand, cotangent in zip(operands, cotangents, strict=True):
        if operand.type.dtype in INEXACT:
            made = b.full(0, operand.type) if cotangent is None else cotangent
            assert made.type == operand.type
            returned.append(made)
        else:
            assert cotangent is None
    params = [*operands, *(value for value in given if value is not None)]
    return Function("f", b.block(params, returned), (None,) * len(returned))
