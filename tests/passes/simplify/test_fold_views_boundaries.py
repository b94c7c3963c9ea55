"""`fold-views` at its boundaries: constants, and views on which an operation cannot run."""

import pytest

from shardir import parse
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.passes.simplify.view_folding_cases import check_folded, program
from tests.programs.near_misses import disagreements

CONVOLUTION = """strides=[1, 1], padding=[[1, 1], [1, 1]], lhs_dilation=[1, 1], \
rhs_dilation=[1, 1], dims="b01f,01io->b01f\""""
# The parameters, the result type, the operations, and the operations after the pass.
CASES = {
    "a constant operand of a contraction": (
        "%x: f32[4, 6]",
        "f32[4, 3]",
        """\
  %w = constant(value=2.0) : f32[6, 3]
  %y = dot(%x, %w, dims="ab,bc->ac") : f32[4, 3]""",
        ["constant", "dot"],
    ),
    "a letter that operands split in incompatible ways": (
        "%u: f32[2, 3], %v: f32[3, 2]",
        "f32[]",
        """\
  %a = transpose(%u, perm=[1, 0]) : f32[3, 2]
  %b = reshape(%a) : f32[6]
  %c = transpose(%v, perm=[1, 0]) : f32[2, 3]
  %d = reshape(%c) : f32[6]
  %y = dot(%b, %d, dims="a,a->") : f32[]""",
        ["transpose", "reshape", "transpose", "reshape", "dot"],
    ),
    "a summed letter along which an operand is a broadcast": (
        "%u: f32[4, 3], %v: f32[3]",
        "f32[3]",
        """\
  %a = broadcast(%v, dims=[1]) : f32[4, 3]
  %y = dot(%u, %a, dims="ab,ab->b") : f32[3]""",
        ["broadcast", "dot"],
    ),
    "a letter along which both operands are broadcasts": (
        "%u: f32[5, 3], %v: f32[3, 2]",
        "f32[4, 5, 2]",
        """\
  %a = broadcast(%u, dims=[1, 2]) : f32[4, 5, 3]
  %b = broadcast(%v, dims=[1, 2]) : f32[4, 3, 2]
  %y = dot(%a, %b, dims="abc,acd->abd") : f32[4, 5, 2]""",
        ["dot", "broadcast"],
    ),
    "letters that are adjacent in one operand only": (
        "%u: f32[2, 3, 4], %v: f32[3, 2, 4]",
        "f32[4]",
        """\
  %a = reshape(%u) : f32[6, 4]
  %b = transpose(%v, perm=[1, 0, 2]) : f32[2, 3, 4]
  %c = reshape(%b) : f32[6, 4]
  %y = dot(%a, %c, dims="ab,ab->b") : f32[4]""",
        ["dot"],
    ),
    "letters of different dimensions, of which one strides over as many elements": (
        "%x: f32[6, 2], %w: f32[5]",
        "f32[3, 2, 2, 5]",
        """\
  %a = reshape(%x) : f32[3, 2, 2]
  %b = transpose(%a, perm=[0, 2, 1]) : f32[3, 2, 2]
  %y = dot(%b, %w, dims="acb,d->acbd") : f32[3, 2, 2, 5]""",
        ["dot", "reshape", "transpose"],
    ),
    "features of a convolution in another order": (
        "%x: f32[2, 5, 5, 2, 3], %w: f32[3, 3, 6, 4]",
        "f32[2, 5, 5, 4]",
        f"""\
  %a = transpose(%x, perm=[0, 1, 2, 4, 3]) : f32[2, 5, 5, 3, 2]
  %b = reshape(%a) : f32[2, 5, 5, 6]
  %y = convolution(%b, %w, {CONVOLUTION}) : f32[2, 5, 5, 4]""",
        ["reshape", "reshape", "transpose", "reshape", "convolution"],
    ),
    "features of a convolution with groups in another order": (
        "%x: f32[2, 5, 5, 2, 3], %w: f32[3, 3, 3, 4]",
        "f32[2, 5, 5, 4]",
        f"""\
  %a = transpose(%x, perm=[0, 1, 2, 4, 3]) : f32[2, 5, 5, 3, 2]
  %b = reshape(%a) : f32[2, 5, 5, 6]
  %y = convolution(%b, %w, {CONVOLUTION}, groups=2) : f32[2, 5, 5, 4]""",
        ["transpose", "reshape", "convolution"],
    ),
    "batches of a convolution with batch groups in another order": (
        "%x: f32[2, 2, 5, 5, 6], %w: f32[3, 3, 6, 4]",
        "f32[2, 5, 5, 4]",
        f"""\
  %a = transpose(%x, perm=[1, 0, 2, 3, 4]) : f32[2, 2, 5, 5, 6]
  %b = reshape(%a) : f32[4, 5, 5, 6]
  %y = convolution(%b, %w, {CONVOLUTION}, batch_groups=2) : f32[2, 5, 5, 4]""",
        ["transpose", "reshape", "convolution"],
    ),
    "features of a convolution that are a broadcast": (
        "%x: f32[2, 5, 5], %w: f32[3, 3, 6, 4]",
        "f32[2, 5, 5, 4]",
        f"""\
  %a = broadcast(%x, dims=[0, 1, 2]) : f32[2, 5, 5, 6]
  %y = convolution(%a, %w, {CONVOLUTION}) : f32[2, 5, 5, 4]""",
        ["broadcast", "convolution"],
    ),
    "a constant filter": (
        "%x: f32[2, 5, 5, 6]",
        "f32[2, 5, 5, 4]",
        f"""\
  %w = constant(value=1.0) : f32[3, 3, 6, 4]
  %y = convolution(%x, %w, {CONVOLUTION}) : f32[2, 5, 5, 4]""",
        ["constant", "convolution", "reshape", "broadcast"],
    ),
    "features that operands split in incompatible ways": (
        "%x: f32[2, 5, 5, 2, 3], %w: f32[3, 3, 3, 2, 4]",
        "f32[2, 5, 5, 4]",
        f"""\
  %a = transpose(%x, perm=[0, 1, 2, 4, 3]) : f32[2, 5, 5, 3, 2]
  %b = reshape(%a) : f32[2, 5, 5, 6]
  %c = transpose(%w, perm=[0, 1, 3, 2, 4]) : f32[3, 3, 2, 3, 4]
  %d = reshape(%c) : f32[3, 3, 6, 4]
  %y = convolution(%b, %d, {CONVOLUTION}) : f32[2, 5, 5, 4]""",
        ["transpose", "reshape", "transpose", "reshape", "convolution"],
    ),
    "constants joined": (
        "%x: f32[3, 4]",
        "f32[5, 4]",
        """\
  %a = constant(value=1.0) : f32[2, 4]
  %b = constant(value=2.0) : f32[3, 4]
  %y = concatenate(%a, %b, dim=0) : f32[5, 4]""",
        ["constant", "constant", "concatenate"],
    ),
    "a scalar and a constant joined": (
        "%x: f32[]",
        "f32[5, 4]",
        """\
  %a = broadcast(%x, dims=[]) : f32[2, 4]
  %b = constant(value=2.0) : f32[3, 4]
  %y = concatenate(%a, %b, dim=0) : f32[5, 4]""",
        ["broadcast", "constant", "concatenate"],
    ),
    "rows of two parts joined": (
        "%x: f32[2, 3], %z: f32[1]",
        "f32[7]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 2]
  %b = reshape(%a) : f32[6]
  %y = concatenate(%b, %z, dim=0) : f32[7]""",
        ["transpose", "reshape", "concatenate"],
    ),
    "a broadcast dimension joined": (
        "%x: f32[3], %z: f32[1, 3]",
        "f32[5, 3]",
        """\
  %a = broadcast(%x, dims=[1]) : f32[4, 3]
  %y = concatenate(%a, %z, dim=0) : f32[5, 3]""",
        ["broadcast", "concatenate"],
    ),
    "a smaller operand with columns in another order joined": (
        "%x: f32[4, 6], %z: f32[1, 2, 3]",
        "f32[5, 6]",
        """\
  %a = transpose(%z, perm=[0, 2, 1]) : f32[1, 3, 2]
  %b = reshape(%a) : f32[1, 6]
  %y = concatenate(%x, %b, dim=0) : f32[5, 6]""",
        ["reshape", "transpose", "reshape", "concatenate"],
    ),
    "columns that are split in incompatible ways joined": (
        "%x: f32[4, 2, 3], %z: f32[1, 3, 2]",
        "f32[5, 6]",
        """\
  %a = transpose(%x, perm=[0, 2, 1]) : f32[4, 3, 2]
  %b = reshape(%a) : f32[4, 6]
  %c = transpose(%z, perm=[0, 2, 1]) : f32[1, 2, 3]
  %d = reshape(%c) : f32[1, 6]
  %y = concatenate(%b, %d, dim=0) : f32[5, 6]""",
        ["transpose", "reshape", "reshape", "transpose", "reshape", "concatenate"],
    ),
    "a slice of rows of two parts": (
        "%x: f32[2, 3]",
        "f32[4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 2]
  %b = reshape(%a) : f32[6]
  %y = slice(%b, starts=[1], strides=[1]) : f32[4]""",
        ["transpose", "reshape", "slice"],
    ),
    "a slice of a broadcast dimension": (
        "%x: f32[3]",
        "f32[2, 3]",
        """\
  %a = broadcast(%x, dims=[1]) : f32[4, 3]
  %y = slice(%a, starts=[1, 0], strides=[2, 1]) : f32[2, 3]""",
        ["broadcast", "slice"],
    ),
    "a slice of a constant": (
        "%x: f32[2, 3]",
        "f32[2, 3]",
        """\
  %a = constant(value=2.0) : f32[4, 3]
  %b = slice(%a, starts=[1, 0], strides=[2, 1]) : f32[2, 3]
  %y = mul(%x, %b) : f32[2, 3]""",
        ["constant", "slice", "mul"],
    ),
    "a stride along a dimension of size 1": (
        "%x: f32[3, 1]",
        "f32[1, 3]",
        """\
  %a = slice(%x, starts=[0, 0], strides=[1, 5]) : f32[3, 1]
  %y = transpose(%a, perm=[1, 0]) : f32[1, 3]""",
        ["reshape"],
    ),
    "padding of nothing": (
        "%x: f32[4, 3], %z: f32[]",
        "f32[3, 4]",
        """\
  %a = pad(%x, %z, low=[0, 0], high=[0, 0], interior=[0, 0]) : f32[4, 3]
  %y = transpose(%a, perm=[1, 0]) : f32[3, 4]""",
        ["transpose"],
    ),
    "a loop over a broadcast dimension": (
        "%x: f32[4], %z: f32[4]",
        "f32[4]",
        """\
  %a = broadcast(%x, dims=[1]) : f32[3, 4]
  %y = scan(%z, %a, carries=1, length=3) : f32[4] {
    (%c: f32[4], %s: f32[4]) =>
    %d = mul(%c, %s) : f32[4]
    yield %d
  }""",
        ["broadcast", "scan"],
    ),
    "a loop over a constant": (
        "%z: f32[4]",
        "f32[4]",
        """\
  %a = constant(value=0.5) : f32[3, 4]
  %y = scan(%z, %a, carries=1, length=3) : f32[4] {
    (%c: f32[4], %s: f32[4]) =>
    %d = mul(%c, %s) : f32[4]
    yield %d
  }""",
        ["constant", "scan"],
    ),
    "a loop over the second dimension of a base": (
        "%x: f32[4, 3], %z: f32[4]",
        "f32[4]",
        """\
  %a = transpose(%x, perm=[1, 0]) : f32[3, 4]
  %y = scan(%z, %a, carries=1, length=3) : f32[4] {
    (%c: f32[4], %s: f32[4]) =>
    %d = mul(%c, %s) : f32[4]
    yield %d
  }""",
        ["transpose", "scan"],
    ),
    "a loop that starts with a constant and continues with a transposed value": (
        "%x: f32[3, 4]",
        "f32[4, 3]",
        """\
  %a = constant(value=0.0) : f32[4, 3]
  %y = scan(%a, carries=1, length=3) : f32[4, 3] {
    (%c: f32[4, 3]) =>
    %t = transpose(%x, perm=[1, 0]) : f32[4, 3]
    %d = exp(%t) : f32[4, 3]
    yield %d
  }""",
        ["constant", "scan", "transpose"],
    ),
    "a loop that starts with a parameter and continues with a transposed value": (
        "%x: f32[4, 3], %z: f32[3, 4]",
        "f32[4, 3]",
        """\
  %y = scan(%x, carries=1, length=3) : f32[4, 3] {
    (%c: f32[4, 3]) =>
    %t = transpose(%z, perm=[1, 0]) : f32[4, 3]
    %d = exp(%t) : f32[4, 3]
    yield %d
  }""",
        ["scan"],
    ),
    "a loop that starts with a constant and continues with a broadcast": (
        "%x: f32[3]",
        "f32[4, 3]",
        """\
  %a = constant(value=0.0) : f32[4, 3]
  %y = scan(%a, carries=1, length=3) : f32[4, 3] {
    (%c: f32[4, 3]) =>
    %t = broadcast(%x, dims=[1]) : f32[4, 3]
    yield %t
  }""",
        ["broadcast", "constant", "scan"],
    ),
    "a loop that starts with a constant and continues with another": (
        "%x: f32[3]",
        "f32[4, 3]",
        """\
  %a = constant(value=0.0) : f32[4, 3]
  %y = scan(%a, carries=1, length=3) : f32[4, 3] {
    (%c: f32[4, 3]) =>
    %t = constant(value=2.0) : f32[4, 3]
    yield %t
  }""",
        ["constant", "scan"],
    ),
    "a branch that returns a constant": (
        "%x: f32[3, 4], %p: bool[]",
        "f32[4, 3]",
        """\
  %y = case(%p) : f32[4, 3] {
    %a = constant(value=2.0) : f32[4, 3]
    yield %a
  } {
    %b = transpose(%x, perm=[1, 0]) : f32[4, 3]
    yield %b
  }""",
        ["case", "transpose"],
    ),
    "a branch that returns a broadcast": (
        "%x: f32[3], %p: bool[]",
        "f32[4, 3]",
        """\
  %y = case(%p) : f32[4, 3] {
    %a = constant(value=2.0) : f32[4, 3]
    yield %a
  } {
    %b = broadcast(%x, dims=[1]) : f32[4, 3]
    yield %b
  }""",
        ["broadcast", "case"],
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


def test_a_contraction_with_too_many_letters_stays() -> None:
    """Each of 52 dimensions has a letter, and one of them has two parts."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    one, other = letters[:26], letters[26:]
    shapes = {n: ", ".join(["2"] * n) for n in (25, 26, 27)}
    perm = ", ".join(map(str, (*range(25), 26, 25)))
    text = f"""\
func @main(
  %x: f32[{shapes[27]}],
  %w: f32[{shapes[26]}],
) -> (f32[{shapes[25]}, 4, {shapes[26]}]) {{
  %0 = transpose(%x, perm=[{perm}]) : f32[{shapes[27]}]
  %1 = reshape(%0) : f32[{shapes[25]}, 4]
  %y = dot(%1, %w, dims="{one},{other}->{letters}") : f32[{shapes[25]}, 4, {shapes[26]}]
  return %y
}}
"""
    made = Pipeline.parse("fold-views,dce")(parse(text))
    verify(made)
    assert [op.name for op in made.main.body.ops] == ["transpose", "reshape", "dot"]
    assert made.main.body.ops[-1].attrs["dims"] == f"{one},{other}->{letters}"
