"""The placements with which operations run."""

from collections.abc import Collection, Sequence

import pytest

from shardir.ir.module import Op
from shardir.passes.planning.programs.placements import PARTIAL, UNSHARDED
from shardir.passes.planning.programs.strategies import (
    Strategy,
    placements_of,
    strategies_of,
)
from shardir.text.parser import parse

R, P = UNSHARDED, PARTIAL


def operation(params: str, line: str) -> Op:
    """Return the operation of a line, which defines %y."""
    result = line.rpartition(" : ")[2]
    text = f"mesh @m = [x=2]\nfunc @f({params}) -> ({result}) {{\n  {line}\n  return %y\n}}\n"
    return parse(text).main.body.ops[-1]


def placed(
    params: str, line: str, sizes: Sequence[int] = (2,), partial: Sequence[Collection[int]] = ((),)
) -> set[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]] | None:
    """Return the placements of the operands and of the result of each strategy; `partial` counts
    for all operands if it has one entry."""
    op = operation(params, line)
    many = partial if len(partial) > 1 else list(partial) * len(op.operands)
    found = strategies_of(op, sizes, many)
    return None if found is None else {(each.operands, each.results[0]) for each in found}


@pytest.mark.parametrize(
    ("even", "partial", "expected"),
    [
        (True, False, [(R,), (0,)]),
        (True, True, [(P,), (R,), (0,)]),
        (False, False, [(R,), (0,), (1,)]),
    ],
)
def test_placements_shard_dimensions_that_are_large_enough(
    even: bool, partial: bool, expected: list[tuple[int, ...]]
) -> None:
    assert placements_of((4, 3, 1), (2,), even=even, partial=partial) == expected


def test_several_axes_may_shard_one_dimension() -> None:
    assert placements_of((4,), (2, 2), even=True) == [(R, R), (R, 0), (0, R), (0, 0)]
    assert placements_of((2,), (2, 2), even=True) == [(R, R), (R, 0), (0, R)]
    assert placements_of((0,), (2,), even=False) == [(R,)]


def test_a_product_is_sharded_along_each_factor() -> None:
    """The sum over a sharded factor leaves partial sums."""
    params, line = "%a: f32[4, 4], %b: f32[4, 1]", '%y = dot(%a, %b, dims="ij,jk->ik") : f32[4, 1]'
    whole = (((R,), (R,)), (R,))
    rows, inner = (((0,), (R,)), (0,)), (((1,), (0,)), (P,))
    assert placed(params, line) == {whole, rows, inner}
    delayed = {(((P,), (R,)), (P,)), (((R,), (P,)), (P,))}
    assert placed(params, line, partial=((0,),)) == {whole, rows, inner} | delayed
    only_first = {(((P,), (R,)), (P,))}
    assert placed(params, line, partial=((0,), ())) == {whole, rows, inner} | only_first


def test_a_reduction_that_combines_its_parts_itself_leaves_no_partial_sum() -> None:
    found = placed("%a: f32[4]", "%y = argmax(%a, dim=0) : i32[]")
    assert found == {(((R,),), (R,)), (((0,),), (R,))}


def test_the_flops_are_those_of_the_largest_shard() -> None:
    params, line = "%a: f32[3, 4], %b: f32[4, 2]", '%y = dot(%a, %b, dims="ij,jk->ik") : f32[3, 2]'
    found = strategies_of(operation(params, line), (2,), ((), ()))
    assert found is not None
    assert {each.operands: each.flops for each in found} == {
        ((R,), (R,)): 2 * 3 * 4 * 2,
        ((0,), (R,)): 2 * 2 * 4 * 2,
        ((1,), (0,)): 2 * 3 * 2 * 2,
        ((R,), (1,)): 2 * 3 * 4 * 1,
    }
    empty = strategies_of(
        operation("%a: f32[0, 4], %b: f32[4, 2]", line.replace("3, 2", "0, 2")), (2,), ((), ())
    )
    assert empty is not None
    assert {each.flops for each in empty} == {0}
    elementwise = strategies_of(operation("%a: f32[4]", "%y = tanh(%a) : f32[4]"), (2,), ((),))
    assert elementwise is not None
    assert elementwise[0] == Strategy(((R,),), ((R,),), 0)


def test_sums_of_both_operands_are_delayed_together() -> None:
    params, line = "%a: f32[4], %b: f32[4]", "%y = add(%a, %b) : f32[4]"
    both = {(((R,), (R,)), (R,)), (((0,), (0,)), (0,))}
    assert placed(params, line) == both
    assert placed(params, line, partial=((0,), ())) == both | {(((P,), (P,)), (P,))}
    line = line.replace("add", "mul")
    assert placed(params, line, partial=((0,), ())) == both | {(((P,), (R,)), (P,))}


def test_a_factor_is_sharded_along_several_axes_up_to_its_size() -> None:
    params, line = "%a: f32[2]", "%y = neg(%a) : f32[2]"
    assert placed(params, line, (2, 2)) == {
        (((R, R),), (R, R)), (((R, 0),), (R, 0)), (((0, R),), (0, R))
    }  # fmt: skip


def test_a_minor_factor_is_sharded_where_the_major_ones_are_sharded_completely() -> None:
    """The shards of the minor factor of a flat dimension are not contiguous otherwise."""
    params, line = "%a: f32[2, 4]", "%y = reshape(%a) : f32[8]"
    assert placed(params, line) == {(((R,),), (R,)), (((0,),), (0,))}
    assert (((0, 1),), (0, 0)) in (placed(params, line, (2, 2)) or ())
    assert (((R, 1),), (R, 0)) not in (placed(params, line, (2, 2)) or ())


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ("%a: f32[4]", "%y = all-reduce(%a, axes=[x], op=add) : f32[4]"),
        (
            "%a: f32[4]",
            "%y = scan(%a, carries=1, length=3, reverse=false) : f32[4] {\n"
            "    (%c: f32[4]) =>\n    %d = neg(%c) : f32[4]\n    yield %d\n  }",
        ),
        ("%a: f32[4]", "%y = reshard(%a) : f32[4]"),
    ],
    ids=["a collective", "a loop", "a reshard"],
)
def test_operations_whose_rule_does_not_determine_strategies(params: str, line: str) -> None:
    result = "f32[4]"
    text = f"mesh @m = [x=2]\nfunc @f({params}) -> ({result}) {{\n  {line}\n  return %y\n}}\n"
    assert strategies_of(parse(text).main.body.ops[-1], (2,), ((),)) is None
