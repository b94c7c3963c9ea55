"""The declared linearity holds on random numbers, for a sample of every operation."""

from typing import Any

import numpy as np
import pytest

from shardir.interpret.interpreter import evaluate
from shardir.interpret.numeric_comparison import tolerance_of
from shardir.ir.builder import Builder
from shardir.ir.dtypes import INTEGERS, KEYS
from shardir.ir.module import Block, Function, Module, Op
from shardir.ir.types import TensorType
from shardir.op_rules.linearity import commuting_groups, linear_groups
from tests.op_sample import Sample
from tests.samples import SAMPLES, some_of_each

LINEAR = [s for s in SAMPLES if linear_groups(s.function().body.ops[-1])]


def build_op(build: Any) -> Op:
    b = Builder()
    build(b, lambda dtype: b.param(TensorType((4,), dtype)))
    return b.ops[-1]


@some_of_each
@pytest.mark.parametrize("sample", LINEAR, ids=lambda sample: sample.id)
def test_linear_operations_commute_with_sums(sample: Sample) -> None:
    function = sample.function()
    (op,) = (op for op in function.body.ops if op.results[0] in function.body.returns)
    number = {param: i for i, param in enumerate(function.body.params)}
    arrays = sample.arrays()
    rng = np.random.default_rng(7)
    for group in linear_groups(op):
        moved = {number[op.operands[i]] for i in group if op.operands[i] in number}
        if len(moved) < len(group):
            continue
        first = [
            rng.permutation(x.reshape(-1)).reshape(x.shape) if i in moved else x
            for i, x in enumerate(arrays)
        ]
        both = [
            (x + y).astype(x.dtype) if i in moved else x
            for i, (x, y) in enumerate(zip(arrays, first, strict=True))
        ]
        (one,), (other,), (sum_,) = (evaluate(function, x) for x in (arrays, first, both))
        near = 10 * rounding_of(op)
        with np.errstate(all="ignore"):
            if op.result.type.dtype in INTEGERS:  # They wrap around.
                np.testing.assert_array_equal(sum_, (one + other).astype(sum_.dtype))
                continue
            np.testing.assert_allclose(
                sum_.astype(complex), one.astype(complex) + other.astype(complex), near, near * 10
            )


def rounding_of(op: Op) -> float:
    block = Block(op.operands, (op,), op.results)
    return max(tolerance_of(Module((), (Function("f", block, (None,)),))), 1e-9)


def test_products_are_linear_in_each_factor() -> None:
    op = build_op(lambda b, x: b.mul(x("f32"), x("f32")))
    assert linear_groups(op) == ((0,), (1,))


def test_sums_are_linear_in_all_terms() -> None:
    assert linear_groups(build_op(lambda b, x: b.add(x("f32"), x("f32")))) == ((0, 1),)
    assert linear_groups(build_op(lambda b, x: b.select(x("bool"), x("f32"), x("f32")))) == (
        (1, 2),
    )


def test_quotients_are_linear_in_the_dividend() -> None:
    assert linear_groups(build_op(lambda b, x: b.div(x("f32"), x("f32")))) == ((0,),)


def test_operations_on_integers_are_linear_unless_they_divide() -> None:
    assert linear_groups(build_op(lambda b, x: b.add(x("i32"), x("i32")))) == ((0, 1),)
    assert linear_groups(build_op(lambda b, x: b.mul(x("u8"), x("u8")))) == ((0,), (1,))
    assert linear_groups(build_op(lambda b, x: b.div(x("i32"), x("i32")))) == ()
    assert linear_groups(build_op(lambda b, x: b.or_(x("bool"), x("bool")))) == ()


def test_positions_are_not_summed() -> None:
    start = TensorType((), "i32")
    half = TensorType((2,), "i32")
    sliced = build_op(lambda b, x: b.dynamic_slice(x("i32"), b.param(start), result=half))
    assert linear_groups(sliced) == ((0,),)
    updated = build_op(lambda b, x: b.dynamic_update_slice(x("i32"), x("i32"), b.param(start)))
    assert linear_groups(updated) == ((0, 1),)


def test_widening_conversions_of_integers_are_not_linear() -> None:
    def to(dtype: str, source: str) -> Any:
        return lambda b, x: b.convert(x(source), result=TensorType((4,), dtype))

    for dtype, source in (("i16", "i32"), ("u8", "i8"), ("i4", "u8")):
        assert linear_groups(build_op(to(dtype, source))) == ((0,),)
    for dtype, source in (("i32", "i16"), ("f32", "i8"), ("i32", "f32"), ("bool", "i32")):
        assert linear_groups(build_op(to(dtype, source))) == ()


def test_narrowing_conversions_are_not_linear() -> None:
    def to(dtype: str, source: str) -> Any:
        return lambda b, x: b.convert(x(source), result=TensorType((4,), dtype))

    assert linear_groups(build_op(to("f32", "bf16"))) == ((0,),)
    assert linear_groups(build_op(to("bf16", "f32"))) == ()
    assert linear_groups(build_op(to("f16", "bf16"))) == ()
    assert linear_groups(build_op(to("bf16", "f16"))) == ()
    assert linear_groups(build_op(to("c64", "c128"))) == ()


def test_nonlinear_functions_are_not_linear() -> None:
    assert linear_groups(build_op(lambda b, x: b.exp(x("f32")))) == ()
    assert linear_groups(build_op(lambda b, x: b.maximum(x("f32"), x("f32")))) == ()


CHOOSING = [
    pytest.param(sample, reduction, id=f"{sample.id} {reduction}")
    for sample in SAMPLES
    for reduction in ("max", "min")
    if commuting_groups(sample.function().body.ops[-1], reduction)
]


@pytest.mark.parametrize(("sample", "reduction"), CHOOSING)
def test_selecting_operations_commute_with_extremes(sample: Sample, reduction: str) -> None:
    function = sample.function()
    op = function.body.ops[-1]
    number = {param: i for i, param in enumerate(function.body.params)}
    arrays = sample.arrays()
    if op.operands[0].type.dtype in (*KEYS, "c64", "c128"):
        return
    rng = np.random.default_rng(7)
    extreme = np.maximum if reduction == "max" else np.minimum
    for group in commuting_groups(op, reduction):
        moved = {number[op.operands[i]] for i in group if op.operands[i] in number}
        if len(moved) < len(group):
            continue
        first = [
            rng.permutation(x.reshape(-1)).reshape(x.shape) if i in moved else x
            for i, x in enumerate(arrays)
        ]
        both = [
            extreme(x, y) if i in moved else x
            for i, (x, y) in enumerate(zip(arrays, first, strict=True))
        ]
        (one,), (other,), (found,) = (evaluate(function, x) for x in (arrays, first, both))
        np.testing.assert_array_equal(found, extreme(one, other))


def test_computing_operations_do_not_commute_with_extremes() -> None:
    for build in (lambda b, x: b.add(x("f32"), x("f32")), lambda b, x: b.sqrt(x("f32"))):
        assert commuting_groups(build_op(build), "max") == ()
    assert commuting_groups(build_op(lambda b, x: b.or_(x("i32"), x("i32"))), "max") == ()
