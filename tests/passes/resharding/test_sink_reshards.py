"""`sink-reshards`: a pointwise operation runs before the reshards of its operands if that sends
less."""

import pytest

from shardir.passes import Partition, SinkReshards
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.op_lines import body
from tests.passes.sharded_evaluation import check_agreement

MOVED = """\
  %am = reshard(%a) : f32[8@-, 8@x]
  %bm = reshard(%b) : f32[8@-, 8@x]
"""
TURNED = """\
  %d = exp(%a) : f32[8@x, 8@-]
  %dm = reshard(%d) : f32[8@-, 8@x]
  %t = transpose(%dm, perm=[1, 0]) : f32[8@x, 8@-]
  %e = transpose(%b, perm=[1, 0]) : f32[8@-, 8@x]
  %em = reshard(%e) : f32[8@x, 8@-]
"""


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if " = " in line]


def run_sink_reshards(ops: str, *results: str) -> list[str]:
    """Return the operations after the pass; the results of the program do not change."""
    returned = ops.splitlines()[-1].removeprefix("  return ").split(", ")
    assert len(returned) == len(results)
    text = f"""\
mesh @m = [x=4, y=2]

func @f(
  %p: bool[],
  %a: f32[8@x, 8@-],
  %b: f32[8@x, 8@-],
) -> ({", ".join(results)}) {{
{ops}}}
"""
    module = SinkReshards()(parse(text))
    verify(module)
    verify(Partition()(module))
    check_agreement(module, "partition")
    return body(module)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("convert(%a)", "bf16"),
        ("is_finite(%a)", "bool"),
        ("lt(%a, %k)", "bool"),
    ],
)
def test_a_narrower_result_is_moved_instead_of_an_operand(op: str, kind: str) -> None:
    lines = run_sink_reshards(
        f"""\
  %k = constant(value=0.0) : f32[8@-, 8@x]
  %am = reshard(%a) : f32[8@-, 8@x]
  %c = {op.replace("%a", "%am")} : {kind}[8@-, 8@x]
  return %c
""",
        f"{kind}[8@-, 8@x]",
    )
    assert lines[-2:] == [
        f"%c.before_reshard = {op.replace('%k', '%k.1')} : {kind}[8@x, 8@-]",
        f"%c = reshard(%c.before_reshard) : {kind}[8@-, 8@x]",
    ]


@pytest.mark.parametrize(
    "ops",
    [
        "  %am = reshard(%a) : f32[8@-, 8@x]\n  %c = neg(%am) : f32[8@-, 8@x]\n",
        MOVED.replace("f32[8@-, 8@x]", "f32[8@(x, y), 8@-]")
        + "  %c = add(%am, %bm) : f32[8@(x, y), 8@-]\n",
        "  %am = reshard(%a) : f32[8@-, 8@-]\n  %c = reshard(%am) : f32[8@-, 8@x]\n",
        MOVED + "  %d = sub(%bm, %am) : f32[8@-, 8@x]\n  %c = mul(%am, %d) : f32[8@-, 8@x]\n",
    ],
    ids=["no gain", "slices", "a chain of reshards", "two uses"],
)
def test_reshards_that_would_not_send_less_are_not_moved(ops: str) -> None:
    result = ops.rstrip().rpartition(" : ")[2]
    assert run_sink_reshards(f"{ops}  return %c\n", result) == lines_of(ops)


def test_constants_are_created_with_the_other_sharding_and_scalars_have_none() -> None:
    constant = "constant(value=dense(f32, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))"
    before = f"""\
  %k = {constant} : f32[8@y]
  %as = sum(%a, dims=[1]) : f32[8@x]
  %bs = sum(%b, dims=[1]) : f32[8@x]
"""
    after = """\
  %am = reshard(%as) : f32[8@y]
  %bm = reshard(%bs) : f32[8@y]
"""
    assert run_sink_reshards(
        f"{before}{after}  %c = clamp(%am, %k, %bm) : f32[8@y]\n  return %c\n", "f32[8@y]"
    ) == [
        *lines_of(before),
        f"%k.1 = {constant} : f32[8@x]",
        "%c.before_reshard = clamp(%as, %k.1, %bs) : f32[8@x]",
        "%c = reshard(%c.before_reshard) : f32[8@y]",
    ]
    assert run_sink_reshards(
        f"{before}{after}  %c = select(%p, %am, %bm) : f32[8@y]\n  return %c\n", "f32[8@y]"
    ) == [
        *lines_of(before),
        "%c.before_reshard = select(%p, %as, %bs) : f32[8@x]",
        "%c = reshard(%c.before_reshard) : f32[8@y]",
    ]


def test_a_transpose_of_a_reshard_that_occurs_twice_is_moved_once() -> None:
    lines = run_sink_reshards(
        TURNED + "  %c = clamp(%t, %em, %t) : f32[8@x, 8@-]\n  return %c\n", "f32[8@x, 8@-]"
    )
    assert lines == [
        "%d = exp(%a) : f32[8@x, 8@-]",
        "%e = transpose(%b, perm=[1, 0]) : f32[8@-, 8@x]",
        "%t.before_reshard = transpose(%d, perm=[1, 0]) : f32[8@-, 8@x]",
        "%c.before_reshard = clamp(%t.before_reshard, %e, %t.before_reshard) : f32[8@-, 8@x]",
        "%c = reshard(%c.before_reshard) : f32[8@x, 8@-]",
    ]


def test_a_reshard_with_another_use_than_its_transpose_is_not_moved() -> None:
    ops = TURNED + "  %c = add(%t, %em) : f32[8@x, 8@-]\n"
    assert run_sink_reshards(
        f"{ops}  return %c, %dm\n", "f32[8@x, 8@-]", "f32[8@-, 8@x]"
    ) == lines_of(ops)


@pytest.mark.parametrize(
    ("before", "within"),
    [
        (
            """\
  %d = reshard(%a) : f32[8@-, 8@x]
  %e = reshard(%b) : f32[8@-, 8@x]
""",
            """\
    %u = mul(%d, %e) : f32[8@-, 8@x]
""",
        ),
        (
            """\
  %c = transpose(%a, perm=[1, 0]) : f32[8@-, 8@x]
  %d = reshard(%c) : f32[8@x, 8@-]
""",
            """\
    %t = transpose(%d, perm=[1, 0]) : f32[8@-, 8@x]
    %e = reshard(%b) : f32[8@-, 8@x]
    %u = mul(%t, %e) : f32[8@-, 8@x]
""",
        ),
    ],
    ids=["operands", "transpose"],
)
def test_reshards_before_a_loop_are_not_moved_into_it(before: str, within: str) -> None:
    ops = f"""\
  %z = constant(value=0.0) : f32[8@-, 8@x]
{before}\
  %s = scan(%z, carries=1, length=3) : f32[8@-, 8@x] {{
    (%i: f32[8@-, 8@x]) =>
{within}\
    %v = add(%i, %u) : f32[8@-, 8@x]
    yield %v
  }}
"""
    assert run_sink_reshards(f"{ops}  return %s\n", "f32[8@-, 8@x]") == lines_of(ops)


def test_reshards_within_a_branch_are_not_moved() -> None:
    """Only one branch runs, so that its uses are not analyzed."""
    ops = """\
  %j = convert(%p) : i32[]
  %c = case(%j) : f32[8@-, 8@x] {
    %am = reshard(%a) : f32[8@-, 8@x]
    %bm = reshard(%b) : f32[8@-, 8@x]
    %d = add(%am, %bm) : f32[8@-, 8@x]
    yield %d
  } {
    %e = reshard(%a) : f32[8@-, 8@x]
    yield %e
  }
"""
    assert run_sink_reshards(f"{ops}  return %c\n", "f32[8@-, 8@x]") == lines_of(ops)


@pytest.mark.parametrize(
    ("op", "is_linear"),
    [
        ("real(%cm)", True),
        ("is_finite(%cm)", False),
    ],
)
def test_a_sum_is_completed_after_a_linear_operation_only(op: str, is_linear: bool) -> None:
    kind = "f32" if is_linear else "bool"
    ops = f"""\
  %z = convert(%a) : c64[8@x, 8@-]
  %c = sum(%z, dims=[0]) : c64[8@-] unreduced(x)
  %cm = reshard(%c) : c64[8@x]
  %d = {op} : {kind}[8@x]
"""
    lines = run_sink_reshards(f"{ops}  return %d\n", f"{kind}[8@x]")
    if is_linear:
        assert lines[2:] == [
            "%d.partial = real(%c) : f32[8@-] unreduced(x)",
            "%d = reshard(%d.partial) : f32[8@x]",
        ]
    else:
        assert lines == lines_of(ops)


def test_operations_without_resharded_operands_do_not_change() -> None:
    ops = """\
  %c = exp(%a) : f32[8@x, 8@-]
  %d = exp(%b) : f32[8@x, 8@-]
  %e = add(%c, %d) : f32[8@x, 8@-]
"""
    assert run_sink_reshards(f"{ops}  return %e\n", "f32[8@x, 8@-]") == lines_of(ops)
