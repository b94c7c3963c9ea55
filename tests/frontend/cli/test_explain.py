"""Explanations on the command line and of lowered programs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir.sharding import NamedSharding, PartitionSpec
from tests.frontend.cli import command
from tests.passes.explain.programs import MLP

HERE = Path(__file__)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("mlp.ir").write_text(MLP, encoding="utf-8")
    return "mlp.ir"


def run(*words: str) -> int:
    """Return the exit status of `shardir explain words...`."""
    return command.run("explain", *words)


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ((), "9 of 9 tensors sharded"),
        (("--value", "%h"), "%h: f32[64@data, 256@model]  mlp.ir:12"),
        (
            ("--conflicts",),
            "operation  factor  kept                given up  because        collectives",
        ),
        (("--what-if", "%w1: f32[128@model, 256]"), "%w1: f32[128@model, 256]"),
        (("--without", "%w1"), "without %w1"),
        (("--order",), "no sharding depends on the order of the work list"),
        (("--coverage",), "0 operations without a factor rule"),
        (("--propagation-edges",), "module {"),
    ],
)
def test_every_flag_prints_its_explanation(
    file: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], first: str
) -> None:
    assert run(file, *words) == 0

    assert capsys.readouterr().out.splitlines()[0] == first


def test_several_flags_print_in_order(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "--value", "h", "--value", "y", "--order") == 0

    out = capsys.readouterr().out
    assert out.index("%h: f32") < out.index("%y: f32") < out.index("no sharding depends")


def test_the_propagation_can_be_chosen(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "--value", "y", "--passes", "propagate{level=basic}") == 0
    assert capsys.readouterr().out.startswith("%y: f32[64@-, 128@-]")

    assert run(file, "--passes", "cse") == 1
    assert capsys.readouterr().err == (
        "error: the pipeline 'cse' has no pass called 'propagate', so there are no decisions to "
        "explain; extend the default pipeline, as in default,PASS\n"
    )


def test_an_unknown_name_prints_one_line(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "--value", "%w3") == 1

    assert capsys.readouterr().err == "error: @mlp has no value called '%w3'; did you mean '%w2'?\n"


def lower_mlp() -> shardir.Lowered:
    mesh = shardir.make_mesh((2, 4), ("data", "model"))

    def mlp(x: shardir.Array, w1: shardir.Array, w2: shardir.Array) -> shardir.Array:
        h: shardir.Array = jnp.tanh(x @ w1)
        y: shardir.Array = h @ w2
        return y

    def struct(shape: tuple[int, ...], *axes: str | None) -> shardir.ShapeDtypeStruct:
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        return shardir.ShapeDtypeStruct(shape, np.float32, sharding=sharding)

    return shardir.jit(mlp).lower(
        struct((64, 128), "data"),
        struct((128, 256), None, "model"),
        struct((256, 128), None, "data"),
    )


def test_lowered_programs_refer_to_source_lines() -> None:
    told = lower_mlp().explain("h")

    lines = HERE.read_text(encoding="utf-8").splitlines()
    chain = told.chains[0]
    assert chain.annotation.loc is not None
    assert "def mlp" in lines[chain.annotation.loc.line - 1]
    assert told.loc is not None
    assert "h: shardir.Array = jnp.tanh" in lines[told.loc.line - 1]
    assert {link.loc.line for link in chain.links if link.loc} == {told.loc.line}
    assert HERE.samefile(told.loc.file)


def test_lowered_programs_have_every_explanation() -> None:
    program = lower_mlp()

    (row,) = program.conflicts().rows
    assert (row.kept.value, row.given_up.value) == ("%w2", "%h")
    assert program.what_if("%w2: f32[256, 128]").after.count == 1
    assert program.what_if(without=["%w2"]).after.count == 1
    assert program.order_sensitive().rows == ()
    assert program.coverage().unruled == ()


def test_compilation_without_explanations_records_nothing() -> None:
    code = (
        "import sys, shardir.frontend.dispatch.stages.stages, shardir.frontend.cli.main\n"
        "assert 'shardir.passes.explain' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


HLO = """\
HloModule jit_f, num_partitions=4

ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] all-reduce(x), metadata={op_name="sum" source_file="train.py" source_line=4}
}
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--conflicts",),
            "--conflicts is for programs of shardir, and 'after.txt' is HLO text of XLA; only "
            "--mesh, --program and --rule apply to it",
        ),
        (
            ("--html", "page.html"),
            "--html is for programs of shardir, and 'after.txt' is HLO text of XLA; only --mesh, "
            "--program and --rule apply to it",
        ),
        (("--args", "m:f"), "--args is for the function that --program names"),
        (
            ("--program", "after.txt"),
            "'after.txt' is HLO text; --program takes the text that XLA received, StableHLO with "
            "shardings: jax.jit(f).lower(...).as_text(debug_info=True)",
        ),
        (
            ("--mesh", "x=3"),
            "the mesh x=3 has 3 devices, and the module jit_f runs on 4; use the mesh with which "
            "XLA compiled it",
        ),
        (
            ("--program", "mlp.ir", "--mesh", "x=4"),
            "--mesh is for functions, and 'mlp.ir' is a file; name a function as "
            "mymodule:train_step",
        ),
    ],
)
def test_options_that_hlo_text_does_not_take_are_refused(
    words: tuple[str, ...], message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("after.txt").write_text(HLO, encoding="utf-8")
    assert run("after.txt", *words) == 1
    assert capsys.readouterr().err == f"error: {message}\n"


SINE = """sdy.mesh @m = <["a"=2]>
func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}]>}) -> tensor<8xf32> {
  %y = stablehlo.sine %x : tensor<8xf32>LOC
  return %y : tensor<8xf32>
}
"""


@pytest.mark.parametrize(
    ("loc", "note"),
    [
        (' loc("model.py":3:4)', ""),
        (
            "",
            "note: sine.mlir has no locations of the source; "
            "jax.jit(f).lower(...).as_text(debug_info=True) writes them\n",
        ),
    ],
)
def test_stablehlo_without_locations_is_noted(
    file: str, capsys: pytest.CaptureFixture[str], loc: str, note: str
) -> None:
    del file
    Path("sine.mlir").write_text(SINE.replace("LOC", loc), encoding="utf-8")
    assert run("sine.mlir") == 0
    assert capsys.readouterr().err == note


def test_bytecode_is_read_through_jaxlib(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    del file
    stablehlo = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")
    text = SINE.replace("LOC", "").replace(' {sdy.sharding = #sdy.sharding<@m, [{"a"}]>}', "")
    data = stablehlo.serialize_portable_artifact_str(
        text.partition("\n")[2], stablehlo.get_current_version()
    )
    Path("sine.mlirbc").write_bytes(data)
    assert command.run("opt", "sine.mlirbc", "--passes", "propagate") == 0
    assert "= sin(%arg0) : f32[8]" in capsys.readouterr().out
    Path("sine.mlirbc").write_bytes(data[:7])
    assert command.run("opt", "sine.mlirbc", "--passes", "propagate") == 1
    told = capsys.readouterr().err
    assert told.startswith("error: jaxlib cannot read the bytecode sine.mlirbc: ")
    assert told.endswith(
        "; write it with the installed version of JAX, or as text (as_text() in JAX)\n"
    )
