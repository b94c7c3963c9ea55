"""Former names of passes: the same pass, a warning that states the current name, and no dumps."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shardir import ShapeDtypeStruct, jit, parse
from shardir.errors import PipelineError
from shardir.passes import PASSES, Pass, Pipeline
from shardir.passes.dump import Dump
from shardir.passes.pass_aliases import FORMER_NAMES
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE

TEXT = """
mesh @m = [data=2]

func @main(%x: f32[4@data]) -> (f32[4@data]) {
  %y = neg(%x) : f32[4@data]
  return %y
}
"""


def warning_of(former: str) -> str:
    current = FORMER_NAMES[former]
    return (
        f"the pass {former!r} is now called {current!r}; write {current!r}, "
        "the former name will be removed in the next version"
    )


@pytest.mark.parametrize("former", FORMER_NAMES)
def test_a_former_name_is_the_same_pass(former: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(warning_of(former))}$") as caught:
        pipeline = Pipeline.parse(former)
    assert caught[0].filename == __file__
    assert pipeline == Pipeline.parse(FORMER_NAMES[former])
    assert type(pipeline.passes[0]) is PASSES[FORMER_NAMES[former]]
    assert str(pipeline) == FORMER_NAMES[former]


def test_options_of_a_former_name_are_read() -> None:
    with pytest.warns(DeprecationWarning, match="combine-collectives"):
        pipeline = Pipeline.parse("combine{limit=8}")
    assert str(pipeline) == "combine-collectives{limit=8}"


def test_former_names_are_not_names_of_passes() -> None:
    assert not set(FORMER_NAMES) & set(PASSES)
    assert set(FORMER_NAMES.values()) <= set(PASSES)


def test_a_pass_cannot_take_a_former_name() -> None:
    message = "^pass 'regather' cannot be defined: this is the former name of "
    with pytest.raises(ValueError, match=message):
        type("Again", (Pass,), {}, name="regather")


@pytest.mark.parametrize("pipeline", [DEFAULT_PIPELINE, SHARDY_PIPELINE])
def test_pipelines_of_the_package_have_current_names(pipeline: str) -> None:
    assert str(Pipeline.parse(pipeline)) == pipeline


def test_a_stage_is_found_by_its_former_name() -> None:
    pipeline = Pipeline.parse(DEFAULT_PIPELINE)
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(warning_of('delay-sums'))}$"):
        former = pipeline.through("delay-sums")
    assert former == pipeline.through("sink-reductions")


def test_errors_list_current_names() -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse("no-such-pass-of-any-name")
    assert "sink-reductions" in str(caught.value)
    assert not [name for name in FORMER_NAMES if f" {name}," in str(caught.value)]


def test_dumps_have_current_names(tmp_path: Path) -> None:
    module = parse(TEXT)
    with pytest.warns(DeprecationWarning, match="merge-shifts"):
        Pipeline.parse("propagate,join-moves")(module, Dump(tmp_path, module))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00-traced.ir",
        "01-propagate.ir",
        "02-merge-shifts.ir",
    ]
    text = (tmp_path / "02-merge-shifts.ir").read_text("utf-8")
    assert text.startswith("// after merge-shifts, ")


def test_the_command_line_prints_the_warning() -> None:
    command = [sys.executable, "-m", "shardir", "opt", "-", "--passes", "propagate,delay-sums"]
    done = subprocess.run(command, input=TEXT, capture_output=True, text=True, check=True)
    assert done.stderr == f"warning: {warning_of('delay-sums')}\n"
    assert "%y = neg(%x)" in done.stdout


def test_a_compiled_function_has_a_stage_by_its_former_name() -> None:
    compiled = jit(lambda x: x + 1).lower(ShapeDtypeStruct((4,), "float32")).compile()
    with pytest.warns(
        DeprecationWarning, match=f"^{re.escape(warning_of('fold-sums'))}$"
    ) as caught:
        former = compiled.as_text("fold-sums")
    assert caught[0].filename == __file__
    assert former == compiled.as_text("fold-reductions")
