"""Through which operations `sink-reductions` can delay a reduction."""

import pytest

from tests.passes.op_lines import body
from tests.passes.resharding.test_sink_reductions import run_sink_reductions
from tests.passes.sharded_evaluation import check_agreement


def sink(lines: str, result: str) -> list[str]:
    """Return the operations of a program that begins with the sum %c, after the pass."""
    module = run_sink_reductions(f"""\
func @f(
  %a: f32[8@-, 64@x],
  %q: f32[8@-, 8@-],
  %w: f32[4@x],
) -> ({result}) {{
  %c.partial = sum(%a, dims=[1]) : f32[8@-] unreduced(x)
  %c = reshard(%c.partial) : f32[8@-]
{lines}\
  return %y
}}
""")
    check_agreement(module, "partition")
    return body(module)[1:]


def test_either_operand_of_a_product_may_be_a_sum() -> None:
    first = '  %d = dot(%c, %q, dims="i,ij->j") : f32[8@-]\n  %y = sum(%d, dims=[0]) : f32[]\n'
    second = first.replace("%c, %q", "%q, %c").replace("i,ij->j", "ij,i->j")
    for lines in first, second:
        product = lines.partition(" = ")[2].partition(")")[0].replace("%c", "%c.partial")
        assert sink(lines, "f32[]") == [
            f"%d = {product}) : f32[8@-] unreduced(x)",
            "%y.partial = sum(%d, dims=[0]) : f32[] unreduced(x)",
            "%y = reshard(%y.partial) : f32[]",
        ]


@pytest.mark.parametrize(
    ("lines", "result"),
    [
        pytest.param(
            "%d = broadcast(%c, dims=[0]) : f32[8@-, 8@x]; %y = sum(%d, dims=[0]) : f32[8@x]",
            "f32[8@x]",
            id="a result that the axis shards",
        ),
        pytest.param(
            '%d.partial = dot(%c, %w, dims="i,j->i") : f32[8@-] unreduced(x); '
            "%d = reshard(%d.partial) : f32[8@-]; %y = exp(%d) : f32[8@-]",
            "f32[8@-]",
            id="a factor that the axis shards",
        ),
        pytest.param(
            "%d, %i = top_k(%c) : f32[1@-], i32[1@-]; %y = sum(%d, dims=[0]) : f32[]",
            "f32[]",
            id="two results",
        ),
        pytest.param(
            '%d = dot(%c, %c, dims="i,i->") : f32[]; %y = neg(%d) : f32[]',
            "f32[]",
            id="a square",
        ),
    ],
)
def test_a_sum_is_completed_before_an_operation(lines: str, result: str) -> None:
    stated = lines.split("; ")
    found = sink("".join(f"  {line}\n" for line in stated), result)
    assert found == ["%c = reshard(%c.partial) : f32[8@-]", *stated]


def test_a_sum_is_completed_before_a_larger_operand_of_another_sum() -> None:
    """The other sum multiplies its operand by shards, so that the operand must be complete."""
    lines = (
        "  %d = broadcast(%c, dims=[0]) : f32[8@-, 8@-]\n"
        '  %e.partial = dot(%d, %w, dims="ij,k->ij") : f32[8@-, 8@-] unreduced(x)\n'
        "  %e = reshard(%e.partial) : f32[8@-, 8@-]\n  %y = exp(%e) : f32[8@-, 8@-]\n"
    )
    assert [line for line in sink(lines, "f32[8@-, 8@-]") if "reshard" in line] == [
        "%c = reshard(%c.partial) : f32[8@-]",
        "%e = reshard(%e.partial) : f32[8@-, 8@-]",
    ]


def test_many_small_results_are_completed_instead_of_a_large_value() -> None:
    lines = (
        "  %d = slice(%c, starts=[0], strides=[1]) : f32[1@-]\n  %e = exp(%d) : f32[1@-]\n"
        "  %f = slice(%c, starts=[4], strides=[1]) : f32[1@-]\n  %g = exp(%f) : f32[1@-]\n"
        "  %y = add(%e, %g) : f32[1@-]\n"
    )
    assert [line for line in sink(lines, "f32[1@-]") if "reshard" in line] == [
        "%d = reshard(%d.partial) : f32[1@-]",
        "%f = reshard(%f.partial) : f32[1@-]",
    ]


def test_a_product_of_two_sums_has_complete_factors() -> None:
    lines = (
        "  %d.partial = sum(%a, dims=[0, 1]) : f32[] unreduced(x)\n"
        "  %d = reshard(%d.partial) : f32[]\n"
        "  %e = broadcast(%d, dims=[]) : f32[8@-]\n"
        "  %f = mul(%c, %e) : f32[8@-]\n  %y = sum(%f, dims=[0]) : f32[]\n"
    )
    assert [line for line in sink(lines, "f32[]") if "reshard" in line] == [
        "%c = reshard(%c.partial) : f32[8@-]",
        "%d = reshard(%d.partial) : f32[]",
    ]


def test_a_sum_is_completed_before_it_joins_a_maximum() -> None:
    lines = (
        "  %d = reshard(%c) : f32[8@-] unreduced[max](y)\n"
        "  %e = slice(%d, starts=[0], strides=[1]) : f32[1@-] unreduced[max](y)\n"
        "  %y = reshard(%e) : f32[1@-]\n"
    )
    assert sink(lines, "f32[1@-]")[0] == "%d = reshard(%c.partial) : f32[8@-] unreduced[max](y)"


def test_a_sum_joins_another_sum_over_other_axes() -> None:
    lines = (
        "  %d = reshard(%c) : f32[8@-] unreduced(y)\n"
        "  %e = slice(%d, starts=[0], strides=[1]) : f32[1@-] unreduced(y)\n"
        "  %y = reshard(%e) : f32[1@-]\n"
    )
    assert sink(lines, "f32[1@-]") == [
        "%d = reshard(%c.partial) : f32[8@-] unreduced(x, y)",
        "%e = slice(%d, starts=[0], strides=[1]) : f32[1@-] unreduced(x, y)",
        "%y = reshard(%e) : f32[1@-]",
    ]


def test_complete_slices_join_a_sum_before_the_loop() -> None:
    """In the loop, each slice would be resharded."""
    module = run_sink_reductions("""\
func @f(
  %a: f32[8@-, 4@x],
  %b: f32[4@x],
) -> (f32[8@-], f32[3@-, 8@-]) {
  %c.partial = dot(%a, %b, dims="ik,k->i") : f32[8@-] unreduced(x)
  %c = reshard(%c.partial) : f32[8@-]
  %d = broadcast(%c, dims=[1]) : f32[3@-, 8@-]
  %e = exp(%d) : f32[3@-, 8@-]
  %zero = constant(value=0) : f32[8@-]
  %total = scan(%zero, %d, carries=1, length=3) : f32[8@-] {
    (%sum: f32[8@-], %row: f32[8@-]) =>
    %g.partial = dot(%a, %b, dims="ik,k->i") : f32[8@-] unreduced(x)
    %g = reshard(%g.partial) : f32[8@-]
    %h = add(%sum, %g) : f32[8@-]
    %next = add(%h, %row) : f32[8@-]
    yield %next
  }
  return %total, %e
}
""")
    check_agreement(module, "partition")
    assert [line for line in body(module) if "reshard" in line] == [
        "%c = reshard(%c.partial) : f32[8@-]",
        "%d.partial = reshard(%d) : f32[3@-, 8@-] unreduced(x)",
        "%total = reshard(%total.partial) : f32[8@-]",
    ]
