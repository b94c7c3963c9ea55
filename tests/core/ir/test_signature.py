"""Signatures of operations follow from their type rules, and wrong arguments are errors."""

from typing import Any

import pytest

from shardir.errors import OperationTypeError
from shardir.ir.operation import OPS, OpSpec
from shardir.ir.sharding import Axes, Axis
from shardir.ir.signature import check_call, signature_of
from shardir.ir.types import TensorType


def _some(
    x: TensorType,
    y: TensorType | None = None,
    *,
    result: Any,
    blocks: Any,
    size: int,
    flag: bool = False,
    op: str = "add",
    dims: tuple[int, ...] = (),
    pairs: tuple[tuple[int, int], ...] = (),
    axes: Axes = (),
    value: Any = None,
) -> TensorType:
    return x


SOME = OpSpec("some", _some, blocks=2)


def test_a_signature_lists_operands_and_attributes() -> None:
    signature = signature_of(SOME)

    assert (signature.min_operands, signature.max_operands) == (1, 2)
    assert signature.required == ("size",)
    assert list(signature.attrs or ()) == ["size", "flag", "op", "dims", "pairs", "axes", "value"]


def test_every_operation_has_a_signature() -> None:
    for spec in OPS.values():
        assert signature_of(spec).blocks == spec.blocks


@pytest.mark.parametrize(
    "attrs",
    [
        {"size": 1},
        {"size": 1, "flag": True, "op": "mul", "dims": (1, 2), "pairs": ((1, 2),), "value": None},
        {"size": 1, "axes": (Axis("x", 1, 2),)},
    ],
)
def test_valid_arguments_are_accepted(attrs: dict[str, Any]) -> None:
    check_call(SOME, 2, attrs, 2)


@pytest.mark.parametrize(
    ("operands", "attrs", "blocks", "message"),
    [
        (0, {"size": 1}, 2, "some: takes 1 to 2 operands, got 0"),
        (3, {"size": 1}, 2, "some: takes 1 to 2 operands, got 3"),
        (1, {}, 2, "some: needs the attribute 'size'"),
        (1, {"size": 1, "sise": 1}, 2, "some: has no attribute 'sise'; did you mean 'size'?"),
        (
            1,
            {"size": 1, "q": 1},
            2,
            "some: has no attribute 'q'; it has size, flag, op, dims, pairs, axes, value",
        ),
        (1, {"size": True}, 2, "some: size must be an integer"),
        (1, {"size": 1, "flag": 1}, 2, "some: flag must be true or false"),
        (1, {"size": 1, "op": 1}, 2, "some: op must be a word"),
        (1, {"size": 1, "dims": [1]}, 2, "some: dims must be a list of integers"),
        (1, {"size": 1, "pairs": ((1,),)}, 2, "some: pairs must be a list of pairs of integers"),
        (1, {"size": 1, "axes": ("x",)}, 2, "some: axes must be a list of mesh axes"),
        (1, {"size": 1}, 1, "some: takes 2 blocks, got 1"),
    ],
)
def test_invalid_arguments_are_errors(
    operands: int, attrs: dict[str, Any], blocks: int, message: str
) -> None:
    with pytest.raises(OperationTypeError) as error:
        check_call(SOME, operands, attrs, blocks)

    assert str(error.value) == message


@pytest.mark.parametrize(
    ("op", "operands", "blocks", "message"),
    [
        ("dynamic_slice", 0, 0, "dynamic_slice: takes 1 or more operands, got 0"),
        ("case", 1, 0, "case: takes 1 or more blocks, got 0"),
        ("select", 2, 0, "select: takes 3 operands, got 2"),
        ("clamp", 3, 1, "clamp: takes no blocks, got 1"),
    ],
)
def test_invalid_arguments_of_operations_are_errors(
    op: str, operands: int, blocks: int, message: str
) -> None:
    with pytest.raises(OperationTypeError) as error:
        check_call(OPS[op], operands, {}, blocks)

    assert str(error.value) == message
