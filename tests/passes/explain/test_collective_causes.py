"""Exact texts of the causes of collectives."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.cost.communication import list_collectives
from shardir.passes.explain import ExplainError, communication, explain_collective
from shardir.passes.explain.collective_causes import CollectiveCause, CollectiveCauses
from shardir.passes.explain.propagated_program import pipeline_of, propagate_with_history
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.passes.explain.programs import MLP, program

SCATTERED = """\
mesh @m = [x=4]

func @f(%a: f32[8, 16@x], %b: f32[16@x, 32]) -> (f32[8@x, 32]) {
  %y = dot(%a, %b, dims="bi,io->bo") : f32[8, 32]
  return %y
}
"""


def explain_text(text: str, name: str) -> str:
    return str(
        explain_collective(parse(text), name, places=find_definition_locations(text, "f.ir"))
    )


def test_a_sum_states_its_factor_annotations_and_alternatives() -> None:
    assert (
        explain_text(SCATTERED, "%y")
        == """\
%y = reduce-scatter over x  f.ir:4
  because of: sum over 'i' of %y = dot
  4 devices in each group, 256 B result, 768 B sent by each device

part of the reshard of f32[8, 32] from [-, -] unreduced over x to [x, -]
  reduce-scatter  768 B received

more expensive
  all-reduce, all-slice  1.5 KiB received  via [-, -]

its axes come from
  result 0: f32[8@x, 32]      f.ir:3
  argument %a: f32[8, 16@x]   f.ir:3
  argument %b: f32[16@x, 32]  f.ir:3"""
    )


REQUESTED_SUM = """\
mesh @m = [x=4]

spmd func @f(%a: f32[8] of f32[32@x]) -> (f32[8] of f32[32@x]) {
  %y = all-reduce(%a, axes=[x], op=add) : f32[8]
  %z = all-reduce(%y, axes=[x], op=add) : f32[8]
  return %z
}
"""


def test_a_collective_of_the_program_is_a_request() -> None:
    places = find_definition_locations(REQUESTED_SUM, "f.ir")
    module = parse(REQUESTED_SUM)
    rows = communication(module, places=places).rows
    assert [(row.why, str(row.loc)) for row in rows] == [
        ("the program requests it", "f.ir:4"),
        ("the program requests it", "f.ir:5"),
    ]
    cause = str(CollectiveCause(rows[0], "", None, (), ()))
    assert cause.splitlines()[:2] == ["%y = all-reduce over x  f.ir:4", "  the program requests it"]


def test_a_psum_of_a_mapped_function_is_a_request_of_its_line() -> None:
    mesh = sd.make_mesh((4,), ("x",))

    def body(x: sd.Array) -> Any:
        return sd.lax.psum(x, "x")  # the line of the request

    mapped = sd.shard_map(body, mesh=mesh, in_specs=sd.P("x"), out_specs=sd.P())
    found = sd.jit(lambda x: sd.numpy.sum(mapped(x))).lower(np.ones(8, "f")).compile()
    (row,) = found.report().data.collectives
    assert row.why == "the program requests it"
    assert row.location is not None
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "# the line of the request" in lines[row.location[1] - 1]


@pytest.mark.parametrize(
    ("shape", "instead"), [((4, 8, 2), "dimension 1"), ((4, 2, 8), "dimension 2"),
                           ((4, 2, 2), "another dimension")],
)  # fmt: skip
def test_a_scan_over_a_sharded_dimension_names_the_remedy(
    shape: tuple[int, ...], instead: str
) -> None:
    def total(batches: sd.Array) -> sd.Array:
        def add(carry: sd.Array, batch: sd.Array) -> tuple[sd.Array, None]:
            return carry + batch.sum(), None

        result: sd.Array = sd.lax.scan(add, sd.numpy.float32(0), batches)[0]
        return result

    rows = sd.NamedSharding(sd.make_mesh((4,), ("data",)), sd.P("data"))
    batches = sd.ShapeDtypeStruct(shape, "float32", sharding=rows)
    gather, *_ = sd.jit(total).lower(batches).compile().collectives()
    assert gather.kind == "all-gather"
    assert gather.why.partition(": ")[2] == (
        "it iterates over dimension 0 of %batches, which is sharded over data; "
        f"shard {instead} instead"
    )


def test_a_resharded_operand_states_its_use() -> None:
    module = parse(MLP)
    parted = Pipeline.parse(DEFAULT_PIPELINE)(module)
    rows = list_collectives(parted)
    assert rows
    for row in rows:
        cause = explain_collective(module, row)
        assert cause.collective == row
        assert cause.chosen is not None
        assert row.kind in cause.chosen.steps
        assert cause.annotations
        assert all(way.nbytes >= cause.chosen.nbytes for way in cause.dearer)


def test_tables_have_line_numbers() -> None:
    parted = Pipeline.parse(DEFAULT_PIPELINE)(parse(SCATTERED))
    report = communication(parted, places=find_definition_locations(SCATTERED, "f.ir"))
    assert [str(row.loc) for row in report.rows] == ["f.ir:4"]
    assert [line for line, _ in report.by_line] == ["f.ir:4"]


def test_an_unknown_collective_is_an_error() -> None:
    with pytest.raises(ExplainError, match="or the name of its result, got 3"):
        explain_collective(parse(SCATTERED), 3)  # type: ignore[arg-type]
    with pytest.raises(ExplainError) as error:
        explain_text(SCATTERED.replace("%y", "%total"), "%totl")
    assert str(error.value) == "no collective makes %totl; did you mean '%total'?"
    with pytest.raises(ExplainError) as error:
        explain_text(SCATTERED, "%other")
    assert str(error.value) == "no collective makes %other; the collectives are %y"
    with pytest.raises(ExplainError) as error:
        explain_text(SCATTERED.replace("16@x", "16").replace("8@x", "8"), "%y")
    assert str(error.value) == "the program does not communicate"


def causes_of(text: str) -> list[CollectiveCause]:
    module = parse(text)
    rows = list_collectives(Pipeline.parse(DEFAULT_PIPELINE)(module))
    return [explain_collective(module, row) for row in rows]


WINDOW = (
    '%v = reduce_window(%x, op="add", window=[3], strides=[1], padding=[[0, 0]], '
    "base_dilation=[1], window_dilation=[1]) : f32[14]"
)


@pytest.mark.parametrize(
    ("params", "lines", "result"),
    [
        ("%x: f32[8@b]", ["%v = cummax(%x, dim=0, reverse=false) : f32[8]"], "f32[8]"),
        ("%c: f32[16@b]", ["%x = neg(%c) : f32[16]", WINDOW], "f32[14]"),
        ("%c: f32[16@a]", ["%x = sharding_constraint(%c) : f32[16@b]", WINDOW], "f32[14]"),
        (
            "%c: f32[16@b], %d: f32[8]",
            ["%x, %w = optimization_barrier(%c, %d) : f32[16], f32[8]", WINDOW],
            "f32[14]",
        ),
    ],
    ids=["of a new value", "of an operand", "of a resharded operand", "of one of two results"],
)
def test_communication_of_an_operation_itself_is_part_of_no_reshard(
    params: str, lines: list[str], result: str
) -> None:
    causes = causes_of(program(params, result, *lines, "return %v"))
    (cause,) = [each for each in causes if " runs along " in each.collective.why]
    assert cause.collective.why.endswith("runs along dimension 0 of %x, which is sharded over b")
    assert (cause.move, cause.chosen, cause.dearer) == ("", None, ())


def test_an_unreduced_sharding_is_not_reached_via_others() -> None:
    line = "%v = sharding_constraint(%x) : f32[8, 8@b] unreduced(a)"
    (cause,) = causes_of(program("%x: f32[8@b, 8]", "f32[8, 8@b] unreduced(a)", line, "return %v"))
    assert cause.move == "f32[8, 8] from [b, -] to [-, b] unreduced over a"
    assert cause.chosen is not None
    assert (cause.chosen.steps, cause.dearer) == (("all-to-all", "unreduce"), ())


def test_values_that_propagation_did_not_have_have_no_annotations() -> None:
    module = parse(SCATTERED)
    pipeline = pipeline_of(module)
    run = propagate_with_history(module, pipeline, {})
    until = [step.name for step in pipeline.partitioning].index("partition")
    before = Pipeline(pipeline.partitioning[:until])(run.decided)
    (row,) = list_collectives(Pipeline(pipeline.partitioning[until:])(before))
    other = parse(print_module(before).replace("%a", "%new"))
    named, unnamed = (CollectiveCauses(each, run.history()).cause(row) for each in (before, other))
    assert [a.name for a in named.annotations] == ["0", "%a", "%b"]
    assert [a.name for a in unnamed.annotations] == ["0", "%b"]


def test_a_requested_collective_is_part_of_no_reshard() -> None:
    """A reshard may be requested as well."""
    (cause,) = causes_of(
        program(
            "%x: f32[8@a]",
            "f32[4]",
            "%v = manual_computation(%x, axes=[a], in_axes=[[[a]]], out_axes=[[[]]]) : f32[4] {",
            "  (%p: f32[4]) =>",
            "  %s = all-reduce(%p, axes=[a], op=add) : f32[4]",
            "  yield %s",
            "}",
            "return %v",
        )
    )
    assert (cause.collective.why, cause.move) == ("the program requests it", "")
    module = parse(program("%x: f32[8@a]", "f32[8]", "%v = reshard(%x) : f32[8@-]", "return %v"))
    found = explain_collective(module, "%v", pipeline="propagate,partition")
    assert (found.collective.why, found.move) == (
        "the program requests it", "f32[8] from [a] to [-]"
    )  # fmt: skip
