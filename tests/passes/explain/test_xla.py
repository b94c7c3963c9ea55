"""XLA's collectives beside those of our plan, as text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from shardir.cost.communication import list_collectives
from shardir.hlo.parser import parse_hlo
from shardir.ir.location import Loc
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.passes.explain import compare_with_xla, xla_communication
from shardir.passes.explain.propagated_program import ExplainError
from shardir.passes.explain.xla.xla_communication import Remedy
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse

PROGRAM = """\
mesh @mesh = [data=2, model=2]

func @f(
  %x: f32[8@data, 16],
  %w: f32[16, 8@model],
) -> (f32[8, 8], f32[]) {
  %y = dot(%x, %w, dims="bi,io->bo") : f32[8, 8] loc("train.py":4:3)
  %s = sum(%y, dims=[0, 1]) : f32[] loc("train.py":5:3)
  return %y, %s
}
"""

GATHERED = """\
HloModule jit_f, num_partitions=4

ENTRY main {
  x = f32[4,16]{1,0} parameter(0)
  w = f32[16,4]{1,0} parameter(1)
  g = f32[16,8]{1,0} all-gather(w), channel_id=1, replica_groups=[2,2]<=[4], dimensions={1}, \
use_global_device_ids=true, metadata={op_name="dot" source_file="train.py" source_line=4}
  y = f32[4,8]{1,0} dot(x, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[] reduce(y), dimensions={0,1}
  ROOT r = (f32[], f32[]) all-reduce(s, s), channel_id=2, replica_groups={{0,1,2,3}}, \
use_global_device_ids=true, metadata={op_name="sum" source_file="train.py" source_line=5}
}
"""


def program() -> Module:
    return parse(PROGRAM)


def test_the_collectives_of_xla_are_shown_in_tables() -> None:
    report = xla_communication(parse_hlo(GATHERED), {"data": 2, "model": 2})
    assert str(report).splitlines()[0] == (
        "jit_f, partitioned by XLA: 2 collectives, 268 B sent by each device in one run; "
        "XLA combined 3 arrays into them"
    )
    assert "  %g   all-gather over model            512 B   dot  train.py:4" in str(report)


def test_extra_bytes_are_explained_with_the_constraint_that_avoids_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "shardir.passes.explain.xla.xla_communication.Path.cwd", lambda: Path("/me")
    )
    report = compare_with_xla(parse_hlo(GATHERED), program())
    assert str(report) == EXPECTED
    elsewhere = compare_with_xla(parse_hlo(GATHERED.replace("train.py", "/me/train.py")), program())
    assert elsewhere == report


EXPECTED = """\
jit_f: XLA's collectives beside those of shardir's plan

                             count  result  sent
  XLA, before combining      3      520 B   268 B
  XLA                        2      520 B   268 B
  plan of shardir            1      4 B     6 B
  plan of shardir, combined  1      4 B     6 B

by line       XLA sends         the plan sends  difference
  train.py:4  all-gather 256 B  nothing         256 B more
  train.py:5  all-reduce 12 B   all-reduce 6 B  6 B more

train.py:4
  all-gather over model, 256 B sent
    dot uses all elements of a dimension that its operand has sharded
  the plan sends nothing on this line, with these shardings (not compiled with XLA)
    jax.lax.with_sharding_constraint(x, P('data', 'model'))  # x is %y: f32[8@data, 8@model]

train.py:5
  all-reduce over (data, model), 12 B sent
    sum sums over a sharded dimension: each device has a partial result
  the plan sends all-reduce 6 B on this line, and replicates its values"""


def test_a_module_that_is_not_partitioned_is_refused() -> None:
    with pytest.raises(ExplainError) as error:
        xla_communication(parse_hlo(GATHERED.replace("num_partitions=4", "x=1")))
    assert str(error.value) == (
        "the module jit_f is not partitioned, so it has no collectives; use the text after "
        "optimizations: module_*.after_optimizations.txt of --xla_dump_to, or "
        "jax.jit(f).lower(...).compile().as_text()"
    )


def test_a_mesh_of_another_size_is_refused() -> None:
    with pytest.raises(ExplainError) as error:
        xla_communication(parse_hlo(GATHERED), {"data": 3})
    assert str(error.value) == (
        "the mesh data=3 has 3 devices, and the module jit_f runs on 4; use the mesh with which "
        "XLA compiled it"
    )


LOOP = """\
mesh @mesh = [data=4]

func @f(
  %n: i32[],
  %x: f32[8@data],
) -> (i32[], f32[]) {
  %start = constant(value=START) : i32[]
  %zero = constant(value=0.0) : f32[]
  %a, %b = while(%start, %zero) : i32[], f32[] {
    (%i: i32[], %t: f32[]) =>
    %limit = constant(value=9) : i32[]
    %less = lt(LEFT, LIMIT) : bool[]
    yield %less
  } {
    (%j: i32[], %u: f32[]) =>
    %step = constant(value=STEP) : i32[]
    %next = add(%j, %step) : i32[]
    %r = broadcast(%u, dims=[]) : f32[8]
    %z = add(%x, %r) : f32[8]
    %sum = sum(%z, dims=[0]) : f32[]
    yield %next, %sum
  }
  return %a, %b
}
"""


@pytest.mark.parametrize(
    ("start", "step", "left", "limit", "executions"),
    [
        (0, 1, "%i", "%limit", 9),
        (2, 3, "%i", "%limit", 3),
        (9, 1, "%i", "%limit", 0),
        (0, 1, "%i", "%n", None),
        (0, 0, "%i", "%limit", None),
        (0, 1, "%limit", "%i", None),
    ],
)
def test_counted_loops_multiply_their_collectives(
    start: int, step: int, left: str, limit: str, executions: int | None
) -> None:
    text = LOOP.replace("START", str(start)).replace("STEP", str(step))
    text = text.replace("LEFT", left).replace("LIMIT", limit)
    partitioned = Pipeline.parse(DEFAULT_PIPELINE)(parse(text))
    assert [row.executions for row in list_collectives(partitioned)] == [executions]


WITHOUT_LINE = re.sub(r', metadata=\{op_name="dot"[^}]*\}', "", GATHERED)


def test_collectives_without_a_line() -> None:
    """The module names its groups without a mesh."""
    lines = str(compare_with_xla(parse_hlo(WITHOUT_LINE), program())).splitlines()
    assert lines[8:10] == [
        "by line       XLA sends         the plan sends  difference",
        "  (no line)   all-gather 256 B  nothing         256 B more",
    ]
    assert lines[12:16] == [
        "collectives without a line",
        "  all-gather over model, 256 B sent",
        "    this line uses all elements of a dimension that its operand has sharded",
        "  the plan sends nothing on this line, and replicates its values",
    ]
    *_, causes = str(xla_communication(parse_hlo(WITHOUT_LINE))).split("\n\n")
    assert causes == (
        "causes\n"
        "  (no line)\n"
        "    all-gather over 2 groups of 2, 256 B sent\n"
        "      this line uses all elements of a dimension that its operand has sharded\n"
        "  train.py:5\n"
        "    all-reduce over 4 devices, 12 B sent\n"
        "      sum sums over a sharded dimension: each device has a partial result"
    )


SUM = """\
HloModule jit_f, num_partitions=4

ENTRY main {
  x = f32[4,16]{1,0} parameter(0)
  s = f32[] reduce(x), dimensions={0,1}
  ROOT r = f32[] all-reduce(s), channel_id=2, replica_groups={{0,1,2,3}}, \
use_global_device_ids=true, metadata={op_name="sum" source_file="train.py" source_line=5}
}
"""


@pytest.mark.parametrize(
    ("primitive", "explained"),
    [
        (
            "sum",
            [
                "    sum sums over a sharded dimension: each device has a partial result",
                "  not avoidable: the plan sends as many bytes on this line",
            ],
        ),
        ("psum", ["    the program requests it: jax.lax.psum in shard_map"]),
    ],
)
def test_a_line_on_which_the_plan_sends_as_much(primitive: str, explained: list[str]) -> None:
    """A collective that the program requests has no remedy."""
    module = parse_hlo(SUM.replace('op_name="sum"', f'op_name="{primitive}"'))
    lines = str(compare_with_xla(module, program())).splitlines()
    assert lines[8] == "  train.py:5  all-reduce 6 B  all-reduce 6 B  equal"
    assert lines[12:] == explained


def test_arrays_of_other_lines_are_named_and_compared_together() -> None:
    comparison = compare_with_xla(parse_hlo(SUM), program())
    (line,) = comparison.lines
    ((row, cause),) = line.collectives

    def explain(extra: int, *numbers: int) -> list[str]:
        locs = tuple(Loc("train.py", number, 1) for number in numbers)
        combined = replace(line, extra=8, collectives=((replace(row, combined_locs=locs), cause),))
        others = [
            replace(line, line=f"train.py:{number}", extra=extra, collectives=())
            for number in numbers
        ]
        changed = replace(comparison, lines=(combined, *others), is_compiled=True)
        return str(changed).splitlines()

    lines = explain(-8, 7)
    assert "    including arrays of other lines, which XLA combined with it: train.py:7" in lines
    assert lines[-1] == "  not avoidable: the plan sends as many bytes on these lines"
    assert explain(-9, 7)[-1] == "  not avoidable: the plan sends 1 B more bytes on these lines"
    lines = explain(0, 6, 7, 8, 9)
    assert lines[-2].endswith("with it: train.py:6, train.py:7, train.py:8 and 1 more")
    assert lines[-1].startswith("  the plan sends all-reduce 6 B on this line, but none")


@pytest.mark.parametrize(("sent", "shown"), [(2, True), (0, False), (None, False)])
def test_a_hint_is_shown_if_the_line_communicates_with_its_remedies(
    sent: int | None, shown: bool
) -> None:
    comparison = compare_with_xla(parse_hlo(SUM), program())
    ((row, cause),) = comparison.lines[0].collectives
    line = replace(
        comparison.lines[0],
        collectives=((row, replace(cause, hint="sum less")),),
        remedies=(Remedy(Loc("train.py", 5, 1), "a", "b", sent),),
    )
    text = str(replace(comparison, lines=(line,)))
    assert ("  another remedy: sum less" in text.splitlines()) == shown
    assert "  remedy: sum less" not in text.splitlines()
    assert (
        "  remedy: sum less"
        in str(replace(comparison, lines=(replace(line, remedies=()),))).splitlines()
    )


def test_shardings_of_parts_of_axes_are_no_constraints() -> None:
    text = PROGRAM.replace("data=2, model=2", "data=4").replace("8@model", "8@data:(1)2")
    text = text.replace("f32[8@data, 16]", "f32[8, 16]")
    assert compare_with_xla(parse_hlo(GATHERED), parse(text)).lines[0].constraints == ()


def test_replicated_values_are_no_constraints() -> None:
    text = PROGRAM.replace("8@data, 16", "8, 16").replace("8@model", "8")
    (line, _) = compare_with_xla(parse_hlo(GATHERED), parse(text)).lines
    assert (line.line, line.extra, line.constraints) == ("train.py:4", 256, ())


def test_values_without_lines_are_no_constraints() -> None:
    (first, _) = compare_with_xla(parse_hlo(WITHOUT_LINE), parse(PROGRAM.replace(
        ' loc("train.py":4:3)', ""
    ))).lines  # fmt: skip
    assert (first.line, first.constraints) == ("", ())


def test_a_module_before_partitioning_is_refused() -> None:
    text = SUM.replace("dimensions={0,1}", "dimensions={0,1}, sharding={replicated}")
    with pytest.raises(ExplainError) as error:
        xla_communication(parse_hlo(text))
    assert str(error.value) == (
        "the module jit_f is the one before partitioning, so XLA has not inserted collectives yet; "
        "use the text after optimizations of the same folder, module_*.after_optimizations.txt"
    )
