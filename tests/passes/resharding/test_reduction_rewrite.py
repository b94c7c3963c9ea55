"""`sink-reductions` rewrites values with complete and unreduced uses, joins, loops and branches."""

import pytest

from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.text.parser import parse
from tests.passes.op_lines import body, reasons
from tests.passes.resharding.test_sink_reductions import EXTREMES, MESH, TWO, run_sink_reductions
from tests.passes.sharded_evaluation import check_agreement

ONE = TWO.split("  %d.partial")[0]
THIRD = """\
  %f.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)
  %f = reshard(%f.partial) : f32[8@-, 8@-]
"""


def sink(
    lines: str, results: str = "f32[8@-, 8@-]", parameter: str = "", sums: str = TWO
) -> Module:
    """Return a program that begins with sums, after the pass, which does not change its results."""
    text = sums.replace("-> (f32[8@-, 8@-])", f"-> ({results})")
    if parameter:
        text = text.replace("  %b: f32[4@x, 8@-],", f"  %b: f32[4@x, 8@-],\n  {parameter},")
    module = run_sink_reductions(text + lines + "}\n")
    check_agreement(module, "partition")
    return module


def test_a_value_with_complete_and_unreduced_uses_has_both_forms() -> None:
    module = sink(
        "  %e = add(%c, %d) : f32[8@-, 8@-]\n  %h = exp(%e) : f32[8@-, 8@-]\n"
        + THIRD
        + THIRD.replace("%f", "%i")
        + "  %j = add(%e, %f) : f32[8@-, 8@-]\n  %g = add(%j, %i) : f32[8@-, 8@-]\n"
        + "  return %h, %g\n",
        "f32[8@-, 8@-], f32[8@-, 8@-]",
    )
    assert body(module)[2:] == [
        "%e.partial = add(%c.partial, %d.partial) : f32[8@-, 8@-] unreduced(x)",
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
        "%h = exp(%e) : f32[8@-, 8@-]",
        '%f.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)',
        '%i.partial = dot(%b, %a, dims="ki,jk->ij") : f32[8@-, 8@-] unreduced(x)',
        "%j = add(%e.partial, %f.partial) : f32[8@-, 8@-] unreduced(x)",
        "%g.partial = add(%j, %i.partial) : f32[8@-, 8@-] unreduced(x)",
        "%g = reshard(%g.partial) : f32[8@-, 8@-]",
    ]


def test_a_value_with_a_use_by_an_operation_with_two_results_is_completed() -> None:
    module = sink(
        "  %e = add(%c, %d) : f32[8@-, 8@-]\n"
        "  %h, %i = top_k(%e) : f32[8@-, 8@-], i32[8@-, 8@-]\n  return %h\n"
    )
    assert body(module)[2:] == [
        "%e.partial = add(%c.partial, %d.partial) : f32[8@-, 8@-] unreduced(x)",
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
        "%h, %i = top_k(%e) : f32[8@-, 8@-], i32[8@-, 8@-]",
    ]


def test_operands_of_an_operation_that_leaves_another_sum_are_complete() -> None:
    module = sink(
        "  %e = add(%c, %d) : f32[8@-, 8@-]\n"
        '  %f.partial = dot(%e, %w, dims="ij,k->ij") : f32[8@-, 8@-] unreduced(x)\n'
        "  %f = reshard(%f.partial) : f32[8@-, 8@-]\n  return %f\n",
        parameter="%w: f32[4@x]",
    )
    assert body(module)[3:] == [
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
        '%f.partial = dot(%e, %w, dims="ij,k->ij") : f32[8@-, 8@-] unreduced(x)',
        "%f = reshard(%f.partial) : f32[8@-, 8@-]",
    ]


def test_an_operation_that_makes_a_larger_value_has_complete_operands() -> None:
    module = sink(
        "  %e = add(%c, %d) : f32[8@-, 8@-]\n"
        "  %k = broadcast(%e, dims=[1, 2]) : f32[3@-, 8@-, 8@-]\n"
        "  %y = exp(%k) : f32[3@-, 8@-, 8@-]\n  return %y\n",
        "f32[3@-, 8@-, 8@-]",
    )
    assert body(module)[3:] == [
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
        "%k = broadcast(%e, dims=[1, 2]) : f32[3@-, 8@-, 8@-]",
        "%y = exp(%k) : f32[3@-, 8@-, 8@-]",
    ]


def test_a_reshard_to_an_unreduced_value_is_omitted_if_the_operand_is_unreduced() -> None:
    module = sink(
        "  %e = add(%c, %d) : f32[8@-, 8@-]\n"
        "  %j = reshard(%e) : f32[8@-, 8@-] unreduced(x)\n"
        "  %k = neg(%j) : f32[8@-, 8@-] unreduced(x)\n"
        "  %l = reshard(%k) : f32[8@-, 8@-]\n  return %l\n"
    )
    assert body(module)[2:] == [
        "%e = add(%c.partial, %d.partial) : f32[8@-, 8@-] unreduced(x)",
        "%k = neg(%e) : f32[8@-, 8@-] unreduced(x)",
        "%l = reshard(%k) : f32[8@-, 8@-]",
    ]


def test_branches_use_complete_values() -> None:
    module = sink(
        "  %e = add(%c, %d) : f32[8@-, 8@-]\n  %h = case(%i) : f32[8@-, 8@-] {\n    () =>\n"
        "    %k = neg(%e) : f32[8@-, 8@-]\n    yield %k\n  } {\n    () =>\n    yield %e\n  }\n"
        "  return %h\n",
        parameter="%i: i32[]",
    )
    assert body(module)[3:] == [
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
        "%h = case(%i) : f32[8@-, 8@-] {",
        "%k = neg(%e) : f32[8@-, 8@-]",
    ]


def test_only_stated_reasons_are_joined() -> None:
    reason = 'why("sum of d")'
    text = TWO.replace("(%d.partial) : f32[8@-, 8@-]", f"(%d.partial) : f32[8@-, 8@-] {reason}")
    module = run_sink_reductions(text + "  %e = add(%c, %d) : f32[8@-, 8@-]\n  return %e\n}\n")
    assert reasons(module) == ["sum of d"]


def test_the_reshard_of_a_complete_value_has_its_line() -> None:
    module = sink(
        '  %p = exp(%q) : f32[8@-, 8@-] loc("a.py":7:1)\n  %e = add(%c, %p) : f32[8@-, 8@-]\n'
        "  %s = sum(%e, dims=[0]) : f32[8@-]\n  return %s\n",
        "f32[8@-]",
        "%q: f32[8@-, 8@-]",
        ONE,
    )
    joined = module.main.body.ops[2]
    assert (joined.name, str(joined.loc)) == ("reshard", "a.py:7")


@pytest.mark.parametrize(
    ("term", "joined", "why"),
    [
        (
            "%p = exp(%q) : f32[8@-, 8@-]",
            "%p.partial = reshard(%p) : f32[8@-, 8@-] unreduced(x)",
            ["%e = add adds it to sums that are unreduced over x"],
        ),
        (
            "%p = constant(value=1.0) : f32[8@-, 8@-]",
            "%p.partial = reshard(%p) : f32[8@-, 8@-] unreduced(x)",
            ["%e = add adds it to sums that are unreduced over x"],
        ),
        (
            "%p = constant(value=0.0) : f32[8@-, 8@-]",
            "%p.partial = constant(value=0.0) : f32[8@-, 8@-] unreduced(x)",
            [],
        ),
    ],
    ids=["computed", "one", "zero"],
)
def test_only_a_constant_zero_is_unreduced_without_a_reshard(
    term: str, joined: str, why: list[str]
) -> None:
    module = sink(
        f"  {term}\n  %e = add(%c, %p) : f32[8@-, 8@-]\n"
        "  %s = sum(%e, dims=[0]) : f32[8@-]\n  return %s\n",
        "f32[8@-]",
        "%q: f32[8@-, 8@-]",
        ONE,
    )
    assert body(module)[1:] == [
        term,
        joined,
        "%e = add(%c.partial, %p.partial) : f32[8@-, 8@-] unreduced(x)",
        "%s.partial = sum(%e, dims=[0]) : f32[8@-] unreduced(x)",
        "%s = reshard(%s.partial) : f32[8@-]",
    ]
    assert reasons(module) == [*why, "%s.partial is a sum whose complete value is needed"]


def test_a_parameter_joins_a_sum_by_a_reshard() -> None:
    module = sink(
        "  %e = add(%c, %p) : f32[8@-, 8@-]\n  %s = sum(%e, dims=[0]) : f32[8@-]\n  return %s\n",
        "f32[8@-]",
        "%p: f32[8@-, 8@-]",
        ONE,
    )
    assert body(module)[1] == "%p.partial = reshard(%p) : f32[8@-, 8@-] unreduced(x)"


def test_a_constant_zero_joins_maxima_by_a_reshard() -> None:
    """Zero is the identity of sums only."""
    module = sink(
        """\
  %z = constant(value=0.0) : f32[4@-]
  %r = maximum(%p, %z) : f32[4@-]
  %t = maximum(%r, %q) : f32[4@-]
  %s = max(%t, dims=[0]) : f32[]
  return %s
""",
        sums=EXTREMES,
    )
    assert body(module)[3] == "%z.partial = reshard(%z) : f32[4@-] unreduced[max](x)"
    assert reasons(module) == [
        "%r = maximum combines it with each maximum that is unreduced over x",
        "%s.partial is a maximum whose complete value is needed",
    ]


def test_other_values_of_a_loop_stay_complete() -> None:
    module = run_sink_reductions("""\
func @f(
  %a: f32[3@-, 8@-, 4@x],
  %b: f32[4@x, 8@-],
  %n: f32[8@-],
) -> (f32[8@-, 8@-], f32[8@-], f32[3@-, 8@-]) {
  %zero = constant(value=0) : f32[8@-, 8@-]
  %total, %m, %ys = scan(%zero, %n, %a, carries=2, length=3) : f32[8@-, 8@-], f32[8@-], \
f32[3@-, 8@-] {
    (%sum: f32[8@-, 8@-], %k: f32[8@-], %row: f32[8@-, 4@x]) =>
    %c.partial = dot(%row, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
    %c = reshard(%c.partial) : f32[8@-, 8@-]
    %next = add(%sum, %c) : f32[8@-, 8@-]
    %e = exp(%k) : f32[8@-]
    yield %next, %e, %e
  }
  return %total, %m, %ys
}
""")
    assert body(module)[1:] == [
        "%zero.partial = constant(value=0) : f32[8@-, 8@-] unreduced(x)",
        "%total.partial, %m, %ys = scan(%zero.partial, %n, %a, carries=2, length=3) : "
        "f32[8@-, 8@-] unreduced(x), f32[8@-], f32[3@-, 8@-] {",
        '%c.partial = dot(%row, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)',
        "%next = add(%sum, %c.partial) : f32[8@-, 8@-] unreduced(x)",
        "%e = exp(%k) : f32[8@-]",
        "%total = reshard(%total.partial) : f32[8@-, 8@-]",
    ]
    check_agreement(module, "partition")


def test_the_condition_of_a_while_stays_complete() -> None:
    module = run_sink_reductions("""\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@-, 8@-]) {
  %zero = constant(value=0) : f32[8@-, 8@-]
  %n = constant(value=3) : i32[]
  %out, %k = while(%zero, %n) : f32[8@-, 8@-], i32[] {
    (%c0: f32[8@-, 8@-], %i: i32[]) =>
    %z = constant(value=0) : i32[]
    %more = gt(%i, %z) : bool[]
    yield %more
  } {
    (%c1: f32[8@-, 8@-], %i1: i32[]) =>
    %one = constant(value=1) : i32[]
    %left = sub(%i1, %one) : i32[]
    %c.partial = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] unreduced(x)
    %c = reshard(%c.partial) : f32[8@-, 8@-]
    %next = add(%c1, %c) : f32[8@-, 8@-]
    yield %next, %left
  }
  return %out
}
""")
    lines = body(module)
    assert "%more = gt(%i, %z) : bool[]" in lines
    assert "%left = sub(%i1, %one) : i32[]" in lines
    assert "%next = add(%c1, %c.partial) : f32[8@-, 8@-] unreduced(x)" in lines
    assert lines[-1] == "%out = reshard(%out.partial) : f32[8@-, 8@-]"
    check_agreement(module, "partition")


SUM_OF_DOTS = """\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@-, 8@-]) {
  %c0 = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] loc("a.py":1:1)
"""


@pytest.mark.parametrize(("terms", "more"), [(2, ""), (3, ""), (5, " and 2 more")])
def test_the_reshard_lists_three_reductions_and_has_the_line_of_the_sum(
    terms: int, more: str
) -> None:
    text, last = SUM_OF_DOTS, "c0"
    for i in range(1, terms):
        text += (
            f'  %c{i} = dot(%a, %b, dims="ik,kj->ij") : f32[8@-, 8@-] loc("a.py":1:1)\n'
            f'  %s{i} = add(%{last}, %c{i}) : f32[8@-, 8@-] loc("a.py":{i + 1}:1)\n'
        )
        last = f"s{i}"
    module = Pipeline.parse("reshard,sink-reductions")(
        parse(MESH + text + f"  return %{last}\n}}\n")
    )
    reshard = module.main.body.ops[-1]
    listed = "; ".join(f"sum over 'k' of %c{i} = dot" for i in range(min(terms, 3)))
    assert reshard.why == listed + more
    assert str(reshard.loc) == f"a.py:{terms}"
