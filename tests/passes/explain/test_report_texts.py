"""Texts of reports about programs in which there is nothing to report, and of their totals."""

from dataclasses import replace

from shardir.ir.module import Module
from shardir.passes.explain import (
    communication,
    conflicts,
    coverage,
    order_sensitive,
    peak_memory,
    summarize,
    what_if,
)
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from tests.passes.explain.programs import LOOP, MLP
from tests.passes.explain.test_what_if import TWO_MESHES

PLAIN = """\
mesh @m = [a=2]

func @f(%x: f32[8]) -> (f32[8]) {
  %y = neg(%x) : f32[8]
  return %y
}
"""


def partition(text: str) -> Module:
    return Pipeline.parse(DEFAULT_PIPELINE)(parse(text))


def test_a_program_without_annotations() -> None:
    module = parse(PLAIN)
    assert str(conflicts(module)) == "no conflicts"
    assert str(order_sensitive(module)) == "no sharding depends on the order of the work list"
    assert str(communication(partition(PLAIN))) == "no communication"
    assert (
        str(summarize(module))
        == """\
0 of 2 tensors sharded

annotations
  none

conflicts            0  0 B  --conflicts
depend on the order  0       --order
without a rule       0       --coverage

communication: 0 B in 0 collectives"""
    )


def test_scalars_and_unsharded_values_are_not_counted() -> None:
    text = PLAIN.replace("%x: f32[8]", "%x: f32[8@a], %s: f32[], %z: f32[4]")
    assert str(summarize(parse(text))).startswith("2 of 3 tensors sharded\n")


def test_an_operation_without_a_rule_that_stops_nothing() -> None:
    assert (
        str(coverage(parse(PLAIN.replace("neg", "reshard"))))
        == """\
1 operation without a factor rule
  %y = reshard  stops nothing

2 dimensions unsharded although an axis is free
  %x  dimension 0 of 8  could be sharded over a  32 B
  %y  dimension 0 of 8  could be sharded over a  32 B

0 annotations without effect"""
    )


def test_free_axes_divide_the_dimensions_that_they_could_shard() -> None:
    """Dimensions without elements, and sharded ones, are left out."""
    text = """\
mesh @m = [a=2, b=3]
func @f(%x: f32[4, 9, 5], %y: f32[0, 4], %z: f32[12@a]) -> (f32[4, 9, 5]) {
  return %x
}
"""
    found = [(row.value, row.dim, row.axes) for row in coverage(parse(text)).whole]
    assert found == [("%x", 0, ("a",)), ("%x", 1, ("b",)), ("%y", 1, ("a",))]


def test_a_program_that_cannot_be_partitioned_has_an_error_instead_of_totals() -> None:
    two = parse(TWO_MESHES.replace("%y: f32[8])", "%y: f32[8@b] on @n)"))
    error = (
        "@f has values on the meshes @m and @n; a program runs on one mesh: state the sharding of "
        "the argument %y on @m"
    )
    assert str(summarize(two)).splitlines()[-1] == error
    assert str(what_if(two, without=["%y"])).splitlines()[-2:] == [
        f"before: {error}",
        "after: 0 B in 0 collectives in @f, the first of 2 functions",
    ]


def test_a_conflict_without_collectives() -> None:
    found = conflicts(parse(MLP))
    free = replace(found, rows=tuple(replace(row, reshard=(), nbytes=0) for row in found.rows))
    assert str(free).splitlines()[1] == (
        "%y = dot   'b'     %w2 data along 'o'  %h data   larger tensor  nothing, 0 B"
    )


def test_collectives_with_and_without_lines() -> None:
    program = partition(MLP)
    without, known = (
        str(communication(program, places=places)).splitlines()[10:13]
        for places in (None, find_definition_locations(MLP, "f.ir"))
    )
    assert without == [
        "by line      count  result    sent",
        "  (no line)  2      32.0 KiB  32.0 KiB",
        "",
    ]
    assert known == [
        "by line    count  result    sent",
        "  f.ir:12  1      16.0 KiB  8.0 KiB",
        "  f.ir:13  1      16.0 KiB  24.0 KiB",
    ]


def test_the_peak_of_a_program_without_operations_or_lines() -> None:
    program = partition(PLAIN.replace("return %y", "return %x"))
    assert (
        str(peak_memory(program))
        == """\
64 B at the peak, at the arguments: 32 B of arguments, 32 B of results, 0 B of temporaries

line       at the peak
(no line)  32 B

alive at the peak  type    bytes  role      line
%x                 f32[8]  32 B   argument"""
    )


def test_the_peak_in_a_loop_is_at_its_line() -> None:
    program = partition(LOOP)
    assert (
        str(peak_memory(program, places=find_definition_locations(LOOP, "f.ir")))
        == """\
256 B at the peak, at %r: 64 B of arguments, 64 B of results, 128 B of temporaries

line    at the peak
f.ir:6  192 B
f.ir:4  64 B

alive at the peak  type       bytes  role      line
%r                 scan       128 B  block     f.ir:6
%x                 f32[4, 4]  64 B   argument  f.ir:4
%r                 f32[4, 4]  64 B   value     f.ir:6"""
    )


def test_the_lines_of_values_at_the_peak_are_those_of_their_operations() -> None:
    text = """\
func @f(%x: f32[8]) -> (f32[8]) {
  %y = neg(%x) : f32[8] loc("model.py":7:3)
  return %y
}
"""
    module = parse(text)
    found = peak_memory(module, places=find_definition_locations(text, "f.ir"))
    assert {row.name: str(row.loc) for row in found.rows} == {"%x": "f.ir:1", "%y": "model.py:7"}
