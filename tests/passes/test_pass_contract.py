"""A pass that violates its contract raises an error that names the pass."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from shardir.errors import NumbersError, PipelineError
from shardir.ir.module import Module
from shardir.ir.operation import OPS
from shardir.passes.numerics_check import NumericsCheck
from shardir.passes.pipeline import PASSES, Pass, Pipeline
from shardir.plugins.entry_points import OWN_ORIGIN, PluginError
from shardir.plugins.registry import Registry
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


@pytest.mark.parametrize("entry", ["cse", int])
def test_an_entry_that_is_no_pass_class(entry: Any) -> None:
    with pytest.raises(PluginError, match=r"a pass is a subclass of shardir\.passes\.Pass$"):
        PASSES.register("other", entry)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cse{x=1}", "pass 'cse' has no option 'x'; it has keep"),
        (
            "cse{keep=all}",
            "option 'keep' of pass 'cse' cannot be 'all'; it is one of collectives",
        ),
        ("inline{x=1}", "pass 'inline' has no option 'x'; it has none"),
    ],
)
def test_options_that_a_pass_does_not_have(text: str, expected: str) -> None:
    assert message(text) == expected


@pytest.mark.parametrize(
    ("pipeline", "stage", "expected"),
    [
        ("cse,dce", "inline", "has no pass called 'inline'; it has cse, dce"),
        ("cse,dce", 3, "has no pass called 3; it has cse, dce"),
        ("cse,dce", np.ones(2), "has no pass called array([1., 1.]); it has cse, dce"),
        ("none", "cse", "has no pass called 'cse'; it has none"),
    ],
)
def test_stages_that_a_pipeline_does_not_have(pipeline: str, stage: Any, expected: str) -> None:
    passes = Pipeline.parse(pipeline)
    with pytest.raises(PipelineError) as caught:
        passes.through(stage)
    assert str(caught.value) == f"the pipeline {str(passes)!r} {expected}"


def test_a_name_that_resembles_that_of_a_pass() -> None:
    assert message("partitoin") == "no pass is called 'partitoin'; did you mean 'partition'?"


def test_a_pass_that_decides_between_programs_runs_later_passes_once() -> None:
    """`later` keeps the first operation and returns its result, with another operation for
    each option."""
    runs: list[tuple[str, Module]] = []

    @dataclass(frozen=True)
    class Later(Pass, name="later"):
        spec: str = "sin"

        def __call__(self, module: Module) -> Module:
            runs.append((self.spec, module))
            body = module.main.body
            last = replace(body.ops[-1], spec=OPS[self.spec])
            body = replace(body, ops=(*body.ops[:-1], last))
            return replace(module, functions=(replace(module.main, body=body),))

    class Decides(Pass, name="decides"):
        def __call__(self, module: Module) -> Module:
            body = module.main.body
            first = replace(body.ops[0], spec=OPS["cos"])
            other = replace(module.main, body=replace(body, ops=(first, *body.ops[1:])))
            chosen = replace(module, functions=(other,))
            for each in (module, chosen):
                Pipeline.parse("later{spec=tanh},later")(each)
            return chosen

    result = Pipeline.parse("decides,later")(parse(TEXT))
    assert [op.name for op in result.main.body.ops] == ["cos", "sin"]
    assert len(runs) == 5
    runs.clear()
    result = Pipeline.parse("decides,later{spec=tanh}")(parse(TEXT))
    assert [op.name for op in result.main.body.ops] == ["cos", "tanh"]
    assert len(runs) == 4


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


def test_a_pass_without_a_call_cannot_be_constructed() -> None:
    class Empty(Pass, name="empty"):
        pass

    with pytest.raises(TypeError, match="abstract class Empty"):
        Empty()  # type: ignore[abstract]


def test_a_pass_without_a_name() -> None:
    with pytest.raises(TypeError) as caught:

        class Nameless(Pass):
            def __call__(self, module: Module) -> Module:
                return module

    assert str(caught.value) == (
        'the pass class Nameless has no name; write class Nameless(Pass, name="a-name")'
    )


def test_the_step_none_stands_for_no_pass() -> None:
    assert str(Pipeline.parse("none")) == ""
    assert str(Pipeline.parse("none,cse")) == "cse"
    with pytest.raises(
        PipelineError, match="the step none stands for no pass and has no options, got 'x=1'"
    ):
        Pipeline.parse("none{x=1}")


@pytest.mark.parametrize("name", ["default", "none", "my pass", "a,b", ""])
def test_a_pass_that_no_pipeline_can_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"^pass '.*' cannot be defined: ") as caught:
        type("Unnamed", (Pass,), {}, name=name)
    assert str(caught.value) == (
        f"pass {name!r} cannot be defined: pipelines cannot name it; use letters, digits, _ and -, "
        "and another name than 'default' and 'none'"
    )


def test_options_of_a_module_with_postponed_annotations() -> None:
    code = """
from __future__ import annotations
from dataclasses import dataclass
from shardir.passes import Pass

@dataclass(frozen=True)
class Postponed(Pass, name="postponed"):
    limit: int = 3

    def __call__(self, module):
        return module
"""
    exec(compile(code, "mypass.py", "exec", dont_inherit=True), {"__name__": "shardir.passes"})
    assert str(Pipeline.parse("postponed{limit=4}")) == "postponed{limit=4}"
    assert message("postponed{limit=x}") == (
        "option 'limit' of pass 'postponed' cannot be 'x'; its type is int"
    )


def test_a_field_of_a_class_that_is_no_dataclass() -> None:
    class Plain(Pass, name="plain"):
        limit: int = 3

        def __call__(self, module: Module) -> Module:
            return module

    assert message("plain{limit=4}") == (
        "pass 'plain' has no option 'limit'; it has none; decorate the class with "
        "@dataclass(frozen=True) to make its fields options"
    )


def test_the_error_of_a_pass_that_raises_names_it() -> None:
    class Divides(Pass, name="divides"):
        def __call__(self, module: Module) -> Module:
            raise ZeroDivisionError("by nothing")

    line = Divides.__call__.__code__.co_firstlineno + 1
    assert message("divides") == (
        f"pass 'divides' raised ZeroDivisionError at {__file__}:{line}: by nothing"
    )


def test_a_pass_that_removes_a_used_definition_is_an_error() -> None:
    class Drops(Pass, name="drops"):
        def __call__(self, module: Module) -> Module:
            body = module.main.body
            body = replace(body, ops=body.ops[1:])
            return replace(module, functions=(replace(module.main, body=body),))

    expected = "pass 'drops' returned an invalid module: %b is not defined\n --> @f\n"
    assert message("drops", checked=True).startswith(expected)
    assert message("drops").startswith(expected)
    assert message("drops,propagate").startswith(expected)


@pytest.mark.parametrize(
    ("is_extension", "later"), [(False, "canonicalizes"), (True, "canonicalizes"), (True, "cse")]
)
def test_a_malformed_operation_is_an_error_of_the_pass_that_made_it(
    is_extension: bool, later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Miscasts(Pass, name="miscasts"):
        def __call__(self, module: Module) -> Module:
            body = module.main.body
            first = replace(body.ops[0], operands=("x",))  # type: ignore[arg-type]
            body = replace(body, ops=(first, *body.ops[1:]))
            return replace(module, functions=(replace(module.main, body=body),))

    class Canonicalizes(Pass, name="canonicalizes"):
        def __call__(self, module: Module) -> Module:
            for op in module.main.body.ops:
                assert all(value.type.rank for value in op.operands)
            return module

    if not is_extension:
        monkeypatch.setattr(Registry, "origin", lambda self, name: OWN_ORIGIN)
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse(f"miscasts,{later}")(parse(TEXT))
    assert str(caught.value).startswith("pass 'miscasts' returned an invalid module: ")
    assert caught.value.__notes__[0].startswith("while running 'miscasts' of the pipeline ")


@pytest.mark.parametrize(
    "step",
    [
        "collective-matmul", "combine-collectives", "overlap", "rematerialize-gathers",
        "remat{budget=1KiB}", "widen-reductions",
    ],
)  # fmt: skip
def test_passes_on_the_programs_of_devices_need_partitioned_programs(step: str) -> None:
    sharded = parse(f"mesh @m = [x=2]\n\n{TEXT.replace('%a: f32[4]', '%a: f32[4@x]')}")
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse(step)(sharded)
    assert str(caught.value) == (
        f"@f has not been partitioned, and {step.partition('{')[0]} needs the program of each "
        f"device; write default,{Pipeline.parse(step)}"
    )
    assert str(Pipeline.parse(step)(parse(TEXT))) == str(parse(TEXT))
