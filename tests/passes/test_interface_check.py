"""Passes of extensions keep the parameters and results of programs that are called."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import shardir as sd
from shardir.errors import PipelineError
from shardir.ir.module import Block, Module
from shardir.passes import PASSES, Pass, Pipeline
from shardir.text.parser import parse
from tests.frontend.cli.command import run

X, W = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
TEXT = """\
func @f(
  %x: f32[2, 3],
  %w: f32[3, 4],
) -> (f32[2, 4]) {
  %y = dot(%x, %w, dims="bi,ih->bh") : f32[2, 4]
  return %y
}
"""


@contextmanager
def changing(change: Callable[[Block], Block]) -> Iterator[None]:
    """Register a pass `change` that replaces the body of the function."""

    @dataclass(frozen=True)
    class Change(Pass, name="change"):
        def __call__(self, module: Module) -> Module:
            main = replace(module.main, body=change(module.main.body))
            return replace(module, functions=(main,))

    try:
        yield
    finally:
        del PASSES["change"]


@pytest.mark.parametrize("passes", ["change,default", "default,change"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda body: replace(body, params=body.params[::-1]),
            "changed the parameters of @multiply from (%x: f32[2, 3], %w: f32[3, 4]) to "
            "(%w: f32[3, 4], %x: f32[2, 3])",
        ),
        (
            lambda body: replace(body, returns=body.params[:1]),
            "changed the results of @multiply from (f32[2, 4]) to (f32[2, 3])",
        ),
    ],
)
def test_a_function_that_is_called_keeps_its_interface(
    change: Callable[[Block], Block], said: str, passes: str
) -> None:
    def multiply(x: sd.Array, w: sd.Array) -> sd.Array:
        return x @ w

    with changing(change), pytest.raises(PipelineError) as caught:
        sd.jit(multiply, passes=passes)(X, W)
    assert str(caught.value).splitlines()[0] == (
        f"pass 'change' {said}; the passes of a program that is called must keep them"
    )


def test_a_program_that_is_run_keeps_its_interface(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.ir").write_text(TEXT, "utf-8")
    with changing(lambda body: replace(body, params=body.params[::-1])):
        assert run("run", "f.ir", "--passes", "change") == 1
        assert run("opt", "f.ir", "--passes", "change") == 0
    assert capsys.readouterr().err.startswith("error: pass 'change' changed the parameters of @f ")


def test_a_pass_returns_a_function() -> None:
    """A module that has none may stay without one."""

    @dataclass(frozen=True)
    class Remove(Pass, name="remove"):
        def __call__(self, module: Module) -> Module:
            return replace(module, functions=())

    empty = replace(parse(TEXT), functions=())
    try:
        with pytest.raises(PipelineError) as caught:
            Pipeline.parse("remove")(parse(TEXT))
        assert Pipeline.parse("remove")(empty).functions == ()
    finally:
        del PASSES["remove"]
    assert str(caught.value) == "pass 'remove' returned a module without a function"


def test_a_pipeline_states_an_option_once() -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse("propagate{level=basic,level=aggressive}")
    assert str(caught.value) == "the pipeline states option 'level' of pass 'propagate' twice"
