"""Kernels compile for absent GPUs: sm_80, sm_90 and sm_100."""

import re
from collections.abc import Iterator
from functools import partial

import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu import dtypes
from shardir.backends.gpu.kernels import KernelText, TileSizes, write_kernel
from shardir.backends.gpu.kernels.arithmetic import RULES
from shardir.backends.gpu.kernels.compiling import compile_ahead
from shardir.ir.builder import Builder
from shardir.ir.module import Module, Value
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.ops.control_flow.fused import REDUCTIONS, fused
from shardir.passes.fusion.fuse import fuse
from shardir.text.parser import parse
from tests.backends.gpu.kernels.fused_groups import emit_if_valid, single_group_module
from tests.backends.gpu.kernels.kernel_execution import SMALL_TILES
from tests.backends.gpu.kernels.kernel_programs import PROGRAMS, REDUCTION_CASES
from tests.dtype_groups import DTYPES

TRITON_TYPES = [dtype for dtype in DTYPES if dtype in dtypes.TRITON_TYPES]

CAPABILITIES = (80, 90, 100)
DEFAULT_PROGRAMS = ("row softmax of bf16", "layer norm", "columns", "loss", "no operands")


@pytest.fixture
def capabilities(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return CAPABILITIES if request.config.getoption("--long") else (90,)


def kernels(module: Module, *sizes: TileSizes) -> Iterator[KernelText]:
    for op in module.main.body.ops:
        if op.spec is fused:
            for size in sizes:
                kernel = write_kernel(op, "group", size)
                assert isinstance(kernel, KernelText)
                yield kernel


def check_compilation(module: Module, capabilities: tuple[int, ...], *sizes: TileSizes) -> None:
    for kernel in kernels(module, *sizes):
        for capability in capabilities:
            code = compile_ahead(kernel, capability)
            assert list(code) == [launch.function for launch in kernel.launches]
            assert all(code.values())


def test_all_kinds_of_kernels_compile(
    capabilities: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    names = PROGRAMS if request.config.getoption("--long") else DEFAULT_PROGRAMS
    for name in names:
        check_compilation(fuse(parse(PROGRAMS[name])), capabilities, TileSizes(), SMALL_TILES)


def test_a_kernel_compiles_for_every_capability() -> None:
    check_compilation(fuse(parse(PROGRAMS["row softmax"])), CAPABILITIES, TileSizes())


def emit_every_operation(b: Builder, params: list[Value]) -> list[Value]:
    """Return every operation on one or two values, and conversions to every type."""
    x, y = params
    results = []
    for name in RULES:
        results += emit_if_valid(b, OPS[name], x) + emit_if_valid(b, OPS[name], x, y)
        results += emit_if_valid(b, OPS[name], x, b.full(1, x.type))
    for to in TRITON_TYPES:
        results += emit_if_valid(b, OPS["convert"], x, result=x.type.with_dtype(to))
    return [*results, b.select(b.ne(x, y), x, y)]


def test_every_operation_compiles(
    capabilities: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    for dtype in TRITON_TYPES if is_long else ("f32", "bf16", "u8"):
        module = single_group_module([TensorType((100,), dtype)] * 2, emit_every_operation)
        check_compilation(
            module, capabilities if dtype in ("f32", "bf16", "f64") else (90,), TileSizes()
        )


def test_every_reduction_compiles(
    capabilities: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    long = request.config.getoption("--long")
    for dtype in TRITON_TYPES if long else ("bool", "i8"):
        for shape, dims in REDUCTION_CASES.values() if long else (REDUCTION_CASES["around"],):
            reductions = partial(emit_every_reduction, dims)
            module = single_group_module([TensorType(shape, dtype)], reductions)
            check_compilation(
                module,
                capabilities if dtype in ("f32", "bf16") else (90,),
                TileSizes(),
                SMALL_TILES,
            )


def emit_every_reduction(dims: tuple[int, ...], b: Builder, params: list[Value]) -> list[Value]:
    """Return every reduction along some dimensions."""
    return [y for spec in REDUCTIONS for y in emit_if_valid(b, spec, params[0], dims=dims)]


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_compiler_keeps_all_roundings(capability: int) -> None:
    """Each thread rounds 16 elements after the first function and again in the store."""

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        return [b.tanh(b.tanh(params[0]))]

    (kernel,) = kernels(single_group_module([TensorType((4096,), "bf16")], rows), TileSizes())
    (code,) = compile_ahead(kernel, capability, "ptx").values()
    roundings = re.findall(r"cvt\.rn\.bf16(x2)?\.f32", code.decode())
    assert sum(2 if pair else 1 for pair in roundings) == 32


def test_products_and_sums_are_not_contracted_to_fma() -> None:
    def rows(b: Builder, params: list[Value]) -> list[Value]:
        return [b.add(b.mul(params[0], params[0]), params[0])]

    (kernel,) = kernels(single_group_module([TensorType((4096,), "f32")], rows), TileSizes())
    (code,) = compile_ahead(kernel, 90, "ptx").values()
    assert b"fma" not in code
    assert b"mul.rn.f32" in code


def test_an_elementwise_kernel_uses_16_byte_loads_and_stores() -> None:
    (kernel,) = kernels(fuse(parse(PROGRAMS["flat chain"])), TileSizes())
    (code,) = compile_ahead(kernel, 90, "ptx").values()
    moves = re.findall(rb"(?:ld|st)\.global\.?(?:v\d)?", code)
    narrow = [move for move in moves if not move.endswith(b".v4")]
    assert len(moves) > 4
    assert len(narrow) == 1, "the scalar"


def test_compilation_is_rejected_in_interpreter_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (kernel,) = kernels(fuse(parse(PROGRAMS["one element"])), TileSizes())
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(RuntimeError) as caught:
        compile_ahead(kernel, 90)
    assert str(caught.value) == "cannot compile kernels while TRITON_INTERPRET=1; unset it"


def test_launches_have_the_options_of_compilation() -> None:
    """libdevice flushes subnormal numbers to zero unless an option disables that."""
    (plain,) = kernels(fuse(parse(PROGRAMS["one element"])), TileSizes())
    (launch,) = plain.launches
    assert launch.options == {"enable_fp_fusion": False}
    (calls,) = kernels(fuse(parse(PROGRAMS["row softmax"])), TileSizes())
    (launch,) = calls.launches
    assert launch.options == {"enable_fp_fusion": False, "enable_reflect_ftz": False}
    assert "num_warps=1, enable_fp_fusion=False, enable_reflect_ftz=False" in calls.launch
