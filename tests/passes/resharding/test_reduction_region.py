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
            "%d = reshard(%d.partial) : f32[8@-]; %y = sum(%d, dims=[0]) : f32[]",
            "f32[]",
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
    found = sink("".join(f"  {line}\n" for line in lines.split("; ")), result)
    assert found[0] == "%c = reshard(%c.partial) : f32[8@-]"


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
