"""A pass that violates its contract raises an error that names the pass."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardir.errors import NumbersError, PipelineError
from shardir.ir.module import Module
from shardir.passes.numerics_check import NumericsCheck
from shardir.passes.pipeline import PASSES, Pass, Pipeline
from shardir.text.parser import parse

TEXT = """\
func @f(
  %a: f32[4],
) -> (f32[4]) {
  %b = neg(%a) : f32[4]
  %c = exp(%b) : f32[4]
  return %c
}
"""


@pytest.fixture(autouse=True)
def restore_passes() -> Iterator[None]:
    """Remove the passes that the test registers."""
    before = dict(PASSES)
    yield
    PASSES.clear()
    PASSES.update(before)


def message(name: str, *, checked: bool = False) -> str:
    with pytest.raises((PipelineError, NumbersError)) as caught:
        Pipeline.parse(name)(parse(TEXT), NumericsCheck() if checked else None)
    return str(caught.value)


@pytest.mark.parametrize("checked", [False, True])
def test_a_pass_that_returns_none_is_an_error(checked: bool) -> None:
    class Forgets(Pass, name="forgets"):
        def __call__(self, module: Module) -> Module:
            return None  # type: ignore[return-value]

    assert message("forgets", checked=checked) == (
        "pass 'forgets' returned a NoneType, and a pass returns a module"
    )


def test_a_pass_without_a_call_method_is_an_error() -> None:
    class Empty(Pass, name="empty"):
        pass

    assert message("empty") == (
        "pass 'empty' does not define __call__; define it as a function from a module to a module"
    )


def test_the_error_of_a_pass_that_raises_names_it() -> None:
    class Divides(Pass, name="divides"):
        def __call__(self, module: Module) -> Module:
            raise ZeroDivisionError("by nothing")

    assert message("divides") == "pass 'divides' raised ZeroDivisionError: by nothing"


def test_a_pass_that_removes_a_used_definition_is_an_error() -> None:
    class Drops(Pass, name="drops"):
        def __call__(self, module: Module) -> Module:
            body = module.main.body
            body = replace(body, ops=body.ops[1:])
            return replace(module, functions=(replace(module.main, body=body),))

    said = message("drops", checked=True)
    assert said.startswith("pass 'drops' returned an invalid module: ")
    assert "%b" in said
