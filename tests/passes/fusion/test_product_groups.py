"""Programs that resemble attention: which operations `fuse-products` groups."""

import pytest

from shardir.ir.module import Module
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.fused_products import fused_products
from shardir.passes.fusion.fuse_products import FuseProducts
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.fusion.test_fuse_products import check_equal

ATTENTION = """\
func @f(
  %q: f32[32, 8],
  %k: f32[32, 8],
  %v: f32[32, 8],
  %w: f32[32],
) -> (RESULTS) {
  %s = dot(%q, %k, dims="th,sh->ts") : f32[32, 32]
  %m = max(%s, dims=[1]) : f32[32]
  %b = broadcast(%m, dims=[0]) : f32[32, 32]
  %u = sub(%s, %b) : f32[32, 32]
  %e = exp(%u) : f32[32, 32]
  %o = dot(%e, %v, dims="ts,sh->th") : f32[32, 8]
  return RETURNED
}
"""


def program(*changes: tuple[str, str], returned: str = "", types: str = "") -> Module:
    """Return attention with changes, and more results."""
    text = ATTENTION
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    text = text.replace("RESULTS", f"f32[32, 8]{types}").replace("RETURNED", f"%o{returned}")
    return parse(text)


def groups_of(before: Module, text: str = "fuse-products,dce") -> tuple[list[str], int]:
    """Return the operands of each group, and the number of products outside of groups."""
    after = Pipeline.parse(text)(before)
    verify(after)
    check_equal(before, after)
    ops = list(after.main.body.walk())
    found = [op for op in ops if op.spec is fused_products]
    inside = {inner for op in found for inner in op.blocks[0].ops}
    operands = [" ".join(value.name for value in op.operands) for op in found]
    return operands, sum(op.spec is dot and op not in inside for op in ops)


MAXIMUM = "  %m = max(%s, dims=[1]) : f32[32]\n"
SPREAD = "  %b = broadcast(%m, dims=[0]) : f32[32, 32]\n"
PRODUCT = "  %o = dot(%e, %v,"
EXP = "  %e = exp(%u) : f32[32, 32]\n"
ARRAY = f"dense(f32, [{', '.join(['2.0'] * 32)}])"


@pytest.mark.parametrize(
    ("changes", "operands"),
    [
        pytest.param([], ["q k v"], id="attention"),
        pytest.param(
            [
                (
                    MAXIMUM,
                    "  %r = reshape(%s) : f32[32, 1, 32]\n  %g = neg(%r) : f32[32, 1, 32]\n"
                    "  %h = reshape(%g) : f32[32, 32]\n" + MAXIMUM.replace("%s", "%h"),
                ),
                ("sub(%s", "sub(%h"),
            ],
            ["q k v"],
            id="scores with a dimension of size 1",
        ),
        pytest.param(
            [
                (
                    MAXIMUM,
                    "  %r = reshape(%s) : f32[1024]\n  %g = neg(%r) : f32[1024]\n"
                    "  %h = reshape(%g) : f32[32, 32]\n" + MAXIMUM.replace("%s", "%h"),
                ),
                ("sub(%s", "sub(%h"),
            ],
            [],
            id="scores without rows",
        ),
        pytest.param(
            [(SPREAD, "  %n = neg(%m) : f32[32]\n" + SPREAD.replace("%m", "%n"))],
            ["q k v"],
            id="an operation on rows",
        ),
        pytest.param(
            [
                (
                    SPREAD,
                    "  %c = constant(value=2.0) : f32[32]\n  %n = mul(%m, %c) : f32[32]\n"
                    + SPREAD.replace("%m", "%n"),
                )
            ],
            ["q k v"],
            id="an operation on rows and a number",
        ),
        pytest.param(
            [
                (
                    SPREAD,
                    f"  %c = constant(value={ARRAY}) : f32[32]\n  %n = mul(%m, %c) : f32[32]\n"
                    + SPREAD.replace("%m", "%n"),
                )
            ],
            ["q k", "q k n v"],
            id="an operation on rows and a constant array",
        ),
        pytest.param(
            [(SPREAD, "  %n = mul(%m, %w) : f32[32]\n" + SPREAD.replace("%m", "%n"))],
            ["q k", "q k n v"],
            id="an operation on rows and an argument",
        ),
        pytest.param(
            [
                (
                    SPREAD,
                    "  %n = reshape(%m) : f32[32, 1]\n"
                    + SPREAD.replace("%m", "%n").replace("[0]", "[0, 1]"),
                )
            ],
            ["q k v"],
            id="rows with a dimension of size 1",
        ),
        pytest.param(
            [
                (
                    SPREAD,
                    "  %n = reshape(%m) : f32[4, 8]\n  %p = neg(%n) : f32[4, 8]\n"
                    "  %z = reshape(%p) : f32[32]\n" + SPREAD.replace("%m", "%z"),
                )
            ],
            ["q k", "q k z v"],
            id="rows in two dimensions",
        ),
        pytest.param(
            [(SPREAD, SPREAD.replace("dims=[0]", "dims=[1]"))], [], id="rows along columns"
        ),
        pytest.param(
            [
                (
                    '  %o = dot(%e, %v, dims="ts,sh->th")',
                    '  %p = dot(%e, %e, dims="ts,us->tu") : f32[32, 32]\n'
                    '  %o = dot(%p, %v, dims="ts,sh->th")',
                )
            ],
            [],
            id="a product of scores",
        ),
        pytest.param(
            [
                (
                    PRODUCT,
                    "  %l = sum(%e, dims=[1]) : f32[32]\n"
                    "  %x = broadcast(%l, dims=[0]) : f32[32, 32]\n"
                    "  %y = div(%e, %x) : f32[32, 32]\n" + PRODUCT.replace("%e", "%y"),
                )
            ],
            ["q k v"],
            id="two reductions",
        ),
        pytest.param(
            [
                (
                    EXP,
                    '  %p = dot(%q, %v, dims="th,sh->ts") : f32[32, 32]\n'
                    "  %n = neg(%p) : f32[32, 32]\n  %t = add(%n, %n) : f32[32, 32]\n"
                    "  %g = mul(%t, %u) : f32[32, 32]\n" + EXP.replace("%u", "%g"),
                )
            ],
            ["q v q k v"],
            id="two products of scores",
        ),
        pytest.param(
            [
                (
                    EXP,
                    "  %r = reshape(%w) : f32[1, 32]\n"
                    "  %c = broadcast(%r, dims=[0, 1]) : f32[32, 32]\n"
                    "  %x = exp(%c) : f32[32, 32]\n"
                    "  %g = mul(%x, %u) : f32[32, 32]\n" + EXP.replace("%u", "%g"),
                )
            ],
            ["w q k v"],
            id="a bias of columns",
        ),
        pytest.param(
            [
                (
                    EXP,
                    "  %r = reshape(%w) : f32[4, 8]\n  %y = neg(%r) : f32[4, 8]\n"
                    "  %h = reshape(%y) : f32[32]\n"
                    "  %c = broadcast(%h, dims=[1]) : f32[32, 32]\n"
                    "  %g = mul(%c, %u) : f32[32, 32]\n" + EXP.replace("%u", "%g"),
                )
            ],
            ["h q k v"],
            id="a bias of columns from two dimensions",
        ),
        pytest.param(
            [
                (
                    EXP,
                    f"  %y = constant(value={ARRAY}) : f32[32]\n"
                    "  %c = broadcast(%y, dims=[1]) : f32[32, 32]\n"
                    "  %g = mul(%c, %u) : f32[32, 32]\n" + EXP.replace("%u", "%g"),
                )
            ],
            ["y q k v"],
            id="a constant bias",
        ),
    ],
)
def test_groups(changes: list[tuple[str, str]], operands: list[str]) -> None:
    found, _ = groups_of(program(*changes))
    assert found == operands


@pytest.mark.parametrize(
    ("returned", "types", "operands"),
    [(", %e", ", f32[32, 32]", []), (", %m", ", f32[32]", ["q k v"])],
    ids=["scores", "rows"],
)
def test_results(returned: str, types: str, operands: list[str]) -> None:
    assert groups_of(program(returned=returned, types=types))[0] == operands


def test_rows_that_other_operations_use_are_results() -> None:
    wide = SPREAD + "  %x = broadcast(%m, dims=[0]) : f32[32, 4]\n"
    module = program((SPREAD, wide), returned=", %x", types=", f32[32, 4]")
    assert groups_of(module)[0] == ["q k v"]


def test_a_group_without_a_product_of_scores_and_a_matrix_stays() -> None:
    module = program(
        (EXP, EXP + "  %l = sum(%e, dims=[1]) : f32[32]\n"), (PRODUCT, "  %o = dot(%b, %v,")
    )
    assert groups_of(module) == ([], 2)


def test_scores_of_a_product_of_the_same_shape() -> None:
    """%x has the shape of the scores, which are computed from it."""
    scores = '  %s = dot(%q, %k, dims="th,sh->ts") : f32[32, 32]\n'
    new = scores.replace("%s", "%x") + '  %s = dot(%x, %x, dims="ta,sa->ts") : f32[32, 32]\n'
    assert groups_of(program((scores, new))) == (["x x v"], 1)


def test_reductions_of_scores_without_a_product_stay() -> None:
    product = '  %o = dot(%e, %v, dims="ts,sh->th") : f32[32, 8]\n'
    new = (
        "  %l = sum(%e, dims=[1]) : f32[32]\n"
        "  %x = broadcast(%l, dims=[0]) : f32[32, 8]\n"
        '  %y = dot(%v, %v, dims="sh,sg->hg") : f32[8, 8]\n'
        '  %o = dot(%x, %y, dims="th,hg->tg") : f32[32, 8]\n'
    )
    assert groups_of(program((product, new))) == ([], 3)


def test_callbacks_use_scores_or_rows() -> None:
    module = program((SPREAD, SPREAD + '  callback(%s, function="f")\n'))
    assert FuseProducts()(module) is module
    module = program((SPREAD, SPREAD + '  callback(%m, function="f")\n'))
    made = FuseProducts()(module)
    verify(made)
    assert [op.name for op in made.main.body.ops] == ["fused_products", "callback"]


@pytest.mark.parametrize(
    ("dtype", "operation", "converts", "operands"),
    [
        ("bf16", "convert", False, "q k x"),
        ("bf16", "convert", True, "q k v"),
        ("i32", "convert", True, "q k x"),
        ("f32", "neg", True, "q k x"),
    ],
)
def test_conversions_inside_of_groups(
    dtype: str, operation: str, converts: bool, operands: str
) -> None:
    module = program(
        ("%v: f32", f"%v: {dtype}"),
        (PRODUCT, f"  %x = {operation}(%v) : f32[32, 8]\n{PRODUCT.replace('%v', '%x')}"),
    )
    text = f"fuse-products{{convert_inside={str(converts).lower()}}},dce"
    assert groups_of(module, text) == ([operands], 0)
