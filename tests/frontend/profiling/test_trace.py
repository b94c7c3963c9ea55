"""Traces of all programs during a time, with annotations of the user."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import profiler
from shardir.frontend.errors import ArgumentError
from shardir.frontend.profiling.trace_file import ProfilerError


def events(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Return the events with a duration of the only file that the pattern finds."""
    (path,) = folder.glob(f"plugins/profile/*/{pattern}")
    document = json.loads(gzip.decompress(path.read_bytes()))
    return [each for each in document["traceEvents"] if each["ph"] == "X"]


def test_a_trace_shows_operations_and_annotations(tmp_path: Path) -> None:
    step = sd.jit(lambda x: snp.sin(x) @ x)
    x = np.ones((64, 64), "f")

    @profiler.annotate_function
    def evaluate() -> Any:
        return step(x)

    step(x)
    with profiler.trace(tmp_path, create_perfetto_trace=True):
        assert profiler.TraceAnnotation.is_enabled()
        for number in range(2):
            with profiler.StepTraceAnnotation("train", step_num=number):
                step(x)
        evaluate()
    assert not profiler.TraceAnnotation.is_enabled()
    found = events(tmp_path, "*.trace.json.gz")
    assert found == events(tmp_path, "perfetto_trace.json.gz")
    annotations = [each for each in found if each["cat"] == "annotations"]
    assert [each["args"] for each in annotations] == [{"step_num": 0}, {"step_num": 1}, {}]
    assert annotations[0]["name"] == "train"
    assert annotations[2]["name"].endswith("evaluate")
    operations = [each for each in found if each["cat"] == "operation"]
    assert sum("dot" in each["name"] for each in operations) == 3
    for each in annotations:
        inside = [x for x in operations if each["ts"] <= x["ts"] <= each["ts"] + each["dur"]]
        assert inside


def test_annotations_have_no_effect_without_a_trace() -> None:
    assert profiler.annotate_function(lambda x: x + 1, name="next")(2) == 3


def test_errors_of_traces(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"^stop_trace is called while no trace is running; "):
        profiler.stop_trace()
    profiler.start_trace(tmp_path)
    with pytest.raises(ProfilerError, match=r"^start_trace is called while a trace into "):
        profiler.start_trace(tmp_path)
    profiler.stop_trace()
    with pytest.raises(ArgumentError, match=r"^start_trace does not serve files to Perfetto; "):
        profiler.start_trace(tmp_path, create_perfetto_link=True)
    options: Any = object()
    with pytest.raises(ArgumentError, match=r"^start_trace has no profiler_options: "):
        profiler.start_trace(tmp_path, profiler_options=options)


def test_a_trace_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    profiler.start_trace(tmp_path / "file")
    with pytest.raises(ProfilerError, match=r"^cannot write the trace to '.*': Not a directory\n"):
        profiler.stop_trace()
    profiler.start_trace(tmp_path)
    profiler.stop_trace()
