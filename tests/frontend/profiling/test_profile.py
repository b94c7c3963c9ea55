"""`profile`: rows per operation with source lines, the table, and the trace."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu import availability
from shardir.frontend.dispatch.programs import compilation
from shardir.frontend.errors import ArgumentError, NumberRangeError
from shardir.frontend.profiling.profile_data import _format_time
from shardir.frontend.profiling.trace_file import ProfilerError
from tests.error_assertions import error_line
from tests.process_control.threads import run_concurrently

HERE = Path(__file__).name


def line_of(text: str) -> str:
    """Return the line of this file that ends with a comment, in the form of a profile."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"# {text}"))
    return f"{HERE}:{number}"


@sd.jit
def step(x: sd.Array, w: sd.Array) -> tuple[sd.Array, sd.Array]:
    y = x @ w  # the product
    return y, jnp.sort(jnp.tanh(y), axis=0)  # the rest


def test_a_profile_has_a_row_for_each_operation(tmp_path: Path) -> None:
    x, w = jnp.ones((300, 200)), jnp.ones((200, 100))
    found = sd.profile(step, x, w, runs=3, trace=tmp_path / "trace.json")
    assert found.name == "step"
    assert len(found.runs) == 3
    rows = {row.name.rpartition("= ")[2].partition("(")[0]: row for row in found.rows}
    product = rows["dot"]
    assert product.where == line_of("the product")
    assert product.flops == 2 * 300 * 200 * 100
    assert product.memory == 4 * (300 * 200 + 200 * 100 + 300 * 100)
    assert product.executions == 1
    assert rows["sort"].where == line_of("the rest")
    assert all(0 < row.seconds < found.seconds for row in found.rows)
    assert all(0 <= row.busy <= 1.001 for row in found.rows)
    assert [row.seconds for row in found.rows] == sorted(row.seconds for row in found.rows)[::-1]
    assert 0 < found.outside < found.seconds
    assert found.first > 0


def test_the_table_is_readable() -> None:
    found = sd.profile(step, jnp.ones((30, 20)), jnp.ones((20, 10)), runs=2)
    lines = str(found).splitlines()
    assert re.fullmatch(
        r"profile of step: \S+ [mu]?s a call \(median of 2, minimum \S+ [mu]?s\); first call .*s",
        lines[0],
    )
    assert re.fullmatch(
        r"this machine: \d+ workers, copies \S+ GB/s, float32 arithmetic \S+ Gflop/s", lines[1]
    )
    head = next(i for i, line in enumerate(lines) if line.split()[:1] == ["time"])
    assert lines[head].split() == [
        *("time", "share", "GB/s", "Gflop/s", "of", "limit", "busy", "operation", "where")
    ]
    assert len(lines) == head + 2 + len(found.rows)
    assert lines[-1].endswith("between operations: Python, dispatch")


def test_operations_in_loops_count_iterations() -> None:
    def loop(x: sd.Array) -> sd.Array:
        y: sd.Array = sd.lax.fori_loop(0, 7, lambda i, y: jnp.sort(y), x)
        return y

    found = sd.profile(loop, jnp.ones(1000), runs=1)
    (row,) = (row for row in found.rows if row.name.endswith("sort"))
    assert row.executions == 7
    assert "sort x 7" in str(found)


def test_the_trace_shows_calls_operations_and_tasks(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    x, w = jnp.ones((300, 200)), jnp.ones((200, 100))
    found = sd.profile(step, x, w, runs=1, trace=path)
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"calls", "operations"} < set(tracks.values())
    spans = [event for event in events if event["ph"] == "X"]
    (call,) = (event for event in spans if tracks[event["tid"]] == "calls")
    assert (call["name"], call["ts"]) == ("step", 0)
    assert call["dur"] == pytest.approx(found.seconds * 1e6)
    assert all(0 <= e["ts"] <= e["ts"] + e["dur"] <= call["dur"] * 1.0001 for e in spans)
    operations = [event for event in spans if tracks[event["tid"]] == "operations"]
    (product,) = (event for event in operations if event["name"].endswith("dot"))
    assert product["args"]["where"] == line_of("the product")
    assert product["args"]["Gflop/s"] > 0
    tasks = [event for event in spans if "task" in event["args"]]
    assert {event["args"]["operation"] for event in tasks} == {e["name"] for e in operations}


def test_donated_arguments_are_copied_first() -> None:
    x = jnp.ones(100)
    add = sd.jit(lambda x: x + 1, donate_argnums=0)
    sd.profile(add, x, runs=2)
    assert not x.is_deleted()
    assert (x == 1).all()


def test_programs_of_several_devices_are_profiled(tmp_path: Path) -> None:
    with sd.cpu_devices(4):
        mesh = sd.make_mesh((4,), ("data",))
        x = sd.device_put(jnp.ones((64, 32)), sd.NamedSharding(mesh, sd.P("data")))
        found = sd.profile(lambda x: jnp.sort(x.T @ x), x, runs=1, trace=tmp_path / "trace.json")
    assert any(row.name.endswith("sort") for row in found.rows)
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    (sum_,) = (event for event in events if event.get("cat") == "collective")
    assert "(all-reduce " in sum_["name"]


def test_the_numpy_executor_is_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "there is none"
    monkeypatch.setattr(availability, "unavailable_reason", lambda: reason)
    monkeypatch.setattr("shardir.backends.numpy.profiling.unavailable_reason", lambda: reason)
    monkeypatch.setattr(compilation, "is_available", lambda: False)
    found = sd.profile(lambda x: jnp.tanh(x) * 3, jnp.ones(1000), runs=1)
    assert (found.workers, found.bandwidth, found.flops) == (None, None, None)
    assert {row.name.rpartition("= ")[2] for row in found.rows} >= {"tanh", "mul"}
    assert all(row.roofline_fraction is None for row in found.rows)
    assert "this machine" not in str(found)


@pytest.mark.parametrize("runs", [0, "3", 1.5, None, -1])
def test_the_number_of_runs_must_be_positive(runs: Any) -> None:
    expected = f"profile makes {runs!r} runs; pass at least 1"
    assert error_line(NumberRangeError, lambda: sd.profile(step, runs=runs)) == expected


def test_invalid_arguments_are_errors() -> None:
    wrong: Any = 5
    expected = "the trace of profile is a file's path, not 5"
    assert error_line(ArgumentError, lambda: sd.profile(step, trace=wrong)) == expected
    assert error_line(ArgumentError, lambda: sd.profile(wrong)) == "profile takes a function, got 5"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing/step.json", "No such file or directory"), ("", "Is a directory"),
     ("a\0b", "embedded null byte")],
)  # fmt: skip
def test_a_trace_that_cannot_be_written_is_an_error(tmp_path: Path, name: str, reason: str) -> None:
    path = str(tmp_path / name)
    expected = f"cannot write the trace to {path!r}: {reason}"
    with pytest.raises(ProfilerError, match=f"^{re.escape(expected)}\n"):
        sd.profile(jnp.negative, 1, runs=1, trace=path)


def test_threads_profile_concurrently() -> None:
    x, w = jnp.ones((30, 20)), jnp.ones((20, 10))
    found: list[sd.Profile] = []
    run_concurrently(lambda _: found.append(sd.profile(step, x, w)), range(4))
    for each in found:
        assert {row.name.rpartition("= ")[2] for row in each.rows} >= {"dot", "sort"}
        assert all(run.spans for run in each.runs)


def test_profiles_may_be_nested() -> None:
    x, w = jnp.ones((30, 20)), jnp.ones((20, 10))

    def inner(x: np.ndarray) -> np.ndarray:
        sd.profile(step, x, w)
        return x

    @sd.jit
    def outer(x: sd.Array) -> sd.Array:
        y = jnp.tanh(x)
        same: sd.Array = sd.pure_callback(inner, sd.ShapeDtypeStruct(y.shape, y.dtype), y)
        more: sd.Array = same + 1
        return more

    names = " ".join(row.name for row in sd.profile(outer, x).rows)
    assert all(name in names for name in ("tanh", "pure-callback", "add", "dot"))


def test_the_table_states_dropped_tasks() -> None:
    @sd.jit
    def many(x: sd.Array) -> sd.Array:
        result: sd.Array = sd.lax.fori_loop(0, 70_000, lambda _, x: x * 0.5 + 1, x)
        return result

    found = sd.profile(many, jnp.ones(10), runs=1)
    lost = found.runs[0].lost
    assert 70_000 - (1 << 16) <= lost < 10_000
    said = f"a call has too many tasks to record: its first {lost:,} are missing below"
    assert said in str(found).splitlines()
    assert "between operations: Python, dispatch, and missing tasks" in str(found)
    assert "missing" not in str(sd.profile(step, jnp.ones((3, 2)), jnp.ones((2, 1)), runs=1))


def test_errors_of_the_function_propagate() -> None:
    with pytest.raises(sd.ShardirError):
        sd.profile(step, jnp.ones((2, 3)), jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (45e-6, "45 us"), (3e-9, "3 ns"), (1234.0, "1234 s")],
)
def test_times_have_readable_units(seconds: float, text: str) -> None:
    assert _format_time(seconds) == text
