"""`simplify`: exact rewrites are applied, inexact ones are not."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.interpret.interpreter import run
from shardir.ir.module import Module
from shardir.ir.types import TensorType
from shardir.passes import Pipeline, Simplify
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.dtype_groups import INTEGERS
from tests.passes.sharded_evaluation import annotate_randomly
from tests.programs.bit_exact_programs import exact_difference, must_be_exact
from tests.programs.near_misses import disagreements
from tests.programs.strategies import modules


def run_simplify(text: str) -> Module:
    module = Pipeline.parse("simplify,dce")(parse(text))
    verify(module)
    return module


def function(result: str, *lines: str, mesh: str = "") -> str:
    """A function of some parameters that returns %y."""
    params = "  %x: f32[4, 6],\n  %n: i32[4, 6],\n  %b: bool[4, 6],\n  %z: c64[4, 6],\n"
    ops = "".join(f"  {line}\n" for line in lines)
    return f"{mesh}func @f(\n{params}) -> ({result}) {{\n{ops}  return %y\n}}\n"


def remaining_lines(result: str, *lines: str) -> list[str]:
    """Return the remaining operations and the returned value."""
    module = run_simplify(function(result, *lines))
    text = [line.strip() for line in str(module).splitlines()]
    return [line for line in text if " = " in line or line.startswith("return")]


SAME = [
    ("%c = constant(value=-0.0) : f32[4, 6]", "%y = add(%x, %c) : f32[4, 6]"),
    ("%c = constant(value=-0.0) : f32[4, 6]", "%y = add(%c, %x) : f32[4, 6]"),
    ("%c = constant(value=0.0) : f32[4, 6]", "%y = sub(%x, %c) : f32[4, 6]"),
    ("%c = constant(value=1.0) : f32[4, 6]", "%y = mul(%x, %c) : f32[4, 6]"),
    ("%c = constant(value=1.0) : f32[]", "%d = broadcast(%c, dims=[]) : f32[4, 6]",
     "%y = mul(%d, %x) : f32[4, 6]"),
    ("%c = constant(value=1) : f32[4, 6]", "%y = div(%x, %c) : f32[4, 6]"),
    ("%a = neg(%x) : f32[4, 6]", "%y = neg(%a) : f32[4, 6]"),
    ("%y = maximum(%x, %x) : f32[4, 6]",),
    ("%a = transpose(%x, perm=[1, 0]) : f32[6, 4]", "%y = transpose(%a, perm=[1, 0]) : f32[4, 6]"),
    ("%a = reshape(%x) : f32[24]", "%c = reshape(%a) : f32[2, 12]", "%y = reshape(%c) : f32[4, 6]"),
    ("%a = reverse(%x, dims=[1]) : f32[4, 6]", "%y = reverse(%a, dims=[1]) : f32[4, 6]"),
    ("%a = convert(%x) : f64[4, 6]", "%y = convert(%a) : f32[4, 6]"),
    ("%y = broadcast(%x, dims=[0, 1]) : f32[4, 6]",),
    ("%y = slice(%x, starts=[0, 0], strides=[1, 1]) : f32[4, 6]",),
    ("%c = constant(value=0.0) : f32[]",
     "%y = pad(%x, %c, low=[0, 0], high=[0, 0], interior=[0, 0]) : f32[4, 6]"),
    ("%y = concatenate(%x, dim=0) : f32[4, 6]",),
    ("%y = max(%x, dims=[]) : f32[4, 6]",),
    ("%y = select(%b, %x, %x) : f32[4, 6]",),
    ("%c = constant(value=true) : bool[4, 6]", "%d = neg(%x) : f32[4, 6]",
     "%y = select(%c, %x, %d) : f32[4, 6]"),
]  # fmt: skip


@pytest.mark.parametrize("lines", SAME, ids=lambda lines: lines[-1].partition(" : ")[0])
def test_identities_are_removed(lines: tuple[str, ...]) -> None:
    assert remaining_lines("f32[4, 6]", *lines) == ["return %x"]


DIFFERENT = [
    ("%c = constant(value=0.0) : f32[4, 6]", "%y = add(%x, %c) : f32[4, 6]"),
    ("%c = constant(value=-0.0) : f32[4, 6]", "%y = sub(%x, %c) : f32[4, 6]"),
    ("%c = constant(value=0.0) : f32[4, 6]", "%y = mul(%x, %c) : f32[4, 6]"),
    ("%a = convert(%x) : f16[4, 6]", "%y = convert(%a) : f32[4, 6]"),
    ("%a = convert(%x) : i32[4, 6]", "%y = convert(%a) : f32[4, 6]"),
    ("%a = reverse(%x, dims=[1]) : f32[4, 6]", "%y = reverse(%a, dims=[0]) : f32[4, 6]"),
    ("%y = sub(%x, %x) : f32[4, 6]",),
    ("%a = exp(%x) : f32[4, 6]", "%y = log(%a) : f32[4, 6]"),
    # The neutral number on the left, where it is not neutral.
    ("%c = constant(value=0.0) : f32[4, 6]", "%y = sub(%c, %x) : f32[4, 6]"),
    ("%c = constant(value=1.0) : f32[4, 6]", "%y = div(%c, %x) : f32[4, 6]"),
    ("%c = constant(value=1.0) : f32[4, 6]", "%y = bitcast(%c) : i32[4, 6]"),
    ("%a = slice(%x, starts=[2, 0], strides=[1, 1]) : f32[2, 6]",
     "%y = slice(%a, starts=[2, 0], strides=[1, 1]) : f32[0, 6]"),
    # Constants of other operations than elementwise ones, and of different numbers.
    ("%c = constant(value=2.0) : f32[4, 6]", "%y = cumsum(%c, dim=0, reverse=false) : f32[4, 6]"),
    ("%c = constant(value=dense(f32, [1.0, 2.0])) : f32[2]", "%a = neg(%c) : f32[2]",
     "%y = broadcast(%a, dims=[0]) : f32[2, 6]"),
    ("%c = constant(value=2.0) : f32[4, 6]", "%y = stop_gradient(%c) : f32[4, 6]"),
]  # fmt: skip


@pytest.mark.parametrize("lines", DIFFERENT, ids=lambda lines: " ".join(lines))
def test_inexact_rewrites_are_not_applied(lines: tuple[str, ...]) -> None:
    assert remaining_lines(lines[-1].rpartition(" : ")[2], *lines) == [*lines, "return %y"]


@pytest.mark.parametrize("lines", [*SAME, *DIFFERENT], ids=lambda lines: " ".join(lines))
def test_programs_that_resemble_identities_keep_their_results(lines: tuple[str, ...]) -> None:
    module = parse(function(lines[-1].rpartition(" : ")[2], *lines))
    found = disagreements(module, "simplify,dce", exact_difference)
    assert not found, found[0]


def test_multiplication_of_a_complex_value_by_one_is_kept() -> None:
    lines = ("%c = constant(value=1.0) : c64[4, 6]", "%y = mul(%z, %c) : c64[4, 6]")
    assert remaining_lines("c64[4, 6]", *lines) == [*lines, "return %y"]


@pytest.mark.parametrize("between", ["f32", "f64"])
@pytest.mark.parametrize("given", INTEGERS)
def test_folded_conversions_of_floats_saturate(given: str, between: str) -> None:
    info = np.iinfo(TensorType((), given).numpy)
    values = [info.min, info.min + 1, 0, 1, info.max // 3, info.max - 1, info.max]
    x = np.array(values, info.dtype)
    for made in INTEGERS:
        module = parse(
            f"func @f(\n  %x: {given}[7],\n) -> ({made}[7]) {{\n"
            f"  %a = convert(%x) : {between}[7]\n"
            f"  %y = convert(%a) : {made}[7]\n  return %y\n}}\n"
        )
        simpler = Pipeline.parse("simplify,dce")(module)
        np.testing.assert_array_equal(run(simpler, [x])[0], run(module, [x])[0], f"to {made}")


@pytest.mark.parametrize(
    ("narrow", "wide", "represented"),
    [
        ("bool", "i8", True), ("bool", "f16", True), ("bool", "c64", True),
        ("bool", "f8e4m3", True), ("bool", "f8e8m0fnu", False), ("bool", "i2", True),
        ("i8", "i16", True), ("i16", "i8", False), ("u8", "i8", False), ("i8", "u8", False),
        ("u8", "i16", True), ("i8", "u16", False), ("i8", "bool", False), ("i8", "c64", False),
        ("i16", "f32", True), ("i32", "f32", False), ("i32", "f64", True), ("i64", "f64", False),
        ("i8", "f16", False), ("u32", "f64", True), ("u64", "i64", False),
        ("f16", "f32", True), ("f32", "f16", False), ("bf16", "f16", False),
        ("f16", "bf16", False), ("bf16", "f32", True), ("f32", "f64", True), ("f32", "i64", False),
        ("c64", "c128", False), ("c64", "i64", False), ("c64", "f64", False),
        ("c64", "u64", False),
    ],
)  # fmt: skip
def test_a_type_that_represents_all_numbers_is_left_out(
    narrow: str, wide: str, represented: bool
) -> None:
    module = parse(
        f"func @f(\n  %x: {narrow}[7],\n) -> ({narrow}[7]) {{\n"
        f"  %a = convert(%x) : {wide}[7]\n  %y = convert(%a) : {narrow}[7]\n  return %y\n}}\n"
    )
    simpler = Pipeline.parse("simplify,dce")(module)
    assert len(simpler.main.body.ops) == (0 if represented else 2)


@pytest.mark.parametrize(
    ("types", "joined"),
    [
        (("i32", "i64", "i16"), True),
        (("f32", "f64", "i32"), True),
        (("i32", "f64", "f32"), True),
        (("i32", "f64", "i64"), True),
        (("i32", "f64", "i16"), False),
        (("i32", "f32", "f64"), False),
    ],
)
def test_two_conversions_are_one(types: tuple[str, str, str], joined: bool) -> None:
    given, between, made = types
    module = parse(
        f"func @f(\n  %x: {given}[7],\n) -> ({made}[7]) {{\n"
        f"  %a = convert(%x) : {between}[7]\n  %y = convert(%a) : {made}[7]\n  return %y\n}}\n"
    )
    simpler = Pipeline.parse("simplify,dce")(module)
    assert len(simpler.main.body.ops) == (1 if joined else 2)


def test_a_magnitude_has_no_sign() -> None:
    sign = "%a = neg(%x) : f32[4, 6]"
    first = "%c = abs(%x) : f32[4, 6]"
    assert remaining_lines("f32[4, 6]", sign, "%y = abs(%a) : f32[4, 6]") == [
        "%y = abs(%x) : f32[4, 6]",
        "return %y",
    ]
    assert remaining_lines("f32[4, 6]", first, "%y = abs(%c) : f32[4, 6]") == [first, "return %c"]
    first = "%c = abs(%z) : f32[4, 6]"
    assert remaining_lines("f32[4, 6]", first, "%y = abs(%c) : f32[4, 6]") == [first, "return %c"]


def test_additions_of_integer_zeros_are_removed() -> None:
    lines = ("%c = constant(value=0) : i32[4, 6]", "%y = add(%n, %c) : i32[4, 6]")
    assert remaining_lines("i32[4, 6]", *lines) == ["return %n"]


def test_consecutive_data_movement_is_merged() -> None:
    assert remaining_lines(
        "f32[3]",
        "%a = slice(%x, starts=[1, 0], strides=[2, 1]) : f32[2, 6]",
        "%c = slice(%a, starts=[1, 1], strides=[1, 2]) : f32[1, 3]",
        "%y = reshape(%c) : f32[3]",
    ) == [
        "%c = slice(%x, starts=[3, 1], strides=[2, 2]) : f32[1, 3]",
        "%y = reshape(%c) : f32[3]",
        "return %y",
    ]
    assert remaining_lines(
        "f32[2, 4, 5, 6]",
        "%a = broadcast(%x, dims=[1, 2]) : f32[2, 4, 6]",
        "%y = broadcast(%a, dims=[0, 1, 3]) : f32[2, 4, 5, 6]",
    ) == ["%y = broadcast(%x, dims=[1, 3]) : f32[2, 4, 5, 6]", "return %y"]


def test_arithmetic_on_splats_uses_their_dtype() -> None:
    assert remaining_lines(
        "i8[4]",
        "%a = constant(value=100) : i8[4]",
        "%c = add(%a, %a) : i8[4]",
        "%y = neg(%c) : i8[4]",
    ) == ["%y = constant(value=56) : i8[4]", "return %y"]
    number = "%a = constant(value=complex(1.0, 2.0)) : c64[2]"
    assert remaining_lines("c64[2]", number, "%y = neg(%a) : c64[2]") == [
        "%y = constant(value=complex(-1.0, -2.0)) : c64[2]",
        "return %y",
    ]
    assert remaining_lines(
        "f32[2]", "%a = constant(value=0.1) : f32[2]", "%y = mul(%a, %a) : f32[2]"
    ) == [
        "%y = constant(value=0.010000000707805157) : f32[2]",
        "return %y",
    ]


def test_a_value_with_another_sharding_is_not_substituted() -> None:
    text = """\
mesh @m = [x=2]

func @f(
  %x: f32[4@x],
) -> (f32[4@-]) {
  %a = reshard(%x) : f32[4@-]
  %b = neg(%a) : f32[4@-]
  %c = neg(%b) : f32[4@-]
  return %c
}
"""
    assert str(run_simplify(text)) == text


def test_consecutive_reshards_are_merged() -> None:
    assert "%b = reshard(%x) : f32[4@y]" in str(
        run_simplify("""\
mesh @m = [x=2, y=2]

func @f(
  %x: f32[4@x],
) -> (f32[4@y]) {
  %a = reshard(%x) : f32[4@-]
  %b = reshard(%a) : f32[4@y]
  return %b
}
""")
    )


def test_a_gather_followed_by_a_slice_is_removed() -> None:
    assert "return %x" in str(
        run_simplify("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[2] of f32[4@x],
) -> (f32[2] of f32[4@x]) {
  %a = all-gather(%x, dim=0, axes=[x]) : f32[4]
  %b = all-slice(%a, dim=0, axes=[x]) : f32[2]
  return %b
}
""")
    )


@pytest.mark.parametrize(
    ("exchange", "result"),
    [
        ("all-reduce(%z, axes=[x], op=add)", "f32[2]"),
        ("all-reduce(%z, axes=[x], op=max)", "f32[2]"),
        ("reduce-scatter(%z, dim=0, axes=[x], op=add)", "f32[1]"),
        ("all-gather(%z, dim=0, axes=[x])", "f32[4]"),
        ("collective-permute(%z, axes=[x], pairs=[[0, 1]])", "f32[2]"),
    ],
)
def test_collectives_of_zeros_are_removed(exchange: str, result: str) -> None:
    text = """\
mesh @m = [x=2]

spmd func @f() -> (RESULT of RESULT) {
  %z = constant(value=NUMBER) : f32[2]
  %y = EXCHANGE : RESULT
  return %y
}
""".replace("RESULT", result).replace("EXCHANGE", exchange)
    simpler = str(Simplify()(parse(text.replace("NUMBER", "0.0"))))
    assert f"  %y = constant(value=0.0) : {result}" in simpler
    kept = Simplify(keep="collectives")(parse(text.replace("NUMBER", "0.0")))
    assert f"%y = {exchange}" in str(kept)
    for number in ("-0.0", "1.0"):
        assert f"%y = {exchange}" in str(Simplify()(parse(text.replace("NUMBER", number))))


SHARDED = [
    # A reshard to another sharding, and two of them with a use in between.
    """\
mesh @m = [x=2, y=2]

func @f(
  %x: f32[4@x],
) -> (f32[4@y]) {
  %a = reshard(%x) : f32[4@y]
  return %a
}
""",
    """\
mesh @m = [x=2, y=2]

func @f(
  %x: f32[4@x],
) -> (f32[4@-], f32[4@y]) {
  %a = reshard(%x) : f32[4@-]
  %b = reshard(%a) : f32[4@y]
  return %a, %b
}
""",
    # A slice of a parameter, and a slice of a gather along another dimension.
    """\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[4@-],
) -> (f32[2] of f32[4@x]) {
  %a = all-slice(%x, dim=0, axes=[x]) : f32[2]
  return %a
}
""",
    """\
mesh @m = [x=2]

spmd func @f(
  %x: f32[2, 4] of f32[4@x, 4@-],
) -> (f32[4, 2] of f32[4@-, 4@x]) {
  %a = all-gather(%x, dim=0, axes=[x]) : f32[4, 4]
  %b = all-slice(%a, dim=1, axes=[x]) : f32[4, 2]
  return %b
}
""",
    # A product of zeros.
    """\
mesh @m = [x=2]

spmd func @f() -> (f32[4] of f32[4@-]) {
  %a = constant(value=0.0) : f32[4]
  %b = all-reduce(%a, axes=[x], op=mul) : f32[4]
  return %b
}
""",
]


@pytest.mark.parametrize("text", SHARDED)
def test_other_exchanges_stay(text: str) -> None:
    assert str(run_simplify(text)) == text


@pytest.mark.parametrize("text", SHARDED)
def test_programs_that_resemble_exchanges_keep_their_results(text: str) -> None:
    found = disagreements(parse(text), "simplify,dce", exact_difference)
    assert not found, found[0]


def test_a_reshard_to_the_same_sharding_goes() -> None:
    text = SHARDED[0].replace("4@y", "4@x")
    assert "return %x" in str(run_simplify(text))
    unstated = text.replace("reshard(%x)", "sharding_constraint(%x)").replace(
        "%x: f32[4@x]", "%x: f32[4]"
    )
    assert "sharding_constraint(%x)" in str(run_simplify(unstated))


@pytest.mark.parametrize("operand", ["f32[4]", "f32[4@x, 2@-]", "f32[4@-]"])
@pytest.mark.parametrize("name", ["reshard", "sharding_constraint"])
def test_a_reshard_to_an_unknown_sharding_stays(operand: str, name: str) -> None:
    """Propagation may give its result another sharding than its operand has."""
    shape = "4, 2" if "2@-" in operand else "4"
    text = f"""\
mesh @m = [x=2]

func @f(
  %x: {operand},
) -> (f32[{shape}]) {{
  %a = {name}(%x) : f32[{shape}]
  return %a
}}
"""
    assert str(run_simplify(text)) == text


@pytest.mark.parametrize("sharding", ["4@x", "4@-"])
def test_a_result_with_another_sharding_than_its_operand_stays(sharding: str) -> None:
    text = f"""\
mesh @m = [x=2]

func @f(
  %x: f32[4@x],
) -> (f32[4]) {{
  %a = maximum(%x, %x) : f32[{sharding}]
  return %a
}}
"""
    assert ("maximum" in str(run_simplify(text))) == (sharding == "4@-")


@pytest.mark.parametrize(("dtype", "is_kept"), [("f8e8m0fnu", True), ("f8e4m3fn", False)])
def test_a_constant_zero_of_a_dtype_without_zero_is_no_neutral_element(
    dtype: str, is_kept: bool
) -> None:
    """Subtracting it gives NaN; movements of elements are merged in each dtype."""
    module = run_simplify(f"""\
func @f(%x: {dtype}[2, 3]) -> ({dtype}[2, 3]) {{
  %a = transpose(%x, perm=[1, 0]) : {dtype}[3, 2]
  %b = transpose(%a, perm=[1, 0]) : {dtype}[2, 3]
  %c = constant(value=0.0) : {dtype}[2, 3]
  %y = sub(%b, %c) : {dtype}[2, 3]
  return %y
}}
""")
    assert [op.name for op in module.main.body.ops] == (["constant", "sub"] if is_kept else [])


@given(modules())
def test_global_programs_have_bitwise_equal_results(module: Module) -> None:
    simpler = Simplify()(module)
    verify(simpler)
    must_be_exact(module, simpler)


@given(st.data())
def test_partitioned_programs_have_bitwise_equal_results(data: st.DataObject) -> None:
    module = annotate_randomly(data, data.draw(modules()), lambda _: True)
    resharded = Pipeline.parse("reshard")(module)
    program = Pipeline.parse("partition")(resharded)
    for before, pipeline in ((program, "simplify,cse,dce"), (resharded, "simplify,partition")):
        after = Pipeline.parse(pipeline)(before)
        verify(after)
        must_be_exact(program, after)


def test_users_and_nested_blocks_are_simplified_too() -> None:
    text = """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4], f32[4]) {
  %a = neg(%x) : f32[4]
  %b = neg(%a) : f32[4]
  %c = exp(%b) : f32[4]
  %y = case(%p) : f32[4] {
    %d = sin(%x) : f32[4]
    %e = neg(%d) : f32[4]
    %g = neg(%e) : f32[4]
    yield %g
  } {
    yield %x
  }
  return %c, %y
}
"""
    assert (
        str(run_simplify(text))
        == """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4], f32[4]) {
  %c = exp(%x) : f32[4]
  %y = case(%p) : f32[4] {
    %d = sin(%x) : f32[4]
    yield %d
  } {
    yield %x
  }
  return %c, %y
}
"""
    )


def test_other_operations_are_the_same_objects() -> None:
    module = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  %y = exp(%x) : f32[4]\n  return %y\n}\n")
    assert Simplify()(module).main.body.ops[0] is module.main.body.ops[0]
