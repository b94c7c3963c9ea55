"""The `fused_products` operation: the loops of its block, and invalid blocks."""

import pytest

from shardir import parse
from shardir.errors import ParseError
from shardir.ops.control_flow.fused_products import build_product_nest

ATTENTION = """
func @f(%x: f32[2, 4, 3], %k: f32[2, 5, 3], %v: f32[2, 5, 6]) -> (f32[2, 4, 6], f32[2, 4]) {
  %y, %m = fused_products(%x, %k, %v) : f32[2, 4, 6], f32[2, 4] {
    (%a: f32[2, 4, 3], %b: f32[2, 5, 3], %c: f32[2, 5, 6]) =>
    %s = dot(%a, %b, dims="bth,bsh->bts") : f32[2, 4, 5]
    %n = max(%s, dims=[2]) : f32[2, 4]
    %z = dot(%s, %c, dims="bts,bsh->bth") : f32[2, 4, 6]
    yield %z, %n
  }
  return %y, %m
}
"""


def test_the_loops_of_attention() -> None:
    module = parse(ATTENTION)
    nest = build_product_nest(module.main.body.ops[0].blocks[0])
    extents = nest.extents
    assert (extents[nest.row_loop], extents[nest.column_loop]) == (4, 5)
    assert [extents[loop] for loop in nest.batch_loops] == [2]
    rows, columns = nest.row_and_column_matrix(nest.score_products[0])
    assert (rows.name, columns.name, extents[nest.feature_loop(rows)]) == ("a", "b", 3)
    (column_sum,) = nest.sums
    assert nest.is_column_sum(column_sum)
    assert [value.name for value in nest.scores_and_matrix(column_sum)] == ["s", "c"]


def test_sums_over_rows_and_over_columns() -> None:
    text = """
func @f(%x: f32[2, 4, 3], %k: f32[5, 3], %g: f32[2, 4, 6]) -> (f32[5, 6]) {
  %y = fused_products(%x, %k, %g) : f32[5, 6] {
    (%a: f32[2, 4, 3], %b: f32[5, 3], %c: f32[2, 4, 6]) =>
    %s = dot(%a, %b, dims="bth,sh->bts") : f32[2, 4, 5]
    %m = max(%s, dims=[2]) : f32[2, 4]
    %n = broadcast(%m, dims=[0, 1]) : f32[2, 4, 5]
    %p = sub(%s, %n) : f32[2, 4, 5]
    %z = dot(%p, %c, dims="bts,bth->sh") : f32[5, 6]
    yield %z
  }
  return %y
}
"""
    nest = build_product_nest(parse(text).main.body.ops[0].blocks[0])
    assert not nest.is_column_sum(nest.sums[0])


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "%n = max(%s",
            "%n = prod(%s",
            "fused_products: cannot hold %n = prod; it takes elementwise operations, broadcast, "
            "iota, constants of one number, reshape that adds or drops dimensions of size 1, "
            "bitcast of 32 or 64 bits to as many, and dot, sum, max and min",
        ),
        (
            "%v: f32[2, 5, 6]) ->",
            "%v: f32[2, 5, 7]) ->",
            "fused_products: its block takes (f32[2, 4, 3], f32[2, 5, 3], f32[2, 5, 6]), expected "
            "(f32[2, 4, 3], f32[2, 5, 3], f32[2, 5, 7])",
        ),
        (
            "yield %z, %n",
            "yield",
            "fused_products: its block yields nothing; it has at least one result",
        ),
        (
            "dot(%s, %c",
            "dot(%s, %v",
            "fused_products: its block uses %v: f32[2, 5, 6] of the blocks around it; pass it as "
            "an operand",
        ),
        (
            '%z = dot(%s, %c, dims="bts,bsh->bth")',
            '%z = dot(%a, %c, dims="bth,bsg->btg")',
            "fused_products: %z = dot is not a product of rows and columns",
        ),
        (
            "yield %z, %n",
            "%q = broadcast(%n, dims=[0, 1]) : f32[2, 4, 7]\n    "
            "%w = sum(%q, dims=[2]) : f32[2, 4]\n    yield %z, %w",
            "fused_products: %q: f32[2, 4, 7] has loops that scores lack",
        ),
        (
            "%n = max(%s, dims=[2]) : f32[2, 4]",
            "%n = max(%s, dims=[1, 2]) : f32[2]",
            "fused_products: neither a reduction nor a sum of its block removes one loop of scores",
        ),
        (
            '%z = dot(%s, %c, dims="bts,bsh->bth") : f32[2, 4, 6]',
            "%d = convert(%c) : f64[2, 5, 6]\n    %o = convert(%s) : f64[2, 4, 5]\n    "
            '%z = dot(%o, %d, dims="bts,bsh->bth") : f64[2, 4, 6]',
            "fused_products: its products have the types f32, f64",
        ),
        (
            "%n = max(%s, dims=[2]) : f32[2, 4]",
            "%c64 = convert(%s) : f64[2, 4, 5]\n    %o = max(%c64, dims=[2]) : f64[2, 4]\n    "
            "%n = convert(%o) : f32[2, 4]",
            "fused_products: %o = max is not a sum, max or min of scores in f32 over columns",
        ),
        (
            "yield %z, %n",
            "%w = neg(%z) : f32[2, 4, 6]\n    yield %w, %n",
            "fused_products: %w = neg uses a sum; compute it outside",
        ),
        (
            "yield %z, %n",
            '%w = dot(%s, %z, dims="bts,bth->bsh") : f32[2, 5, 6]\n    yield %w, %n',
            "fused_products: %w = dot uses a sum; compute it outside",
        ),
        (
            'dims="bts,bsh->bth") : f32[2, 4, 6]\n    yield %z, %n',
            'dims="bts,bsh->th") : f32[4, 6]\n    yield %z, %n',
            "fused_products: %z = dot is not a sum of scores over rows or columns",
        ),
        (
            "yield %z, %n",
            "%w = exp(%s) : f32[2, 4, 5]\n    yield %w, %n",
            "fused_products: it yields %w: f32[2, 4, 5], which is neither a sum nor a value of "
            "each row",
        ),
    ],
)
def test_invalid_blocks(old: str, new: str, expected: str) -> None:
    assert old in ATTENTION
    with pytest.raises(ParseError) as caught:
        parse(ATTENTION.replace(old, new))
    assert str(caught.value).split("\n")[0] == expected


def test_row_sums_with_different_batch_loops() -> None:
    text = """
func @f(%x: f32[2, 4, 3], %k: f32[2, 5, 3], %g: f32[2, 4, 6]) -> (f32[5, 6], f32[2, 5, 3]) {
  %y, %u = fused_products(%x, %k, %g) : f32[5, 6], f32[2, 5, 3] {
    (%a: f32[2, 4, 3], %b: f32[2, 5, 3], %c: f32[2, 4, 6]) =>
    %s = dot(%a, %b, dims="bth,bsh->bts") : f32[2, 4, 5]
    %m = max(%s, dims=[2]) : f32[2, 4]
    %n = broadcast(%m, dims=[0, 1]) : f32[2, 4, 5]
    %p = sub(%s, %n) : f32[2, 4, 5]
    %z = dot(%p, %c, dims="bts,bth->sh") : f32[5, 6]
    %w = dot(%p, %a, dims="bts,bth->bsh") : f32[2, 5, 3]
    yield %z, %w
  }
  return %y, %u
}
"""
    with pytest.raises(ParseError) as caught:
        parse(text)
    expected = "fused_products: its row sums have different batch loops"
    assert str(caught.value).split("\n")[0] == expected


def test_a_block_without_products_of_its_operands() -> None:
    text = """
func @f(%x: f32[4, 5]) -> (f32[4]) {
  %y = fused_products(%x) : f32[4] {
    (%a: f32[4, 5]) =>
    %m = max(%a, dims=[1]) : f32[4]
    yield %m
  }
  return %y
}
"""
    with pytest.raises(ParseError) as caught:
        parse(text)
    expected = "fused_products: its block computes no scores: no dot has operands from outside"
    assert str(caught.value).split("\n")[0] == expected
