"""`sink-reductions`: reductions sink to the cheapest place, never past nonlinear operations."""

import pytest
from hypothesis import given, settings, strategies as st

from shardir.cost.communication import list_collectives
from shardir.errors import PartitionError
from shardir.ir.module import Module
from shardir.passes import Partition, Pipeline, Reshard, SinkReductions
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.op_lines import body, reasons
from tests.passes.sharded_evaluation import annotate_randomly, check_agreement
from tests.programs.strategies import modules

MESH = "mesh @m = [x=4, y=2]\n\n"


def run_sink_reductions(text: str) -> Module:
    """Return the program after the pass."""
    module = SinkReductions()(parse(MESH + text))
    verify(module)
    verify(Partition()(module))
    return module


TWO = """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@-, 8@-]) {
  %c.partial = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
  %c = reshard(%c.partial) : f32[8@-, 8@-]
  %d.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)
  %d = reshard(%d.partial) : f32[8@-, 8@-]
"""


def test_partial_sums_are_added_before_the_reduction() -> None:
    module = run_sink_reductions(TWO + "  %e = add(%c, %d) : f32[8@-, 8@-]\n  return %e\n}\n")
    assert body(module)[2:] == [
        "%e.partial = add(%c.partial, %d.partial) : f32[8@-, 8@-] unreduced(x)",
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
    ]


def test_a_replicated_term_of_a_sum_is_added_on_the_first_device() -> None:
    module = run_sink_reductions(
        TWO
        + """\
  %r = exp(%c) : f32[8@-, 8@-]
  %s = add(%r, %d) : f32[8@-, 8@-]
  %f.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)
  %f = reshard(%f.partial) : f32[8@-, 8@-]
  %t = add(%s, %f) : f32[8@-, 8@-]
  return %t
}
"""
    )
    assert body(module)[3:] == [
        "%r = exp(%c) : f32[8@-, 8@-]",
        "%r.partial = reshard(%r) : f32[8@-, 8@-] unreduced(x)",
        "%s = add(%r.partial, %d.partial) : f32[8@-, 8@-] unreduced(x)",
        '%f.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)',
        "%t.partial = add(%s, %f.partial) : f32[8@-, 8@-] unreduced(x)",
        "%t = reshard(%t.partial) : f32[8@-, 8@-]",
    ]
    assert reasons(module)[1] == "%s = add adds it to sums that are unreduced over x"


def test_a_reduction_sinks_through_operations_that_reduce_size() -> None:
    module = run_sink_reductions(
        TWO.replace("(f32[8@-, 8@-])", "(f32[])")
        + "  %s = sum(%c, dims=[0, 1]) : f32[]\n  return %s\n}\n"
    )
    assert [line for line in body(module) if "%s" in line] == [
        "%s.partial = sum(%c.partial, dims=[0, 1]) : f32[] unreduced(x)",
        "%s = reshard(%s.partial) : f32[]",
    ]


@pytest.mark.parametrize(
    "use",
    [
        "%e = exp(%c) : f32[8@-, 8@-]",
        "%e = mul(%c, %c) : f32[8@-, 8@-]",
        "%e = neg(%c) : f32[8@-, 8@-]",
        "%e = broadcast(%c, dims=[1, 2]) : f32[4@-, 8@-, 8@-]",
        "%e = convert(%c) : bf16[8@-, 8@-]",
    ],
    ids=["curve", "square", "no gain", "growth", "rounding"],
)
def test_reductions_without_savings_are_not_moved(use: str) -> None:
    kind = use.rsplit(": ", 1)[1]
    text = TWO.replace("(f32[8@-, 8@-])", f"({kind})").split("  %d.partial")[0]
    text += f"  {use}\n  return %e\n}}\n"
    assert str(run_sink_reductions(text)) == MESH + text


def test_two_reshards_that_send_less_than_one_remain() -> None:
    """With many axes, the planner does not find the cheapest plan of the direct reshard."""
    text = """\
mesh @m = [s=2, t=3, u=3, v=2, w=3]

func @f(
  %a: f32[72@w, 72@(u, v)] unreduced(t),
) -> (f32[72@v, 72@(s, u, w, t)]) {
  %b = reshard(%a) : f32[72@w, 72@(u, v)]
  %c = reshard(%b) : f32[72@v, 72@(s, u, w, t)]
  return %c
}
"""
    assert str(SinkReductions()(parse(text))) == text


@pytest.mark.parametrize("use", ["neg(%p)", "add(%p, %p)"])
def test_values_that_stay_unreduced_in_operations_are_not_reduced_before(use: str) -> None:
    """The reduction sinks from the last of these operations."""
    module = run_sink_reductions(
        f"""\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[], f32[]) {{
  %p = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
  %n.partial = {use} : f32[8@-, 8@-] unreduced(x)
  %n = reshard(%n.partial) : f32[8@-, 8@-]
  %s = sum(%n, dims=[0, 1]) : f32[]
  %c = reshard(%p) : f32[8@-, 8@-]
  %t = sum(%c, dims=[0, 1]) : f32[]
  return %s, %t
}}
"""
    )
    assert body(module)[1:] == [
        f"%n.partial = {use} : f32[8@-, 8@-] unreduced(x)",
        "%s.partial = sum(%n.partial, dims=[0, 1]) : f32[] unreduced(x)",
        "%s = reshard(%s.partial) : f32[]",
        "%c = reshard(%p) : f32[8@-, 8@-]",
        "%t = sum(%c, dims=[0, 1]) : f32[]",
    ]
    check_agreement(module, "partition")


CONTRIBUTION = """\
func @f(
  %a: f32[8@-, 8@-],
) -> (f32[]) {
  %p = reshard(%a) : f32[8@-, 8@-] unreduced(x)
  %c = reshard(%p) : f32[8@-, 8@-]
  %s = sum(%c, dims=[0, 1]) : f32[]
  return %s
}
"""
ACCUMULATION = """\
func @f(
  %zero: f32[8@-, 8@-] unreduced(x),
  %a: f32[3@-, 8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[]) {
  %total = scan(%zero, %a, carries=1, length=3) : f32[8@-, 8@-] unreduced(x) {
    (%sum: f32[8@-, 8@-] unreduced(x), %row: f32[8@-, 4@x]) =>
    %c = dot(%row, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
    %next = add(%sum, %c) : f32[8@-, 8@-] unreduced(x)
    yield %next
  }
  %d = reshard(%total) : f32[8@-, 8@-]
  %s = sum(%d, dims=[0, 1]) : f32[]
  return %s
}
"""


@pytest.mark.parametrize("text", [CONTRIBUTION, ACCUMULATION])
def test_values_that_reshards_and_loops_leave_unreduced_are_not_changed(text: str) -> None:
    assert str(run_sink_reductions(text)) == MESH + text


def test_a_value_with_other_reshards_is_reduced_after_a_sum() -> None:
    """One of them reduces over some of the axes, and the result is also returned unreduced."""
    module = run_sink_reductions(
        """\
func @f(
  %a: f32[8@-, 8@(x, y)],
  %b: f32[8@(x, y), 8@-],
) -> (f32[8@-, 8@-] unreduced(x, y), f32[8@-, 8@-], f32[8@x, 8@-], f32[]) {
  %p = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x, y)
  %q = reshard(%p) : f32[8@-, 8@-] unreduced(y)
  %r = reshard(%q) : f32[8@-, 8@-]
  %t = reshard(%q) : f32[8@x, 8@-]
  %c = reshard(%p) : f32[8@-, 8@-]
  %s = sum(%c, dims=[0, 1]) : f32[]
  return %p, %r, %t, %s
}
"""
    )
    assert body(module)[1:] == [
        "%q = reshard(%p) : f32[8@-, 8@-] unreduced(y)",
        "%r = reshard(%q) : f32[8@-, 8@-]",
        "%t = reshard(%q) : f32[8@x, 8@-]",
        "%s.partial = sum(%p, dims=[0, 1]) : f32[] unreduced(x, y)",
        "%s = reshard(%s.partial) : f32[]",
    ]


def test_a_sum_with_replicated_uses_is_reduced_once() -> None:
    text = (
        TWO.split("  %d.partial")[0]
        + """\
  %e = exp(%c) : f32[8@-, 8@-]
  %s = sum(%c, dims=[0, 1]) : f32[]
  %t = broadcast(%s, dims=[]) : f32[8@-, 8@-]
  %u = add(%e, %t) : f32[8@-, 8@-]
  return %u
}
"""
    )
    assert str(run_sink_reductions(text)) == MESH + text


def test_an_accumulating_loop_reduces_after_its_last_iteration() -> None:
    module = run_sink_reductions(
        """\
func @f(
  %a: f32[3@-, 8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@-, 8@-]) {
  %zero = constant(value=0) : f32[8@-, 8@-]
  %total = scan(%zero, %a, carries=1, length=3) : f32[8@-, 8@-] {
    (%sum: f32[8@-, 8@-], %row: f32[8@-, 4@x]) =>
    %c.partial = dot(%row, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
    %c = reshard(%c.partial) : f32[8@-, 8@-]
    %next = add(%sum, %c) : f32[8@-, 8@-]
    yield %next
  }
  return %total
}
"""
    )
    assert [c.executions for c in list_collectives(Partition()(module))] == [1]
    assert "%total.partial = scan(%zero.partial, %a" in str(module)
    assert str(SinkReductions()(module)) == str(module)


def test_an_unreduced_operand_of_a_nonlinear_operation_is_an_error() -> None:
    text = """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@-, 8@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
  %d = exp(%c) : f32[8@-, 8@-]
  return %d
}
"""
    with pytest.raises(PartitionError) as error:
        Partition()(parse(MESH + text))
    assert str(error.value) == (
        "exp uses %c, which is unreduced; run 'reshard' before 'partition', or constrain %d"
    )


@settings(max_examples=30)
@given(st.data())
def test_programs_keep_their_results(data: st.DataObject) -> None:
    module = annotate_randomly(data, data.draw(modules()), lambda _: True)
    check_agreement(module, "reshard,sink-reductions,partition")


@settings(max_examples=30)
@given(st.data())
def test_programs_never_send_more(data: st.DataObject) -> None:
    module = Reshard()(annotate_randomly(data, data.draw(modules()), lambda _: True))
    rest = Pipeline.parse("partition,dce")
    assert sent_bytes(rest(SinkReductions()(module))) <= sent_bytes(rest(module))


def sent_bytes(module: Module) -> int:
    """Return the bytes that every device sends; a `while` counts twice."""
    return sum(
        c.sent * (2 if c.executions is None else c.executions) for c in list_collectives(module)
    )


def test_sums_with_two_reshards_are_delayed() -> None:
    """Single rows of a sharded dimension are added locally, and their sum is sent once."""
    module = Pipeline.parse("reshard,sink-reductions")(
        parse(
            MESH
            + """\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[4@-]) {
  %p = slice(%a, starts=[0, 0], strides=[1, 1]) : f32[1@x, 4@-]
  %q = slice(%a, starts=[7, 0], strides=[1, 1]) : f32[1@x, 4@-]
  %r = reshape(%p) : f32[4@-]
  %t = reshape(%q) : f32[4@-]
  %s = add(%r, %t) : f32[4@-]
  return %s
}
"""
        )
    )
    assert body(module)[-2:] == [
        "%s.partial = add(%r, %t) : f32[4@-] unreduced(x)",
        "%s = reshard(%s.partial) : f32[4@-]",
    ]


EXTREMES = """\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[8@x, 4@-],
) -> (f32[]) {
  %p.partial = max(%a, dims=[0]) : f32[4@-] unreduced[max](x)
  %p = reshard(%p.partial) : f32[4@-]
  %q.partial = max(%b, dims=[0]) : f32[4@-] unreduced[max](x)
  %q = reshard(%q.partial) : f32[4@-]
"""


def test_maxima_sink_through_selecting_operations() -> None:
    """The maximum of two maxima, and the maximum of a row, need one reduction."""
    text = EXTREMES + (
        "  %r = maximum(%p, %q) : f32[4@-]\n  %s = max(%r, dims=[0]) : f32[]\n  return %s\n}\n"
    )
    module = run_sink_reductions(text)
    names = [op.name for op in module.main.body.walk()]
    assert names == ["max", "max", "maximum", "max", "reshard"]
    assert body(module)[-1].startswith("%s = reshard(%s.partial)")
    check_agreement(module, "partition")


def test_any_needs_one_reduction() -> None:
    module = Pipeline.parse("reshard,sink-reductions")(
        parse(
            MESH
            + """\
func @f(
  %a: bool[8@x, 4@-],
  %b: bool[8@x, 4@-],
) -> (bool[4@-]) {
  %p = any(%a, dims=[0]) : bool[4@-]
  %q = any(%b, dims=[0]) : bool[4@-]
  %r = or(%p, %q) : bool[4@-]
  return %r
}
"""
        )
    )
    assert [op.name for op in module.main.body.walk()] == ["any", "any", "or", "reshard"]
    check_agreement(module, "partition")


def test_sums_of_maxima_are_reduced_after_both() -> None:
    text = EXTREMES + (
        "  %r = add(%p, %q) : f32[4@-]\n  %s = sum(%r, dims=[0]) : f32[]\n  return %s\n}\n"
    )
    module = Pipeline.parse("sink-reductions,sink-reshards,share-reshards")(parse(MESH + text))
    assert [op.name for op in module.main.body.walk()].count("reshard") == 2
    check_agreement(module, "partition")
