"""Every reason for which propagation stops has a name and an example program."""

import re
from pathlib import Path

import pytest

from shardir.passes import Propagate
from shardir.passes.explain import explain
from shardir.passes.propagation.record import RefusalReason
from shardir.text.parser import parse

MESHES = """\
mesh @m = [a=2, b=3, c=4, one=1]
mesh @other = [a=2]
mesh @single = [] devices=[0]
"""

PROGRAMS = {
    RefusalReason.NO_RULE: """
        func @f(%x: f32[8@a]) -> (f32[8]) {
          %v = reshard(%x) : f32[8]
          return %v
        }""",
    RefusalReason.MESHES: """
        func @f(%x: f32[8@a?], %y: f32[8] on @other) -> (f32[8]) {
          %v = add(%x, %y) : f32[8]
          return %v
        }""",
    RefusalReason.SINGLE_DEVICE: """
        func @f(%x: f32[8@a?], %y: f32[8] on @single) -> (f32[8]) {
          %v = add(%x, %y) : f32[8]
          return %v
        }""",
    RefusalReason.BLOCKED: """
        func @f(%x: f32[4, 8@a]) -> (f32[4, 2], i32[4, 2]) {
          %v, %i = top_k(%x) : f32[4, 2], i32[4, 2]
          return %v, %i
        }""",
    RefusalReason.DISAGREE: """
        func @f(%x: f32[8@a], %y: f32[8@c]) -> (f32[8]) {
          %v = add(%x, %y) : f32[8]
          return %v
        }""",
    RefusalReason.USED: """
        func @f(%x: f32[8@a, 8], %y: f32[8, 8]) -> (f32[8, 8]) {
          %v = dot(%x, %y, dims="ik,kj->ij") : f32[8, 8@a?]
          return %v
        }""",
    RefusalReason.LOST: """
        func @f(%x: f32[8@a, 4], %y: f32[4, 16@a]) -> (f32[8, 16]) {
          %v = dot(%x, %y, dims="ik,kj->ij") : f32[8, 16]
          return %v
        }""",
    RefusalReason.REPLICATED: """
        func @f(%x: f32[8@a]) -> (f32[8]) {
          %v = neg(%x) : f32[8] replicated(a)
          return %v
        }""",
    RefusalReason.UNREDUCED: """
        func @f(%x: f32[8@a]) -> (f32[8]) {
          %v = neg(%x) : f32[8] unreduced(a)
          return %v
        }""",
    RefusalReason.CLOSED: """
        func @f(%x: f32[8@a]) -> (f32[8]) {
          %v = neg(%x) : f32[8@-]
          return %v
        }""",
    RefusalReason.OVERFLOW: """
        func @f(%x: f32[3@b, 2]) -> (f32[6]) {
          %v = reshape(%x) : f32[6@a?]
          return %v
        }""",
    RefusalReason.SPILL: """
        func @f(%x: f32[6@a]) -> (f32[3, 2]) {
          %v = reshape(%x) : f32[3, 2]
          return %v
        }""",
    RefusalReason.UNEVEN: """
        func @f(%x: f32[3@a, 4]) -> (f32[12]) {
          %v = reshape(%x) : f32[12]
          return %v
        }""",
    RefusalReason.RESULT: """
        func @f(%x: f32[8@(a, c)], %v: f32[8]) -> (f32[8@a]) {
          %z = add(%x, %v) : f32[8@a]
          return %z
        }""",
    RefusalReason.STRIDED: """
        func @f(%x: f32[3, 2@a]) -> (f32[6]) {
          %v = reshape(%x) : f32[6]
          return %v
        }""",
    RefusalReason.BEHIND: """
        func @f(%x: f32[8@(a, c)]) -> (f32[8]) {
          %v = neg(%x) : f32[8] replicated(a)
          return %v
        }""",
    RefusalReason.INDIVISIBLE: """
        func @f(%v: f32[6@c]) -> (f32[6]) {
          return %v
        }""",
    RefusalReason.SPLIT: """
        func @f(%x: f32[8@c]) -> (f32[2, 4]) {
          %v = reshape(%x) : f32[2, 4]
          return %v
        }""",
    RefusalReason.PART: """
        func @f(%v: f32[8@c:(1)2?]) -> (f32[8]) {
          return %v
        }""",
    RefusalReason.MANUAL: """
        func @f(%x: f32[8, 8@b]) -> (f32[8, 8]) {
          %r = manual_computation(%x, axes=[a], in_axes=[[[a], []]], out_axes=[[[a], []]]) \
: f32[8, 8] {
            (%p: f32[4, 8]) =>
            %v = tanh(%p) : f32[4, 8]
            yield %v
          }
          return %r
        }""",
    RefusalReason.UNIT: """
        func @f(%v: f32[8@one]) -> (f32[8]) {
          return %v
        }""",
    RefusalReason.SCALAR: """
        func @f(%x: f32[8@a]) -> (f32[]) {
          %v = sum(%x, dims=[0]) : f32[]
          return %v
        }""",
    RefusalReason.UNSTATED: """
        func @f(%v: f32[8]) -> (f32[8]) {
          return %v
        }""",
    RefusalReason.PRIORITY: """
        func @f(%x: f32[8@a p1, 4], %y: f32[8, 4@a]) -> (f32[8, 4]) {
          %v = add(%x, %y) : f32[8, 4]
          return %v
        }""",
    RefusalReason.DIRECTION: """
        func @f(%x: f32[8@a, 4], %y: f32[4, 8], %z: f32[8, 8@a]) -> (f32[8, 8]) {
          %v = dot(%x, %y, dims="ik,kj->ij") : f32[8, 8]
          %w = add(%v, %z) : f32[8, 8]
          return %w
        }""",
    RefusalReason.UNCONNECTED: """
        func @f(%x: f32[8@a, 4]) -> (f32[4]) {
          %v = sum(%x, dims=[0]) : f32[4]
          return %v
        }""",
}
"""For each reason a program in which %v misses an axis because of it."""


@pytest.mark.parametrize("reason", PROGRAMS, ids=lambda reason: reason.name)
def test_every_reason_is_reported(reason: RefusalReason) -> None:
    propagate = Propagate(conservative=reason is RefusalReason.SPLIT)
    explanation = explain(parse(MESHES + PROGRAMS[reason]), "v", propagate=propagate)

    assert reason in [absence.reason for absence in explanation.absences]


def test_the_page_lists_the_reasons() -> None:
    """The page lists all reasons in order, with the exact text, each with a remedy."""
    page = (Path(__file__).parents[3] / "docs" / "explaining.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.+) \|$", page, re.MULTILINE)

    assert [row[:2] for row in rows] == [(reason.name, reason.value) for reason in RefusalReason]


def test_the_text_of_a_manual_axis() -> None:
    text = str(explain(parse(MESHES + PROGRAMS[RefusalReason.MANUAL]), "v"))
    assert text.partition("a does not")[2] == (
        " shard it\n"
        "  the axis is manual in the enclosing computation, where tensors are local along it\n"
        "    %r = manual_computation\n"
        "\n"
        "c does not shard it\n"
        "  no annotation states the axis\n"
        "\n"
        "one does not shard it\n"
        "  the axis has size 1 and shards nothing"
    )


def test_every_reason_has_an_example() -> None:
    assert set(PROGRAMS) == set(RefusalReason)
