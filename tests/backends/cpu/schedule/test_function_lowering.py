"""Functions are lowered to items whose operands and results are views of few buffers."""

from collections.abc import Mapping
from typing import Any

import pytest

import shardir as sd
from shardir.backends.cpu.kernel_api import BufferView, Order
from shardir.backends.cpu.schedule.function_lowering import Lowered, lower_function
from shardir.backends.cpu.schedule.items import (
    BranchItem,
    CopyItem,
    Item,
    ScanItem,
    WhileItem,
    WorkItem,
)
from shardir.text.parser import parse
from tests.backends.cpu.schedule.test_shadow_memory import prepare_for_scheduling

SQUARE = "f32[4, 4]"


def lowered(
    lines: str,
    results: str = SQUARE,
    returns: str = "%r",
    orders: Mapping[str, Order] | None = None,
) -> Lowered:
    params = "%x: f32[4, 4], %y: f32[4, 4], %i: i32[], %j: i32[], %p: bool[]"
    text = "".join(f"  {line}\n" for line in lines.splitlines())
    return lower_function(
        parse(f"func @f({params}) -> ({results}) {{\n{text}  return {returns}\n}}\n").main,
        orders or {},
    )


def describe(found: Lowered) -> list[str]:
    """Return a line for each item: its operands and results as buffers with offsets and strides."""

    def view(each: BufferView) -> str:
        offset = f"+{each.offset}" if each.offset else ""
        return f"{found.buffers[each.slot].name}{offset}{list(each.strides)}"

    def lines(item: Item) -> list[str]:
        if isinstance(item, CopyItem):
            return [f"copy {view(item.source)} -> {view(item.target)}"]
        if isinstance(item, WorkItem):
            operands, results = (
                ", ".join(map(view, each)) for each in (item.operands, item.results)
            )
            return [f"{item.op.name} {operands} -> {results}"]
        if isinstance(item, BranchItem):
            return [
                f"case: {line}" for part in item.branches for each in part for line in lines(each)
            ]
        assert isinstance(item, ScanItem | WhileItem)
        return [f"loop: {line}" for each in item.body for line in lines(each)]

    return [line for item in found.items for line in lines(item)]


def pairs(found: Lowered) -> list[tuple[str, str]]:
    """Return the operands and results that may share memory."""
    return [(old.name, new.name) for _, old, new in found.pairs]


SINE_OR_Y = """\
%c = case(%i) : f32[4, 4] {
  %g = sin(%x) : f32[4, 4]
  yield %g
} {
  yield %y
}
"""
LOOP = """\
%c = while(%x) : f32[4, 4] {
  (%q: f32[4, 4]) =>
  yield %p
} {
  (%b: f32[4, 4]) =>
  %g = sin(%b) : f32[4, 4]
  yield %g
}
"""
TRANSPOSED = "%t = transpose(%x, perm=[1, 0]) : f32[4, 4]\n"
ROWS = "%a = concatenate(%x, %y, dim=0) : f32[8, 4]\n"
FUSED = """\
%r = fused(%x) : f32[4, 4] {
  (%a: f32[4, 4]) =>
  %b = constant(value=0.5) : f32[4, 4]
  %c = add(%a, %b) : f32[4, 4]
  yield %c
}"""
INDICES = (
    "%k = convert(%x) : i32[4, 4]\n%d = reshape(%k) : i32[16, 1]\n%f = reshape(%y) : f32[16]\n"
)
GATHER = "%g = gather(%f, %d, offset_dims=[], collapsed_dims=[0], start_index_map=[0]) : f32[16]\n"
SCATTER = (
    '%r = scatter(%g, %d, %f, op="set", update_window_dims=[], inserted_window_dims=[0], '
    "scatter_dims=[0]) : f32[16]"
)


@pytest.mark.parametrize(
    ("lines", "results", "returns", "expected"),
    [
        # Through views, operations and cases write to the result. Results of loops are copied.
        (
            "%a = exp(%x) : f32[4, 4]\n%r = transpose(%a, perm=[1, 0]) : f32[4, 4]",
            SQUARE,
            "%r",
            ["exp x[16, 4] -> r[4, 16]"],
        ),
        (
            SINE_OR_Y + "%r = transpose(%c, perm=[1, 0]) : f32[4, 4]",
            SQUARE,
            "%r",
            ["case: sin x[16, 4] -> r[4, 16]", "case: copy y[16, 4] -> r[4, 16]"],
        ),
        (
            SINE_OR_Y + "%r = exp(%c) : f32[4, 4]",
            SQUARE,
            "%r",
            [
                "case: sin x[16, 4] -> c[16, 4]",
                "case: copy y[16, 4] -> c[16, 4]",
                "exp c[16, 4] -> r[16, 4]",
            ],
        ),
        (
            LOOP + "%r = transpose(%c, perm=[1, 0]) : f32[4, 4]",
            SQUARE,
            "%r",
            [
                "copy x[16, 4] -> b[16, 4]",
                "loop: sin b[16, 4] -> b[16, 4]",
                "copy b[4, 16] -> r[16, 4]",
            ],
        ),
        (TRANSPOSED, SQUARE, "%t", ["copy x[4, 16] -> t[16, 4]"]),
        # A value that is returned twice is row-major.
        (
            "%a = exp(%x) : f32[4, 4]\n%r = transpose(%a, perm=[1, 0]) : f32[4, 4]",
            f"{SQUARE}, {SQUARE}",
            "%r, %a",
            ["exp x[16, 4] -> a[16, 4]", "copy a[4, 16] -> r[16, 4]"],
        ),
        # A concatenation writes to its place in another one that is its only user.
        (
            ROWS + "%r = concatenate(%y, %a, dim=0) : f32[12, 4]",
            "f32[12, 4]",
            "%r",
            [
                "concatenate x[16, 4], y[16, 4] -> r+64[16, 4]",
                "concatenate y[16, 4], r+64[16, 4] -> r[16, 4]",
            ],
        ),
        (
            ROWS + "%r = concatenate(%y, %a, dim=0) : f32[12, 4]\n%s = exp(%a) : f32[8, 4]",
            "f32[12, 4], f32[8, 4]",
            "%r, %s",
            [
                "concatenate x[16, 4], y[16, 4] -> a[16, 4]",
                "concatenate y[16, 4], a[16, 4] -> r[16, 4]",
                "exp a[16, 4] -> s[16, 4]",
            ],
        ),
        (
            "%a = exp(%x) : f32[4, 4]\n%r = concatenate(%y, %a, dim=0) : f32[8, 4]",
            "f32[8, 4]",
            "%r",
            ["exp x[16, 4] -> a[16, 4]", "concatenate y[16, 4], a[16, 4] -> r[16, 4]"],
        ),
        # A gather writes where a scatter that is its only user updates its result.
        (
            INDICES + GATHER + SCATTER,
            "f32[16]",
            "%r",
            [
                "convert x[16, 4] -> k[16, 4]",
                "gather y[4], k[4, 0] -> r[4]",
                "scatter r[4], k[4, 0], y[4] -> r[4]",
            ],
        ),
        (
            INDICES + "%g = exp(%f) : f32[16]\n" + SCATTER,
            "f32[16]",
            "%r",
            [
                "convert x[16, 4] -> k[16, 4]",
                "exp y[4] -> g[4]",
                "scatter g[4], k[4, 0], y[4] -> r[4]",
            ],
        ),
        (
            INDICES + GATHER + SCATTER + "\n%s = exp(%g) : f32[16]",
            "f32[16], f32[16]",
            "%r, %s",
            [
                "convert x[16, 4] -> k[16, 4]",
                "gather y[4], k[4, 0] -> g[4]",
                "scatter g[4], k[4, 0], y[4] -> r[4]",
                "exp g[4] -> s[4]",
            ],
        ),
        (
            INDICES + GATHER + SCATTER.replace("%r", "%s") + "\n%r = exp(%s) : f32[16]",
            "f32[16]",
            "%r",
            [
                "convert x[16, 4] -> k[16, 4]",
                "gather y[4], k[4, 0] -> g[4]",
                "scatter g[4], k[4, 0], y[4] -> s[4]",
                "exp s[4] -> r[4]",
            ],
        ),
        (
            INDICES + "%u = broadcast(%f, dims=[0]) : f32[16, 4]\n"
            '%r = scatter(%x, %d, %u, op="set", update_window_dims=[1], inserted_window_dims=[0], '
            "scatter_dims=[0]) : f32[4, 4]",
            SQUARE,
            "%r",
            [
                "convert x[16, 4] -> k[16, 4]",
                "scatter x[16, 4], k[4, 0], y[4, 0] -> r[16, 4]",
            ],
        ),
        # A reshape to which no view leads is a copy, and one with another target a second copy.
        (
            TRANSPOSED + "%a = reshape(%t) : f32[2, 8]\n%r = exp(%a) : f32[2, 8]",
            "f32[2, 8]",
            "%r",
            ["copy x[4, 16] -> a[16, 4]", "exp a[32, 4] -> r[32, 4]"],
        ),
        (
            TRANSPOSED
            + "%a = reshape(%t) : f32[2, 8]\n%r = transpose(%a, perm=[1, 0]) : f32[8, 2]",
            "f32[8, 2]",
            "%r",
            ["copy x[4, 16] -> a[16, 4]", "copy a[4, 32] -> r[8, 4]"],
        ),
        (
            "%a = reshape(%x) : f32[2, 8]\n%b = exp(%a) : f32[2, 8]\n%d = reshape(%b) : f32[4, 4]\n"
            "%r = transpose(%d, perm=[1, 0]) : f32[4, 4]",
            SQUARE,
            "%r",
            ["exp x[32, 4] -> b[32, 4]", "copy b[16, 4] -> r[4, 16]"],
        ),
        # All of an argument is returned without a copy, but no part of it.
        ("%r = reshape(%x) : f32[16]", "f32[16]", "%r", []),
        (
            "%s = slice(%x, starts=[0, 0], strides=[1, 1]) : f32[2, 4]\n"
            "%q, %r = optimization_barrier(%y, %s) : f32[4, 4], f32[2, 4]",
            "f32[2, 4]",
            "%r",
            ["copy x[16, 4] -> r[16, 4]"],
        ),
        # A constant is one element, unless it has none.
        (
            "%c = constant(value=0.5) : f32[4, 4]\n%r = add(%x, %c) : f32[4, 4]",
            SQUARE,
            "%r",
            ["add x[16, 4], c[0, 0] -> r[16, 4]"],
        ),
        ("%c = constant(value=dense(f32, [1, 2])) : f32[2]", "f32[2]", "%c", ["copy c[4] -> c[4]"]),
        ("%c = constant(value=0.5) : f32[0, 4]", "f32[0, 4]", "%c", ["copy c[16, 4] -> c[16, 4]"]),
    ],
)
def test_items_write_to_results_and_to_few_other_buffers(
    lines: str, results: str, returns: str, expected: list[str]
) -> None:
    assert describe(lowered(lines, results, returns)) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # The order of the operand, but not of a broadcast one.
        (TRANSPOSED + "%a = exp(%t) : f32[4, 4]", "exp x[4, 16] -> a[4, 16]"),
        (
            "%c = convert(%i) : f32[]\n%b = broadcast(%c, dims=[]) : f32[4, 4]\n"
            + TRANSPOSED
            + "%a = add(%b, %t) : f32[4, 4]",
            "add c[0, 0], x[4, 16] -> a[4, 16]",
        ),
        # The order of an operand of another shape has no effect.
        (
            TRANSPOSED + "%b = concatenate(%t, %t, dim=0) : f32[8, 4]\n"
            "%a = slice(%b, starts=[0, 0], strides=[1, 1]) : f32[4, 4]",
            "concatenate x[4, 16], x[4, 16] -> b[16, 4]",
        ),
        # An order with which later reshapes are views.
        (
            TRANSPOSED + "%a = exp(%t) : f32[4, 4]\n%b = reshape(%a) : f32[16]",
            "exp x[4, 16] -> a[16, 4]",
        ),
        (
            TRANSPOSED
            + "%a = exp(%t) : f32[4, 4]\n%u = transpose(%a, perm=[1, 0]) : f32[4, 4]\n"
            + "%b = reshape(%u) : f32[16]",
            "exp x[4, 16] -> a[4, 16]",
        ),
        (
            "%a = exp(%x) : f32[4, 4]\n%u = transpose(%a, perm=[1, 0]) : f32[4, 4]\n"
            "%b = reshape(%u) : f32[16]",
            "exp x[16, 4] -> a[4, 16]",
        ),
    ],
)
def test_results_have_the_order_of_operands_or_that_of_reshapes(lines: str, expected: str) -> None:
    name = "%b" if "%b = reshape" in lines else "%a"
    type = "f32[16]" if name == "%b" else SQUARE
    found = describe(lowered(f"{lines}\n%r = sin({name}) : {type}", type))
    assert found[-2] == expected


def test_rules_state_the_order_of_results() -> None:
    found = lowered("%a = exp(%x) : f32[4, 4]\n%r = sin(%a) : f32[4, 4]")
    assert describe(found)[0] == "exp x[16, 4] -> a[16, 4]"
    found = lowered(
        "%a = exp(%x) : f32[4, 4]\n%r = sin(%a) : f32[4, 4]",
        orders={"exp": lambda op, views: (1, 0)},
    )
    assert describe(found)[0] == "exp x[16, 4] -> a[4, 16]"


@pytest.mark.parametrize(
    ("lines", "result", "expected"),
    [
        ("%a = exp(%x) : f32[4, 4]\n%r = sin(%a) : f32[4, 4]", SQUARE, [("x", "a"), ("a", "r")]),
        # Operands with another layout, or several views of them, are read after other writes.
        (TRANSPOSED + "%r = add(%x, %t) : f32[4, 4]", SQUARE, []),
        (TRANSPOSED + "%r = exp(%t) : f32[4, 4]", SQUARE, []),
        (FUSED, SQUARE, [("x", "r")]),
        # A part of a buffer gives its memory to no result.
        (
            "%s = slice(%x, starts=[0, 0], strides=[1, 1]) : f32[2, 4]\n%r = exp(%s) : f32[2, 4]",
            "f32[2, 4]",
            [],
        ),
        # Updates overwrite the updated array, which is no other operand.
        ("%r = dynamic_update_slice(%x, %y, %i, %j) : f32[4, 4]", SQUARE, [("x", "r")]),
        ("%r = dynamic_update_slice(%x, %x, %i, %j) : f32[4, 4]", SQUARE, []),
        ("%r = concatenate(%x, dim=0) : f32[4, 4]", SQUARE, []),
    ],
)
def test_results_overwrite_operands_that_are_read_element_by_element(
    lines: str, result: str, expected: list[tuple[str, str]]
) -> None:
    assert pairs(lowered(lines, result)) == expected


def test_operations_with_effects_and_no_results_are_items() -> None:
    def show(x: Any) -> Any:
        sd.debug.print("{}", x)
        return x + 1

    found = lower_function(prepare_for_scheduling(show, 1), {})
    names = [each.op.name for each in found.items if isinstance(each, WorkItem)]
    assert len(names) == 2
    assert [len(each.results) for each in found.items if isinstance(each, WorkItem)].count(0) == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "%a = exp(%t) : f32[4, 4]\n  %r = all-reduce(%a, axes=[d], op=add) : f32[4, 4]",
            ["exp x[4, 16] -> a[16, 4]", "all-reduce a[16, 4] -> r[16, 4]"],
        ),
        (
            "%b = all-reduce(%t, axes=[d], op=add) : f32[4, 4]\n  %r = exp(%b) : f32[4, 4]",
            ["all-reduce x[4, 16] -> b[16, 4]", "exp b[16, 4] -> r[16, 4]"],
        ),
    ],
)
def test_processes_exchange_rows(line: str, expected: list[str]) -> None:
    text = f"func @f(%x: f32[4, 4]) -> (f32[4, 4]) {{\n  {TRANSPOSED}  {line}\n  return %r\n}}\n"
    found = lower_function(parse(f"mesh @m = [d=2]\n\n{text}").main, {})
    assert describe(found) == expected
