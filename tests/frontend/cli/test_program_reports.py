"""`shardir explain` writes reports."""

import json
from pathlib import Path

import pytest

from shardir.report import load
from tests.frontend.cli.command import run
from tests.passes.explain.programs import MLP

MLIR = """\
module @m {
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func public @main(
      %x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
      %w: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}
  ) -> tensor<8x32xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
    return %0 : tensor<8x32xf32>
  }
}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp.ir").write_text(MLP, "utf-8")
    Path("model.mlir").write_text(MLIR, "utf-8")


def test_a_page_is_written_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "mlp.ir", "--html", "mlp.html") == 0
    assert capsys.readouterr() == ("mlp.html\n", "")
    found = load("mlp.html")
    assert run("explain", "mlp.ir", "--to", "text") == 0
    assert capsys.readouterr().out == found.to_text()
    assert run("explain", "mlp.ir", "--to", "json") == 0
    assert capsys.readouterr().out == found.to_json()


def test_stablehlo_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "model.mlir", "--html", "model.html", "--to", "trace-events") == 0
    out, err = capsys.readouterr()
    assert err.endswith("\nmodel.html\n")
    events = json.loads(out)["traceEvents"]
    assert {event["name"] for event in events} >= {"dot %0.partial", "all-reduce %0"}
    data = load("model.html").data
    (row,) = data.collectives
    assert (row.kind, row.axes) == ("all-reduce", "model")
    assert row.location is not None
    assert (data.files[row.location[0]].name, row.location[1]) == ("model.mlir", 7)
    assert data.files[0].text == MLIR
    assert [str(data.annotations[n]) for n in row.annotations] == [
        "argument %w: f32[16@model, 32@-]"
    ]


def test_a_page_and_an_explanation_are_both_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "mlp.ir", "--html", "mlp.html", "--value", "%h") == 0
    out = capsys.readouterr().out
    assert out.startswith("mlp.html\n%h: f32[64@data, 256@model]")


def test_other_names_of_pages_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "mlp.ir", "--html", "mlp.json") == 1
    assert capsys.readouterr().err == (
        "error: --html writes a page, and 'mlp.json' does not end with .html\n"
    )
