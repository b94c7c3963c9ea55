"""Exact texts of the reports."""

from collections.abc import Callable

import pytest

import shardir
from shardir.errors import PipelineError
from shardir.passes.explain import (
    ExplainError,
    communication,
    conflicts,
    coverage,
    explain,
    explain_collective,
    order_sensitive,
    summarize,
    what_if,
)
from shardir.passes.explain.reports import Verdict
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from tests.passes.explain.programs import CONFLICT, FRAGILE, LOOP, MLP, SORTED


def explain_text(text: str, ask: Callable[..., object], *arguments: object) -> str:
    return str(ask(parse(text), *arguments, places=find_definition_locations(text, "f.ir")))


def test_the_chain_of_an_axis() -> None:
    assert (
        explain_text(MLP, explain, "h")
        == """\
%h: f32[64@data, 256@model]  f.ir:12

data shards dimension 0
  stated by argument %x: f32[64@data, 128@-]  f.ir:4
  %x -> %a  forwards through %a = dot   along 'b'                round 2  f.ir:9
  %a -> %c  forwards through %c = add   along dimension 0 of %a  round 2  f.ir:11
  %c -> %h  forwards through %h = tanh  along dimension 0 of %c  round 2  f.ir:12

model shards dimension 1
  stated by argument %w1: f32[128, 256@model]  f.ir:5
  %w1 -> %a  forwards through %a = dot   along 'h'                round 2  f.ir:9
  %a -> %c   forwards through %c = add   along dimension 1 of %a  round 2  f.ir:11
  %c -> %h   forwards through %h = tanh  along dimension 1 of %c  round 2  f.ir:12"""
    )


def test_a_rejected_axis_states_the_sizes() -> None:
    assert (
        explain_text(MLP, explain, "%y")
        == """\
%y: f32[64@-, 128@data]  f.ir:13

data shards dimension 1
  stated by argument %w2: f32[256, 128@data]  f.ir:7
  %w2 -> %y  forwards through %y = dot  along 'o'  round 2  f.ir:13

data could also shard
  dimension 0: another factor took the axis in the same step
    %y at %y = dot  f.ir:13
    'o' of %w2 against 'b' of %h: 32768 elements against 16384

model does not shard it
  no factor connects the value with a dimension that the axis shards
    %h at %y = dot  f.ir:13
    the axis shards 'h'"""
    )


def test_a_value_in_a_loop_gets_its_axis_from_outside() -> None:
    assert (
        explain_text(LOOP, explain, "d")
        == """\
%d: f32[8@a, 4@-]  f.ir:8

a shards dimension 0
  stated by argument %x: f32[8@a, 4]  f.ir:4
  %x -> %d  across through %r of scan  along dimension 0 of %x  round 0  f.ir:6

b does not shard it
  it stops earlier: the dimension is closed
    %k at result 0 of @loop  f.ir:5
    constraint %k: f32[8@-, 4@-]"""
    )


def test_a_constraint_excludes_axes() -> None:
    assert (
        explain_text(LOOP, explain, "k")
        == """\
%k: f32[8@-, 4@-]  f.ir:11

no axis shards it

a does not shard it
  dimension 0: the dimension is closed
    %k at %k = sharding_constraint  f.ir:11
    constraint %k: f32[8@-, 4@-]

b does not shard it
  dimension 1: the dimension is closed
    %k at result 0 of @loop  f.ir:5
    constraint %k: f32[8@-, 4@-]"""
    )


def test_a_conflict_states_both_sides() -> None:
    assert (
        explain_text(MLP, conflicts)
        == """\
operation  factor  kept                given up  because        collectives
%y = dot   'b'     %w2 data along 'o'  %h data   larger tensor  all-gather, 8.0 KiB

%y = dot  f.ir:13
  'o' of %w2 against 'b' of %h: 32768 elements against 16384
  %w2: argument %w2: f32[256, 128@data]  f.ir:7
  %h: argument %x: f32[64@data, 128@-]  f.ir:4"""
    )


def test_a_constraint_has_priority_at_its_value() -> None:
    assert (
        explain_text(LOOP, conflicts)
        == """\
operation                 factor             kept  given up  because      collectives
%k = sharding_constraint  dimension 0 of %r  %k -  %r a      stated here  all-gather, 64 B

%k = sharding_constraint  f.ir:11
  %k: constraint %k: f32[8@-, 4@-]  f.ir:11
  %r: argument %x: f32[8@a, 4]  f.ir:4"""
    )


def test_what_if_with_another_annotation() -> None:
    assert (
        str(what_if(parse(MLP), ["%w2: f32[256, 128]"]))
        == """\
%w2: f32[256, 128]

3 values sharded differently
  %w2       f32[256@model, 128@data]  ->  f32[256@model, 128@-]
  %y        f32[64@-, 128@data]       ->  f32[64@data, 128@-]
  result 0  f32[64@-, 128@data]       ->  f32[64@data, 128@-]

communication: 32.0 KiB in 2 collectives -> 16.0 KiB in 1 collective
  all-gather  1 (16.0 KiB)  ->  0 (0 B)
  all-reduce  1 (16.0 KiB)  ->  1 (16.0 KiB)"""
    )


def test_what_if_with_an_annotated_result() -> None:
    assert (
        str(what_if(parse(MLP), ["result 0: f32[64@model, 128]"]))
        == """\
result 0: f32[64@model, 128]

2 values sharded differently
  %y        f32[64@-, 128@data]  ->  f32[64@model, 128@data]
  result 0  f32[64@-, 128@data]  ->  f32[64@model, 128@data]

communication: 32.0 KiB in 2 collectives -> 20.0 KiB in 2 collectives
  all-gather      1 (16.0 KiB)  ->  1 (16.0 KiB)
  all-reduce      1 (16.0 KiB)  ->  0 (0 B)
  reduce-scatter  0 (0 B)       ->  1 (4.0 KiB)"""
    )


def test_what_if_without_an_annotation() -> None:
    assert (
        str(what_if(parse(MLP), without=["%w1"]))
        == """\
without %w1

7 values sharded differently
  %w1  f32[128@-, 256@model]     ->  f32[128@-, 256@-]
  %b1  f32[256@model]            ->  f32[256@-]
  %w2  f32[256@model, 128@data]  ->  f32[256@-, 128@data]
  %a   f32[64@data, 256@model]   ->  f32[64@data, 256@-]
  %b   f32[64@data, 256@model]   ->  f32[64@data, 256@-]
  %c   f32[64@data, 256@model]   ->  f32[64@data, 256@-]
  %h   f32[64@data, 256@model]   ->  f32[64@data, 256@-]

communication: 32.0 KiB in 2 collectives -> 64.0 KiB in 1 collective
  all-gather  1 (16.0 KiB)  ->  1 (64.0 KiB)
  all-reduce  1 (16.0 KiB)  ->  0 (0 B)"""
    )


def test_order_dependent_shardings() -> None:
    assert (
        explain_text(FRAGILE, order_sensitive)
        == """\
1 value sharded differently in another order
value  lifo      fifo
%p     f32[8@a]  f32[8@b]

because of
  value %r: f32[8@a?]  f.ir:7
  value %s: f32[8@b?]  f.ir:8"""
    )


def test_unused_annotations() -> None:
    assert (
        explain_text(SORTED, coverage)
        == """\
1 operation without a factor rule
  %m = reshard  stops a  f.ir:8

5 dimensions unsharded although an axis is free
  %m  dimension 0 of 8  could be sharded over a or b  128 B
  %m  dimension 1 of 4  could be sharded over a or b  128 B
  %x  dimension 1 of 4  could be sharded over b       64 B
  %y  dimension 1 of 4  could be sharded over b       64 B
  %z  dimension 1 of 4  could be sharded over b       64 B

2 annotations without effect
  argument %x: f32[8@a, 4@-]  f.ir:4
  argument %y: f32[8@a, 4@-]  f.ir:5"""
    )


def test_the_summary_counts() -> None:
    assert (
        explain_text(MLP, summarize)
        == """\
9 of 9 tensors sharded

annotations
  argument %x: f32[64@data, 128@-]   f.ir:4
  argument %w1: f32[128, 256@model]  f.ir:5
  argument %w2: f32[256, 128@data]   f.ir:7

conflicts            1  8.0 KiB  --conflicts
depend on the order  0           --order
without a rule       0           --coverage

communication: 32.0 KiB in 2 collectives
  all-gather  1 (16.0 KiB)
  all-reduce  1 (16.0 KiB)"""
    )


PROPAGATION_ONLY = "propagate,reshard,partition"


def test_a_pass_after_propagation_is_the_cause() -> None:
    assert (
        explain_text(CONFLICT, explain, "%c")
        == """\
%c: f32[64@(x, y), 8@-]  f.ir:4

the pass resolve-conflicts changed it after propagation
  f32[64@-, 8@-]  ->  f32[64@(x, y), 8@-]
  propagation leaves %c [-, -]; made [(x, y), -] instead, its operands send less

propagation does not shard it over x
  dimension 0: the tensors are sharded differently along this factor
    %b at %c = add  f.ir:4
    %a along x; %b along y

propagation does not shard it over y
  dimension 0: the tensors are sharded differently along this factor
    %a at %c = add  f.ir:4
    %a along x; %b along y"""
    )


def test_a_pass_after_propagation_causes_a_conflict() -> None:
    assert (
        explain_text(CONFLICT, conflicts)
        == """\
operation  factor             kept     given up  because       collectives
%c = add   dimension 0 of %a  %c x, y  %b y      a later pass  all-slice + collective-permute, 256 B
%c = add   dimension 0 of %a  %c x, y  %a x      a later pass  all-slice, 0 B

%c = add  f.ir:4
  resolve-conflicts: propagation leaves %c [-, -]; made [(x, y), -] instead, its operands send less
  %b: argument %b: f32[64@y, 8]  f.ir:3

%c = add  f.ir:4
  resolve-conflicts: propagation leaves %c [-, -]; made [(x, y), -] instead, its operands send less
  %a: argument %a: f32[64@x, 8]  f.ir:3"""
    )


def test_conflicts_of_another_pipeline_state_the_bytes_of_both_choices() -> None:
    module, places = parse(CONFLICT), find_definition_locations(CONFLICT, "f.ir")
    assert (
        str(conflicts(module, pipeline=PROPAGATION_ONLY, places=places))
        == """\
operation  factor             kept  given up  because        collectives
%c = add   dimension 0 of %a  %b y  %c -      fewer bytes    all-gather, 1.5 KiB
%c = add   dimension 0 of %a  %b y  %a x      as many bytes  all-slice + collective-permute, 512 B

%c = add  f.ir:4
  each device receives 2.0 KiB, and would receive 2.5 KiB with dimension 0 of %a unsharded
  %b: argument %b: f32[64@y, 8]  f.ir:3

%c = add  f.ir:4
  each device receives 2.0 KiB, and would receive as much with dimension 0 of %a sharded over x
  %b: argument %b: f32[64@y, 8]  f.ir:3
  %a: argument %a: f32[64@x, 8]  f.ir:3"""
    )


def test_a_result_of_the_function_is_explained() -> None:
    assert (
        explain_text(MLP, explain, "result 0")
        == """\
result 0: f32[64@-, 128@data]  f.ir:8

data shards dimension 1
  stated by argument %w2: f32[256, 128@data]  f.ir:7
  %w2 -> %y       forwards through %y = dot          along 'o'                round 2  f.ir:13
  %y -> result 0  forwards through result 0 of @mlp  along dimension 1 of %y  round 2  f.ir:8

model does not shard it
  no factor connects the value with a dimension that the axis shards"""
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("result 1", "@mlp has no result 1; its only result is result 0"),
        ("result x", "@mlp has no result x; its only result is result 0"),
    ],
)
def test_unknown_results_are_refused(name: str, message: str) -> None:
    with pytest.raises(ExplainError) as error:
        explain(parse(MLP), name)
    assert str(error.value) == message


def test_a_pipeline_without_propagation_is_refused() -> None:
    with pytest.raises(PipelineError) as error:
        conflicts(parse(MLP), pipeline="cse")
    assert str(error.value) == (
        "the pipeline 'cse' has no pass called 'propagate', so there are no decisions to explain; "
        "extend the default pipeline, as in default,PASS"
    )


def test_a_collective_needs_a_pipeline_that_partitions() -> None:
    with pytest.raises(PipelineError) as error:
        explain_collective(parse(MLP), "%y", pipeline="propagate,reshard")
    assert str(error.value) == (
        "the pipeline 'propagate,reshard' does not partition the program, so it has no "
        "collectives; add the pass partition"
    )


def test_a_lowered_function_is_explained_with_its_own_pipeline() -> None:
    mesh = shardir.make_mesh((2, 4), ("x", "y"))
    a, b = (
        shardir.ShapeDtypeStruct(
            (64, 8), "float32", sharding=shardir.NamedSharding(mesh, shardir.PartitionSpec(axis))
        )
        for axis in ("x", "y")
    )
    lowered = shardir.jit(lambda a, b: a + b).lower(a, b)
    assert lowered.explain("result 0").type == "f32[64@(x, y), 8@-]"
    other = lowered.with_passes(PROPAGATION_ONLY)
    assert other.pipeline == PROPAGATION_ONLY
    assert other.explain("result 0").type == "f32[64@-, 8@-]"
    assert explain(other, "result 0").type == "f32[64@-, 8@-]"
    assert [row.verdict for row in other.conflicts().rows] == [Verdict.CHEAPER, Verdict.EQUAL]
    with shardir.config(passes=PROPAGATION_ONLY):
        assert shardir.jit(lambda a, b: a * b).lower(a, b).explain("result 0").type == (
            "f32[64@-, 8@-]"
        )


QUIET = """\
func @f(%a: f32[8]) -> (f32[8]) {
  %b = neg(%a) : f32[8]
  return %b
}
"""
SUM = """\
func @g(%p: f32[8, 16@x], %q: f32[16@x, 4]) -> (f32[8, 4]) {
  %y = dot(%p, %q, dims="bi,io->bo") : f32[8, 4]
  return %y
}
"""
TWO_FUNCTIONS = f"mesh @m = [x=4]\n\n{QUIET}\n{SUM}"
SWAPPED_FUNCTIONS = f"mesh @m = [x=4]\n\n{SUM}\n{QUIET}"


def communication_text(text: str) -> str:
    return str(communication(Pipeline.parse(DEFAULT_PIPELINE)(parse(text))))


def test_tables_of_collectives_name_the_function_that_they_count() -> None:
    assert communication_text(TWO_FUNCTIONS) == "no communication in @f, the first of 2 functions"
    head, *_ = communication_text(SWAPPED_FUNCTIONS).splitlines()
    assert head == (
        "1 collective in @g, the first of 2 functions, 192 B sent by each device in one run"
    )


def test_a_summary_names_the_function_whose_communication_it_states() -> None:
    *_, last = explain_text(TWO_FUNCTIONS, summarize).splitlines()
    assert last == "communication in @f, the first of 2 functions: 0 B in 0 collectives"


def test_a_difference_names_the_function_whose_communication_it_states() -> None:
    report = what_if(parse(TWO_FUNCTIONS), ["%p: f32[8@x, 16]"], function="g")
    assert str(report).splitlines()[-1] == (
        "communication in @f, the first of 2 functions: "
        "0 B in 0 collectives -> 0 B in 0 collectives"
    )


def test_collectives_of_other_functions_are_not_explained() -> None:
    with pytest.raises(ExplainError) as quiet:
        explain_collective(parse(TWO_FUNCTIONS), "%y")
    assert str(quiet.value) == "@f, the first of 2 functions, does not communicate"
    with pytest.raises(ExplainError) as other:
        explain_collective(parse(SWAPPED_FUNCTIONS), "%b")
    assert str(other.value) == (
        "no collective makes %b in @g, the first of 2 functions; the collectives are %y"
    )
