"""Kernels of all kinds (elementwise, rows, columns, loops, split) give the reference results."""

import numpy as np
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu import dtypes
from shardir.backends.gpu.kernels import KernelText, TileSizes, write_kernel
from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder
from shardir.ir.module import Module, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.control_flow.fused import REDUCTIONS, fused
from shardir.passes.fusion.fuse import fuse
from shardir.text.parser import parse
from tests.backends.gpu.kernels.fused_groups import (
    emit_if_valid,
    single_group_module,
    special_values,
)
from tests.backends.gpu.kernels.kernel_execution import SMALL_TILES, Interpreter
from tests.backends.gpu.kernels.kernel_programs import PROGRAMS, REDUCTION_CASES
from tests.dtype_groups import DTYPES, FLOATS

TRITON_TYPES = [dtype for dtype in DTYPES if dtype in dtypes.TRITON_TYPES]


def groups(module: Module) -> list[Op]:
    return [op for op in module.main.body.ops if op.spec is fused]


@pytest.mark.parametrize("sizes", [TileSizes(), SMALL_TILES], ids=["default", "small tiles"])
@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_kernels_give_the_results_of_their_groups(
    interpreter: Interpreter, text: str, sizes: TileSizes
) -> None:
    module = parse(text)
    rng = np.random.default_rng(3)
    args = [
        rng.normal(size=value.type.shape).astype(value.type.numpy)
        for value in module.main.body.params
    ]
    results = fuse(module)
    assert len(groups(results)) == 1
    for want, got in zip(run(module, args), interpreter.run(results, args, sizes), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        bound = {"f64": 1e-13, "f32": 2e-6}.get(module.main.body.returns[0].type.dtype, 0)
        expected, actual = want.astype(np.float64), got.astype(np.float64)
        np.testing.assert_allclose(actual, expected, bound, 10 * bound)


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", REDUCTION_CASES)
@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_reductions_match_the_reference(interpreter: Interpreter, dtype: str, case: str) -> None:
    """Reductions of every element type along every dimension use whole tiles, loops and partial
    results."""
    shape, dims = REDUCTION_CASES[case]
    kept = tuple(dim for dim in range(len(shape)) if dim not in dims)
    type = TensorType(shape, dtype)
    choices = np.array([-1, 0, 1, 2, 3, 1, 1, 1, 1]) if dtype in FLOATS else special_values(dtype)
    x = np.random.default_rng(5).choice(choices, shape).astype(type.numpy)

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        results = []
        for spec in REDUCTIONS:
            for result in emit_if_valid(b, spec, params[0], dims=dims):
                results.append(result)
                if kept:
                    back = b.broadcast(result, dims=kept, result=type)
                    results += (
                        emit_if_valid(b, ops.ne, back, params[0]) if spec is not ops.prod else []
                    )
        return results

    module = single_group_module([type], rows)
    with np.errstate(all="ignore"):
        expected = run(module, [x])
    for sizes in (None, SMALL_TILES) if dtype == "f32" else (SMALL_TILES,):
        for want, got in zip(expected, interpreter.run(module, [x], sizes), strict=True):
            np.testing.assert_array_equal(got, want)


def test_reductions_propagate_nan_and_ignore_masked_lanes(interpreter: Interpreter) -> None:
    """Rows contain NaN, only negative numbers, or infinities; the vectors have masked lanes."""
    x = np.full((4, 37), -5.0, np.float32)
    x[1, 30], x[2], x[3, 1] = np.nan, -np.inf, np.inf

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        return [b.emit(spec, params[0], dims=(1,)) for spec in (ops.max_, ops.min_, ops.sum_)]

    module = single_group_module([TensorType(x.shape, "f32")], rows)
    for sizes in (None, SMALL_TILES):
        for want, got in zip(run(module, [x]), interpreter.run(module, [x], sizes), strict=True):
            np.testing.assert_array_equal(got, want)


def test_elementwise_kernels_of_large_tensors_have_64_bit_offsets() -> None:
    text = """\
func @large(%x: u8[70000, 70000]) -> (u8[70000, 70000]) {
  %a = not(%x) : u8[70000, 70000]
  %b = add(%a, %x) : u8[70000, 70000]
  return %b
}
"""
    (op,) = groups(fuse(parse(text)))
    kernel = write_kernel(op, "large")
    assert isinstance(kernel, KernelText)
    assert "at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)" in kernel.text


def test_reductions_of_large_tensors_have_64_bit_offsets() -> None:
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
    assert isinstance(columns, KernelText)
    assert isinstance(rows, KernelText)
    assert "row = start + tl.arange(0, ROWS)[:, None].to(tl.int64)" in columns.text
    assert "column = start + tl.arange(0, COLUMNS).to(tl.int64)" in rows.text
    assert "row = tl.program_id(0).to(tl.int64)" in rows.text
