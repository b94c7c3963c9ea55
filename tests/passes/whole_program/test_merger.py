"""Operations of devices as operations of one program: their form, and what is computed once."""

import numpy as np
import pytest

from shardir import parse
from shardir.errors import MergeError
from shardir.extend import define_op
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from tests.passes.whole_program.merge_comparison import merged, merged_difference, names, run_merged
from tests.registries import restored_registries

SHARDED = "%x: f32[2, 3] of f32[8@a, 3]"
REPLICATED = "%x: f32[2, 3] of f32[2, 3]"


def program(
    operations: str, params: str = SHARDED, result: str = "f32[2, 3] of f32[24@(a, b), 3]"
) -> Module:
    return parse(f"""\
mesh @m = [a=4, b=3, c=1]

spmd func @main({params}) -> ({result}) {{
{operations}
  return %z
}}
""")


INDEX = """\
  %i = axis-index(axes=[AXIS]) : i32[]
  %o = constant(value=0) : i32[]
"""
CASES = {
    "constants that differ are broadcast": (
        program("""\
  %c = constant(value=dense(f32, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])) : f32[2, 3]
  %z = add(%x, %c) : f32[2, 3]"""),
        ["reshape", "constant", "broadcast", "add", "broadcast", "reshape"],
    ),
    "the largest of equal values": (
        program("  %z = all-reduce(%x, axes=[b], op=max) : f32[2, 3]"),
        ["reshape", "broadcast", "reshape"],
    ),
    "any of equal values": (
        program(
            "  %z = all-reduce(%x, axes=[b], op=add) : bool[2, 3]",
            "%x: bool[2, 3] of bool[8@a, 3]",
            "bool[2, 3] of bool[24@(a, b), 3]",
        ),
        ["reshape", "broadcast", "reshape"],
    ),
    "the sum of equal integers": (
        program(
            "  %z = all-reduce(%x, axes=[b], op=add) : i32[2, 3]",
            "%x: i32[2, 3] of i32[8@a, 3]",
            "i32[2, 3] of i32[24@(a, b), 3]",
        ),
        ["reshape", "constant", "mul", "broadcast", "reshape"],
    ),
    "the sum of four equal floats": (
        program("  %z = all-reduce(%x, axes=[a], op=add) : f32[2, 3]", REPLICATED),
        ["constant", "mul", "broadcast", "reshape"],
    ),
    "the sum of three equal floats": (
        program("  %z = all-reduce(%x, axes=[b], op=add) : f32[2, 3]"),
        ["reshape", "broadcast", "sum", "broadcast", "reshape"],
    ),
    "the sum of four equal complex numbers": (
        program(
            "  %z = all-reduce(%x, axes=[a], op=add) : c64[2, 3]",
            "%x: c64[2, 3] of c64[2, 3]",
            "c64[2, 3] of c64[2, 3]",
        ),
        ["broadcast", "sum"],
    ),
    "what each device sends to itself": (
        program(
            "  %z = collective-permute(%x, axes=[b], pairs=[[0, 0], [1, 1], [2, 2]]) : f32[2, 3]",
            "%x: f32[2, 3] of f32[24@(a, b), 3]",
        ),
        ["reshape", "reshape"],
    ),
    "the position along an axis of size 1": (
        program("""\
  %i = axis-index(axes=[c]) : i32[]
  %j = convert(%i) : f32[]
  %k = broadcast(%j, dims=[]) : f32[2, 3]
  %z = add(%x, %k) : f32[2, 3]"""),
        ["reshape", "constant", "convert", "broadcast", "broadcast", "add", "broadcast", "reshape"],
    ),
    "a result that a call returns twice": (
        program("""\
  %p, %q = call(%x, callee="g") : f32[2, 3], f32[2, 3] {
    (%d: f32[2, 3]) =>
    %s = exp(%d) : f32[2, 3]
    yield %s, %s
  }
  %z = add(%p, %q) : f32[2, 3]"""),
        ["reshape", "exp", "add", "broadcast", "reshape"],
    ),
    "a result that a branch of each device returns twice": (
        program("""\
  %i = axis-index(axes=[a]) : i32[]
  %p, %q = case(%i) : f32[2, 3], f32[2, 3] {
    %s = exp(%x) : f32[2, 3]
    yield %s, %s
  } {
    yield %x, %x
  }
  %z = add(%p, %q) : f32[2, 3]"""),
        None,
    ),
    "a loop that is the same on all devices": (
        program(
            """\
  %s = scan(%v, carries=0, length=5) : f32[5, 3] {
    (%d: f32[3]) =>
    %e = exp(%d) : f32[3]
    yield %e
  }
  %t = sum(%s, dims=[0]) : f32[3]
  %u = broadcast(%t, dims=[1]) : f32[2, 3]
  %z = add(%x, %u) : f32[2, 3]""",
            f"{SHARDED}, %v: f32[5, 3] of f32[5, 3]",
        ),
        ["reshape", "scan", "exp", "sum", "broadcast", "broadcast", "add", "broadcast", "reshape"],
    ),
    "a loop over the position of a device": (
        program("""\
  %i = axis-index(axes=[a]) : i32[]
  %j = scan(%i, carries=1, length=2) : i32[] {
    (%d: i32[]) =>
    %e = add(%d, %d) : i32[]
    yield %e
  }
  %k = convert(%j) : f32[]
  %l = broadcast(%k, dims=[]) : f32[2, 3]
  %z = add(%x, %l) : f32[2, 3]"""),
        ["reshape", "iota", "scan", "add", "convert", "broadcast", "add", "broadcast", "reshape"],
    ),
    "a slice at the same place on all devices": (
        program(
            """\
  %o = constant(value=1) : i32[]
  %z = dynamic_slice(%x, %o, %o) : f32[1, 2]""",
            result="f32[1, 2] of f32[12@(a, b), 2]",
        ),
        ["reshape", "constant", "constant", "dynamic_slice", "broadcast", "reshape"],
    ),
    "an update at the same place on all devices": (
        program("""\
  %o = constant(value=1) : i32[]
  %y = slice(%x, starts=[0, 0], strides=[1, 1]) : f32[1, 2]
  %z = dynamic_update_slice(%x, %y, %o, %o) : f32[2, 3]"""),
        ["reshape", "constant", "slice", "constant", "dynamic_update_slice", "broadcast",
         "reshape"],
    ),
    "columns of a device's own": (
        program(
            INDEX.replace("AXIS", "b") + "  %z = dynamic_slice(%x, %o, %i) : f32[2, 1]",
            result="f32[2, 1] of f32[24@(a, b), 1]",
        ),
        ["reshape", "iota", "constant", "reshape", "transpose", "reshape"],
    ),
    "columns of a device's own values": (
        program(
            INDEX.replace("AXIS", "a") + "  %z = dynamic_slice(%x, %o, %i) : f32[2, 1]",
            "%x: f32[2, 4] of f32[8@a, 4]",
            "f32[2, 1] of f32[24@(a, b), 1]",
        ),
        ["reshape", "iota", "constant", "reshape", "transpose", "reshape", "slice", "broadcast",
         "reshape"],
    ),
    "windows that overlap": (
        program(
            INDEX.replace("AXIS", "b") + "  %z = dynamic_slice(%x, %o, %i) : f32[2, 2]",
            "%x: f32[2, 4] of f32[8@a, 4]",
            "f32[2, 2] of f32[24@(a, b), 2]",
        ),
        ["reshape", "iota", "constant", *["slice", "reshape"] * 3, "concatenate", "transpose",
         "reshape"],
    ),
    "windows whose starts are clamped to the same number": (
        program(
            INDEX.replace("AXIS", "b")
            + """\
  %n = constant(value=9) : i32[]
  %j = add(%i, %n) : i32[]
  %w = dynamic_slice(%x, %o, %j) : f32[2, 2]
  %z = exp(%w) : f32[2, 2]""",
            "%x: f32[2, 4] of f32[8@a, 4]",
            "f32[2, 2] of f32[24@(a, b), 2]",
        ),
        ["reshape", "iota", "constant", "constant", "constant", "add", "slice", "exp", "broadcast",
         "reshape"],
    ),
    "random numbers of a device's own": (
        program(
            INDEX.replace("AXIS", "a")
            + """\
  %two = constant(value=2) : i32[]
  %s = mul(%i, %two) : i32[]
  %z = random_bits_at(%k, %s, %o, shape=[8, 3], scheme="partitionable") : u32[2, 3]""",
            "%k: key[] of key[]",
            "u32[2, 3] of u32[24@(a, b), 3]",
        ),
        ["iota", "constant", "constant", "constant", "mul", "random_bits", "reshape", "broadcast",
         "reshape"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("module", "operations"), CASES.values(), ids=CASES)
def test_operations_of_the_merged_program(module: Module, operations: list[str] | None) -> None:
    one = merged(module)
    assert operations is None or names(one.main) == operations, str(one)
    assert not merged_difference(module, one, random_arguments(module, whole=True))


def test_a_sum_of_equal_infinities_has_no_nan() -> None:
    """The product of an infinite complex number with a count has one."""
    module, _ = CASES["the sum of four equal complex numbers"]
    x = np.full((2, 3), np.inf + 0j, np.complex64)
    (want,), (got,) = run(module, [x]), run_merged(module, merged(module), [x])
    np.testing.assert_array_equal(got, want)


def test_operations_on_values_that_no_device_sends_are_computed_once() -> None:
    one = merged(program("""\
  %y = collective-permute(%x, axes=[b], pairs=[]) : f32[2, 3]
  %z = exp(%y) : f32[2, 3]"""))  # fmt: skip
    (exponential,) = (op for op in one.main.body.ops if op.name == "exp")
    assert exponential.result.type.shape == (2, 3)


def test_numbers_past_the_end_are_those_of_other_rows() -> None:
    module = program(
        INDEX.replace("AXIS", "a")
        + """\
  %two = constant(value=2) : i32[]
  %s = mul(%i, %two) : i32[]
  %z = random_bits_at(%k, %s, %o, shape=[7, 3], scheme="partitionable") : u32[2, 3]""",
        "%k: key[] of key[]",
        "u32[2, 3] of u32[7@a, 3]",
    )
    assert not merged_difference(module, merged(module), random_arguments(module))


def test_many_places_are_a_scatter() -> None:
    module = parse("""\
mesh @m = [a=65]

spmd func @main(%x: f32[65] of f32[65], %u: f32[1] of f32[65@a]) -> (f32[65] of f32[4225@a]) {
  %i = axis-index(axes=[a]) : i32[]
  %z = dynamic_update_slice(%x, %u, %i) : f32[65]
  return %z
}
""")
    one = merged(module)
    assert names(one.main).count("dynamic_update_slice") <= 1
    assert not merged_difference(module, one, random_arguments(module, whole=True))


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
ONES = ", ".join(["1"] * 26)
REFUSED = {
    f'%z = dot(%x, %w, dims="{LETTERS[:26]},{LETTERS[26:]}->") : f32[]': (
        "%z = dot has more factors than there are letters"
    ),
    """%z = checkpoint(%x) : f32[ONES] {
    (%d: f32[ONES]) =>
    %s = exp(%d) : f32[ONES]
    yield %s
  }""": "%z = checkpoint has operations inside; run the pass inline before",
    "%z = only-here(%x) : f32[ONES]": "%z = only-here is defined only per device",
    "%z = no-batches(%x) : f32[ONES]": "%z = no-batches has no batching rule",
}


@pytest.mark.parametrize(("operation", "message"), REFUSED.items())
def test_refused_operations(operation: str, message: str) -> None:
    with restored_registries():
        define_op("only-here", type=lambda x, *, result: x, spmd=True)
        define_op("no-batches", type=lambda x, *, result: x)
        type = "f32[]" if operation.endswith("f32[]") else "f32[ONES]"
        text = f"""\
mesh @m = [a=2]

spmd func @main(
  %x: f32[ONES] of f32[2@a, REST], %w: f32[ONES] of f32[ONES]
) -> ({type} of {type}) {{
  {operation}
  return %z
}}
"""
        module = parse(text.replace("ONES", ONES).replace("REST", ONES.removeprefix("1, ")))
        with pytest.raises(MergeError) as error:
            merged(module)
    if "run" not in message:
        message += "; run the program without the pass merge-devices"
    assert str(error.value).partition("\n")[0] == message


def test_an_offset_of_random_numbers_must_be_known() -> None:
    module = program(
        """\
  %z = random_bits_at(%k, %n, %n, shape=[8, 3], scheme="partitionable") : u32[2, 3]""",
        "%k: key[] of key[], %n: i32[] of i32[]",
        "u32[2, 3] of u32[24@(a, b), 3]",
    )
    with pytest.raises(MergeError) as error:
        merged(module)
    assert str(error.value).partition("\n")[0] == (
        "%z = random_bits_at has an offset that is unknown at compile time; run the program "
        "without the pass merge-devices"
    )
