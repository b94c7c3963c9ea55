"""Control flow operations: types, data flow, and execution."""

from collections.abc import Callable

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Op
from shardir.ir.types import TensorType
from tests.op_sample import t

SCALAR, LINE, COUNT = t("f32"), t("f32", 3), t("i32")


def ran(text: str, *args: object) -> list[object]:
    arrays = [np.asarray(arg, type) for arg, type in zip(args, ("i4", "f4", "f4"), strict=False)]
    return [array.tolist() for array in run(parse(text), arrays)]


POWERS = """\
func @f(%n: i32[], %x: f32[]) -> (i32[], f32[]) {
  %i, %y = while(%n, %x) : i32[], f32[] {
    (%a: i32[], %b: f32[]) =>
    %zero = constant(value=0) : i32[]
    %go = gt(%a, %zero) : bool[]
    yield %go
  } {
    (%c: i32[], %d: f32[]) =>
    %one = constant(value=1) : i32[]
    %e = sub(%c, %one) : i32[]
    %g = mul(%d, %x) : f32[]
    yield %e, %g
  }
  return %i, %y
}
"""


@pytest.mark.parametrize(("rounds", "power"), [(0, 3.0), (1, 9.0), (3, 81.0), (-2, 3.0)])
def test_while_iterates_while_the_condition_is_true(rounds: int, power: float) -> None:
    assert ran(POWERS, rounds, 3) == [min(rounds, 0), power]


SUMS = """\
func @f(%i: i32[], %x: f32[], %s: f32[4]) -> (f32[], f32[4]) {
  %y, %t = scan(%x, %s, carries=1, length=4, reverse=REVERSE) : f32[], f32[4] {
    (%a: f32[], %b: f32[]) =>
    %c = add(%a, %b) : f32[]
    yield %c, %a
  }
  return %y, %t
}
"""


def test_scan_carries_and_stacks() -> None:
    assert ran(SUMS.replace("REVERSE", "false"), 0, 10, [1, 2, 3, 4]) == [20, [10, 11, 13, 16]]


def test_reverse_scan_stacks_slices_at_their_positions() -> None:
    assert ran(SUMS.replace("REVERSE", "true"), 0, 10, [1, 2, 3, 4]) == [20, [19, 17, 14, 10]]


CHOICE = """\
func @f(%i: i32[], %x: f32[]) -> (f32[]) {
  %y = case(%i) : f32[] {
    %a = neg(%x) : f32[]
    yield %a
  } {
    yield %x
  } {
    %c = add(%x, %x) : f32[]
    yield %c
  }
  return %y
}
"""


@pytest.mark.parametrize(("index", "value"), [(0, -3), (1, 3), (2, 6), (3, 6), (-1, 6)])
def test_an_index_out_of_range_selects_the_last_branch(index: int, value: float) -> None:
    assert ran(CHOICE, index, 3) == [value]


@pytest.mark.parametrize(("positive", "value"), [(1, 1), (0, 0)])
def test_true_selects_the_second_branch(positive: int, value: float) -> None:
    text = """\
func @f(%i: i32[]) -> (f32[]) {
  %b = convert(%i) : bool[]
  %y = case(%b) : f32[] {
    %zero = constant(value=0.0) : f32[]
    yield %zero
  } {
    %one = constant(value=1.0) : f32[]
    yield %one
  }
  return %y
}
"""

    assert ran(text, positive) == [value]


def names(op: Op) -> list[tuple[str, str, str]]:
    """Return the data flow edges by names: sources, targets, stacked."""

    def joined(values: tuple[object, ...]) -> str:
        return " ".join(getattr(value, "name", "") for value in values)

    return [(joined(e.sources), joined(e.targets), joined(e.stacked)) for e in op.edges()]


def test_the_edges_of_a_while() -> None:
    (op,) = parse(POWERS).main.body.ops

    assert names(op) == [("n e", "i a c", ""), ("x g", "y b d", "")]


def test_the_edges_of_a_scan() -> None:
    """The edges are: carried values; slices, owned by the parameter; stacks, owned by the
    result.
    """
    (op,) = parse(SUMS.replace("REVERSE", "false")).main.body.ops

    assert names(op) == [("x c", "y a", ""), ("s", "b", "s"), ("a", "t", "t")]


def test_the_edges_of_a_case() -> None:
    (op,) = parse(CHOICE).main.body.ops

    assert names(op) == [("a x c", "y", "")]


def block(takes: list[TensorType], gives: list[TensorType]) -> Block:
    b = Builder()
    return Block(tuple(map(b.param, takes)), (), tuple(map(b.param, gives)))


BOOL = t("bool")
LOOP = (block([LINE, COUNT], [BOOL]), block([LINE, COUNT], [LINE, COUNT]))
Make = Callable[[Builder], object]
MISFITS: list[tuple[Make, str]] = [
    (lambda b: b.while_(b.param(LINE), blocks=LOOP),
     "while: its condition takes (f32[3], i32[]), expected (f32[3])"),
    (lambda b: b.while_(b.param(LINE), blocks=(block([LINE], [COUNT]), block([LINE], [LINE]))),
     "while: its condition returns (i32[]), expected (bool[])"),
    (lambda b: b.while_(b.param(LINE), blocks=(block([LINE], [BOOL]), block([SCALAR], [LINE]))),
     "while: its body takes (f32[]), expected (f32[3])"),
    (lambda b: b.while_(b.param(LINE), blocks=(block([LINE], [BOOL]), block([LINE], [SCALAR]))),
     "while: its body returns (f32[]), expected (f32[3])"),
    (lambda b: b.scan(b.param(LINE), blocks=(block([LINE], []),), carries=1, length=3),
     "scan: its body carries on (), expected (f32[3])"),
    (lambda b: b.scan(b.param(LINE), blocks=(block([LINE], []),), carries=0, length=3),
     "scan: its body takes (f32[3]), expected (f32[])"),
    (lambda b: b.scan(b.param(LINE), blocks=(block([SCALAR], []),), carries=0, length=4),
     "scan: takes slices of f32[3], whose first dimension is not length=4"),
    (lambda b: b.scan(b.param(SCALAR), blocks=(block([SCALAR], []),), carries=0, length=4),
     "scan: takes slices of f32[], whose first dimension is not length=4"),
    (lambda b: b.scan(blocks=(block([], []),), carries=1, length=4),
     "scan: carries=1 is not within its 0 operands"),
    (lambda b: b.scan(blocks=(block([], []),), carries=0, length=-1),
     "scan: length=-1 must be at least 0"),
    (lambda b: b.case(b.param(LINE), blocks=(block([], []),)),
     "case: its index is i32[] or bool[], got f32[3]"),
    (lambda b: b.case(b.param(BOOL), blocks=(block([], []),) * 3),
     "case: a bool chooses between two branches, got 3"),
    (lambda b: b.case(b.param(COUNT), blocks=(block([], [LINE]), block([], [SCALAR]))),
     "case: branch 1 returns (f32[]), expected (f32[3])"),
    (lambda b: b.case(b.param(COUNT), blocks=(block([LINE], []),)),
     "case: its branches take no parameters, branch 0 takes some"),
    (lambda b: b.case(b.param(COUNT), b.param(LINE), blocks=(block([], []),)),
     "case: takes only the index; its branches use other values directly"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), MISFITS, ids=[m for _, m in MISFITS])
def test_mismatched_blocks_are_errors(make: Make, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        make(Builder())

    assert str(caught.value) == message


def test_missing_blocks_are_errors() -> None:
    one = block([], [BOOL])
    made: list[tuple[Make, str]] = [
        (lambda b: b.while_(blocks=(one,)), "while: takes 2 blocks, got 1"),
        (lambda b: b.scan(blocks=(one, one), carries=0, length=1), "scan: takes 1 block, got 2"),
        (lambda b: b.case(b.param(COUNT), blocks=()), "case: takes 1 or more blocks, got 0"),
    ]
    for make, message in made:
        with pytest.raises(TypeError) as caught:
            make(Builder())
        assert str(caught.value) == message
