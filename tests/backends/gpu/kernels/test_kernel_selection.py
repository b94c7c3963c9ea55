"""The text of kernels: names, kinds and rejections."""

from typing import Any

import numpy as np
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu.kernels import (
    KernelRefusal,
    KernelText,
    TileSizes,
    helper_functions,
    write_kernel,
)
from shardir.backends.gpu.kernels.arithmetic import UNFUSED_OPERATIONS
from shardir.backends.gpu.kernels.helpers import find_helpers
from shardir.backends.gpu.kernels.terms import number_term
from shardir.backends.gpu.kernels.value_names import identifier
from shardir.ir.builder import Builder
from shardir.ir.module import Op
from shardir.ir.types import TensorType
from shardir.ops.control_flow.fused import fused
from shardir.passes.fusion.fuse import fuse
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from tests.backends.gpu.kernels.fused_groups import single_group_module
from tests.backends.gpu.kernels.kernel_execution import SMALL_TILES, kernel_program
from tests.backends.gpu.kernels.kernel_programs import PROGRAMS


def only_group(text: str) -> Op:
    (op,) = [op for op in fuse(parse(text)).main.body.ops if op.spec is fused]
    return op


def kernel(text: str, name: str = "group", sizes: TileSizes | None = None) -> KernelText:
    written = write_kernel(only_group(text), name, sizes)
    assert isinstance(written, KernelText)
    return written


def test_the_text_of_an_elementwise_kernel_with_a_bias() -> None:
    text = """\
func @f(%x: bf16[6, 50], %b: bf16[50]) -> (bf16[6, 50]) {
  %bb = broadcast(%b, dims=[1]) : bf16[6, 50]
  %h = add(%x, %bb) : bf16[6, 50]
  %c = constant(value=0.5) : bf16[6, 50]
  %y = mul(%h, %c) : bf16[6, 50]
  return %y
}
"""
    written = kernel(text, "scaled")
    assert (
        written.text
        == '''\
@triton.jit
def scaled_kernel(x_ptr, b_ptr, y_ptr, BLOCK: tl.constexpr):
    """add, mul over 6x50

    %bb = broadcast(%b, dims=[1]) : bf16[6, 50]
    %h = add(%x, %bb) : bf16[6, 50]
    %c = constant(value=0.5) : bf16[6, 50]
    %y = mul(%h, %c) : bf16[6, 50]
    yield %y
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 300
    x = tl.load(x_ptr + at, mask).to(tl.float32)
    i = at % 50
    b = tl.load(b_ptr + i, mask).to(tl.float32)
    h = (x + b).to(tl.bfloat16).to(tl.float32)
    y = h * 0.5
    tl.store(y_ptr + at, y, mask)
'''
    )
    assert written.launch == (
        "y = torch.empty((6, 50), dtype=torch.bfloat16, device=x.device)\n"
        "scaled_kernel[(1,)](x, b, y, BLOCK=512, num_warps=2, enable_fp_fusion=False)"
    )
    assert (written.operands, written.results) == (("x", "b"), ("y",))
    assert written.imports == ("import torch", "import triton", "import triton.language as tl")


def test_long_rows_have_one_loop_per_reduction_and_one_for_the_result() -> None:
    written = kernel(PROGRAMS["layer norm"], "norm", SMALL_TILES)
    body = written.text.partition('"""\n    row')[2]
    assert body.count("for start in range(0, 40, COLUMNS):") == 3
    assert body.count("tl.load(g_ptr") == 1
    assert body.count("tl.store(") == 2


def test_a_full_reduction_has_two_stages() -> None:
    written = kernel(PROGRAMS["loss"], "loss", SMALL_TILES)
    assert [launch.function for launch in written.launches] == ["loss_parts", "loss_kernel"]
    assert written.launch.splitlines()[:2] == [
        "l = torch.empty((), dtype=torch.float32, device=x.device)",
        "s_parts = torch.empty((6,), dtype=torch.float32, device=x.device)",
    ]
    assert "What follows from the parts that `loss_parts` reduced." in written.text


def test_kernel_identifiers_are_derived_from_value_names() -> None:
    assert [identifier(name) for name in ("h", "h.1", "3", "lambda", "a-b", "x_ptr")] == [
        "h", "h_1", "v3", "lambda_", "a_b", "x_ptr_",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_literals_do_not_exceed_the_largest_f32(dtype: str) -> None:
    largest = float(np.finfo(np.float32).max)
    assert number_term(0.1, "f32").text == "0.1"
    for value in (largest, -largest, 3.3e38, 65504.0):
        text = number_term(value, dtype).text
        assert text.startswith("float(") or abs(float(text)) <= largest


@pytest.mark.parametrize(
    ("dtype", "as_xla", "name"),
    [("f32", True, "erf_inv"), ("f32", False, "libdevice.erfinv"), ("bf16", True, "erf_inv"),
     ("f64", True, "libdevice.erfinv")],
)  # fmt: skip
def test_erf_inv_with_as_xla_calls_the_helper_function(dtype: str, as_xla: bool, name: str) -> None:
    module = single_group_module(
        [TensorType((100,), dtype)],
        lambda b, params: [b.erf_inv(b.neg(params[0]), as_xla=as_xla)],
    )
    written = write_kernel(module.main.body.ops[0], "group")
    assert isinstance(written, KernelText)
    assert f" {name}(" in written.text.partition('"""\n    at')[2]


def test_names_of_values_do_not_conflict() -> None:
    """Values have the names of variables of kernels, of Python keywords, or of each other after
    escaping."""
    text = """\
func @f(
  %mask: f32[300],
  %tl: f32[300],
  %at: f32[300],
  %a.b: f32[300],
  %a_b: f32[300],
) -> (f32[300]) {
  %lambda = add(%mask, %tl) : f32[300]
  %maximum = maximum(%lambda, %at) : f32[300]
  %group_kernel = mul(%maximum, %a.b) : f32[300]
  %x_ptr = sub(%group_kernel, %a_b) : f32[300]
  return %x_ptr
}
"""
    written = kernel(text)
    assert written.operands == ("mask", "tl_1", "at", "a_b", "a_b_1")
    assert written.results == ("x_ptr_",)
    assert written.helpers == ("maximum",)
    assert "maximum_1 = maximum(lambda_, at)" in written.text
    assert "mask_1 = at_1 < 300" in written.text
    compile(kernel_program(written), "program", "exec")


def test_names_with_quotes_do_not_end_the_docstring() -> None:
    b = Builder()
    x = b.param(TensorType((8,), "f32"), 'a"""b\\')
    block = b.block([x], [b.neg(x)])
    z, y = (b.param(TensorType((8,), "f32"), name) for name in ('"""', "y"))
    written = write_kernel(Op(fused, (z,), (y,), {}, (block,)), "odd")
    assert isinstance(written, KernelText)
    assert "%y = neg(%...) : f32[8]" in written.text
    compile(kernel_program(written), "program", "exec")


def test_a_repeated_operand_has_two_names() -> None:
    b = Builder()
    x, y = (b.param(TensorType((8,), "f32")) for _ in range(2))
    block = b.block([x, y], [b.mul(x, b.neg(y))])
    z = b.param(TensorType((8,), "f32"), "z")
    result = b.param(TensorType((8,), "f32"), "r")
    written = write_kernel(Op(fused, (z, z), (result,), {}, (block,)), "square")
    assert isinstance(written, KernelText)
    assert (written.operands, written.results) == (("z", "z_1"), ("r",))


def test_repeated_and_forwarded_results_are_stored_separately() -> None:
    module = single_group_module(
        [TensorType((8,), "f32")], lambda b, params: [y := b.neg(params[0]), y, params[0]]
    )
    written = write_kernel(module.main.body.ops[0], "same")
    assert isinstance(written, KernelText)
    assert written.results == ("r0", "r1", "r2")
    assert written.text.count("tl.store(") == 3


@pytest.mark.parametrize(
    ("rows", "dtype", "reason"),
    [
        (lambda b, x: b.conj(x), "c64", "Triton has no complex numbers, as %{} = conj needs"),
        (lambda b, x: b.neg(x), "c64", "Triton has no c64, the type of %{x}"),
        (lambda b, x: b.eq(x, x), "key", "Triton has no key, the type of %{x}"),
        (lambda b, x: b.digamma(x), "f32", "libdevice has no digamma, as %{} = digamma needs"),
        (
            lambda b, x: b.nextafter(x, x), "f16",
            "libdevice has none for 16 bits, as %{} = nextafter needs",
        ),
    ],
)  # fmt: skip
def test_operations_that_triton_lacks_are_rejected(rows: Any, dtype: str, reason: str) -> None:
    module = single_group_module([TensorType((8,), dtype)], lambda b, params: [rows(b, params[0])])
    (op,) = module.main.body.ops
    (block,) = op.blocks
    named = reason.replace("{}", block.returns[0].name).replace("{x}", block.params[0].name)
    assert write_kernel(op, "group") == KernelRefusal(named)


def test_tensors_without_elements_are_left_to_torch() -> None:
    module = single_group_module([TensorType((0, 3), "f32")], lambda b, params: [b.neg(params[0])])
    (op,) = module.main.body.ops
    name = op.blocks[0].params[0].name
    assert write_kernel(op, "group") == KernelRefusal(f"%{name}: f32[0, 3] has no elements")


def test_few_very_long_rows_are_left_to_torch() -> None:
    text = PROGRAMS["row softmax"].replace("10", "3").replace("24", "4000000")
    assert write_kernel(only_group(text), "softmax") == KernelRefusal(
        "it reduces 3997696 elements one after the other in 3 programs"
    )


def test_the_fusion_pass_excludes_unsupported_operations() -> None:
    assert UNFUSED_OPERATIONS == "bitcast+complex+conj+digamma+imag+nextafter+real"
    text = """\
func @f(%x: f32[8]) -> (f32[8]) {
  %a = digamma(%x) : f32[8]
  %b = add(%a, %x) : f32[8]
  %c = mul(%b, %x) : f32[8]
  return %c
}
"""
    module = Pipeline.parse(f"fuse{{without={UNFUSED_OPERATIONS}}}")(parse(text))
    assert [op.name for op in module.main.body.ops] == ["digamma", "fused"]


def test_helper_functions_include_their_callees() -> None:
    assert find_helpers("y = power(x, n)") == ("power_unsigned", "power")
    assert find_helpers('"""power(x, y)"""\ny = tl.maximum(x, z)') == ()
    assert all(text.startswith("@triton.jit\ndef ") for text in helper_functions().values())
