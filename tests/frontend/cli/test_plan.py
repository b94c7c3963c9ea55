"""`shardir plan` finds shardings of the arguments of a function."""

from pathlib import Path

import pytest

from tests.frontend.cli.command import run

FUNCTION = """\
import numpy as np

import shardir
import shardir.numpy as jnp


def step(w, x):
    h = jnp.tanh(x @ w)
    return w - 0.1 * jnp.einsum("bi,bj->ij", x, h), jnp.sum(h)


def example_args():
    return tuple(shardir.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 64), (512, 64)))


def columns():
    return shardir.P(), shardir.P(None, "data")
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planned_program.py").write_text(FUNCTION, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "planned_program:step", "--mesh", "4", "--bound") == 0
    assert capsys.readouterr().out == (
        "plan of @step for data=4, the best of 7 candidates\n"
        "\n"
        "argument  sharding\n"
        "%w        f32[64, 64@data]\n"
        "%x        f32[512, 64]\n"
        "\n"
        "plan           flops      sent      collectives  peak memory\n"
        "plan           2,097,152  6 B       1            196.0 KiB\n"
        "replicated     8,388,608  0 B       0            400.0 KiB\n"
        "data parallel  2,097,152  24.0 KiB  2            112.0 KiB\n"
        "\n"
        "collective  axes  executions  sent\n"
        "all-reduce  data  1           6 B\n"
        "\n"
        "decisions, by their effect:\n"
        "  dimension 1 of %w over data; without it: flops +300.0%, sent bytes -100.0%, "
        "peak memory +104.1%\n"
        "\n"
        "plan of @step  flops      sent\n"
        "plan           2,097,152  6 B\n"
        "lower bound    2,097,152  6 B\n"
        "gap            0.0%       0.0%\n"
    )


def test_options_of_plans(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "planned_program:step", "--devices", "4", "--machine", "a100x8"]
    assert run(*words, "--pareto", "--why-not", "%w: f32[64, 64@model]") == 0
    out = capsys.readouterr().out
    assert out.startswith("plan            time")
    assert "%w: f32[64, 64@model]" in out
    assert "candidate 1" in out


def test_kept_shardings_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "planned_program:step", "--devices", "2", "--specs", "columns", "--keep"]
    assert run(*words, "--bound", "--pareto", "--why-not", "%w: f32[64@model, 64]") == 0
    out = capsys.readouterr().out
    # The kept axis `data` has size 1, and a constraint shards the rows of the product over `model`.
    assert out.count("%x        f32[512, 64]\n") == 1
    assert out.count("%0          f32[512, 64@model]") == 1
    headings = [
        "plan            flops",
        "plan of @step for data=1, model=2",
        "plan of @step  flops",
    ]
    headings += ["plan         flops", "plan                   flops"]
    assert sorted(headings, key=out.index) == headings


def test_a_plan_is_printed_before_the_error_of_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["plan", "planned_program:step", "--mesh", "4", "--why-not", "%w: f32[64@model, 64]"]
    assert run(*words) == 1
    found = capsys.readouterr()
    assert found.out.startswith("plan of @step for data=4, the best of 7 candidates\n")
    assert found.err == (
        "error: mesh @mesh has no axis called 'model'; it has data\n"
        " --> <annotation>:1:12\n"
        "  |\n"
        "1 | %w: f32[64@model, 64]\n"
        "  |            ^^^^^\n"
    )


def test_meshes_without_a_plan_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "planned_program:step", "--devices", "6", "--memory"]
    assert run(*words, "200KiB") == 0
    out = capsys.readouterr().out
    # Only the 6 devices of one axis divide a dimension of 64 into uneven parts that fit.
    assert "plan of @step for data=6, model=1" in out
    assert out.count("\n\ndata=3,model=2: no plan fits into 200.0 KiB on each device") == 1
    assert run(*words, "1KiB") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: no mesh has a plan\ndata=6,model=1: no plan fits into 1.0 KiB")


def test_a_mesh_that_does_not_divide_a_stated_sharding_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("plan", "planned_program:step", "--devices", "3", "--specs", "columns") == 0
    out = capsys.readouterr().out
    assert out.startswith("plan of @step for data=1, model=3")
    reason = "the sharding of the argument %x of plan shards dimension 1, of size 64, into 3 parts"
    assert out.count(f"\n\ndata=3,model=1: {reason}; ") == 1


@pytest.mark.parametrize(
    ("form", "text"), [("jax", "in_specs = (P(None, 'data'), P())"), ("ir", "f32[64@-, 64@data]"),
                       ("sdy", "sdy.mesh @mesh")]
)  # fmt: skip
def test_plans_are_exported(form: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "planned_program:step", "--mesh", "data=4", "--export", form) == 0
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the mesh with --mesh, or the number of devices with --devices"),
        (
            ["--mesh", "4", "--devices", "4"],
            "--mesh and --devices exclude each other; --devices tries meshes",
        ),
        (
            ["--mesh", "4", "--export", "jax", "--pareto"],
            "--export prints a program or code only; use --pareto, --bound and --why-not without "
            "it",
        ),
        (
            ["--mesh", "4", "--keep"],
            "--keep keeps the shardings of arguments, and none has a sharding; state shardings "
            "with --specs",
        ),
        (["--mesh", "data=0"], "'data=0' is not a mesh; write it as data=16,model=16"),
        (["--mesh", "4", "--memory", "lots"], "'lots' is not a memory size"),
        (
            ["--mesh", "4", "--batch", "q"],
            "batch of plan has 'q', which is not an argument of step",
        ),
        (["--mesh", "4", "--memory", "1KiB"], "no plan fits into 1.0 KiB on each device"),
    ],
)
def test_wrong_options(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", "planned_program:step", *words) == 1
    assert message in capsys.readouterr().err
