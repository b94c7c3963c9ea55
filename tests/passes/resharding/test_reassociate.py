"""Which reshards `share-reshards` moves above transposes, concatenations and diagonals."""

import pytest

from shardir.frontend.stories.pipeline_check import result_difference
from shardir.ir.module import Module
from shardir.passes import Partition, ShareReshards
from shardir.passes.resharding.reassociate import MAX_RECOMPUTED_OPERATIONS
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.op_lines import body
from tests.passes.resharding.reshard_programs import MESH
from tests.passes.resharding.test_shared_reshards import DIAGONAL


def share(text: str) -> tuple[Module, Module]:
    """Return a program before and after the pass, which keeps its results."""
    before = parse(MESH + text)
    verify(before)
    after = ShareReshards()(before)
    verify(after)
    found = result_difference(before, Partition()(after))
    assert not found, found
    return before, after


def concatenation(
    operands: str, joined: str, moved: str, lines: str = "", *, more: str = ""
) -> str:
    """Return a program that reshards a concatenation."""
    return f"""\
func @f(
  %x: f32[8@x, 4@-],
  %y: f32[8@y, 4@-],
  %e: f32[8@-, 4@-],
  %v: f32[4@-],
  %r: f32[4@x],
  %n: f32[],
) -> ({moved}{", " * bool(more)}{more}) {{
{lines}\
  %c = concatenate({operands}, dim=0) : {joined}
  %u = reshard(%c) : {moved}
  return %u{", %c" * bool(more)}
}}
"""


@pytest.mark.parametrize(
    ("operand", "joined", "moved", "more"),
    [
        pytest.param("%e", "f32[16@-, 4@-]", "f32[16@-, 4@-]", "", id="not sharded"),
        pytest.param("%x", "f32[16@x, 4@-]", "f32[16@y, 4@-]", "", id="to other axes"),
        pytest.param("%x", "f32[16@x, 4@-]", "f32[16@-, 4@x]", "", id="to another dimension"),
        pytest.param("%x", "f32[16@x, 4@-]", "f32[16@-, 4@-] unreduced(y)", "", id="to unreduced"),
        pytest.param("%x", "f32[16@x, 4@-]", "f32[16@-, 4@-]", "f32[16@x, 4@-]", id="another use"),
    ],
)
def test_a_reshard_of_a_concatenation_stays_behind_it(
    operand: str, joined: str, moved: str, more: str
) -> None:
    before, after = share(concatenation(f"{operand}, {operand}", joined, moved, more=more))
    assert str(after) == str(before)


def test_a_sum_is_completed_behind_a_concatenation() -> None:
    before, after = share("""\
func @f(
  %a: f32[8@x, 4@y],
) -> (f32[16@-]) {
  %s = sum(%a, dims=[1]) : f32[8@x] unreduced(y)
  %c = concatenate(%s, %s, dim=0) : f32[16@x] unreduced(y)
  %u = reshard(%c) : f32[16@-]
  return %u
}
""")
    assert str(after) == str(before)


@pytest.mark.parametrize(
    ("lines", "is_local"),
    [
        pytest.param("%p = constant(value=2.0) : f32[8@x, 4@-]", True, id="constant"),
        pytest.param("%p = broadcast(%n, dims=[]) : f32[8@x, 4@-]", True, id="scalar"),
        pytest.param("%p = broadcast(%v, dims=[1]) : f32[8@x, 4@-]", False, id="vector"),
        pytest.param(
            "%i = iota(dim=0) : i32[8@x, 4@-]; %p = convert(%i) : f32[8@x, 4@-]",
            True,
            id="computed",
        ),
        pytest.param(
            "%i = constant(value=2.0) : f32[8@x, 4@-]; %p = mul(%i, %x) : f32[8@x, 4@-]",
            False,
            id="computed from an argument",
        ),
        pytest.param(
            "%i = constant(value=2.0) : f32[8@x, 4@-]; "
            "%p = cumsum(%i, dim=1, reverse=false) : f32[8@x, 4@-]",
            False,
            id="not elementwise",
        ),
        pytest.param(
            "%b = constant(value=true) : bool[]; %i = constant(value=2.0) : f32[8@x, 4@-]; "
            "%p = select(%b, %i, %i) : f32[8@x, 4@-]",
            False,
            id="operands of different shapes",
        ),
        pytest.param(
            "%i = constant(value=0.0) : f32[8@x, 4@-] unreduced(y); "
            "%p = reshard(%i) : f32[8@x, 4@-]",
            True,
            id="unreduced zero",
        ),
        pytest.param(
            "%s = sum(%r, dims=[0]) : f32[] unreduced(x); "
            "%i = broadcast(%s, dims=[]) : f32[8@-, 4@-] unreduced(x); "
            "%p = reshard(%i) : f32[8@x, 4@-]",
            False,
            id="unreduced scalar",
        ),
        pytest.param(
            "%i, %j = top_k(%x) : f32[8@x, 4@-], i32[8@x, 4@-]; %p = neg(%i) : f32[8@x, 4@-]",
            False,
            id="one of two results",
        ),
    ],
)
def test_what_every_device_can_compute_is_no_operand_of_a_gather(
    lines: str, is_local: bool
) -> None:
    listed = "".join(f"  {line}\n" for line in lines.split("; "))
    _, after = share(concatenation("%x, %p", "f32[16@x, 4@-]", "f32[16@-, 4@-]", listed))
    assert ("%u = concatenate(%x.unsharded, %p.unsharded, dim=0) : f32[16@-, 4@-]"
            in body(after)) == is_local  # fmt: skip


@pytest.mark.parametrize("difference", [-1, 0, 1])
def test_a_limited_number_of_operations_is_repeated(difference: int) -> None:
    """The first constant is the last operation that is found, and is an operand twice."""
    count = MAX_RECOMPUTED_OPERATIONS + difference
    lines = ["%p1 = constant(value=2.0)", "%p2 = add(%p1, %p1)"]
    lines += [f"%p{number} = neg(%p{number - 1})" for number in range(3, count + 1)]
    listed = "".join(f"  {line} : f32[8@x, 4@-]\n" for line in lines)
    _, after = share(concatenation(f"%x, %p{count}", "f32[16@x, 4@-]", "f32[16@-, 4@-]", listed))
    repeated = [line for line in body(after) if ".unsharded = " in line and "reshard" not in line]
    assert len(repeated) == (count if difference <= 0 else 0)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([("f32", "c64")], id="complex numbers"),
        pytest.param([("f32", "bool")], id="Boolean values"),
        pytest.param([("8@x]", "8@-]")], id="columns that are not sharded"),
        pytest.param(
            [("f32[8@y, 8@-]", "f32[8@-, 8@y]"), ("f32[7@y]", "f32[7@-]")],
            id="columns that remain sharded",
        ),
        pytest.param([("f32[7@y]", "f32[7@-]")], id="other rows"),
        pytest.param(
            [
                (
                    "%l = reshape(%w.unsharded) : f32[64@y]",
                    "%t = transpose(%w.unsharded, perm=[1, 0]) : f32[8@-, 8@y]\n"
                    "  %l = reshape(%t) : f32[64@y]",
                )
            ],
            id="transposed",
        ),
        pytest.param(
            [
                ("f32[8@y, 8@x]", "f32[8@-, 8@y]"),
                ("reshard(%w)", "transpose(%w, perm=[1, 0])"),
            ],
            id="no reshard",
        ),
        pytest.param(
            [("f32[8@y, 8@x]", "f32[8@y, 8@x] unreduced(y)")], id="incomplete matrices"
        ),
        pytest.param(
            [("f32[8@y, 8@-]", "f32[8@y, 8@-] unreduced(x)")], id="matrices of the first device"
        ),
        pytest.param([("%d =", "%o = neg(%l) : f32[64@y]\n  %d =")], id="all elements"),
        pytest.param(
            [("-> (f32[7@y])", "-> (f32[7@y], f32[64@y])"), ("return %d", "return %d, %l")],
            id="returned elements",
        ),
        pytest.param(
            [("%d =", "%o = sum(%w.unsharded, dims=[1]) : f32[8@y]\n"
                      "  %p = slice(%o, starts=[0], strides=[9]) : f32[1@-]\n  %d =")],
            id="another use",
        ),
    ],
)  # fmt: skip
def test_other_slices_read_gathered_matrices(changes: list[tuple[str, str]]) -> None:
    text = DIAGONAL + "  return %d\n}\n"
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    module = ShareReshards()(parse(MESH + text))
    assert "%d = slice(%l, starts=[8], strides=[9])" in str(module)


@pytest.mark.parametrize(
    ("matrices", "gathered", "flat", "begin", "strides", "slices"),
    [
        pytest.param("2@-, 8@-, 8@x", "2@-, 8@-, 8@-", "2@-, 64@-", "0, 0", "1, 9", "2@-, 8@-",
                     id="diagonals"),
        pytest.param("2@-, 8@-, 8@x", "2@-, 8@-, 8@-", "4@-, 32@-", "0, 0", "1, 9", "2@-, 3@-",
                     id="halves"),
        pytest.param("2@-, 8@-, 8@x", "2@-, 8@-, 8@-", "2@-, 64@-", "1, 0", "1, 9", "1@-, 8@-",
                     id="one of two matrices"),
        pytest.param("64@x", "64@-", "8@-, 8@-", "0, 0", "1, 9", "8@-, 1@-", id="a vector"),
        pytest.param("8@x, 0@-", "8@-, 0@-", "0@-", "0", "1", "0@-", id="no columns"),
    ],
)  # fmt: skip
def test_slices_of_batches_of_matrices(
    matrices: str, gathered: str, flat: str, begin: str, strides: str, slices: str
) -> None:
    before, after = share(f"""\
func @f(
  %w: f32[{matrices}],
) -> (f32[{slices}]) {{
  %u = reshard(%w) : f32[{gathered}]
  %l = reshape(%u) : f32[{flat}]
  %d = slice(%l, starts=[{begin}], strides=[{strides}]) : f32[{slices}]
  return %d
}}
""")
    assert ("select" in str(after)) == (str(after) != str(before)) == (slices == "2@-, 8@-")


def test_slices_of_arguments_and_constants_stay() -> None:
    before, after = share("""\
func @f(
  %w: f32[8@-],
) -> (f32[4@-], i32[4@-]) {
  %a = slice(%w, starts=[0], strides=[2]) : f32[4@-]
  %i = iota(dim=0) : i32[8@-]
  %b = slice(%i, starts=[0], strides=[2]) : i32[4@-]
  return %a, %b
}
""")
    assert str(after) == str(before)


TRANSPOSED = """\
func @f(
  %w: f32[8@x, 4@-],
) -> (f32[8@-, 4@-], f32[4@-, 8@-]) {
  %a = reshard(%w) : f32[8@-, 4@-]
  %t = transpose(%w, perm=[1, 0]) : f32[4@-, 8@x]
  %b = reshard(%t) : f32[4@-, 8@-]
  return %a, %b
}
"""


def test_a_matrix_and_its_transpose_are_gathered_once() -> None:
    _, after = share(TRANSPOSED)
    assert [line for line in body(after) if "%t =" not in line] == [
        "%w.unsharded = reshard(%w) : f32[8@-, 4@-]",
        "%b = transpose(%w.unsharded, perm=[1, 0]) : f32[4@-, 8@-]",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([("%b = reshard(%t) : f32[4@-, 8@-]", "%b = exp(%t) : f32[4@-, 8@x]"),
                      ("f32[4@-, 8@-])", "f32[4@-, 8@x])")], id="no reshard"),
        pytest.param([("transpose(%w, perm=[1, 0])", "reshape(%w)"),
                      ("f32[4@-, 8@x]", "f32[4@x, 8@-]")], id="no transpose"),
        pytest.param([("%a = reshard(%w) : f32[8@-, 4@-]", "%a = exp(%w) : f32[8@x, 4@-]"),
                      ("f32[8@-, 4@-],", "f32[8@x, 4@-],")], id="another operation"),
        pytest.param([("f32[8@-, 4@-]", "f32[8@-, 4@y]")], id="to other axes"),
        pytest.param([("%a = reshard(%w) : f32[8@-, 4@-]", "%a = exp(%w) : f32[8@x, 4@-]"),
                      ("f32[8@-, 4@-],", "f32[8@x, 4@-],"), ("return %a", "return %w")],
                     id="an argument that is returned"),
    ],
)  # fmt: skip
def test_a_reshard_of_a_transpose_stays_behind_it(changes: list[tuple[str, str]]) -> None:
    text = TRANSPOSED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    before, after = share(text)
    assert str(after) == str(before)


def test_only_reshards_have_the_sharding_of_a_moved_one() -> None:
    """The exponential function has it, too."""
    text = TRANSPOSED.replace("%a = reshard(%w)", "%a = exp(%w)")
    assert str(ShareReshards()(parse(MESH + text))) == MESH + text


def test_a_sum_and_its_transpose_are_completed_once() -> None:
    _, after = share("""\
func @f(
  %w: f32[8@-, 4@-, 4@x],
) -> (f32[8@-, 4@-], f32[4@-, 8@-]) {
  %s = sum(%w, dims=[2]) : f32[8@-, 4@-] unreduced(x)
  %a = reshard(%s) : f32[8@-, 4@-]
  %t = transpose(%s, perm=[1, 0]) : f32[4@-, 8@-] unreduced(x)
  %b = reshard(%t) : f32[4@-, 8@-]
  return %a, %b
}
""")
    assert [op.name for op in after.main.body.ops].count("reshard") == 1


def test_a_transpose_is_not_made_unreduced_before_it_is_computed() -> None:
    before, after = share("""\
func @f(
  %w: f32[8@-, 4@-],
) -> (f32[8@-, 4@-] unreduced(x), f32[4@-, 8@-] unreduced(x)) {
  %a = reshard(%w) : f32[8@-, 4@-] unreduced(x)
  %t = transpose(%w, perm=[1, 0]) : f32[4@-, 8@-]
  %b = reshard(%t) : f32[4@-, 8@-] unreduced(x)
  return %a, %b
}
""")
    assert str(after) == str(before)


def test_branches_gather_a_transpose_for_themselves() -> None:
    """Only one of them runs."""
    before, after = share("""\
func @f(
  %w: f32[8@x, 4@-],
  %p: bool[],
) -> (f32[8@-, 4@-], f32[4@-, 8@-]) {
  %a = reshard(%w) : f32[8@-, 4@-]
  %t = transpose(%w, perm=[1, 0]) : f32[4@-, 8@x]
  %c = case(%p) : f32[4@-, 8@-] {
    %b = reshard(%t) : f32[4@-, 8@-]
    yield %b
  } {
    %d = constant(value=1.0) : f32[4@-, 8@-]
    yield %d
  }
  return %a, %c
}
""")
    assert str(after) == str(before)
