"""Reports whose records are damaged: the error names the place, and no report fails later."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardir.report import ReportError, load
from tests.frontend.report.programs import mlp_report, profiled_report

DAMAGES: list[Any] = [None, -1, 10**6, 10**400, True, 1.5, float("nan"), float("inf"), "z", [], {}]


def write(data: dict[str, Any], folder: Path) -> Path:
    path = folder / "r.json"
    path.write_text(json.dumps(data), "utf-8")
    return path


def contents(profiled: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((profiled_report() if profiled else mlp_report()).to_json())
    return made


def message(data: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(folder)
    write(data, folder)
    with pytest.raises(ReportError) as error:
        load("r.json")
    return str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("idle", [99],
         "r.json: element 0 of idle of the report is 99, and annotations has 3 items"),
        ("values.0.location.0", 7,
         "r.json: element 0 of location of element 0 of values of the report is 7, and files has 1 "
         "item"),
        ("values.0.origins.0.1", -1,
         "r.json: element 1 of element 0 of origins of element 0 of values of the report is -1, "
         "and origins has 14 items"),
        ("schedule.boxes.0.lane", 5,
         "r.json: lane of element 0 of boxes of schedule of the report is 5, and schedule.lanes "
         "has 3 items"),
        ("schedule.peak_box", 40,
         "r.json: peak_box of schedule is 40, which is no index of boxes"),
        ("source.0.file", 2,
         "r.json: file of element 0 of source is 2, which is no index of files"),
        ("stages.2.line_runs.0", [5, 10**9],
         "r.json: element 0 of line_runs of element 2 of stages is outside of texts"),
        ("stages.1.folds", [
            {"start": 0, "length": 4, "unit": 2, "count": 2, "exceptions": [[2, 0]]}],
         "r.json: element 0 of folds of element 1 of stages is outside of its lines"),
        ("flops", 10**400,
         "r.json: flops of the report is not between -1e+300 and 1e+300"),
        ("schedule.machine.0.1", float("nan"),
         "r.json: element 1 of element 0 of machine of schedule of the report is not between "
         "-1e+300 and 1e+300"),
    ],
)  # fmt: skip
def test_the_error_names_the_place(
    path: str, value: object, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = contents()
    item, keys = data, path.split(".")
    for key in keys[:-1]:
        item = item[int(key)] if isinstance(item, list) else item[key]
    item[int(keys[-1]) if isinstance(item, list) else keys[-1]] = value
    assert message(data, tmp_path, monkeypatch) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"busy": []}, "r.json: busy and lanes of run have different lengths"),
        ({"lanes": [], "busy": []}, "r.json: lane of element 0 of tasks of run of the report is "),
    ],
)
def test_a_damaged_profile_is_refused(
    change: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = contents(profiled=True)
    data["run"] |= change
    assert message(data, tmp_path, monkeypatch).startswith(expected)


def test_a_table_with_rows_of_other_lengths_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = contents()
    tables = [{"head": ["cost"], "rows": [["1 s"], ["1 s", "2 s"]]}]
    data["planning"] = {"title": "plan", "tables": tables, "sentences": []}
    assert message(data, tmp_path, monkeypatch) == (
        "r.json: element 0 of tables of planning has rows of another length than its head"
    )


def test_nested_brackets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.json").write_text("[" * 100_000, "utf-8")
    with pytest.raises(
        ReportError, match=r"^r\.json is not a report: it is not JSON \(maximum rec"
    ):
        load("r.json")


def paths(item: object, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each part of JSON data."""
    parts = item.items() if isinstance(item, dict) else enumerate(item)  # type: ignore[arg-type]
    for key, part in parts:
        yield (*prefix, key)
        if isinstance(part, dict | list):
            yield from paths(part, (*prefix, key))


@pytest.mark.parametrize("seed", range(80))
def test_a_report_that_loads_can_be_shown(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    data: Any = contents(profiled=seed % 4 == 0)
    *above, last = draw.choice(list(paths(data)))
    item = data
    for key in above:
        item = item[key]
    item[last] = draw.choice(DAMAGES)
    try:
        found = load(write(data, tmp_path))
    except ReportError:
        return
    for show in (found.to_text, found.to_html, found.to_trace_events, found.to_model_explorer):
        assert show()
