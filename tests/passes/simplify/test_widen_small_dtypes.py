"""`widen-small-dtypes`: operations on small dtypes as operations on bytes and wider dtypes."""

import numpy as np
import pytest

from shardir import parse
from shardir.errors import OperationTypeError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import parameter_types
from shardir.ir.dtypes import DTYPE_INFO, SMALL_DTYPES
from shardir.ir.module import Module
from shardir.ir.types import NumpyArray, TensorType
from shardir.passes import Pipeline
from shardir.verify.verifier import verify


def widen(module: Module) -> Module:
    return Pipeline.parse("widen-small-dtypes")(module, lambda step, old, new, _: verify(new))


def all_codes(type: TensorType) -> NumpyArray:
    """Return an array in which each element of a small dtype occurs, or small integers."""
    bits = DTYPE_INFO[type.dtype].bits
    if type.dtype not in SMALL_DTYPES:
        return (np.arange(type.size) % 7 - 3).reshape(type.shape).astype(type.numpy)
    codes = (np.arange(type.size) * 37 % (1 << bits)).astype(np.uint8)
    return codes.reshape(type.shape).view(type.numpy)


def check(text: str) -> list[str]:
    """Check that results have the same bits, and return the operations after the pass."""
    module = parse(text)
    made = widen(module)
    arguments = [all_codes(type) for type in parameter_types(module)]
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        exact = np.asarray(want).astype(np.complex128), np.asarray(got).astype(np.complex128)
        np.testing.assert_array_equal(*exact)
    for op in made.main.body.walk():
        if any(value.type.dtype in SMALL_DTYPES for value in op.tensors):
            assert op.name in ("bitcast", "convert"), op
    return [op.name for op in made.main.body.walk()]


def test_a_function_without_small_dtypes_is_returned_as_it_is() -> None:
    module = parse("func @f(%x: f16[4]) -> (f16[4]) {\n  %y = exp(%x) : f16[4]\n  return %y\n}\n")
    assert widen(module).main is module.main


LOOP = """\
func @f(%x: DTYPE[256], %z: i32[256], %n: i32[]) -> (DTYPE[256], i32[256]) {
  %y, %w = scan(%x, %z, carries=2, length=3) : DTYPE[256], i32[256] {
    (%a: DTYPE[256], %b: i32[256]) =>
    %c = add(%a, %a) : DTYPE[256]
    %d = neg(%b) : i32[256]
    yield %c, %d
  }
  return %y, %w
}
"""


@pytest.mark.parametrize("dtype", SMALL_DTYPES)
def test_loops_carry_codes_beside_other_values(dtype: str) -> None:
    names = check(LOOP.replace("DTYPE", dtype))
    assert {"scan", "add", "neg"} <= set(names)


def test_a_loop_without_small_values_may_contain_them() -> None:
    names = check("""\
func @f(%x: f32[8]) -> (f32[8]) {
  %y = scan(%x, carries=1, length=2) : f32[8] {
    (%a: f32[8]) =>
    %b = convert(%a) : f8e5m2[8]
    %c = mul(%b, %b) : f8e5m2[8]
    %d = convert(%c) : f32[8]
    yield %d
  }
  return %y
}
""")
    assert {"scan", "mul"} <= set(names)


def test_an_operation_on_other_dtypes_is_the_same() -> None:
    module = parse("""\
func @f(%x: f32[8], %s: f8e5m2[8]) -> (f32[8], f8e5m2[8]) {
  %y = exp(%x) : f32[8]
  return %y, %s
}
""")
    (kept,) = (op for op in widen(module).main.body.ops if op.name == "exp")
    assert kept is module.main.body.ops[0]


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        ("f8e4m3fn", "u8", ["bitcast"]),
        ("u8", "f8e5m2", ["bitcast"]),
        # The code of the parameter is widened to a byte, and that of the result narrowed.
        ("i4", "u4", ["bitcast", "convert", "convert"]),
    ],
)
def test_a_reinterpretation_of_codes_is_none(source: str, target: str, names: list[str]) -> None:
    assert check(f"""\
func @f(%x: {source}[256]) -> ({target}[256]) {{
  %y = bitcast(%x) : {target}[256]
  return %y
}}
""") == names  # fmt: skip


def test_a_conversion_to_the_same_dtype_is_none() -> None:
    assert check("""\
func @f(%x: f8e4m3fn[256]) -> (f8e4m3fn[256]) {
  %y = convert(%x) : f8e4m3fn[256]
  return %y
}
""") == ["bitcast", "bitcast"]  # fmt: skip


@pytest.mark.parametrize("target", ["u8", "i8", "u4", "f32", "f8e5m2", "bool", "c64"])
def test_conversions_in_a_loop_that_compute_nothing(target: str) -> None:
    """The code of an unsigned integer is its number, so that no operation defines the result."""
    check(f"""\
func @f(%x: u4[2, 16]) -> ({target}[2, 16], u4[2, 16]) {{
  %y, %z = scan(%x, carries=0, length=2) : {target}[2, 16], u4[2, 16] {{
    (%a: u4[16]) =>
    %b = convert(%a) : {target}[16]
    yield %b, %a
  }}
  return %y, %z
}}
""")


def test_a_conversion_does_not_rename_the_operation_before_it() -> None:
    check("""\
func @f(%x: u4[16], %z: f32[16]) -> (u8[16], f32[16]) {
  %w = exp(%z) : f32[16]
  %y = convert(%x) : u8[16]
  return %y, %w
}
""")


@pytest.mark.parametrize("result", ["bf16", "f16", "f32"])
def test_contractions_accumulate_in_f32(result: str) -> None:
    names = check(f"""\
func @f(%x: f8e4m3fn[4, 6], %y: f8e5m2[6, 3]) -> ({result}[4, 3]) {{
  %z = dot(%x, %y, dims="mk,kn->mn") : {result}[4, 3]
  return %z
}}
""")
    assert "dot" in names


def test_comparisons_have_their_own_results() -> None:
    names = check("""\
func @f(%x: i4[16], %y: i4[16]) -> (bool[16], i4[16]) {
  %p = lt(%x, %y) : bool[16]
  %m = maximum(%x, %y) : i4[16]
  return %p, %m
}
""")
    assert names.count("lt") == 1


def test_started_collectives_are_an_error() -> None:
    text = """\
mesh @m = [a=2]

spmd func @f(%x: f8e4m3fn[4] of f8e4m3fn[4]) -> (f8e4m3fn[4] of f8e4m3fn[4]) {
  %s = all-reduce-start(%x, axes=[a], op=add) : f8e4m3fn[4]
  %y = done(%s) : f8e4m3fn[4]
  return %y
}
"""
    with pytest.raises(OperationTypeError) as error:
        widen(parse(text))
    assert str(error.value).partition("\n")[0] == (
        "all-reduce-start of f8e4m3fn[4] cannot be widened, because it ends in another operation; "
        "run this program without the pass overlap"
    )
