"""Collectives: the result of every device, and errors of invalid operands."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardir.errors import OperationTypeError
from shardir.ir.builder import infer_types
from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.operation import OpSpec, Symbol
from shardir.ir.sharding import Axis
from shardir.ir.types import TensorType
from shardir.ops.communication import collectives

MESH = Mesh("m", (("x", 2), ("y", 2)))
X, Y = Axis("x", 1, 2), Axis("y", 1, 2)


def infer_result_type(spec: OpSpec, type: TensorType | None, **attrs: Any) -> TensorType:
    (result,) = infer_types(spec, () if type is None else (Value(type),), None, attrs)
    return result


def run_collective(spec: OpSpec, parts: list[Any], dtype: str = "f32", **attrs: Any) -> list[Any]:
    """Return the result of each device of the mesh, where `parts` are their operands."""
    arrays = [np.asarray(part, TensorType((), dtype).numpy) for part in parts]
    result = infer_result_type(spec, TensorType(arrays[0].shape, dtype), **attrs)
    assert spec.exchange is not None
    results = spec.exchange(
        MESH, [(array,) for array in arrays], result=result, **spec.rule_arguments(attrs)
    )
    assert all(r.shape == result.shape and r.dtype == result.numpy for r in results)
    return [r.tolist() for r in results]


def test_all_reduce_combines_within_each_group() -> None:
    parts = [[1.0], [2.0], [30.0], [40.0]]
    reduced = collectives.all_reduce
    assert run_collective(reduced, parts, axes=(X,), op=Symbol("add")) == [[31], [42], [31], [42]]
    assert run_collective(reduced, parts, axes=(Y,), op=Symbol("max")) == [[2], [2], [40], [40]]
    assert run_collective(reduced, parts, axes=(X, Y), op=Symbol("min")) == [[1]] * 4
    assert run_collective(reduced, parts, axes=(X, Y), op=Symbol("mul")) == [[2400]] * 4


def test_all_reduce_of_bools() -> None:
    parts = [[True], [False], [True], [True]]
    for op, want in (("and", [False, False, True, True]), ("or", [True] * 4)):
        got = run_collective(collectives.all_reduce, parts, "bool", axes=(Y,), op=Symbol(op))
        assert got == [[w] for w in want]


def test_16_bit_floats_are_summed_in_f32() -> None:
    parts = [[256.0], [1.0], [1.0], [0.0]]
    got = run_collective(collectives.all_reduce, parts, "bf16", axes=(X, Y), op=Symbol("add"))
    assert got == [[float(ml_dtypes.bfloat16(258.0))]] * 4


def test_overflow_gives_infinity() -> None:
    parts = [[3e38], [3e38], [-3e38], [np.inf]]
    got = run_collective(collectives.all_reduce, parts, axes=(X,), op=Symbol("add"))
    assert got == [[0.0], [np.inf]] * 2
    got = run_collective(collectives.all_reduce, parts, axes=(Y,), op=Symbol("add"))
    assert got == [[np.inf]] * 4


def test_devices_with_equal_results_share_one_array() -> None:
    parts = [(np.ones(2, np.float32),)] * 4
    spec = collectives.all_reduce
    assert spec.exchange is not None
    given = spec.rule_arguments({"axes": (X,), "op": "add"})
    results = spec.exchange(MESH, parts, result=TensorType((2,), "f32"), **given)
    assert len({id(r) for r in results}) == 1


def test_all_gather_concatenates_shards_in_order_of_position() -> None:
    gather = collectives.all_gather
    assert run_collective(gather, [[0], [1], [2], [3]], dim=0, axes=(X, Y)) == [[0, 1, 2, 3]] * 4
    assert run_collective(gather, [[0], [1], [2], [3]], dim=0, axes=(Y, X)) == [[0, 2, 1, 3]] * 4


def test_all_slice_undoes_all_gather() -> None:
    whole = [[[0, 1, 2, 3]]] * 4
    assert run_collective(collectives.all_slice, whole, dim=1, axes=(Y, X)) == [
        [[0]], [[2]], [[1]], [[3]],
    ]  # fmt: skip


def test_reduce_scatter_equals_all_reduce_and_all_slice() -> None:
    parts = [[1, 2], [10, 20], [100, 200], [1000, 2000]]
    got = run_collective(collectives.reduce_scatter, parts, dim=0, axes=(Y,), op=Symbol("add"))
    assert got == [[11], [22], [1100], [2200]]


def test_all_to_all_moves_an_axis_between_dimensions() -> None:
    # x[i, j] = 10 i + j; the axis y moves from the rows to the columns.
    parts = [[[0, 1]], [[10, 11]], [[0, 1]], [[10, 11]]]
    assert run_collective(collectives.all_to_all, parts, split=1, concat=0, axes=(Y,)) == [
        [[0], [10]], [[1], [11]], [[0], [10]], [[1], [11]],
    ]  # fmt: skip


def test_collective_permute_moves_shards_to_other_axes() -> None:
    permute = collectives.collective_permute
    assert run_collective(permute, [[0], [1], [2], [3]], source=(X, Y), target=(Y, X)) == [
        [0], [2], [1], [3],
    ]  # fmt: skip
    assert run_collective(permute, [[0], [0], [1], [1]], source=(X,), target=(Y,)) == [
        [0], [1], [0], [1],
    ]  # fmt: skip


def test_collective_permute_of_pairs_gives_zeros_without_a_source() -> None:
    got = run_collective(
        collectives.collective_permute, [[1], [2], [3], [4]], axes=(X, Y), pairs=((0, 1), (1, 2))
    )
    assert got == [[0], [1], [2], [0]]


def test_axis_index_is_the_position() -> None:
    spec = collectives.axis_index
    assert spec.exchange is not None
    given = spec.rule_arguments({"axes": (Y, X)})
    results = spec.exchange(MESH, [()] * 4, result=TensorType((), "i32"), **given)
    assert [int(r) for r in results] == [0, 2, 1, 3]


VECTOR = TensorType((6,), "f32")
HALF, THIRD = Axis("z", 1, 2), Axis("z", 3, 2)


@pytest.mark.parametrize(
    ("spec", "type", "attrs", "message"),
    [
        (collectives.all_reduce, VECTOR, {"axes": (), "op": "add"},
         "all-reduce: axes=[] contains no mesh axis"),
        (collectives.all_reduce, VECTOR, {"axes": (X, X), "op": "add"},
         "all-reduce: axes=[x:(1)2, x:(1)2] uses a part of 'x' twice"),
        (collectives.all_reduce, VECTOR, {"axes": (HALF, THIRD), "op": "add"},
         "all-reduce: axes=[z:(1)2, z:(3)2] uses z:(1)2 and z:(3)2, which are not parts of one "
         "split of 'z'"),
        (collectives.collective_permute, VECTOR, {"source": (HALF,), "target": (THIRD,)},
         "collective-permute: source=[z:(1)2] and target=[z:(3)2]: z:(1)2 and z:(3)2 are not parts "
         "of one split of 'z'"),
        (collectives.all_reduce, VECTOR, {"axes": (X,), "op": "mean"},
         "all-reduce: op=mean is not a reduction; op is one of add, mul, max, min, and, or"),
        (collectives.all_reduce, TensorType((6,), "key"), {"axes": (X,), "op": "add"},
         "all-reduce: with op=add takes bool, integer, floating-point or complex operands, "
         "got key[6]"),
        (collectives.all_slice, VECTOR, {"axes": (X, Y), "dim": 0},
         "all-slice: splits dimension 0 of f32[6] into 4 shards, which do not divide it"),
        (collectives.all_to_all, TensorType((2, 2), "f32"), {"axes": (X,), "split": 0, "concat": 0},
         "all-to-all: split and concat are both 0; they are different dimensions"),
        (collectives.collective_permute, VECTOR, {"source": (X,), "target": (X, Y)},
         "collective-permute: source=[x:(1)2] and target=[x:(1)2, y:(1)2] "
         "differ in number of devices"),
        (collectives.collective_permute, VECTOR, {"axes": (X,), "pairs": ((0, 0), (1, 0))},
         "collective-permute: pairs=[(0, 0), (1, 0)] hold a position that receives twice"),
        (collectives.collective_permute, VECTOR, {"axes": (X,), "pairs": ((0, 2),)},
         "collective-permute: pairs=[(0, 2)] leave the 2 positions along [x:(1)2]"),
    ],
)  # fmt: skip
def test_invalid_operands_are_errors(
    spec: OpSpec, type: TensorType, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperationTypeError) as caught:
        infer_result_type(spec, type, **attrs)
    assert str(caught.value) == message
