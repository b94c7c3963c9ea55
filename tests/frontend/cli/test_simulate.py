"""`shardir simulate` predicts the time of a program on a machine."""

import json
from pathlib import Path

import pytest

from shardir.report import load
from tests.frontend.cli.command import run
from tests.passes.explain.programs import MLP

FUNCTION = """\
import numpy as np

import shardir
import shardir.numpy as jnp
from shardir.sharding import PartitionSpec as P


def step(w, x):
    h = jnp.tanh(x @ w)
    return w - 0.1 * jnp.einsum("bi,bj->ij", x, h), jnp.sum(h)


def example_args():
    return tuple(shardir.ShapeDtypeStruct(shape, np.float32) for shape in ((512, 512), (1024, 512)))


example_specs = (P(None, "model"), P("data"))
"""

JAX_FUNCTION = """\
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec


def step(w, x):
    return jnp.tanh(x @ w)


example_args = tuple(jax.ShapeDtypeStruct(shape, "float32") for shape in ((512, 512), (64, 512)))
example_specs = (PartitionSpec(None, "model"), PartitionSpec("data"))
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mlp.ir").write_text(MLP, "utf-8")


def test_a_file_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "mlp.ir", "--machine", "a100x8", "--memory", "40GiB") == 0
    text = capsys.readouterr().out
    assert text.startswith("one step of @mlp on a100x8, 8 devices: ")
    assert "\n  matrix products " in text
    assert "\n  model " in text
    assert "\n  mlp.ir:13     temporaries  16.0 KiB  %y.partial\n" in text
    assert text.endswith("\nthe program fits into 40.0 GiB: 40.0 GiB free\n")


def test_a_function_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    Path("simulated_step.py").write_text(FUNCTION, "utf-8")
    options = ("--mesh", "data=64,model=8", "--machine", "a100x8")
    assert run("simulate", "simulated_step:step", *options) == 0
    text = capsys.readouterr().out
    assert text.startswith("one step of @step on a100x8, 512 devices: ")
    # A shard of the weights: 512 * 64 * 4 bytes.
    assert "\n  parameters   128.0 KiB\n" in text
    assert run("simulate", "simulated_step:step", *options, "--target", "gpu") == 0
    assert run("simulate", "simulated_step:step", *options, "--passes", "default,overlap") == 0


def test_a_function_of_jax_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    Path("simulated_jax.py").write_text(JAX_FUNCTION, "utf-8")
    options = ("--mesh", "data=4,model=2", "--machine", "a100x8")
    assert run("simulate", "simulated_jax:step", *options) == 0
    assert capsys.readouterr().out.startswith("one step of @step on a100x8, 8 devices: ")


def test_trace_events_have_a_lane_for_each_axis(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "mlp.ir", "--machine", "a100x8", "--to", "trace-events") == 0
    events = json.loads(capsys.readouterr().out)["traceEvents"]
    lanes = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert lanes == ["compute", "data", "model"]
    boxes = [(event["name"], event["tid"]) for event in events if event["ph"] == "X"]
    assert ("dot %a", 0) in boxes
    assert ("all-gather %h.sharded", 1) in boxes or ("all-reduce %y", 2) in boxes
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert run("simulate", "mlp.ir", "--machine", "a100x8") == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f" {max(ends):.4g} us")


def test_the_page_of_a_program_shows_its_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "mlp.ir", "--machine", "a100x8", "--html", "mlp.html") == 0
    page, title, *_ = capsys.readouterr().out.splitlines()
    assert page == "mlp.html"
    report = load("mlp.html")
    assert report.data.simulation is not None
    names = [[row[0] for row in table.rows] for table in report.data.simulation.tables]
    assert names[0] == [
        "computation", "  matrix products", "  elementwise", "exposed communication", "bubbles",
    ]  # fmt: skip
    assert not any(name.startswith(" ") for column in names[1:] for name in column)
    record = report.data.simulation
    assert record is not None
    assert record.title == title
    heads = [table.head[0] for table in record.tables]
    assert heads == [
        "part", "communication along", "collectives", "memory by kind", "memory by line",
    ]  # fmt: skip
    assert title in report.to_text()


def test_wrong_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "mlp.ir", "--machine", "a100x8", "--memory", "80 apples") == 1
    assert capsys.readouterr().err == (
        "error: '80 apples' is not a memory size; write it as 80GiB, 80GB or 80e9\n"
    )
    assert run("simulate", "mlp.ir", "--machine", "a100x8", "--link", "model") == 1
    assert capsys.readouterr().err == (
        "error: 'model' does not name the link of an axis; write it as model=nvlink\n"
    )
