"""Passes between propagation and partitioning that change values, operations and functions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from shardir.errors import PartitionError
from shardir.ir.module import Module
from shardir.passes import Propagate
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.explanation import explanation, find_value
from shardir.passes.explain.order_sensitivity import order_sensitivity_of
from shardir.passes.explain.propagated_program import PropagatedProgram, propagate_with_history
from shardir.passes.pipeline import PASSES, Pass
from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.passes.explain.programs import FRAGILE, program


@dataclass(frozen=True)
class EditText(Pass, name="edit-text"):
    """Replace what matches `pattern` in the text of a program."""

    pattern: str = ""
    replacement: str = ""

    def __call__(self, module: Module) -> Module:
        return parse(re.sub(self.pattern, self.replacement, print_module(module)))


class Refuse(Pass, name="refuse"):
    def __call__(self, module: Module) -> Module:
        raise PartitionError("this program cannot be partitioned")


PASSES_OF_TESTS = {name: PASSES.pop(name) for name in ("edit-text", "refuse")}
"""Other tests check all passes that are registered."""


@pytest.fixture(autouse=True)
def register_passes() -> Iterator[None]:
    PASSES.update(PASSES_OF_TESTS)
    yield
    for name in PASSES_OF_TESTS:
        del PASSES[name]


def decide(text: str, pattern: str, replacement: str) -> PropagatedProgram:
    edit = EditText(pattern, replacement)
    return propagate_with_history(parse(text), ExplainedPipeline((), Propagate(), (edit,), ()), {})


NEGATIVE = program("%x: f32[8@a]", "f32[8]", "%v = neg(%x) : f32[8]", "%w = neg(%x) : f32[8]",
                   "return %w")  # fmt: skip


def test_a_pass_that_adds_a_function() -> None:
    other = "func @g(%z: f32[4]) -> (f32[4]) {\n  return %z\n}\n"
    run = decide(NEGATIVE, r"\Z", other)
    assert [function.name for function in run.decided.functions] == ["f", "g"]
    assert list(run.histories) == ["f"]
    assert run.history().changes_of("v") == ()


def test_a_pass_that_makes_a_value() -> None:
    run = decide(NEGATIVE, r"  %v = neg\(%x\) : f32\[8@a\]",
                 "  %n = exp(%x) : f32[8@b]\n  %v = neg(%n) : f32[8@b]")  # fmt: skip
    assert [change.by for change in run.history().changes_of("v")] == ["edit-text"]
    assert run.history().changes_of("n") == ()


def test_a_pass_that_changes_the_type_of_a_value() -> None:
    """The value is another one, and the explanation is that of the former one."""
    run = decide(NEGATIVE, r"%v = neg\(%x\) : f32\[8@a\]", "%v = reshape(%x) : f32[4, 2@b]")
    history = run.history()
    assert history.changes_of("v") == ()
    assert explanation(history, find_value(history, "%v")).type == "f32[8@a]"


def test_a_pass_that_removes_a_sharding() -> None:
    history = decide(NEGATIVE, r"%v = neg\(%x\) : f32\[8@a\]", "%v = neg(%x) : f32[8]").history()
    (revision,) = explanation(history, find_value(history, "%v")).revisions
    assert (revision.before, revision.after) == ("f32[8@a]", "f32[8]")


def test_a_sharding_that_is_removed_in_one_order() -> None:
    (row,) = order_sensitivity_of(decide(FRAGILE, r"%p: f32\[8@b\]", "%p: f32[8]")).rows
    assert (row.lifo, row.fifo) == ("f32[8@a]", "f32[8]")
    assert list(map(str, row.annotations)) == ["value %r: f32[8@a?]"]


def test_a_new_value_has_no_annotations() -> None:
    """Its sharding is that of an operand, which depends on the order."""
    run = decide(FRAGILE, r"(%p: (.*),\n.*\{\n)", r"\1  %n = neg(%p) : \2\n")
    rows = {row.value: row for row in order_sensitivity_of(run).rows}
    assert {name: len(row.annotations) for name, row in rows.items()} == {"%p": 2, "%n": 0}
    assert (rows["%n"].lifo, rows["%n"].fifo) == ("f32[8@a]", "f32[8@b]")


def test_a_program_that_cannot_be_partitioned_is_explained_without_the_later_passes() -> None:
    """Propagation closes all dimensions then."""
    pipeline = ExplainedPipeline((), Propagate(leave_open=True), (Refuse(),), ())
    module = parse(NEGATIVE)
    closed = print_module(Propagate()(module))
    assert print_module(pipeline.decide(module)) == closed
    assert print_module(propagate_with_history(module, pipeline, {}).decided) == closed


@pytest.mark.parametrize(
    ("propagate", "level"), [(None, "basic"), (Propagate(level="aggressive"), "aggressive")]
)
def test_propagation_alone_stands_for_the_default_pipeline(
    propagate: Propagate | None, level: str
) -> None:
    pipeline = ExplainedPipeline.divide("propagate{level=basic}", propagate)
    assert pipeline.propagate.level == level
    assert [step.name for step in pipeline.partitioning][-1] == "dce"
