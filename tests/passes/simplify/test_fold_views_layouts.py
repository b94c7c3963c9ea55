"""`fold-views` at its boundaries: the layouts of operands, and values of one element or none."""

import pytest

from shardir import parse
from tests.passes.simplify.view_folding_cases import check_folded, program
from tests.programs.near_misses import disagreements

SCATTER = """op="add", update_window_dims=[1], inserted_window_dims=[0], scatter_dims=[0]"""
GATHER = "offset_dims=[1], collapsed_dims=[0], start_index_map=[0]"
# The parameters, the result type, the operations, and the operations after the pass.
CASES = {
    "letters of the result and of the sum that are contiguous": (
        "%u: f32[24], %v: f32[24]",
        "f32[4]",
        """\
  %a = reshape(%u) : f32[4, 6]
  %b = reshape(%v) : f32[4, 6]
  %y = dot(%a, %b, dims="ab,ab->a") : f32[4]""",
        ["reshape", "reshape", "dot"],
    ),
    "padding of a constant row": (
        "%z: f32[], %x: f32[3, 3]",
        "f32[3, 3]",
        """\
  %a = constant(value=2.0) : f32[1, 3]
  %b = pad(%a, %z, low=[2, 0], high=[0, 0], interior=[0, 0]) : f32[3, 3]
  %y = mul(%b, %x) : f32[3, 3]""",
        ["constant", "pad", "mul"],
    ),
    "padding of two dimensions of size 1": (
        "%x: f32[4], %z: f32[]",
        "f32[3, 2, 4]",
        """\
  %a = reshape(%x) : f32[1, 1, 4]
  %y = pad(%a, %z, low=[1, 0, 0], high=[1, 1, 0], interior=[0, 0, 0]) : f32[3, 2, 4]""",
        ["reshape", "pad", "transpose"],
    ),
    "a scalar and a constant joined along a dimension of size 1": (
        "%x: f32[]",
        "f32[3, 4]",
        """\
  %a = broadcast(%x, dims=[]) : f32[1, 4]
  %b = constant(value=2.0) : f32[2, 4]
  %y = concatenate(%a, %b, dim=0) : f32[3, 4]""",
        ["reshape", "constant", "concatenate", "broadcast"],
    ),
    "a row of a constant that is looked up": (
        "%x: f32[5, 4], %i: i32[5, 1]",
        "f32[5, 4]",
        f"""\
  %a = constant(value=2.0) : f32[1, 4]
  %b = gather(%a, %i, {GATHER}) : f32[5, 4]
  %y = mul(%x, %b) : f32[5, 4]""",
        ["constant", "gather", "mul"],
    ),
    "columns that are looked up": (
        "%x: f32[4, 6], %i: i32[5, 1]",
        "f32[4, 5]",
        """\
  %y = gather(%x, %i, offset_dims=[0], collapsed_dims=[1], start_index_map=[1]) : f32[4, 5]""",
        ["gather"],
    ),
    "indices of which one is used twice": (
        "%x: f32[6, 6], %i: i32[5]",
        "f32[5]",
        """\
  %j = broadcast(%i, dims=[0]) : i32[5, 2]
  %y = gather(%x, %j, offset_dims=[], collapsed_dims=[0, 1], start_index_map=[0, 1]) : f32[5]""",
        ["broadcast", "gather"],
    ),
    "rows that are added at the same index": (
        "%x: f32[6, 4], %i: i32[1], %u: f32[5, 4]",
        "f32[6, 4]",
        f"""\
  %j = broadcast(%i, dims=[1]) : i32[5, 1]
  %y = scatter(%x, %j, %u, {SCATTER}) : f32[6, 4]""",
        ["broadcast", "scatter"],
    ),
    "rows whose columns have two parts that are added to a broadcast": (
        "%x: f32[6], %i: i32[5, 1], %u: f32[2, 5, 3]",
        "f32[6, 6]",
        f"""\
  %a = broadcast(%x, dims=[0]) : f32[6, 6]
  %b = transpose(%u, perm=[1, 0, 2]) : f32[5, 2, 3]
  %c = reshape(%b) : f32[5, 6]
  %y = scatter(%a, %i, %c, {SCATTER}) : f32[6, 6]""",
        ["broadcast", "transpose", "scatter", "reshape"],
    ),
    "a number that is added to a constant of one element": (
        "%x: f32[2, 3], %i: i32[5, 1], %u: f32[5, 1]",
        "f32[2, 3]",
        f"""\
  %a = constant(value=2.0) : f32[1, 1]
  %b = scatter(%a, %i, %u, {SCATTER}) : f32[1, 1]
  %c = reshape(%b) : f32[]
  %d = broadcast(%c, dims=[]) : f32[2, 3]
  %y = mul(%x, %d) : f32[2, 3]""",
        ["constant", "reshape", "scatter", "reshape", "broadcast", "mul"],
    ),
    "as many broadcast columns as rows that are added to a constant": (
        "%x: f32[4], %i: i32[4, 1]",
        "f32[6, 4]",
        f"""\
  %a = constant(value=0.0) : f32[6, 4]
  %u = broadcast(%x, dims=[0]) : f32[4, 4]
  %y = scatter(%a, %i, %u, {SCATTER}) : f32[6, 4]""",
        ["constant", "broadcast", "scatter"],
    ),
    "rows of one dimension that are added to a constant": (
        "%x: f32[20], %i: i32[5, 1]",
        "f32[6, 4]",
        f"""\
  %a = constant(value=0.0) : f32[6, 4]
  %u = reshape(%x) : f32[5, 4]
  %y = scatter(%a, %i, %u, {SCATTER}) : f32[6, 4]""",
        ["constant", "reshape", "scatter"],
    ),
    "an update of a broadcast row with a broadcast": (
        "%x: f32[4], %u: f32[2], %i: i32[]",
        "f32[4, 3]",
        """\
  %o = constant(value=0) : i32[]
  %a = broadcast(%x, dims=[0]) : f32[4, 3]
  %b = broadcast(%u, dims=[0]) : f32[2, 3]
  %y = dynamic_update_slice(%a, %b, %i, %o) : f32[4, 3]""",
        ["dynamic_update_slice", "broadcast"],
    ),
    "a loop over parts of a value that it carries": (
        "%x: f32[4, 6]",
        "f32[6, 4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[6, 4]
  %y = scan(%a, carries=1, length=2) : f32[6, 4] {
    (%c: f32[6, 4]) =>
    %b = reshape(%c) : f32[3, 2, 4]
    %d = slice(%b, starts=[0, 1, 0], strides=[1, 1, 1]) : f32[3, 1, 4]
    %e = concatenate(%d, %d, dim=1) : f32[3, 2, 4]
    %g = reshape(%e) : f32[6, 4]
    yield %g
  }""",
        ["scan", "transpose"],
    ),
    "a checkpoint of transposed values": (
        "%x: f32[4, 6]",
        "f32[4, 6]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[6, 4]
  %b = checkpoint(%a) : f32[4, 6] {
    (%c: f32[6, 4]) =>
    %d = transpose(%c, perm=[1, 0]) : f32[4, 6]
    %e = exp(%d) : f32[4, 6]
    yield %e
  }
  %y = neg(%b) : f32[4, 6]""",
        ["transpose", "checkpoint", "neg"],
    ),
    "arrays without elements": (
        "%x: f32[0, 4]",
        "f32[2, 0]",
        """\
  %a = reshape(%x) : f32[0, 2]
  %b = transpose(%a, perm=[1, 0]) : f32[2, 0]
  %y = exp(%b) : f32[2, 0]""",
        ["reshape", "transpose", "exp"],
    ),
    "a scan of values that get their layouts from each other": (
        "%x: f32[3, 4]",
        "f32[4, 3]",
        """\
  %z = constant(value=0.0) : f32[4, 3]
  %y, %v = scan(%z, %z, carries=2, length=3) : f32[4, 3], f32[4, 3] {
    (%a: f32[4, 3], %b: f32[4, 3]) =>
    %t = transpose(%x, perm=[1, 0]) : f32[4, 3]
    yield %b, %t
  }""",
        ["constant", "constant", "scan"],
    ),
    "a loop of values that get their layouts from each other": (
        "%x: f32[3, 4], %n: i32[]",
        "f32[4, 3]",
        """\
  %z = constant(value=0.0) : f32[4, 3]
  %y, %v, %i = while(%z, %z, %n) : f32[4, 3], f32[4, 3], i32[] {
    (%c: f32[4, 3], %d: f32[4, 3], %j: i32[]) =>
    %five = constant(value=5) : i32[]
    %p = lt(%j, %five) : bool[]
    yield %p
  } {
    (%a: f32[4, 3], %b: f32[4, 3], %k: i32[]) =>
    %t = transpose(%x, perm=[1, 0]) : f32[4, 3]
    %one = constant(value=1) : i32[]
    %l = add(%k, %one) : i32[]
    yield %b, %t, %l
  }""",
        ["constant", "constant", "while"],
    ),
    "a loop that starts with a constant of one element": (
        "%x: f32[1, 1]",
        "f32[1, 1]",
        """\
  %a = constant(value=0.0) : f32[1, 1]
  %y = scan(%a, carries=1, length=3) : f32[1, 1] {
    (%c: f32[1, 1]) =>
    %t = constant(value=2.0) : f32[1, 1]
    yield %t
  }""",
        ["constant", "scan"],
    ),
    "a branch that returns a constant of one element": (
        "%x: f32[1, 1], %p: bool[]",
        "f32[1, 1]",
        """\
  %y = case(%p) : f32[1, 1] {
    %a = constant(value=2.0) : f32[1, 1]
    yield %a
  } {
    yield %x
  }""",
        ["case"],
    ),
    "scalars of arrays": (
        "%x: f32[1, 1], %z: f32[1, 1]",
        "f32[]",
        """\
  %a = reshape(%x) : f32[]
  %b = reshape(%z) : f32[]
  %y = add(%a, %b) : f32[]""",
        ["reshape", "reshape", "add"],
    ),
    "operands that are split in incompatible ways": (
        "%x: f32[2, 3], %z: f32[3, 2]",
        "f32[6]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 2]
  %b = reshape(%a) : f32[6]
  %c = transpose(%z, perm=[1, 0]) : f32[2, 3]
  %d = reshape(%c) : f32[6]
  %y = add(%b, %d) : f32[6]""",
        ["transpose", "reshape", "transpose", "reshape", "add"],
    ),
    "the product of transposed values": (
        "%x: f32[3, 4]",
        "f32[4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[4, 3]
  %y = prod(%a, dims=[1]) : f32[4]""",
        ["prod"],
    ),
    "a slice of columns that were split and joined": (
        "%x: f32[6, 4]",
        "f32[4, 2]",
        """\
  %a = reshape(%x) : f32[2, 3, 4]
  %b = transpose(%a, perm=[2, 0, 1]) : f32[4, 2, 3]
  %c = reshape(%b) : f32[4, 6]
  %y = slice(%c, starts=[0, 1], strides=[1, 3]) : f32[4, 2]""",
        ["slice", "transpose"],
    ),
    "parts of different dimensions of which one strides over as many elements": (
        "%x: f32[4, 2]",
        "f32[4, 2]",
        """\
  %a = reshape(%x) : f32[2, 2, 2]
  %b = transpose(%a, perm=[0, 2, 1]) : f32[2, 2, 2]
  %c = reshape(%b) : f32[4, 2]
  %y = exp(%c) : f32[4, 2]""",
        ["exp", "reshape", "transpose", "reshape"],
    ),
    "two broadcast dimensions joined": (
        "%x: f32[4]",
        "f32[6, 4]",
        """\
  %a = broadcast(%x, dims=[2]) : f32[2, 3, 4]
  %y = reshape(%a) : f32[6, 4]""",
        ["broadcast"],
    ),
    "an operation along one dimension of a transposed value": (
        "%x: f32[4, 3]",
        "f32[3, 4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 4]
  %y = sort(%a, dim=1) : f32[3, 4]""",
        ["transpose", "sort"],
    ),
}


@pytest.mark.parametrize(("params", "result", "operations", "after"), CASES.values(), ids=CASES)
def test_operations_after_the_pass(
    params: str, result: str, operations: str, after: list[str]
) -> None:
    check_folded(parse(program(params, result, operations)), after)


@pytest.mark.parametrize(("params", "result", "operations", "_"), CASES.values(), ids=CASES)
def test_programs_that_resemble_these_keep_their_results(
    params: str, result: str, operations: str, _: list[str]
) -> None:
    found = disagreements(parse(program(params, result, operations)), "fold-views,cse,dce")
    assert not found, found[0]
