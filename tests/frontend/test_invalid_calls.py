"""Errors of invalid calls, which repeat short descriptions of the arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import PartitionSpec as P, lax, numpy as snp, optim
from shardir.errors import OperationTypeError, PipelineError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    AxisNameError,
    ControlFlowError,
    ImmutableError,
    IndexingError,
    LeakedTracerError,
    NotAnArrayError,
    NumberRangeError,
    ShapeError,
    StructureError,
)
from shardir.frontend.quoting import brief
from shardir.passes import Pipeline
from tests.error_assertions import assert_raises_exactly, error_line, raw

A = snp.ones((8, 4))
MEMORY = memoryview(bytearray(2))


def same(x: Any, *_: Any) -> Any:
    return x


def delete_element() -> None:
    x = raw(snp.ones(3))
    del x[0]


def use_leaked_tracer() -> Any:
    kept: list[Any] = []

    @sd.jit
    def keeping(x: Any) -> Any:
        kept.append(x)
        return x

    keeping(A)
    return np.asarray(kept[0])


class Strict:
    """A container whose constructor converts to int."""

    def __init__(self, x: Any) -> None:
        self.x = int(x)


sd.tree.register_node(Strict, lambda x: ((x.x,), None), lambda _, xs: Strict(*xs))
NO_TYPE = (
    "is not an element type; the element types are bool, int2, int4, int8, int16, int32, int64, "
    "uint2, uint4, uint8, uint16, uint32, uint64, float4_e2m1fn, float8_e3m4, float8_e4m3, "
    "float8_e4m3fn, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, "
    "float8_e8m0fnu, float16, bfloat16, float32, float64, complex64, complex128"
)


class BadHash:
    """An object whose hash raises another error than `TypeError`."""

    def __repr__(self) -> str:
        return "bad"

    def __hash__(self) -> int:
        raise ValueError("no hash")


class BadArray:
    """An object that converts itself to a list instead of an array."""

    def __repr__(self) -> str:
        return "bad"

    def __array__(self) -> Any:
        return [1]


CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (delete_element, ImmutableError,
     "elements of an array are never deleted in place; make a new one with snp.delete"),
    (use_leaked_tracer, LeakedTracerError, "a traced f32[8, 4] was used outside of the trace it "
     "belongs to: keeping has ended; return it from there instead of keeping it in a variable, "
     "list or attribute"),
    (lambda: sd.jit(same, static_argnums=0)(A), ArgumentError, "static argument x of same is "
     "f32[8, 4] of type Array, which cannot be hashed; pass a tuple or another hashable value, or "
     "do not make it static"),
    (lambda: sd.jit(same, static_argnums=0)(BadHash()), ArgumentError, "static argument x of same "
     "is bad of type BadHash, which cannot be hashed; pass a tuple or another hashable value, or "
     "do not make it static"),
    (lambda: snp.add(raw(MEMORY), 1), NotAnArrayError,
     f"argument x of add is {MEMORY!r} of type memoryview, which is not an array"),
    (lambda: sd.device_put(2**70), NumberRangeError, "an operand has the number "
     "1180591620717411303424, which does not fit into int32; shardir.enable_x64() allows 64-bit "
     "integers"),
    (lambda: sd.device_put(-2**70), NumberRangeError, "an operand has the number "
     "-1180591620717411303424, which does not fit into int32; shardir.enable_x64() allows 64-bit "
     "integers"),
    (lambda: sd.jit(same)(BadArray()), NotAnArrayError, "argument x of same is bad of type "
     "BadArray, whose __array__ returns a list instead of a NumPy array"),
    (lambda: snp.add(raw(np.ndarray), 1), NotAnArrayError,
     "argument x of add is <class 'numpy.ndarray'> of type type, which is not an array"),
    (lambda: lax.cond(True, raw(A), raw(A)), ArgumentError,
     "argument true_fun of cond is f32[8, 4]; it must be known and hashable, because it "
     "determines the program"),
    (lambda: lax.reduce(A, 0.0, raw(3), (0,)), ArgumentError,
     "computation of reduce must be a function, got 3"),
    (lambda: lax.reduce_window(A, 0.0, raw(3), (2, 2)), ArgumentError,
     "computation of reduce_window must be a function, got 3"),
    (lambda: lax.map(raw(A), A), ArgumentError, "map takes a function, got f32[8, 4]"),
    (lambda: sd.jit(same, donate_argnames=raw(3)), ArgumentError, "donate_argnames of same has 3, "
     "which is not a name"),
    (lambda: sd.device_put(A, sd.make_mesh((2,), "x")), ArgumentError, "the device of device_put "
     "has Mesh('x': 2) of type Mesh, which is not a sharding; write NamedSharding(mesh, "
     "PartitionSpec(...))"),
    (lambda: lax.with_sharding_constraint(A, raw("x")), ArgumentError, "with_sharding_constraint "
     "has 'x' of type str, which is not a sharding; write NamedSharding(mesh, PartitionSpec(...))"),
    (lambda: sd.shard_map(same, mesh=raw("m"), in_specs=P(), out_specs=P())(A), ArgumentError,
     "shard_map of same takes a Mesh, got 'm'"),
    (lambda: sd.pmap(same, devices=raw(3)), ArgumentError, "devices of pmap of same is 3; it is a "
     "list of devices"),
    (lambda: lax.scan(raw(lambda c, x: c + x), 0.0, A[0]), ControlFlowError, "the body of scan "
     "must return a pair (carry, y), it returned one array"),
    (lambda: sd.jit(same).lower(A).compile()(A.T), ArgumentError, "argument x of same is "
     "f32[4, 8], and it was compiled for f32[8, 4]; lower it for such arguments"),
    (lambda: raw(snp.zeros)(), ArgumentError, "zeros takes (shape, dtype, device, "
     "out_sharding): missing a required argument: 'shape'"),
    (lambda: snp.save(raw(3), A), ArgumentError, "save writes to a path or an open file, got 3 of "
     "type int"),
    (lambda: snp.frombuffer(raw("a")), ArgumentError,
     "argument buffer of frombuffer is 'a', and must be bytes, a memoryview or an array"),
    (lambda: snp.apply_over_axes(raw(3), A, 0), ArgumentError, "apply_over_axes takes a function, "
     "got 3"),
    (lambda: snp.piecewise(A, [A > 0], raw(3)), ArgumentError, "piecewise takes a list of "
     "functions and numbers, got 3"),
    (lambda: optim.linear_schedule(raw("a"), 1, 2), ArgumentError, "init_value of a schedule is a "
     "number, got 'a'"),
    (lambda: sd.tree.unflatten(sd.tree.structure([1, 2]), [1]), StructureError, "tree.unflatten "
     "got 1 leaf for a structure of 2"),
    (lambda: sd.tree.unflatten(raw(3), [1]), StructureError, "tree.unflatten takes what "
     "tree.structure returns, got 3"),
    (lambda: sd.tree.leaves(1, is_leaf=raw(3)), StructureError, "is_leaf must be a function that "
     "states which containers are leaves, got 3"),
    (lambda: sd.tree.map(same, [1], is_leaf=raw(3)), StructureError, "is_leaf must be a function "
     "that states which containers are leaves, got 3"),
    (lambda: sd.tree.map(raw(3), A), StructureError, "tree.map takes a function, got 3"),
    (lambda: sd.tree.reduce(raw(3), [1, 2]), StructureError, "tree.reduce takes a function, got 3"),
    (lambda: sd.tree.reduce(max, []), StructureError, "there are no leaves to combine; give an "
     "initializer"),
    (lambda: sd.tree.broadcast([1, 2], {"a": 3}), StructureError, "[*, *] is not a prefix of "
     "{'a': *}"),
    (lambda: sd.tree.transpose(raw(1), None, []), StructureError, "tree.transpose takes what "
     "tree.structure returns, got 1"),
    (lambda: sd.tree.transpose(sd.tree.structure([1]), sd.tree.structure((1, 2)), [3]),
     StructureError, "expected [*] with (*, *) at each leaf, got [*]"),
    (lambda: sd.tree.map(same, Strict(1), [1]), StructureError, "the containers do not match: "
     "CustomNode(Strict[None], [*]) and [*]"),
    (lambda: A.view(2, 16), NotAnArrayError, "view takes an element type, got 2, 16; for another "
     "shape use x.reshape(2, 16)"),
    (lambda: A.view((-1,)), NotAnArrayError, "view takes an element type, got -1; for another "
     "shape use x.reshape(-1)"),
    (lambda: snp.dtype("q8"), NotAnArrayError, f"'q8' {NO_TYPE}"),
    (lambda: snp.iinfo("q8"), NotAnArrayError, f"'q8' {NO_TYPE}"),
    (lambda: snp.issubdtype("q8", "float32"), NotAnArrayError, f"'q8' {NO_TYPE}"),
    (lambda: snp.sin("a"), NotAnArrayError, "argument x of sin is 'a' of type str, which is not an "
     "array"),
    (lambda: snp.where(A > 0, "a", A), NotAnArrayError, "argument x of where is 'a' of type str, "
     "which is not an array"),
    (lambda: snp.concatenate([A, "a"]), NotAnArrayError, "argument arrays.1 of concatenate is 'a' "
     "of type str, which is not an array"),
    (lambda: sd.jit(lambda x: snp.matmul(x, b="a"))(A), NotAnArrayError, "argument b of matmul is "
     "'a' of type str, which is not an array"),
    (lambda: snp.sort(np.ma.masked_array([1.0])), NotAnArrayError,
     "argument a of sort is a masked array, which shardir does not support; pass "
     "x.filled(number), or the mask as a separate array"),
    (lambda: raw(sd.make_mesh)((2, 4)), ArgumentError, "make_mesh takes (axis_shapes, axis_names, "
     "axis_types, devices): missing a required argument: 'axis_names'"),
    (lambda: A.item(8, 0), IndexingError, "item of f32[8, 4] at (8, 0): index 8 is out of bounds "
     "for axis 0 with size 8"),
    (lambda: snp.tile(A, raw("2")), ArgumentError,
     "argument reps of tile is '2', and must be an integer or a sequence of integers"),
    (lambda: snp.eye(-1), ShapeError, "a matrix cannot have -1 rows and -1 columns"),
    (lambda: snp.einsum("ij,ij"), ArgumentError, "einsum subscripts 'ij,ij': has no operands"),
    (lambda: snp.percentile(A, 150), ArgumentError, "percentile takes q from 0 to 100, got 150"),
    (lambda: snp.array(1, ndmin=raw("a")), ArgumentError, "ndmin of array must be "
     "an integer, got 'a'"),
    (lambda: lax.slice_in_dim(A, 0, 99), OperationTypeError, "slice from 0 up to 99 is not "
     "within dimension 0 of size 8"),
    (lambda: lax.slice_in_dim(A, 5, 2), OperationTypeError, "slice from 5 up to 2 is not "
     "within dimension 0 of size 8"),
    (lambda: lax.pmean(A, "i"), AxisNameError,
     "pmean is along 'i', which is not bound at this line (bound axes: none); name one with "
     "axis_name= of vmap or pmap, or in the mesh of shard_map"),
    (lambda: sd.eval_shape(lambda x: x), ArgumentError, "lambda takes (x): missing a required "
     "argument: 'x'"),
    (lambda: sd.segment_sum(A, A, raw("a")), ArgumentError, "num_segments must be an integer, got "
     "'a'"),
    (lambda: sd.ShapeDtypeStruct(raw(3), "float32"), ShapeError, "a shape is a tuple of sizes, got "
     "3"),
    (lambda: sd.ShapeDtypeStruct(raw(np.array(3)), "float32"), ShapeError, "a shape is a tuple of "
     "sizes, got array(3)"),
    (lambda: sd.testing.assert_equivalent(same, raw(4)), ArgumentError, "args of assert_equivalent "
     "are a tuple, got 4"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:30] for *_, text in CASES])
def test_an_invalid_call_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert error_line(kind, wrong) == text


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        (lambda: Pipeline.parse("propogate"), PipelineError, "no pass is called 'propogate'; did "
         "you mean 'propagate'?"),
        (lambda: optim.chain(raw(3)), ArgumentError, "chain takes transformations, got 3"),
    ],
)  # fmt: skip
def test_an_error_suggests_the_intended_name(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)


def test_long_values_are_abbreviated_in_errors() -> None:
    assert brief(np.zeros((200, 3))) == "float64[200, 3]"
    assert brief("a" * 100) == "'" + "a" * 56 + "..."
    assert brief([1,
                  2]) == "[1, 2]"  # fmt: skip
