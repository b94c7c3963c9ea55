"""The data of reports: golden JSON, agreement with the analyses, determinism, loading."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.cost.memory import estimate_memory
from shardir.cost.op_cost import cost_of_block
from shardir.display.byte_sizes import show_bytes
from shardir.display.repetitions import Repetition, find_repetitions
from shardir.frontend.errors import ArgumentError
from shardir.frontend.report import program_report
from shardir.frontend.report.build import ReportInput
from shardir.frontend.report.program_report import report
from shardir.frontend.report.records import OriginRecord, ReportData
from shardir.frontend.report.stages import compare_lines
from shardir.frontend.report.tables import shortest_names
from shardir.frontend.report.text import format_flops, format_time
from shardir.passes.explain import (
    communication,
    conflicts,
    coverage,
    explain,
    explain_collective,
    peak_memory,
)
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.report import ReportError, load
from shardir.text.definition_locations import find_definition_locations
from shardir.text.parser import parse
from tests.frontend.report.programs import (
    DOT,
    LAYERS,
    deep_text,
    jitted,
    mlp_report,
    report_of_text,
)
from tests.passes.explain.programs import MLP

GOLDEN = Path(__file__).with_name("dot.json")
MLP_MODULE = parse(MLP)
MLP_PLACES = find_definition_locations(MLP, "mlp.ir")


def test_the_json_of_a_small_program_is_pinned() -> None:
    found = json.loads(report_of_text(DOT, "dot.ir").to_json())
    if os.environ.get("SHARDIR_UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    assert found == json.loads(GOLDEN.read_text("utf-8"))


def test_communication_is_that_of_explain() -> None:
    data = mlp_report().data
    parted = Pipeline.parse(DEFAULT_PIPELINE)(MLP_MODULE)
    expected = communication(parted, places=MLP_PLACES)
    assert [(c.value, c.nbytes, c.sent, c.executions, c.why) for c in data.collectives] == [
        (f"%{row.value}", row.nbytes, row.sent, row.executions, row.why) for row in expected.rows
    ]
    assert data.total.sent == expected.total.sent
    assert [(t.word, t.sent) for t in data.by_kind] == [(w, t.sent) for w, t in expected.by_kind]
    assert [(t.word, t.sent) for t in data.by_axes] == [(w, t.sent) for w, t in expected.by_axes]
    assert [(t.word, t.sent) for t in data.by_line] == [(w, t.sent) for w, t in expected.by_line]


def test_causes_are_those_of_explain() -> None:
    data = mlp_report().data
    for row in data.collectives:
        cause = explain_collective(MLP_MODULE, row.value, places=MLP_PLACES)
        assert row.move == cause.move
        assert [str(data.annotations[n]) for n in row.annotations] == list(
            map(str, cause.annotations)
        )
        assert [plan.nbytes for plan in row.rejected] == [way.nbytes for way in cause.dearer]


def test_values_are_those_of_explain() -> None:
    data = mlp_report().data
    for value in data.values:
        expected = explain(MLP_MODULE, value.name, places=MLP_PLACES)
        assert value.type == expected.type
        chains = [
            (axis, dim, str(data.annotations[annotation]), links)
            for dim, origin in value.origins
            for axis, annotation, links in paths(data, origin)
        ]
        assert chains == [
            (
                chain.axis,
                chain.dim,
                str(chain.annotation),
                [(link.source, link.target, link.op, link.round) for link in chain.links],
            )
            for chain in expected.chains
        ]
        absences = [data.absences[n] for n in value.absences]
        assert [(a.axis, a.reason, a.detail, a.op) for a in absences] == [
            (a.axis, a.reason.value, a.detail, a.op) for a in expected.absences
        ]


Hops = list[tuple[str, str, str, int]]


def paths(data: ReportData, origin: int) -> list[tuple[str, int, Hops]]:
    """Return the paths of an axis: its text, its annotation, and its steps."""
    found = []
    record: OriginRecord = data.origins[origin]
    found += [(part.axis, part.annotation, Hops()) for part in record.stated]
    for number, source in record.hops:
        link = data.links[number]
        step = (link.source, link.target, link.op, link.round)
        found += [(axis, said, [*links, step]) for axis, said, links in paths(data, source)]
    return found


def test_conflicts_and_coverage_are_those_of_explain() -> None:
    data = mlp_report().data
    expected = conflicts(MLP_MODULE, places=MLP_PLACES).rows
    assert [(c.op, c.verdict.value, c.nbytes) for c in expected] == [
        (c.op, c.verdict, c.nbytes) for c in data.conflicts
    ]
    assert data.conflicts
    whole = coverage(MLP_MODULE, places=MLP_PLACES).whole
    assert [(w.value, w.dim, w.nbytes) for w in whole] == [
        (w.value, w.dim, w.nbytes) for w in data.unsharded
    ]


def test_costs_and_memory_are_those_of_the_device_program() -> None:
    data = mlp_report().data
    parted = Pipeline.parse(DEFAULT_PIPELINE)(MLP_MODULE)
    cost, memory = cost_of_block(parted.main.body), estimate_memory(parted)
    assert sum(row.flops for row in data.source) == cost.flops == data.flops
    assert sum(row.memory for row in data.source) == cost.memory == data.memory
    assert sum(row.sent for row in data.source) == cost.sent == data.total.sent
    schedule = data.schedule
    assert (schedule.peak, schedule.arguments) == (memory.peak, memory.arguments)
    assert max(box.alive for box in schedule.boxes) == memory.peak
    assert schedule.boxes[schedule.peak_box].alive == memory.peak
    assert sum(row.nbytes for row in schedule.alive_at_peak) == memory.peak
    assert sum(row.peak for row in data.source) == memory.peak


def test_the_peak_is_that_of_explain() -> None:
    data = mlp_report().data
    found = peak_memory(Pipeline.parse(DEFAULT_PIPELINE)(MLP_MODULE), places=MLP_PLACES)
    assert [(row.name, row.type, row.nbytes, row.role) for row in data.schedule.alive_at_peak] == [
        row[:4] for row in found.rows
    ]
    assert found.estimate.peak == data.schedule.peak
    assert found.at == data.schedule.boxes[data.schedule.peak_box].name
    lines = dict(found.by_line)
    assert [lines[f"mlp.ir:{row.line}"] for row in data.source if row.peak] == [
        row.peak for row in data.source if row.peak
    ]


def test_equal_values_of_layers_are_one_row_of_the_peak() -> None:
    module = Pipeline.parse(DEFAULT_PIPELINE)(parse(deep_text(4)))
    assert "%v0 x 4            f32[16, 64]  16.0 KiB  argument" in str(peak_memory(module))


def test_a_transfer_that_was_started_overlaps_with_computation() -> None:
    module = MLP_MODULE
    waits = []
    for pipeline in (DEFAULT_PIPELINE, f"{DEFAULT_PIPELINE},overlap"):
        waits.append(report(ReportInput(module, pipeline)).data.schedule.waiting)
    assert waits[1] <= waits[0]


def test_every_stage_counts_its_operations_and_changes() -> None:
    data = mlp_report().data
    assert [stage.name for stage in data.stages] == [
        "traced",
        *(step.name for step in Pipeline.parse(DEFAULT_PIPELINE).passes),
    ]
    for before, after in zip(data.stages, data.stages[1:], strict=False):
        old, new = ([data.texts[n] for n in stage.lines] for stage in (before, after))
        assert compare_lines(old, new) == (
            after.added,
            after.removed,
            after.changed,
        )
        assert len(new) - len(old) == after.added - after.removed


def test_lines_that_define_the_same_values_correspond() -> None:
    old = ["func @f(", "  %x: f32[2],", ") {", "  %a = sin(%x)", "  %b = cos(%a)", "}"]
    new = ["func @f(", "  %x: f32[2@d],", ") {", "  %b = cos(%a.1)", "  %a.1 = sin(%x)", "}"]
    assert compare_lines(old, new) == (1, 1, 2)


def test_repeated_layers_are_folded() -> None:
    data = report_of_text(deep_text()).data
    params, body = data.stages[0].folds
    assert (params.unit, params.count) == (4, LAYERS // 2)
    assert (body.unit, body.count, body.exceptions) == (4, LAYERS, ())


def test_a_layer_that_differs_is_an_exception() -> None:
    fold = report_of_text(deep_text(odd_layer=5)).data.stages[0].folds[1]
    assert (fold.unit, fold.count, fold.exceptions) == (4, LAYERS - 1, ((fold.start + 20, 4),))
    assert fold.length == 4 * LAYERS


@pytest.mark.parametrize(
    ("lines", "folds"),
    [
        ([], ()),
        ([1, 2, 3, 4] * 3, ()),  # Too few lines.
        ([1, 2, 3, 4] * 4, (Repetition(0, 16, 4, 4, ()),)),
        ([9, *[1, 2, 3, 4, 5, 6] * 3, 9], (Repetition(1, 18, 6, 3, ()),)),
        ([1, 2, 3, 4] * 2 + [7] + [1, 2, 3, 4] * 2, (Repetition(0, 17, 4, 4, ((8, 1),)),)),
        (list(range(100)), ()),
        (list(range(70)) * 2, ()),  # Two copies.
        (list(range(70)) * 3, (Repetition(0, 210, 70, 3, ()),)),
    ],
)
def test_folds_of_sequences(lines: list[int], folds: tuple[Repetition, ...]) -> None:
    assert find_repetitions(lines) == folds


def test_names_of_files_do_not_depend_on_the_folder() -> None:
    assert shortest_names(["/a/b/f.py"]) == ["f.py"]
    assert shortest_names(["/a/b/f.py", "/a/c/f.py", "/a/c/g.py"]) == ["b/f.py", "c/f.py", "g.py"]


def test_equal_programs_make_equal_bytes(tmp_path: Path) -> None:
    first, second = report_of_text(MLP, "/x/mlp.ir"), report_of_text(MLP, "/y/mlp.ir")
    assert first.to_html() == second.to_html()
    script = (
        "from tests.frontend.report.programs import report_of_text, MLP;"
        "import sys; report_of_text(MLP, '/z/mlp.ir').save(sys.argv[1])"
    )
    page = tmp_path / "page.html"
    environment = {**os.environ, "PYTHONHASHSEED": "17"}
    subprocess.run([sys.executable, "-c", script, page], check=True, env=environment)
    assert page.read_text("utf-8") == first.to_html()


def test_a_report_is_small() -> None:
    assert len(mlp_report().to_html()) <= 300_000


def test_a_compiled_function_reports(tmp_path: Path) -> None:
    mesh = sd.Mesh(np.array(sd.devices()[:1]), ("data",))
    x = sd.device_put(np.ones((8, 16), "float32"), sd.NamedSharding(mesh, sd.P("data")))
    w = np.ones((16, 4), "float32")
    lowered = jitted.lower(x, w)
    page = tmp_path / "step.html"
    made = lowered.compile().report(page)
    assert load(page) == made
    assert lowered.report().data.name == "jitted"
    assert [file.name for file in made.data.files] == ["programs.py"]
    assert "hidden = x @ w" in made.data.files[0].text
    names = [stage.name for stage in made.data.stages]
    assert names[0] == "traced"
    assert names[-1] == "schedule" or "fuse" not in names
    assert repr(made).startswith("ProgramReport('jitted', ")


def test_the_threads_of_a_profiled_run_are_in_the_report(tmp_path: Path) -> None:
    x, w = np.ones((64, 32), "float32"), np.ones((32, 16), "float32")
    compiled = jitted.lower(x, w).compile()
    profile = sd.profile(compiled, x, w, runs=1)
    page = tmp_path / "run.html"
    made = compiled.report(page, profile=profile)
    found, measured = made.data.run, profile.runs[-1]
    assert profile.name == "jitted"
    assert found is not None
    assert found.total == measured.end - measured.begin
    assert [(task.start, task.duration) for task in found.tasks] == [
        (span.begin - measured.begin, span.end - span.begin) for span in measured.spans
    ]
    assert [found.activities[task.activity].kernel for task in found.tasks] == [
        span.label for span in measured.spans
    ]
    assert sum(count for count, _ in found.busy) == len(found.tasks)
    assert sum(busy for _, busy in found.busy) == sum(task.duration for task in found.tasks)
    assert any("dot" in each.name for each in found.activities)
    assert load(page) == made
    assert f"measured run of {format_time(found.total)} on {len(found.lanes)} thread" in str(made)


def test_notebooks_show_no_page_of_a_large_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_report, "MAX_NOTEBOOK_CHARACTERS", 1000)
    assert mlp_report()._repr_html_() is None


def test_the_representation_counts_stages_values_and_collectives() -> None:
    assert repr(report_of_text(DOT)) == "ProgramReport('f', 12 stages, 3 values, 1 collective)"


def test_the_profile_of_a_report_is_a_profile() -> None:
    compiled = jitted.lower(np.ones((8, 16), "float32"), np.ones((16, 4), "float32")).compile()
    wrong: Any = 5
    with pytest.raises(ArgumentError) as raised:
        compiled.report(profile=wrong)
    first, _, _ = str(raised.value).partition("\n")
    assert first == "the profile of a report is a result of shardir.profile, not 5"


def test_a_program_without_a_mesh_reports() -> None:
    text = "func @f(%x: f32[4]) -> (f32[4]) {\n  %y = sin(%x) : f32[4]\n  return %y\n}\n"
    data = report_of_text(text).data
    assert data.notes == (
        "shardings are not explained: the program has no mesh, so nothing in it is sharded",
    )
    assert data.values == ()
    assert data.flops == 4
    assert "no communication" in str(report_of_text(text))


def test_a_partitioned_program_reports() -> None:
    text = str(Pipeline.parse(DEFAULT_PIPELINE)(MLP_MODULE))
    data = report_of_text(text).data
    assert data.notes[0] == "the program has been partitioned: propagation is not shown"
    assert data.total == mlp_report().data.total


def test_an_invalid_path_is_an_error() -> None:
    with pytest.raises(ReportError, match=r"^cannot write the report to 'a\\x00b': embedded null"):
        mlp_report().save("a\0b")
    with pytest.raises(ReportError) as error:
        mlp_report().save(5)  # type: ignore[arg-type]
    assert str(error.value) == "the path of a report is a string or a Path, not 5"


def test_a_saved_report_loads(tmp_path: Path) -> None:
    made = mlp_report()
    for name in ("report.html", "report.json"):
        assert load(made.save(tmp_path / name)) == made
    assert made.save(tmp_path / "report.txt").read_text("utf-8") == f"{made}\n"
    assert (tmp_path / "report.json").read_text("utf-8") == made.to_json()


def test_text_of_the_program_cannot_end_the_script() -> None:
    data = mlp_report().data
    hostile = '</script><script>alert(1)</script>"\\\u2028'
    page = replace(mlp_report(), data=replace(data, name=hostile, texts=(hostile,))).to_html()
    assert "alert(1)" not in page.replace("&lt;/script&gt;&lt;script&gt;alert(1)", "")
    assert page.count("</script>") == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "r.json is not a report: it is not JSON (Expecting property name enclosed in double "
         "quotes: line 1 column 2 (char 1))"),
        ("[]", 'r.json is not a report: it has no field "format" with "shardir-report"'),
        ('{"format": "other"}',
         'r.json is not a report: it has no field "format" with "shardir-report"'),
        ('{"format": "shardir-report", "version": 9}',
         "r.json is a report of version 9, and this shardir reads version 6; write the report "
         "again, or read it with the shardir that wrote it"),
        ('{"format": "shardir-report", "version": 6}',
         "r.json: the report lacks the field 'name'"),
        ("<html></html>", 'r.json is not a report: it has no element "shardir-report"'),
        ('<script type="application/gzip" id="shardir-report">AAAA</script>',
         "r.json is not a report: its data is damaged (Not a gzipped file (b'\\x00\\x00'))"),
    ],
)  # fmt: skip
def test_other_files_are_refused(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(content, "utf-8")
    with pytest.raises(ReportError) as error:
        load("r.json")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "r.json: name of the report is an integer, and should be a string"),
        ({"extra": 3}, "r.json: the report has no field 'extra'; did you mean 'texts'?"),
        ({"flops": True}, "r.json: flops of the report is true or false, and should be an integer"),
        ({"files": {}}, "r.json: files of the report is an object, and should be a list"),
        ({"files": [3]},
         "r.json: element 0 of files of the report is an integer, and should be an object"),
        ({"files": [{"name": "f", "txt": ""}]},
         "r.json: element 0 of files of the report has no field 'txt'; did you mean 'text'?"),
        ({"meshes": [{"name": "m", "axes": [["x"]], "devices": 1, "device_ids": []}]},
         "r.json: element 0 of axes of element 0 of meshes of the report has 1 element, and "
         "should have 2"),
    ],
)  # fmt: skip
def test_damaged_reports_are_refused(
    change: dict[str, object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text(json.dumps({**json.loads(mlp_report().to_json()), **change}), "utf-8")
    with pytest.raises(ReportError) as error:
        load("r.json")
    assert str(error.value) == message


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ReportError, match=r"^cannot read 'nothing.html': No such file or directo"):
        load("nothing.html")


def test_a_report_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no" / "report.html"
    with pytest.raises(ReportError) as error:
        mlp_report().save(path)
    assert str(error.value) == (
        f"cannot write the report to {str(path)!r}: No such file or directory"
    )


def test_numbers_as_text() -> None:
    assert [format_time(n) for n in (0, 999, 1250, 2_000_000, 3_100_000_000)] == [
        "0 ns", "999 ns", "1.2 us", "2.0 ms", "3.1 s",
    ]  # fmt: skip
    assert [format_flops(n) for n in (5, 1000, 2_500_000, 10**15)] == [
        "5", "1.0 K", "2.5 M", "1.0 P",
    ]  # fmt: skip
    assert show_bytes(1280) == "1.2 KiB"


LOOP = """\
mesh @m = [x=4]

func @f(%a: f32[8, 16@x], %w: f32[16@x, 16]) -> (f32[8, 16]) {
  %y = scan(%a, carries=1, length=3) : f32[8, 16] {
    (%c: f32[8, 16]) =>
    %d = dot(%c, %w, dims="bi,io->bo") : f32[8, 16]
    yield %d
  }
  return %y
}
"""


def test_a_note_names_the_function_whose_costs_are_shown() -> None:
    text = "func @{name}(%x: f32[4]) -> (f32[4]) {{\n  return %x\n}}\n"
    data = report_of_text(text.format(name="f") + text.format(name="g")).data
    assert data.notes[-1] == (
        "communication, schedule and costs are those of @f, the first of 2 functions"
    )


def test_the_time_of_a_loop_has_the_latency_of_each_of_its_transfers() -> None:
    data = report_of_text(LOOP).data
    (box,) = data.schedule.boxes
    latency = dict(data.schedule.machine)["seconds of latency"]
    (collective,) = data.collectives
    assert collective.executions == 3
    assert 0 <= box.duration - 3 * latency * 1e9 < 100
    assert (data.schedule.lanes, box.waits) == (("compute",), 0)
