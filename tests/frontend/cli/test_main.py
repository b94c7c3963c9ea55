"""The command line: passes on text, programs on arrays, and errors without tracebacks."""

import io
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from shardir.frontend.cli.commands import analysis, planning, programs
from shardir.frontend.cli.commands.declaration import Command
from shardir.frontend.dispatch.stages.emission import MAX_SELFTEST_SECONDS
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE, STAGING_PIPELINE
from shardir.passes.simplify.dce import DeadCodeElimination
from shardir.text.parser import parse
from tests.frontend.cli.command import run

PROGRAM = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x, 3],
  %b: f32[3, 2],
) -> (f32[4, 2]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[4, 2]
  return %c
}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("f.ir").write_text(PROGRAM, encoding="utf-8")
    return "f.ir"


def test_opt_prints_stablehlo(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", file, "--passes", "propagate", "--to", "stablehlo") == 0

    out = capsys.readouterr().out
    assert "%b: tensor<3x2xf32> {sdy.sharding = #sdy.sharding<@m, [{}, {}]>}" in out
    assert '{sdy.sharding = #sdy.sharding_per_value<[<@m, [{"x"}, {}]>]>}' in out


def test_opt_prints_the_program_of_each_device_as_stablehlo(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("opt", file, "--to", "stablehlo") == 0

    out = capsys.readouterr().out
    assert out.startswith("module attributes {mhlo.num_replicas = 2 : i32} {\n")
    assert "%a: tensor<2x3xf32>" in out


def test_opt_names_the_pass_that_returns_an_invalid_module(
    file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(step: DeadCodeElimination, module: Module) -> Module:
        body = replace(module.main.body, ops=())
        return replace(module, functions=(replace(module.main, body=body),))

    monkeypatch.setattr(DeadCodeElimination, "__call__", drop)
    assert run("opt", file, "--passes", "dce,cse") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: pass 'dce' returned an invalid module: ")
    assert error.endswith("while running 'dce' of the pipeline 'dce,cse'\n")


def test_opt_prints_the_result_of_the_passes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", file, "--passes", "propagate") == 0

    assert (
        capsys.readouterr().out
        == """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x, 3@-],
  %b: f32[3@-, 2@-],
) -> (f32[4@x, 2@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[4@x, 2@-]
  return %c
}
"""
    )


def test_opt_runs_and_checks_the_default_pipeline(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("opt", file, "--verify", "--dump-dir", "stages") == 0

    assert parse(capsys.readouterr().out).main.spmd is not None
    names = ["traced", *(step.name for step in Pipeline.parse(DEFAULT_PIPELINE).passes)]
    assert sorted(path.name for path in Path("stages").iterdir()) == [
        f"{i:02}-{name}.ir" for i, name in enumerate(names)
    ]
    for path in Path("stages").iterdir():
        assert parse(path.read_text("utf-8")).main.name == "f"


def test_opt_prints_the_differences_between_passes(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("opt", file, "--diff", "dce", "--diff", "traced..propagate") == 0

    nothing, differing = capsys.readouterr().out.split("\n\n", 1)
    assert nothing == "no difference between 'after cse' and 'after dce'"
    assert differing.startswith("--- traced\n+++ after propagate{leave_open=true}\n")

    assert run("opt", file, "--diff", "partition", "--to", "stablehlo", "--locations") == 0
    assert '+    %c = "stablehlo.dot_general"(%a, %b)' in capsys.readouterr().out

    assert run("opt", file, "--diff", "fuse") == 1
    assert "has no pass called 'fuse'; it has propagate" in capsys.readouterr().err


def test_opt_reads_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PROGRAM))
    assert run("opt", "-", "--passes", "none") == 0

    assert capsys.readouterr().out == PROGRAM


@pytest.mark.parametrize(
    "passes",
    ["split-stages", "propagate,reshard,partition", f"{STAGING_PIPELINE},propagate,partition"],
)
def test_run_executes_a_pipeline_that_the_passes_leave(
    passes: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(
        """mesh @m = [pipe=2]

func @f(%w: f32[3, 3], %x: f32[4, 3]) -> (f32[]) {
  %loss = pipeline(%w, %x, microbatches=2, schedule="1f1b", axis="pipe", batched=[1]) : f32[] {
    (%w.1: f32[3, 3], %x.1: f32[2, 3]) =>
    %h = dot(%x.1, %w.1, dims="bi,ih->bh") : f32[2, 3]
    %h.1 = pipeline-stage(%h, stage=0) : f32[2, 3]
    %y = tanh(%h.1) : f32[2, 3]
    %y.1 = pipeline-stage(%y, stage=1) : f32[2, 3]
    %e = sum(%y.1, dims=[0, 1]) : f32[]
    yield %e
  }
  return %loss
}
""",
        "utf-8",
    )
    w, x = np.eye(3, dtype=np.float32), np.ones((4, 3), np.float32)
    np.save("w.npy", w)
    np.save("x.npy", x)
    assert run("run", file, "w.npy", "x.npy", "--passes", passes, "--save", "out") == 0
    assert capsys.readouterr().out.startswith("result 0: f32[]")
    assert np.load("out/0.npy") == pytest.approx(6 * np.tanh(1), rel=1e-6)


def test_run_reads_and_writes_files(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    b = np.ones((3, 2), np.float32)
    np.save("a.npy", a)
    np.save("b.npy", b)
    assert run("run", file, "a.npy", "b.npy", "--save", "out") == 0

    assert (
        capsys.readouterr().out
        == """\
result 0: f32[4@x, 2@-]
[[ 3.  3.]
 [12. 12.]
 [21. 21.]
 [30. 30.]]
"""
    )
    np.testing.assert_array_equal(np.load("out/0.npy"), a @ b)


@pytest.mark.parametrize("dtype", ["bf16", "f8e5m2", "i4", "c64"])
def test_run_reads_the_results_that_it_saved(
    dtype: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).write_text(f"func @f(%x: {dtype}[3]) -> ({dtype}[3]) {{\n  return %x\n}}\n", "utf-8")
    assert run("run", file, "--save", "out") == 0
    saved = capsys.readouterr().out
    assert run("run", file, "out/0.npy") == 0
    assert capsys.readouterr().out == saved


def test_run_draws_arguments_from_a_seed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert run("run", file, "--seed", seed) == 0
        texts.append(capsys.readouterr().out)

    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("opt", "no.ir"), "error: cannot read 'no.ir': No such file or directory\n"),
        (
            ("opt", "f.ir", "--passes", "propogate"),
            "error: no pass is called 'propogate'; did you mean 'propagate'?\n",
        ),
        (("run", "f.ir", "f.ir"), "error: @f takes 2 arguments (a, b), got 1 file\n"),
        (
            ("explain", "f.ir", "--function", "g"),
            "error: --function applies to --value, --what-if and --without only\n",
        ),
        (("run", "f.ir", "c.npy", "c.npy"), "error: %a is f32[4, 3], but 'c.npy' holds int64[3]\n"),
    ],
)
def test_an_error_is_a_message(
    file: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("c.npy", np.arange(3))
    assert run(*words) == 1

    assert capsys.readouterr().err == message


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("opt", "--help") == 0

    assert "shardir opt mlp.ir --passes propagate" in capsys.readouterr().out


TWO = """\
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.sine %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
// -----
func.func @g(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


def test_the_beginning_of_a_text_determines_its_format(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sine.mlir").write_text(f"// A sine.\n{TWO.partition('// -----')[0]}", "utf-8")
    assert run("opt", "sine.mlir", "--passes", "none") == 0
    text = capsys.readouterr().out
    assert "%y = sin(%x) : f32[4]" in text
    stablehlo, mesh = Path("sine.mlir").read_text("utf-8"), f"mesh @m = [a=2]\n{text}"
    for name, source in (("printed.mlir", text), ("mesh.mlir", mesh), ("sine.ir", stablehlo)):
        Path(name).write_text(source, "utf-8")
        assert run("opt", name, "--passes", "none") == 0
        assert text in capsys.readouterr().out
    Path("lowered.txt").write_text(stablehlo, "utf-8")
    assert run("opt", "lowered.txt", "--passes", "none") == 0
    assert capsys.readouterr().out == text
    wrong = {"no.mlir": "a module may contain only meshes and functions", "no.ir": "unexpected 'x'"}
    for name, message in wrong.items():
        Path(name).write_text("x", "utf-8")
        assert run("opt", name) == 1
        assert capsys.readouterr().err.startswith(f"error: {message}")


def test_opt_reads_each_module_of_a_stablehlo_file(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.mlir").write_text(TWO, encoding="utf-8")
    assert run("opt", "two.mlir", "--passes", "none") == 0

    out, err = capsys.readouterr()
    assert (
        out
        == """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %y = sin(%x) : f32[4]
  return %y
}

// -----

func @g(
  %x: f32[4],
) -> (f32[4]) {
  %y = opaque(%x, operation="stablehlo.custom_call @mine", head="stablehlo.custom_call @mine(%)", \
attributes="", types=": (tensor<4xf32>) -> tensor<4xf32>") : f32[4]
  return %y
}
"""
    )
    assert err == (
        "warning: stablehlo.custom_call @mine is not supported (two.mlir:7); passes keep it "
        "unchanged, and it cannot run\n"
    )


def test_opt_reads_stablehlo_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TWO.partition("//")[0]))
    assert run("opt", "-", "--to", "stablehlo", "--passes", "dce") == 0

    assert '%y = "stablehlo.sine"(%x) : (tensor<4xf32>) -> (tensor<4xf32>)' in (
        capsys.readouterr().out
    )


def test_only_opt_accepts_files_of_several_modules(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("two.mlir").write_text(TWO, encoding="utf-8")
    assert run("run", "two.mlir") == 1

    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: two.mlir has 2 modules, one after each // -----; only opt takes several"
    )


def test_execution_of_opaque_text_operations_is_an_error(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("one.mlir").write_text(TWO.partition("// -----\n")[2], "utf-8")
    assert run("run", "one.mlir") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: stablehlo.custom_call @mine at one.mlir:2 is not supported and cannot run; "
        "replace it with supported operations of StableHLO"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        *(
            [command, "--help"]
            for command in (
                *("as-jax", "calibrate", "draw", "emit", "explain", "opt", "passes"),
                *("pipeline-schedule", "profile", "run", "simulate", "solve", "test"),
            )
        ),
    ],
    ids=" ".join,
)
def test_help_imports_no_compiler(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from shardir.cli import main\n"
        f"sys.argv = ['shardir', *{words}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code\n"
        "slow = {'lark', 'llvmlite', 'ml_dtypes', 'networkx', 'numpy', 'optree', 'pydantic',"
        " 'rich', 'shardir.backends', 'shardir.ir', 'shardir.passes'}\n"
        "print(*slow & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "\n"
    assert done.stdout.startswith(("Usage: shardir", "shardir "))


def test_the_help_of_emit_states_the_default_time_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("emit", "--help") == 0

    assert f"(default: {MAX_SELFTEST_SECONDS:g})" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [each for module in (analysis, planning, programs) for each in vars(module).values()
     if isinstance(each, Command)],
    ids=lambda command: command.name,
)  # fmt: skip
def test_options_of_a_command_are_those_of_its_implementation(command: Command) -> None:
    module, _, function = command.implementation.partition(":")
    implementation = getattr(import_module(f"shardir.frontend.cli.{module}"), function)

    assert {*signature(implementation).parameters, "load"} == {*signature(command.run).parameters}
