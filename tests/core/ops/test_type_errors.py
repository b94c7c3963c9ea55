"""Errors of type rules, with their exact texts."""

import re
from typing import Any

import numpy as np
import pytest

from shardir import ops
from shardir.errors import OperationTypeError
from shardir.ir.operation import Dense, OpSpec
from shardir.ir.types import TensorType
from tests.op_evaluation import infer_types
from tests.op_sample import t

x, row, scalar = t("f32", 4, 6), t("f32", 6), t("f32")

CASES: list[tuple[OpSpec, tuple[TensorType, ...], dict[str, Any], str]] = [
    # any operation
    (ops.sum_, (x,), {}, "sum: needs the attribute 'dims'"),
    (ops.sum_, (x,), {"dims": (0,), "axis": 0}, "sum: has no attribute 'axis'; it has dims"),
    (ops.exp, (x,), {"dim": 0}, "exp: has no attribute 'dim'; it has none"),
    (ops.sum_, (x, x), {"dims": (0,)}, "sum: takes 1 operand, got 2"),
    (ops.dynamic_slice, (), {"result": x}, "dynamic_slice: takes 1 or more operands, got 0"),
    (ops.sum_, (x,), {"dims": 1}, "sum: dims=1 must be a sequence of integers"),
    (ops.pad, (row, scalar), {"low": ("a",), "high": (0,), "interior": (0,)},
     "pad: low=('a',) must be a sequence of integers"),
    (ops.iota, (), {"dim": 0, "result": t("i32", -3)},
     "iota: the result i32[-3] has a negative size"),
    # pointwise
    (ops.add, (x,), {}, "add: takes 2 operands, got 1"),
    (ops.exp, (x, x), {}, "exp: takes 1 operand, got 2"),
    (ops.add, (x, row), {},
     "add: operands must have one type, got f32[4, 6] and f32[6]; broadcast or convert them first"),
    (ops.add, (x, t("key", 4, 6)), {},
     "add: takes bool, integer, floating-point or complex operands, got key[4, 6]"),
    (ops.exp, (t("i32", 3),), {}, "exp: takes floating-point or complex operands, got i32[3]"),
    (ops.erf, (t("c64", 3),), {}, "erf: takes floating-point operands, got c64[3]"),
    (ops.lt, (t("c64", 3),) * 2, {},
     "lt: takes bool, integer or floating-point operands, got c64[3]"),
    (ops.and_, (x, x), {}, "and: takes bool or integer operands, got f32[4, 6]"),
    (ops.complex_, (t("bf16", 3),) * 2, {}, "complex: takes f32 or f64 operands, got bf16[3]"),
    (ops.nextafter, (x, row), {},
     "nextafter: operands must have one type, got f32[4, 6] and f32[6]; "
     "broadcast or convert them first"),
    (ops.select, (t("bool", 6), x, x), {},
     "select: its condition must be bool[] or bool[4, 6], got bool[6]"),
    (ops.clamp, (row, x, scalar), {},
     "clamp: its lower bound must be f32[] or f32[4, 6], got f32[6]"),
    (ops.clamp, (scalar, x, t("f64")), {},
     "clamp: its upper bound must be f32[] or f32[4, 6], got f64[]"),
    (ops.convert, (x,), {}, "convert: its result type is not determined; state it with result="),
    (ops.convert, (x,), {"result": t("f64", 6)},
     "convert: keeps the shape, but f32[4, 6] would become f64[6]; reshape or broadcast it"),
    (ops.convert, (x,), {"result": t("key", 4, 6)},
     "convert: takes bool, integer, floating-point or complex operands, got key[4, 6]"),
    # shape
    (ops.broadcast, (row,), {"dims": (1,)},
     "broadcast: its result type is not determined; state it with result="),
    (ops.broadcast, (row,), {"dims": (2,), "result": x},
     "broadcast: dims=[2] names 2, not a dimension of f32[4, 6]; it has dimensions 0 to 1"),
    (ops.broadcast, (row,), {"dims": (0,), "result": x},
     "broadcast: f32[6] cannot be broadcast to f32[4, 6]: 6 is neither 1 nor 4"),
    (ops.broadcast, (x,), {"dims": (1, 0), "result": t("f32", 6, 4)},
     "broadcast: dims=[1, 0] must name a dimension of f32[6, 4] for each of f32[4, 6], ascending"),
    (ops.broadcast, (row,), {"dims": (1,), "result": t("f64", 4, 6)},
     "broadcast: keeps the element type, but f32[6] would become f64[4, 6]; convert it"),
    (ops.reshape, (x,), {"result": t("f32", 5, 5)},
     "reshape: cannot make f32[5, 5] (25 elements) of f32[4, 6] (24 elements)"),
    (ops.transpose, (x,), {"perm": (0, 0)}, "transpose: perm=[0, 0] names a dimension twice"),
    (ops.transpose, (x,), {"perm": (1,)},
     "transpose: perm=[1] must name all 2 dimensions of f32[4, 6]"),
    (ops.reverse, (row,), {"dims": (1,)},
     "reverse: dims=[1] names 1, not a dimension of f32[6]; it has only dimension 0"),
    (ops.concatenate, (x, row), {"dim": 0},
     "concatenate: f32[4, 6] and f32[6] differ in more than dimension 0"),
    (ops.concatenate, (x,), {"dim": 2},
     "concatenate: dim=2 is not a dimension of f32[4, 6]; it has dimensions 0 to 1"),
    (ops.concatenate, (), {"dim": 0}, "concatenate: takes at least one operand"),
    (ops.bitcast, (x,), {"result": t("u16", 4, 6)},
     "bitcast: cannot reinterpret f32[4, 6] as u16[4, 6]; "
     "another width adds or removes a last dimension"),
    (ops.bitcast, (t("bool", 3),), {"result": t("u8", 3)},
     "bitcast: cannot reinterpret the bits of bool[3]; it takes integers and floats"),
    (ops.bitcast, (t("u64", 3),), {"result": t("u32", 3, 2)},
     "bitcast: cannot reinterpret u64[3] as u32[3, 2], because a key is stored as u64 but has its "
     "words in another order; bitcast it to i64 first"),
    (ops.bitcast, (t("key", 3),), {"result": t("u64", 3)},
     "bitcast: reinterprets a key only as u32[..., 2], not key[3] as u64[3]"),
    (ops.bitcast, (t("u64", 3, 2),), {"result": t("key_rbg", 3)},
     "bitcast: reinterprets a key only as u32[..., 4], not u64[3, 2] as key_rbg[3]"),
    (ops.constant, (), {"value": 0, "result": t("key_rbg")},
     "constant: key_rbg[] has no constants; bitcast words, u32[..., 4], to keys"),
    # create
    (ops.constant, (), {"value": 1.5, "result": t("i32")},
     "constant: 1.5 is not a value of i32[]; round it or state a float type"),
    (ops.constant, (), {"value": 300, "result": t("u8", 2)},
     "constant: 300 is not a value of u8[2]; its values are 0 to 255"),
    (ops.constant, (), {"value": 2**1024, "result": x},
     "constant: an integer of 1025 bits is not a value of f32[4, 6]"),
    (ops.constant, (), {"value": 1j, "result": x},
     "constant: 1j is not a value of f32[4, 6]; convert it"),
    (ops.constant, (), {"value": "1", "result": x},
     "constant: takes a number or a Dense array, got '1'"),
    (ops.constant, (), {"value": Dense(np.zeros(3, "f4")), "result": x},
     "constant: its value is float32[3], stated as f32[4, 6]"),
    (ops.iota, (), {"dim": 0, "result": t("bool", 3)},
     "iota: counts in integer, floating-point or complex numbers, not in bool[3]"),
    (ops.iota, (), {"dim": 0, "result": scalar},
     "iota: dim=0 is not a dimension of f32[]; it has no dimensions"),
    # slicing
    (ops.slice_, (x,), {"starts": (0,), "strides": (1, 1), "result": x},
     "slice: starts=[0] must have one number a dimension of f32[4, 6]"),
    (ops.slice_, (row,), {"starts": (2,), "strides": (2,), "result": t("f32", 3)},
     "slice: f32[3] from starts=[2] in strides=[2] leaves f32[6] in dimension 0"),
    (ops.slice_, (row,), {"starts": (-1,), "strides": (1,), "result": t("f32", 1)},
     "slice: starts=[-1] must be at least 0, strides=[1] at least 1"),
    (ops.pad, (row, t("f64")), {"low": (0,), "high": (0,), "interior": (0,)},
     "pad: its padding value must be f32[], got f64[]"),
    (ops.pad, (row, scalar), {"low": (0,), "high": (0,), "interior": (-1,)},
     "pad: interior=[-1] must be at least 0; slice with strides instead"),
    (ops.pad, (row, scalar), {"low": (-4,), "high": (-3,), "interior": (0,)},
     "pad: low=[-4] and high=[-3] take more than f32[6] has"),
    (ops.dynamic_slice, (row,), {"result": t("f32", 2)},
     "dynamic_slice: takes a start for each dimension of f32[6], got 0"),
    (ops.dynamic_slice, (row, scalar), {"result": t("f32", 2)},
     "dynamic_slice: takes integer operands, got f32[]"),
    (ops.dynamic_slice, (row, t("i32", 1)), {"result": t("f32", 2)},
     "dynamic_slice: takes starts without dimensions, got i32[1]"),
    (ops.dynamic_slice, (row, t("i32")), {"result": t("f32", 7)},
     "dynamic_slice: f32[7] does not fit into f32[6]"),
    (ops.dynamic_update_slice, (row, t("f32", 7), t("i32")), {},
     "dynamic_update_slice: f32[7] does not fit into f32[6]"),
    # reductions, sorts
    (ops.sum_, (x,), {"dims": (2,)},
     "sum: dims=[2] names 2, not a dimension of f32[4, 6]; it has dimensions 0 to 1"),
    (ops.sum_, (t("bool", 3),), {"dims": (0,)},
     "sum: takes integer, floating-point or complex operands, got bool[3]"),
    (ops.any_, (row,), {"dims": (0,)}, "any: takes bool operands, got f32[6]"),
    (ops.argmax, (x,), {"dim": 1, "result": t("i32", 6)},
     "argmax: gives positions of type i32[4] (or another integer), not i32[6]"),
    (ops.argmax, (t("f32", 300),), {"dim": 0, "result": t("u8")},
     "argmax: positions up to 299 do not fit into u8"),
    (ops.argmin, (t("f32", 0),), {"dim": 0, "result": t("i32")},
     "argmin: no element of f32[0] is an extreme: dimension 0 is empty"),
    (ops.cumsum, (scalar,), {"dim": 0, "reverse": False},
     "cumsum: dim=0 is not a dimension of f32[]; it has no dimensions"),
    (ops.sort, (x, row), {"dim": 0},
     "sort: operands must have one shape, got f32[4, 6] and f32[6]"),
    (ops.sort, (x,), {"dim": 0, "keys": 2},
     "sort: keys=2 of 1 operand cannot be compared; name 1 to 1"),
    (ops.sort, (t("key", 3),), {"dim": 0},
     "sort: random keys have no order; sort by another operand"),
    (ops.top_k, (x,), {}, "top_k: its result types are not determined; state both with result="),
    (ops.top_k, (x,), {"result": (t("f32", 4, 7), t("i32", 4, 7))},
     "top_k: f32[4, 7] is not a selection along the last dimension of f32[4, 6]"),
    (ops.top_k, (x,), {"result": (t("f32", 4, 2), t("i64", 4, 2))},
     "top_k: gives values in f32 and as many positions in i32, not f32[4, 2] and i64[4, 2]"),
    # dot
    (ops.dot, (x, x), {"dims": "bi,ih->bh"},
     "dot: 'i' of dims='bi,ih->bh' is both 6 and 4 in f32[4, 6] and f32[4, 6]"),
    (ops.dot, (x, row), {"dims": "bi,ih->bh"},
     "dot: dims='bi,ih->bh' gives 2 dimensions to f32[6]"),
    (ops.dot, (x, row), {"dims": "bi->b"},
     "dot: dims='bi->b' is not a contraction of two operands such as \"bi,ih->bh\""),
    (ops.dot, (x, row), {"dims": "ii,i->i"},
     "dot: dims='ii,i->i' repeats a letter within 'ii'; take its diagonal first"),
    (ops.dot, (x, row), {"dims": "bi,i->bk"},
     "dot: dims='bi,i->bk' has 'k' in the result only; broadcast the result instead"),
    (ops.dot, (row, row), {"dims": "i,i->", "result": t("bf16")},
     "dot: cannot accumulate f32 products in bf16; convert the result instead"),
    (ops.optimization_barrier, (), {}, "optimization_barrier: takes at least one operand"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "operands", "options", "message"), CASES, ids=[f"{c[0].name}-{c[3]}" for c in CASES]
)
def test_an_invalid_application_has_an_exact_error(
    spec: OpSpec, operands: tuple[TensorType, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OperationTypeError, match=f"^{re.escape(message)}$"):
        infer_types(spec, *operands, **options)
