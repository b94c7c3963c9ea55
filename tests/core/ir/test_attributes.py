"""Attribute classes: the errors for invalid attributes of each family, and the text of operations.

The rules of an operation receive its attributes as one dataclass; users see them by name.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from shardir import ops
from shardir.errors import OperationTypeError
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.operation import OPS, OpSpec, Symbol
from shardir.ir.sharding import Axis
from shardir.ir.signature import check_call
from tests.op_evaluation import infer_types
from tests.op_sample import t

X = Axis("x", 1, 2)
MATRIX = (t("f32", 4, 8),)
CONVOLUTION = {
    "strides": (1,), "padding": ((0, 0),), "lhs_dilation": (1,), "rhs_dilation": (1,),
    "dims": "b0f,0io->b0f",
}  # fmt: skip
WINDOW = {
    "op": Symbol("max"), "window": (1, 2), "strides": (1, 2), "padding": ((0, 0), (0, 0)),
    "base_dilation": (1, 1), "window_dilation": (1, 1),
}  # fmt: skip
ROWS = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims": (0,)}
APPLICATIONS: dict[str, tuple[tuple[Any, ...], dict[str, Any], Any]] = {
    "convolution": ((t("f32", 2, 8, 4), t("f32", 3, 4, 6)), CONVOLUTION, None),
    "reduce_window": (MATRIX, WINDOW, None),
    "select_and_scatter": ((*MATRIX, t("f32", 4, 4)), WINDOW, None),
    "sort": (MATRIX, {"dim": 1}, None),
    "gather": (
        (*MATRIX, t("i32", 2, 1)),
        {"offset_dims": (1,), "collapsed_dims": (0,), "start_index_map": (0,)},
        t("f32", 2, 8),
    ),
    "scatter": (
        (*MATRIX, t("i32", 2, 1), t("f32", 2, 8)), {**ROWS, "op": Symbol("add")}, None,
    ),
    "all-reduce": (MATRIX, {"axes": (X,), "op": Symbol("add")}, None),
    "all-gather": (MATRIX, {"dim": 0, "axes": (X,)}, None),
    "reduce-scatter": (MATRIX, {"dim": 0, "axes": (X,), "op": Symbol("add")}, None),
    "all-to-all": (MATRIX, {"split": 0, "concat": 1, "axes": (X,)}, None),
    "collective-permute": (MATRIX, {"axes": (X,), "pairs": ((0, 1),)}, None),
    "slice": (MATRIX, {"starts": (0, 0), "strides": (1, 2)}, t("f32", 4, 4)),
    "pad": ((*MATRIX, t("f32")), {"low": (0, 0), "high": (0, 1), "interior": (0, 0)}, None),
}  # fmt: skip
"""A valid application of each operation: operands, attributes and stated result."""

INVALID: list[tuple[str, str, Any, str]] = [
    ("convolution", "strides", (0,), "strides=[0] must be at least 1 everywhere"),
    (
        "convolution",
        "groups",
        3,
        "a filter for 4 input features in groups=3 needs 12 features, got 4 in f32[2, 8, 4]",
    ),
    ("reduce_window", "op", Symbol("xor"), "op=xor is not one of add, mul, max, min"),
    (
        "reduce_window",
        "padding",
        ((0, 0),),
        "padding=[[0, 0]] must have one pair [low, high] a dimension (2)",
    ),
    ("select_and_scatter", "op", Symbol("add"), "op=add is not one of max, min"),
    ("sort", "keys", 2, "keys=2 of 1 operand cannot be compared; name 1 to 1"),
    (
        "sort",
        "positions",
        (8,),
        "positions=[8] has positions that dimension 1 of f32[4, 8] lacks",
    ),
    (
        "gather",
        "start_index_map",
        (0, 1),
        "start_index_map=[0, 1] names 2 dimensions for index vectors of 1 (i32[2, 1])",
    ),
    ("scatter", "op", Symbol("or"), "op=or is not one of add, mul, min, max, set"),
    ("all-reduce", "axes", (), "axes=[] contains no mesh axis"),
    (
        "all-gather",
        "dim",
        2,
        "dim=2 is not a dimension of f32[4, 8]; it has dimensions 0 to 1",
    ),
    ("all-to-all", "concat", 0, "split and concat are both 0; they are different dimensions"),
    (
        "collective-permute",
        "pairs",
        ((0, 2),),
        "pairs=[(0, 2)] leave the 2 positions along [x:(1)2]",
    ),
    (
        "slice",
        "strides",
        (1, 0),
        "starts=[0, 0] must be at least 0, strides=[1, 0] at least 1",
    ),
    (
        "pad",
        "interior",
        (0, -1),
        "interior=[0, -1] must be at least 0; slice with strides instead",
    ),
]


@pytest.mark.parametrize(("name", "attribute", "value", "reason"), INVALID)
def test_an_invalid_attribute_is_an_error(
    name: str, attribute: str, value: object, reason: str
) -> None:
    operands, attrs, result = APPLICATIONS[name]
    infer_types(OPS[name], *operands, result=result, **attrs)
    with pytest.raises(OperationTypeError) as caught:
        infer_types(OPS[name], *operands, result=result, **{**attrs, attribute: value})
    assert str(caught.value) == f"{name}: {reason}"


@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_missing_or_unknown_attribute_is_an_error(name: str) -> None:
    spec, (operands, attrs, result) = OPS[name], APPLICATIONS[name]
    first = next(iter(attrs))
    if name != "collective-permute":  # All its attributes are optional.
        with pytest.raises(OperationTypeError) as caught:
            infer_types(
                spec, *operands, result=result, **{k: attrs[k] for k in attrs if k != first}
            )
        assert str(caught.value) == f"{name}: needs the attribute {first!r}"
    with pytest.raises(OperationTypeError) as caught:
        infer_types(spec, *operands, result=result, **attrs, foo=1)
    assert str(caught.value).startswith(f"{name}: has no attribute 'foo'; it has ")


@pytest.mark.parametrize(
    ("name", "attribute", "kind"),
    [
        ("convolution", "strides", "a list of integers"),
        ("convolution", "padding", "a list of pairs of integers"),
        ("reduce_window", "op", "a word"),
        ("sort", "stable", "true or false"),
        ("sort", "keys", "an integer"),
        ("all-reduce", "axes", "a list of mesh axes"),
        ("collective-permute", "pairs", "a list of pairs of integers"),
    ],
)
def test_an_attribute_of_another_kind_is_an_error(name: str, attribute: str, kind: str) -> None:
    operands, attrs, _ = APPLICATIONS[name]
    with pytest.raises(OperationTypeError) as caught:
        check_call(OPS[name], len(operands), {**attrs, attribute: 1.5}, 0)
    assert str(caught.value) == f"{name}: {attribute} must be {kind}"


def test_an_operation_keeps_the_attributes_that_were_given() -> None:
    """Defaults are not added, so the text of a program does not change."""
    b = Builder()
    b.sort(b.param(t("f32", 4)), dim=0)
    assert dict(b.ops[0].attrs) == {"dim": 0}
    assert b.ops[0].rule_arguments == {"attributes": _attribute_class(ops.sort)(dim=0)}


def _attribute_class(spec: OpSpec) -> Any:
    assert spec.attributes is not None
    return spec.attributes


def test_attributes_by_name_are_the_required_and_changed_ones() -> None:
    @dataclass(frozen=True, slots=True)
    class Sample(Attributes):
        first: int
        second: int = 2
        third: int = 3

    assert Sample(1, third=4).to_attrs() == {"first": 1, "third": 4}
    assert Sample(1, 2).to_attrs() == {"first": 1}
