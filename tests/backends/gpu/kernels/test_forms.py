"""All forms of kernels: chains, rows, columns, loops, parts; against the reference."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu.kernels import Kernel, Sizes, write_kernel
from shardir.backends.gpu.kernels.terms import OWN
from shardir.build import Builder
from shardir.interpret import run
from shardir.ir import Module, Op, Value
from shardir.ops.fused import REDUCTIONS, fused
from shardir.passes.fuse import fuse
from shardir.text.parser import parse
from shardir.types import FLOATS, TensorType
from tests.backends.gpu.kernels.groups import group, numbers, tried
from tests.backends.gpu.kernels.running import TINY, Interpreter

Array = npt.NDArray[Any]

SOFTMAX = """\
func @softmax(%x: {dtype}[{n}, {m}]) -> ({dtype}[{n}, {m}]) {{
  %m = max(%x, dims=[{dim}]) : {dtype}[{left}]
  %mb = broadcast(%m, dims=[{kept}]) : {dtype}[{n}, {m}]
  %s = sub(%x, %mb) : {dtype}[{n}, {m}]
  %e = exp(%s) : {dtype}[{n}, {m}]
  %z = sum(%e, dims=[{dim}]) : {dtype}[{left}]
  %zb = broadcast(%z, dims=[{kept}]) : {dtype}[{n}, {m}]
  %y = div(%e, %zb) : {dtype}[{n}, {m}]
  return %y
}}
"""

LAYER_NORM = """\
func @layer_norm(%x: f32[2, 6, 40], %g: f32[40], %b: f32[40]) -> (f32[2, 6, 40], f32[2, 6]) {
  %n = constant(value=40.0) : f32[2, 6]
  %s = sum(%x, dims=[2]) : f32[2, 6]
  %mean = div(%s, %n) : f32[2, 6]
  %meanb = broadcast(%mean, dims=[0, 1]) : f32[2, 6, 40]
  %c = sub(%x, %meanb) : f32[2, 6, 40]
  %q = mul(%c, %c) : f32[2, 6, 40]
  %v = sum(%q, dims=[2]) : f32[2, 6]
  %var = div(%v, %n) : f32[2, 6]
  %eps = constant(value=1e-05) : f32[2, 6]
  %ve = add(%var, %eps) : f32[2, 6]
  %r = rsqrt(%ve) : f32[2, 6]
  %rb = broadcast(%r, dims=[0, 1]) : f32[2, 6, 40]
  %h = mul(%c, %rb) : f32[2, 6, 40]
  %gb = broadcast(%g, dims=[2]) : f32[2, 6, 40]
  %bb = broadcast(%b, dims=[2]) : f32[2, 6, 40]
  %hg = mul(%h, %gb) : f32[2, 6, 40]
  %y = add(%hg, %bb) : f32[2, 6, 40]
  return %y, %r
}
"""

BATCH_NORM = """\
func @batch_norm(%x: f32[3, 5, 6, 7], %g: f32[5]) -> (f32[3, 5, 6, 7]) {
  %q = mul(%x, %x) : f32[3, 5, 6, 7]
  %s = sum(%q, dims=[0, 2, 3]) : f32[5]
  %r = rsqrt(%s) : f32[5]
  %rg = mul(%r, %g) : f32[5]
  %rb = broadcast(%rg, dims=[1]) : f32[3, 5, 6, 7]
  %y = mul(%x, %rb) : f32[3, 5, 6, 7]
  return %y
}
"""

BROADCASTS = """\
func @broadcasts(
  %x: f32[3, 4, 5, 6],
  %b: f32[5],
  %s: f32[3],
  %t: f32[4, 6],
) -> (f32[3, 4, 5, 6]) {
  %bb = broadcast(%b, dims=[2]) : f32[3, 4, 5, 6]
  %sb = broadcast(%s, dims=[0]) : f32[3, 4, 5, 6]
  %tb = broadcast(%t, dims=[1, 3]) : f32[3, 4, 5, 6]
  %i = iota(dim=2) : f32[3, 4, 5, 6]
  %0 = add(%x, %bb) : f32[3, 4, 5, 6]
  %1 = mul(%0, %sb) : f32[3, 4, 5, 6]
  %2 = sub(%1, %tb) : f32[3, 4, 5, 6]
  %3 = add(%2, %i) : f32[3, 4, 5, 6]
  return %3
}
"""

COLUMNS = """\
func @columns(%x: f32[50, 20], %w: f32[20]) -> (f32[20], f32[50, 20], f32[20]) {
  %q = mul(%x, %x) : f32[50, 20]
  %s = sum(%q, dims=[0]) : f32[20]
  %m = max(%x, dims=[0]) : f32[20]
  %y = mul(%s, %w) : f32[20]
  %z = sub(%y, %m) : f32[20]
  return %z, %q, %m
}
"""

LOSS = """\
func @loss(%x: bf16[30, 41], %y: bf16[30, 41]) -> (f32[]) {
  %a = convert(%x) : f32[30, 41]
  %b = convert(%y) : f32[30, 41]
  %d = sub(%a, %b) : f32[30, 41]
  %q = mul(%d, %d) : f32[30, 41]
  %s = sum(%q, dims=[0, 1]) : f32[]
  %n = constant(value=1230.0) : f32[]
  %l = div(%s, %n) : f32[]
  return %l
}
"""

COUNTED = """\
func @counted(%x: f32[9], %y: f32[7]) -> (i32[7]) {
  %xb = broadcast(%x, dims=[1]) : f32[7, 9]
  %yb = broadcast(%y, dims=[0]) : f32[7, 9]
  %l = lt(%xb, %yb) : bool[7, 9]
  %n = ne(%yb, %yb) : bool[7, 9]
  %m = eq(%xb, %xb) : bool[7, 9]
  %a = and(%n, %m) : bool[7, 9]
  %o = or(%l, %a) : bool[7, 9]
  %i = convert(%o) : i32[7, 9]
  %s = sum(%i, dims=[1]) : i32[7]
  return %s
}
"""

CHAIN = """\
func @chain(%x: f32[8, 4, 128], %b: f32[4, 128], %s: f32[]) -> (f32[8, 4, 128]) {
  %bb = broadcast(%b, dims=[1, 2]) : f32[8, 4, 128]
  %sb = broadcast(%s, dims=[]) : f32[8, 4, 128]
  %a = add(%x, %bb) : f32[8, 4, 128]
  %c = mul(%a, %sb) : f32[8, 4, 128]
  return %c
}
"""

SCALARS = """\
func @scalars(
  %p: bool[],
  %x: f32[6, 40],
  %y: f32[6, 40],
  %l: f32[],
  %h: f32[6, 40],
) -> (f32[6, 40], f32[6]) {
  %s = select(%p, %x, %y) : f32[6, 40]
  %c = clamp(%l, %s, %h) : f32[6, 40]
  %e = sub(%c, %x) : f32[6, 40]
  %r = sum(%e, dims=[1]) : f32[6]
  return %e, %r
}
"""

SINGLE = """\
func @single(%x: f32[1, 1], %y: f32[]) -> (f32[1, 1]) {
  %yb = broadcast(%y, dims=[]) : f32[1, 1]
  %a = add(%x, %yb) : f32[1, 1]
  %b = mul(%a, %a) : f32[1, 1]
  return %b
}
"""

NAMES = """\
func @names(%row: f32[40, 20], %mask: f32[20]) -> (f32[40, 20], f32[20], f32[20]) {
  %start = mul(%row, %row) : f32[40, 20]
  %column = sum(%start, dims=[0]) : f32[20]
  %part = max(%row, dims=[0]) : f32[20]
  %first = mul(%column, %mask) : f32[20]
  %row_mask = sub(%first, %part) : f32[20]
  %column_mask = mul(%row_mask, %part) : f32[20]
  return %start, %row_mask, %column_mask
}
"""

MASK = """\
func @mask() -> (f32[5, 7]) {
  %i = iota(dim=0) : i32[5, 7]
  %j = iota(dim=1) : i32[5, 7]
  %c = ge(%i, %j) : bool[5, 7]
  %m = convert(%c) : f32[5, 7]
  return %m
}
"""


def softmax(dtype: str, n: int, m: int, dim: int) -> str:
    left = (n, m)[1 - dim]
    return SOFTMAX.format(dtype=dtype, n=n, m=m, dim=dim, kept=1 - dim, left=left)


PROGRAMS = {
    "row softmax": softmax("f32", 10, 24, 1),
    "row softmax of bf16": softmax("bf16", 4, 100, 1),
    "column softmax": softmax("f32", 7, 20, 0),
    "column softmax of many rows": softmax("f16", 50, 12, 0),
    "softmax of f64": softmax("f64", 3, 90, 1),
    "layer norm": LAYER_NORM,
    "batch norm": BATCH_NORM,
    "broadcasts": BROADCASTS,
    "columns": COLUMNS,
    "loss": LOSS,
    "flat chain": CHAIN,
    "scalars": SCALARS,
    "names of kernels": NAMES,
    "one element": SINGLE,
    "no operands": MASK,
    "counted": COUNTED,
}


def groups(module: Module) -> list[Op]:
    return [op for op in module.main.body.ops if op.spec is fused]


@pytest.mark.parametrize("sizes", [Sizes(), TINY], ids=["usual", "tiny"])
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_kernels_compute_what_their_groups_say(
    interpreter: Interpreter, text: str, sizes: Sizes
) -> None:
    module = parse(text)
    rng = np.random.default_rng(3)
    args = [
        rng.normal(size=value.type.shape).astype(value.type.numpy)
        for value in module.main.body.params
    ]
    made = fuse(module)
    assert len(groups(made)) == 1
    for want, got in zip(run(module, args), interpreter.run(made, args, sizes), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        bound = {"f64": 1e-13, "f32": 2e-6}.get(module.main.body.returns[0].type.dtype, 0)
        wide, close = want.astype(np.float64), got.astype(np.float64)
        np.testing.assert_allclose(close, wide, bound, 10 * bound)


LAYS = {
    "rows": ((3, 2, 40), (2,)),
    "short rows": ((20, 5), (1,)),
    "columns": ((30, 12), (0,)),
    "between": ((2, 20, 5), (1,)),
    "around": ((8, 2, 9), (0, 2)),
    "everything": ((9, 70), (0, 1)),
}


@pytest.mark.parametrize("lay", LAYS)
@pytest.mark.parametrize("dtype", OWN)
def test_reductions(interpreter: Interpreter, dtype: str, lay: str) -> None:
    """Of every type, in every place: whole tiles, loops, and parts."""
    shape, dims = LAYS[lay]
    kept = tuple(dim for dim in range(len(shape)) if dim not in dims)
    type = TensorType(shape, dtype)
    few = np.array([-1, 0, 1, 2, 3, 1, 1, 1, 1]) if dtype in FLOATS else numbers(dtype)
    x = np.random.default_rng(5).choice(few, shape).astype(type.numpy)

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        made = []
        for spec in REDUCTIONS:
            for result in tried(b, spec, params[0], dims=dims):
                made.append(result)
                if kept:
                    back = b.broadcast(result, dims=kept, result=type)
                    made += tried(b, ops.ne, back, params[0]) if spec is not ops.prod else []
        return made

    module = group([type], rows)
    with np.errstate(all="ignore"):
        wanted = run(module, [x])
    for sizes in (None, TINY) if dtype == "f32" else (TINY,):
        for want, got in zip(wanted, interpreter.run(module, [x], sizes), strict=True):
            np.testing.assert_array_equal(got, want)


def test_nan_wins_and_nothing_is_zero(interpreter: Interpreter) -> None:
    """Rows of NaN, of negative numbers only, and of infinities, with lanes that do not exist."""
    x = np.full((4, 37), -5.0, np.float32)
    x[1, 30], x[2], x[3, 1] = np.nan, -np.inf, np.inf

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        return [b.emit(spec, params[0], dims=(1,)) for spec in (ops.max_, ops.min_, ops.sum_)]

    module = group([TensorType(x.shape, "f32")], rows)
    for sizes in (None, TINY):
        for want, got in zip(run(module, [x]), interpreter.run(module, [x], sizes), strict=True):
            np.testing.assert_array_equal(got, want)


def test_offsets_of_large_tensors_have_64_bits() -> None:
    text = """\
func @large(%x: u8[70000, 70000]) -> (u8[70000, 70000]) {
  %a = not(%x) : u8[70000, 70000]
  %b = add(%a, %x) : u8[70000, 70000]
  return %b
}
"""
    (op,) = groups(fuse(parse(text)))
    kernel = write_kernel(op, "large")
    assert isinstance(kernel, Kernel)
    assert "at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)" in kernel.text


def test_so_have_those_of_what_is_reduced() -> None:
    text = """\
func @large(%x: f32[70000, 70000]) -> (f32[70000]) {
  %a = exp(%x) : f32[70000, 70000]
  %s = sum(%a, dims=[DIM]) : f32[70000]
  return %s
}
"""
    columns, rows = (
        write_kernel(groups(fuse(parse(text.replace("DIM", dim))))[0], "large") for dim in "01"
    )
    assert isinstance(columns, Kernel)
    assert isinstance(rows, Kernel)
    assert "row = start + tl.arange(0, ROWS)[:, None].to(tl.int64)" in columns.text
    assert "column = start + tl.arange(0, COLUMNS).to(tl.int64)" in rows.text
    assert "row = tl.program_id(0).to(tl.int64)" in rows.text
