"""Totals of the communication of per-device programs."""

from shardir.cost.communication import (
    CommunicationTotal,
    format_axes,
    list_collectives,
    sum_by,
    sum_collectives,
)
from shardir.text.parser import parse

TEXT = """\
mesh @m = [x=2, y=4]

spmd func @f(%a: f32[4, 4] of f32[8@x, 16@y], %n: i32[] of i32[]) -> (f32[4, 4] of f32[8@x, 16@y]) {
  %0 = all-reduce(%a, axes=[x, y], op=add) : f32[4, 4]
  %1 = scan(%0, carries=1, length=3, reverse=false) : f32[4, 4] {
    (%c: f32[4, 4]) =>
    %2 = all-gather(%c, dim=0, axes=[x]) : f32[8, 4]
    %3 = all-slice(%2, dim=0, axes=[x]) : f32[4, 4]
    yield %3
  }
  %4, %5 = while(%1, %n) : f32[4, 4], i32[] {
    (%d: f32[4, 4], %i: i32[]) =>
    %6 = constant(value=3) : i32[]
    %7 = lt(%i, %6) : bool[]
    yield %7
  } {
    (%e: f32[4, 4], %j: i32[]) =>
    %8 = all-reduce(%e, axes=[y:(1)2], op=max) : f32[4, 4]
    yield %8, %j
  }
  return %4
}
"""


def test_every_collective_has_group_bytes_and_executions() -> None:
    found = list_collectives(parse(TEXT))
    assert [
        (c.kind, format_axes(c), c.group_size, c.nbytes, c.sent, c.executions) for c in found
    ] == [
        ("all-reduce", "(x, y)", 8, 64, 112, 1),
        ("all-gather", "x", 2, 128, 64, 3),
        ("all-reduce", "y:(1)2", 2, 64, 64, None),
    ]


def test_totals_multiply_scans_and_count_a_while_once() -> None:
    found = list_collectives(parse(TEXT))
    assert sum_collectives(found) == CommunicationTotal(3, 5, 64 + 3 * 128 + 64, 112 + 3 * 64 + 64)
    assert sum_by(found, lambda each: each.kind) == {
        "all-reduce": CommunicationTotal(2, 2, 128, 176),
        "all-gather": CommunicationTotal(1, 3, 384, 192),
    }
    assert sum_collectives([]) == CommunicationTotal()
