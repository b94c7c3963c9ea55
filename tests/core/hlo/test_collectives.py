"""Collectives of HLO modules: kinds, groups, bytes, executions."""

import pytest

from shardir.hlo.collectives import list_hlo_collectives
from shardir.hlo.module import HloError
from shardir.hlo.parser import parse_hlo

HEADER = "HloModule m, num_partitions=4\n\n"
GROUPS = "replica_groups={{0,1},{2,3}}, use_global_device_ids=true, channel_id=1"


def entry(*lines: str, header: str = HEADER, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in ("p = f32[8,4]{1,0} parameter(0)", *lines))
    return f"{header}{before}ENTRY main {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("line", "kind", "nbytes", "sent"),
    [
        (f"f32[8,4]{{1,0}} all-reduce(p), {GROUPS}", "all-reduce", 128, 128),
        (f"f32[16,4]{{1,0}} all-gather(p), {GROUPS}, dimensions={{0}}", "all-gather", 256, 128),
        (f"f32[4,4]{{1,0}} reduce-scatter(p), {GROUPS}", "reduce-scatter", 64, 64),
        (f"f32[8,4]{{1,0}} all-to-all(p), {GROUPS}", "all-to-all", 128, 64),
        (
            "f32[8,4]{1,0} collective-permute(p), source_target_pairs={{0,1},{1,0},{2,3},{3,2}}",
            "collective-permute",
            128,
            128,
        ),
        (
            f"(f32[8,4]{{1,0}}, f32[16,4]{{1,0}}) all-gather-start(p), {GROUPS}",
            "all-gather",
            256,
            128,
        ),
        (f"f32[8,4]{{1,0}} all-reduce-start(p), {GROUPS}", "all-reduce", 128, 128),
        (
            "(f32[8,4]{1,0}, f32[8,4]{1,0}, u32[], u32[]) collective-permute-start(p), "
            "source_target_pairs={{0,1},{2,3}}",
            "collective-permute",
            128,
            128,
        ),
        (
            f"((f32[8,4]{{1,0}}), f32[4,4]{{1,0}}) reduce-scatter-start(p), {GROUPS}",
            "reduce-scatter",
            64,
            64,
        ),
    ],
)
def test_bytes_are_those_of_the_results_on_one_device(
    line: str, kind: str, nbytes: int, sent: int
) -> None:
    found = list_hlo_collectives(parse_hlo(entry(f"x = {line}")), {"data": 2, "model": 2})
    (row,) = found.rows
    assert (row.kind, row.axes, row.group_size) == (kind, ("model",), 2)
    assert (row.nbytes, row.sent, row.executions) == (nbytes, sent, 1)


def test_without_a_mesh_groups_are_described() -> None:
    text = entry(f"x = f32[8,4]{{1,0}} all-reduce(p), {GROUPS}", "y = f32[8,4] all-reduce(x)")
    rows = list_hlo_collectives(parse_hlo(text)).rows
    assert [row.axes for row in rows] == [("2 groups of 2",), ("4 devices",)]


def test_a_collective_without_a_line_has_that_of_its_operand() -> None:
    computed = 'x = f32[8,4]{{1,0}} tanh(p), metadata={{op_name="tanh" {}}}'
    gathered = f"y = f32[16,4]{{1,0}} all-gather(z), {GROUPS}, dimensions={{0}}"
    moved = "z = f32[8,4]{0,1} transpose(x), dimensions={1,0}"
    line = 'source_file="f.py" source_line=3'
    (row,) = list_hlo_collectives(parse_hlo(entry(computed.format(line), moved, gathered))).rows
    assert (str(row.loc), row.why) == ("f.py:3", "")
    (row,) = list_hlo_collectives(parse_hlo(entry(computed.format(""), moved, gathered))).rows
    assert row.loc is None


def test_a_channel_without_global_numbers_joins_all_partitions() -> None:
    text = entry("x = f32[8,4]{1,0} all-reduce(p), channel_id=1, replica_groups={{0}}")
    assert list_hlo_collectives(parse_hlo(text)).rows[0].group_size == 4


def test_combined_arrays_are_counted() -> None:
    text = entry(f"x = (f32[8,4]{{1,0}}, f32[2]{{0}}) all-reduce(p, p), {GROUPS}")
    found = list_hlo_collectives(parse_hlo(text))
    assert (len(found.rows), found.arrays) == (1, 2)
    assert found.rows[0].nbytes == 136


def test_combined_arrays_have_the_lines_of_their_operands() -> None:
    line = ', metadata={{op_name="f" source_file="f.py" source_line={}}}'
    text = entry(
        "q = f32[8,4]{1,0} tanh(p)" + line.format(3),
        "r = f32[8,4]{1,0} sine(p)" + line.format(4),
        "s = f32[8,4]{1,0} cosine(p)" + line.format(3),
        f"x = (f32[8,4]{{1,0}}, f32[8,4]{{1,0}}, f32[8,4]{{1,0}}) all-reduce(q, r, s), {GROUPS}",
        f"y = f32[8,4]{{1,0}} all-reduce(r), {GROUPS}" + line.format(5),
    )
    first, second = list_hlo_collectives(parse_hlo(text)).rows
    assert (str(first.loc), [*map(str, first.combined_locs)]) == ("f.py:3", ["f.py:4"])
    assert second.combined_locs == ()


LOOP = """\
cond {
  c = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(10)
  ROOT less = pred[] compare(i, n), direction=LT
}

body {
  b = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  step = s32[] constant(3)
  next = s32[] add(i, step)
  x = f32[8,4] get-tuple-element(b), index=1
  y = f32[8,4] all-reduce(x)
  ROOT t = (s32[], f32[8,4]) tuple(next, y)
}

"""


@pytest.mark.parametrize(
    ("start", "config", "executions"),
    [
        ("constant(1)", "", 3),
        ("constant(1)", ', backend_config={"known_trip_count":{"n":"7"}}', 7),
        ("iota()", "", None),
    ],
    ids=["counted", "stated", "unknown"],
)
def test_collectives_of_loops_are_multiplied(
    start: str, config: str, executions: int | None
) -> None:
    text = entry(
        f"zero = s32[] {start}",
        "t = (s32[], f32[8,4]) tuple(zero, p)",
        f"w = (s32[], f32[8,4]) while(t), condition=cond, body=body{config}",
        before=LOOP,
    )
    (row,) = list_hlo_collectives(parse_hlo(text)).rows
    assert row.executions == executions


def test_called_computations_and_branches_are_visited() -> None:
    inner = "inner {\n  q = f32[8,4] parameter(0)\n  r = f32[8,4] all-reduce(q)\n}\n\n"
    text = entry(
        "a = f32[8,4] call(p), to_apply=inner",
        "b = f32[8,4] conditional(p, a, a), branch_computations={inner, inner}",
        "c = ((f32[8,4]), f32[8,4], s32[]) async-start(p), calls=inner",
        before=inner,
    )
    assert len(list_hlo_collectives(parse_hlo(text)).rows) == 4


def test_unknown_groups_are_named_so_and_count_as_all_devices() -> None:
    text = entry("x = f32[8,4] all-reduce(p), replica_groups=[9,9]<=[81]")
    (row,) = list_hlo_collectives(parse_hlo(text)).rows
    assert row.axes == ("unknown groups",)
    assert (row.group_size, row.sent) == (4, 2 * 128 * 3 // 4)


def test_the_number_of_calls_is_bounded() -> None:
    calls = ""
    for number in range(30):
        call = f"f32[] call(), to_apply=f{number + 1}"
        calls += f"f{number} {{\n  x = {call}\n  y = {call}\n}}\n\n"
    last = "f30 {\n  x = f32[] parameter(0)\n}\n\n"
    text = entry("x = f32[] call(), to_apply=f0", before=calls + last)
    with pytest.raises(HloError, match="more than 100000 calls"):
        list_hlo_collectives(parse_hlo(text))
