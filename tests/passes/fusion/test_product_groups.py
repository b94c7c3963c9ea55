"""Programs that resemble attention: which operations `fuse-products` groups."""

import pytest

from shardir.ir.module import Module
from shardir.ops.contraction.dot import dot
from shardir.ops.control_flow.fused_products import fused_products
from shardir.passes.fusion.fuse_products import MAX_COPIED_OPS, FuseProducts
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
                    MAXIMUM,
                    "  %r = broadcast(%s, dims=[1, 2]) : f32[1, 32, 32]\n"
                    "  %h = reshape(%r) : f32[32, 32]\n" + MAXIMUM.replace("%s", "%h"),
                ),
                ("sub(%s", "sub(%h"),
            ],
            ["q k v"],
            id="a broadcast of scores to a dimension of size 1",
        ),
        pytest.param(
            [
                (
                    MAXIMUM,
                    "  %r = broadcast(%s, dims=[1, 2]) : f32[2, 32, 32]\n"
                    "  %m = max(%r, dims=[0, 2]) : f32[32]\n",
                )
            ],
            [],
            id="a broadcast of scores to another dimension",
        ),
        pytest.param(
            [
                (
                    EXP,
                    '  %p = dot(%q, %v, dims="th,sh->ts") : f32[32, 32]\n'
                    "  %c = cumsum(%p, dim=1, reverse=false) : f32[32, 32]\n"
                    "  %g = mul(%c, %u) : f32[32, 32]\n" + EXP.replace("%u", "%g"),
                )
            ],
            ["c q k v"],
            id="a bias from a product that is no score",
        ),
        pytest.param(
            [
                (
                    SPREAD,
                    "  %n = cumsum(%m, dim=0, reverse=false) : f32[32]\n"
                    + SPREAD.replace("%m", "%n"),
                )
            ],
            ["q k", "q k n v"],
            id="an operation on rows that combines rows",
        ),
        pytest.param(
            [
                (
                    SPREAD,
                    "  %n = neg(%m) : f32[32]\n  %p = mul(%n, %w) : f32[32]\n"
                    "  %x = broadcast(%n, dims=[0]) : f32[32, 32]\n" + SPREAD.replace("%m", "%p"),
                ),
                (EXP, "  %g = mul(%x, %u) : f32[32, 32]\n" + EXP.replace("%u", "%g")),
            ],
            ["q k", "n q k p v"],
            id="an operation on rows that two groups use",
        ),
        pytest.param(
            [
                (
                    PRODUCT,
                    "  %n = mul(%m, %w) : f32[32]\n"
                    "  %x = broadcast(%n, dims=[0]) : f32[32, 32]\n"
                    "  %unused = mul(%e, %x) : f32[32, 32]\n" + PRODUCT,
                )
            ],
            ["q k v"],
            id="unused scores",
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


def test_a_bias_that_is_returned_and_computed_from_another_product() -> None:
    bias = (
        '  %p = dot(%k, %k, dims="sh,sh->s") : f32[32]\n'
        "  %c = broadcast(%p, dims=[1]) : f32[32, 32]\n  %g = mul(%c, %u) : f32[32, 32]\n"
    )
    module = program((EXP, bias + EXP.replace("%u", "%g")), returned=", %c", types=", f32[32, 32]")
    assert groups_of(module) == (["p q k v"], 1)


def test_reductions_of_scores_without_a_product_stay() -> None:
    product = '  %o = dot(%e, %v, dims="ts,sh->th") : f32[32, 8]\n'
    new = (
        "  %l = sum(%e, dims=[1]) : f32[32]\n"
        "  %x = broadcast(%l, dims=[0]) : f32[32, 8]\n"
        '  %y = dot(%v, %v, dims="sh,sg->hg") : f32[8, 8]\n'
        '  %o = dot(%x, %y, dims="th,hg->tg") : f32[32, 8]\n'
    )
    assert groups_of(program((product, new))) == ([], 3)


def test_scores_of_rows() -> None:
    """%t and %x have the shape of the scores %s, and multiply the maxima of their rows."""
    text = """
func @f(
  %q: f32[4, 32, 8],
  %k: f32[4, 32, 8],
  %v: f32[4, 32, 8],
  %w: f32[4, 32],
) -> (f32[4, 32, 8]) {
  %s = dot(%q, %k, dims="bth,bsh->bts") : f32[4, 32, 32]
  %a = neg(%s) : f32[4, 32, 32]
  %m = max(%s, dims=[2]) : f32[4, 32]
  %n = mul(%m, %w) : f32[4, 32]
  %p = broadcast(%n, dims=[1, 2]) : f32[4, 4, 32]
  %t = dot(%m, %p, dims="ct,bcs->bts") : f32[4, 32, 32]
  %x = dot(%m, %p, dims="ct,bcs->bts") : f32[4, 32, 32]
  %y = mul(%t, %a) : f32[4, 32, 32]
  %u = mul(%x, %y) : f32[4, 32, 32]
  %e = tanh(%u) : f32[4, 32, 32]
  %o = dot(%e, %v, dims="bts,bsh->bth") : f32[4, 32, 8]
  return %o
}
"""
    assert groups_of(parse(text)) == (["q k", "m p p q k v"], 0)


def test_a_group_within_scores_that_are_returned() -> None:
    """%s and %p have one shape. All of the scores are no group, as %n is returned; those of %p
    are."""
    module = program(
        (MAXIMUM, "  %n = neg(%s) : f32[32, 32]\n" + MAXIMUM),
        (
            EXP,
            '  %p = dot(%q, %v, dims="th,sh->ts") : f32[32, 32]\n'
            "  %g = mul(%b, %p) : f32[32, 32]\n"
            "  %l = sum(%g, dims=[1]) : f32[32]\n"
            "  %x = broadcast(%l, dims=[0]) : f32[32, 32]\n"
            "  %y = sub(%g, %x) : f32[32, 32]\n" + EXP.replace("%u", "%y"),
        ),
        returned=", %n",
        types=", f32[32, 32]",
    )
    assert groups_of(module) == (["m q v v"], 1)


def bias_of_columns(computation: str, result: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the changes that multiply scores by a bias, which is computed from rows of 64
    elements."""
    change = (
        f"{computation}  %bias = broadcast(%{result}, dims=[1]) : f32[32, 32]\n"
        "  %g = mul(%bias, %u) : f32[32, 32]\n"
    )
    rows = "  %w: f32[32],\n"
    return (EXP, change + EXP.replace("%u", "%g")), (rows, f"{rows}  %z: f32[32, 64],\n")


@pytest.mark.parametrize(("count", "operand"), [(23, "w"), (24, "c1")])
def test_a_limited_number_of_operations_is_copied(count: int, operand: str) -> None:
    """%c1 is the last operation that can be copied for %bias, and is an operand twice."""
    assert count - MAX_COPIED_OPS in (-1, 0)
    lines = ["%c1 = neg(%w)", "%c2 = add(%c1, %c1)"]
    lines += [f"%c{number} = neg(%c{number - 1})" for number in range(3, count + 1)]
    computation = "".join(f"  {line} : f32[32]\n" for line in lines)
    module = program(*bias_of_columns(computation, f"c{count}"))
    assert groups_of(module) == ([f"{operand} q k v"], 0)


def test_a_reduction_outside_of_a_group_is_not_copied() -> None:
    module = program(*bias_of_columns("  %y = sum(%z, dims=[1]) : f32[32]\n", "y"))
    assert groups_of(module) == (["y q k v"], 0)


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


def test_only_conversions_to_f32_are_inside_of_groups() -> None:
    reinterpreted = program(
        ("%v: f32[32, 8]", "%v: bf16[32, 8, 2]"),
        (PRODUCT, f"  %x = bitcast(%v) : f32[32, 8]\n{PRODUCT.replace('%v', '%x')}"),
    )
    wide = program(
        ("%v: f32", "%v: bf16"),
        (PRODUCT, f"  %x = convert(%v) : f32[32, 8]\n{PRODUCT.replace('%v', '%x')}"),
    )
    for module in reinterpreted, parse(str(wide).replace("f32", "f64")):
        text = "fuse-products{convert_inside=true},dce"
        assert groups_of(module, text) == (["q k x"], 0)
