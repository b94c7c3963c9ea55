"""Why an operation keeps one of two conflicting shardings."""

import pytest

from shardir.passes.explain import conflicts
from shardir.passes.explain.reports import Conflict, Verdict
from shardir.text.parser import parse

MESHES = "mesh @m = [a=2, b=2]\nmesh @n = [c=2]\nmesh @one = [] devices=[0]\n"
WITHOUT_RESOLUTION = "propagate,reshard,partition"


def conflicts_of(params: str, result: str, *lines: str, pipeline: str = "") -> tuple[Conflict, ...]:
    body = "\n".join(f"  {line}" for line in lines)
    text = f"{MESHES}func @f({params}) -> ({result}) {{\n{body}\n}}\n"
    return conflicts(parse(text), pipeline=pipeline or None).rows


PRODUCT = '%v = dot(%x, %y, dims="ik,kj->ij") : f32[8, 8]'
SUM = "%v = add(%x, %y) : f32[8, 8]"
VALUE = "f32[8, 8]"


@pytest.mark.parametrize(
    ("params", "result", "line", "verdict", "detail"),
    [
        (
            "%x: f32[8@(a, b), 8], %y: f32[8, 8@a]", VALUE, SUM, Verdict.FINER,
            "dimension 0 of %x against dimension 1 of %y: 4 shards against 2",
        ),
        (
            "%x: f32[8@a, 4], %y: f32[4, 8@(a, b)]", VALUE, PRODUCT, Verdict.EARLIER_TENSOR,
            "'i' of %x against 'j' of %y: earlier tensor",
        ),
        (
            "%x: f32[8@a, 4], %y: f32[4, 8@a]", VALUE, PRODUCT, Verdict.EARLIER_TENSOR,
            "'i' of %x against 'j' of %y: earlier tensor",
        ),
        (
            "%x: f32[8, 8@a], %y: f32[8@a, 8]", VALUE, SUM, Verdict.EARLIER_TENSOR,
            "dimension 1 of %x against dimension 0 of %y: earlier tensor",
        ),
        (
            "%x: f32[16@a, 4], %y: f32[4, 8@a]", "f32[16, 8]", PRODUCT.replace("[8", "[16"),
            Verdict.LARGER, "'i' of %x against 'j' of %y: 64 elements against 32",
        ),
        (
            "%x: f32[8@a, 8], %y: f32[8, 8]", "f32[8, 8@a]", PRODUCT, Verdict.FIRST,
            "the other was delayed: axes do not propagate in this direction in this round",
        ),
    ],
)  # fmt: skip
def test_the_decision_of_propagation(
    params: str, result: str, line: str, verdict: Verdict, detail: str
) -> None:
    rows = conflicts_of(params, result, line, "%w = neg(%v) : " + result.replace("@a", ""),
                        "return %w")  # fmt: skip
    assert (rows[0].verdict, rows[0].detail) == (verdict, detail)


SHARDY = "propagate,reshard{layouts=shardy},partition"
SELECT = "%v = select(%p, %x, %y) : f32[8, 8]"


@pytest.mark.parametrize(
    ("pipeline", "params", "line", "rows"),
    [
        (
            WITHOUT_RESOLUTION,
            "%x: f32[8@a, 8]",
            "%v = sort(%x, dim=0) : f32[8, 8]",
            [
                ("%x", "a", "%x", "a", Verdict.CANNOT, "factors of kind need-replication"),
                ("%x", "a", "%v", "a", Verdict.CANNOT, "factors of kind need-replication"),
            ],
        ),
        (
            WITHOUT_RESOLUTION,
            "%x: f32[8@a, 8], %y: f32[8@b, 8], %p: bool[8, 8@a]",
            SELECT,
            [
                (
                    "%y", "b", "%x", "a", Verdict.CHEAPER,
                    "each device receives 128 B, and would receive 208 B with dimension 0 of %p "
                    "sharded over a",
                ),
                (
                    "%y", "b", "%v", "-", Verdict.EQUAL,
                    "each device receives 128 B, and would receive as much with dimension 0 of %p "
                    "unsharded",
                ),
            ],
        ),
        (
            WITHOUT_RESOLUTION,
            "%x: f32[8@a, 8]",
            "%v = neg(%x) : f32[8@b, 8]",
            [
                (
                    "%x", "a", "%v", "b", Verdict.EQUAL,
                    "each device receives 128 B, and would receive as much with dimension 0 of %x "
                    "sharded over b",
                ),
            ],
        ),
        (
            SHARDY,
            "%x: f32[8@a, 8]",
            "%v = neg(%x) : f32[8@b, 8]",
            [
                (
                    "%x", "a", "%v", "b", Verdict.FOLLOWED,
                    "both have 64 elements, so more shards decide",
                ),
            ],
        ),
        (
            SHARDY,
            "%x: f32[8@a, 8], %y: f32[8@a, 8], %p: bool[8@b, 8]",
            SELECT,
            [
                ("%x", "a", "%v", "-", Verdict.MAJORITY, "128 elements against 64"),
                ("%x", "a", "%p", "b", Verdict.MAJORITY, "128 elements against 64"),
            ],
        ),
    ],
)  # fmt: skip
def test_the_decision_of_an_operation(
    pipeline: str, params: str, line: str, rows: list[tuple[object, ...]]
) -> None:
    """The rows have the tensor whose axes are kept, its axes, those that are given up, and the
    reason. The most expensive ones come first."""
    found = conflicts_of(params, VALUE, line, "return %v", pipeline=pipeline)
    assert [
        (
            row.kept.value, row.kept.axes, row.given_up.value, row.given_up.axes, row.verdict,
            row.detail,
        )
        for row in found
    ] == rows  # fmt: skip


def test_values_on_a_single_device_or_on_several_meshes_have_no_conflicts() -> None:
    single = "%x: f32[8] on @one, %y: f32[8@a]"
    line = "%v = neg(%x) : f32[8]"
    results = "f32[8], f32[8]"
    assert conflicts_of(single, results, line, "return %v, %y", pipeline=WITHOUT_RESOLUTION) == ()
    both = "%x: f32[8@c] on @n, %y: f32[8@a]"
    line = "%v = add(%x, %y) : f32[8]"
    assert conflicts_of(both, "f32[8]", line, "return %v", pipeline=WITHOUT_RESOLUTION) == ()
