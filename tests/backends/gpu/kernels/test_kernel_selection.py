"""The text of kernels: names, forms and refusals."""

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
from tests.backends.gpu.kernels.fused_groups import group
from tests.backends.gpu.kernels.kernel_execution import TINY, program
from tests.backends.gpu.kernels.kernel_programs import PROGRAMS


def only(text: str) -> Op:
    (op,) = [op for op in fuse(parse(text)).main.body.ops if op.spec is fused]
    return op


def kernel(text: str, name: str = "group", sizes: TileSizes | None = None) -> KernelText:
    made = write_kernel(only(text), name, sizes)
    assert isinstance(made, KernelText)
    return made


def test_a_chain_with_a_bias() -> None:
    text = """\
func @f(%x: bf16[6, 50], %b: bf16[50]) -> (bf16[6, 50]) {
  %bb = broadcast(%b, dims=[1]) : bf16[6, 50]
  %h = add(%x, %bb) : bf16[6, 50]
  %c = constant(value=0.5) : bf16[6, 50]
  %y = mul(%h, %c) : bf16[6, 50]
  return %y
}
"""
    made = kernel(text, "scaled")
    assert (
        made.text
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
    assert made.launch == (
        "y = torch.empty((6, 50), dtype=torch.bfloat16, device=x.device)\n"
        "scaled_kernel[(1,)](x, b, y, BLOCK=512, num_warps=2, enable_fp_fusion=False)"
    )
    assert (made.operands, made.results) == (("x", "b"), ("y",))
    assert made.imports == ("import torch", "import triton", "import triton.language as tl")


def test_long_rows_are_walked_once_for_each_round() -> None:
    made = kernel(PROGRAMS["layer norm"], "norm", TINY)
    body = made.text.partition('"""\n    row')[2]
    assert body.count("for start in range(0, 40, COLUMNS):") == 3
    assert body.count("tl.load(g_ptr") == 1
    assert body.count("tl.store(") == 2


def test_the_sum_of_everything_has_two_stages() -> None:
    made = kernel(PROGRAMS["loss"], "loss", TINY)
    assert [launch.function for launch in made.launches] == ["loss_parts", "loss_kernel"]
    assert made.launch.splitlines()[:2] == [
        "l = torch.empty((), dtype=torch.float32, device=x.device)",
        "s_parts = torch.empty((6,), dtype=torch.float32, device=x.device)",
    ]
    assert "What follows from the parts that `loss_parts` reduced." in made.text


def test_values_keep_their_names() -> None:
    assert [identifier(name) for name in ("h", "h.1", "3", "lambda", "a-b", "x_ptr")] == [
        "h", "h_1", "v3", "lambda_", "a_b", "x_ptr_",
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_no_number_is_above_what_triton_takes_for_f32(dtype: str) -> None:
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
def test_the_inverse_of_erf_is_xlas_where_that_is_asked_for(
    dtype: str, as_xla: bool, name: str
) -> None:
    module = group(
        [TensorType((100,), dtype)],
        lambda b, params: [b.erf_inv(b.neg(params[0]), as_xla=as_xla)],
    )
    made = write_kernel(module.main.body.ops[0], "group")
    assert isinstance(made, KernelText)
    assert f" {name}(" in made.text.partition('"""\n    at')[2]


def test_names_clash_with_nothing() -> None:
    """Values that are called as what kernels use, as Python's words, or as each other."""
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
    made = kernel(text)
    assert made.operands == ("mask", "tl_1", "at", "a_b", "a_b_1")
    assert made.results == ("x_ptr_",)
    assert made.helpers == ("maximum",)
    assert "maximum_1 = maximum(lambda_, at)" in made.text
    assert "mask_1 = at_1 < 300" in made.text
    compile(program(made), "program", "exec")


def test_no_name_ends_the_docstring() -> None:
    b = Builder()
    x = b.param(TensorType((8,), "f32"), 'a"""b\\')
    block = b.block([x], [b.neg(x)])
    z, y = (b.param(TensorType((8,), "f32"), name) for name in ('"""', "y"))
    made = write_kernel(Op(fused, (z,), (y,), {}, (block,)), "odd")
    assert isinstance(made, KernelText)
    assert "%y = neg(%...) : f32[8]" in made.text
    compile(program(made), "program", "exec")


def test_a_tensor_given_twice_has_two_names() -> None:
    b = Builder()
    x, y = (b.param(TensorType((8,), "f32")) for _ in range(2))
    block = b.block([x, y], [b.mul(x, b.neg(y))])
    z = b.param(TensorType((8,), "f32"), "z")
    result = b.param(TensorType((8,), "f32"), "r")
    made = write_kernel(Op(fused, (z, z), (result,), {}, (block,)), "square")
    assert isinstance(made, KernelText)
    assert (made.operands, made.results) == (("z", "z_1"), ("r",))


def test_what_is_yielded_twice_or_given_back_is_stored_for_each_result() -> None:
    module = group(
        [TensorType((8,), "f32")], lambda b, params: [y := b.neg(params[0]), y, params[0]]
    )
    made = write_kernel(module.main.body.ops[0], "same")
    assert isinstance(made, KernelText)
    assert made.results == ("r0", "r1", "r2")
    assert made.text.count("tl.store(") == 3


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
def test_what_triton_cannot_do_is_refused(rows: Any, dtype: str, reason: str) -> None:
    module = group([TensorType((8,), dtype)], lambda b, params: [rows(b, params[0])])
    (op,) = module.main.body.ops
    (block,) = op.blocks
    named = reason.replace("{}", block.returns[0].name).replace("{x}", block.params[0].name)
    assert write_kernel(op, "group") == KernelRefusal(named)


def test_nothing_to_compute_is_left_to_torch() -> None:
    module = group([TensorType((0, 3), "f32")], lambda b, params: [b.neg(params[0])])
    (op,) = module.main.body.ops
    name = op.blocks[0].params[0].name
    assert write_kernel(op, "group") == KernelRefusal(f"%{name}: f32[0, 3] has no elements")


def test_few_rows_that_are_too_long_are_left_to_torch() -> None:
    text = PROGRAMS["row softmax"].replace("10", "3").replace("24", "4000000")
    assert write_kernel(only(text), "softmax") == KernelRefusal(
        "it reduces 3997696 elements one after the other in 3 programs"
    )


def test_the_pass_leaves_alone_what_kernels_do_not_hold() -> None:
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


def test_functions_come_with_those_that_they_call() -> None:
    assert find_helpers("y = power(x, n)") == ("power_unsigned", "power")
    assert find_helpers('"""power(x, y)"""\ny = tl.maximum(x, z)') == ()
    assert all(text.startswith("@triton.jit\ndef ") for text in helper_functions().values())
