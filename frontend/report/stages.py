"""The stages of a program: its text after each pass, and the lines that each pass changed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shardir.display.repetitions import Repetition, find_repetitions
from shardir.frontend.report.records import DefinitionRecord, StageRecord
from shardir.frontend.report.tables import ReportTables, Table
from shardir.ir.location import find_location
from shardir.ir.module import Function, Loc, Module, Op
from shardir.passes.explain.report_rows import without_names
from shardir.passes.pipeline import Pass
from shardir.text.literals import format_name
from shardir.text.printer import Printer
from shardir.text.program_difference import LineIdentity, identify_lines


class Stage(NamedTuple):
    """A program after the pass `step`; the traced program has no step."""

    name: str
    step: str
    module: Module


class StageRecorder:
    """Observer of pipelines that keeps the program after each pass."""

    def __init__(self, module: Module, name: str = "traced") -> None:
        self.stages = [Stage(name, "", module)]

    def observe(self, step: Pass, before: Module, after: Module, seconds: float) -> None:
        """Keep the program after a pass; this is a `PassObserver`."""
        self.stages.append(Stage(step.name, str(step), after))

    def before(self, name: str) -> Module | None:
        """Return the program before the first pass with a name."""
        for earlier, later in zip(self.stages, self.stages[1:], strict=False):
            if later.name == name:
                return earlier.module
        return None


class LineDifference(NamedTuple):
    """Counts of lines that differ between two texts."""

    added: int
    removed: int
    changed: int


def line_keys(lines: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return the identity of each line: its function, the values that it defines or its text, and
    the number of earlier lines with these."""
    counts: Counter[LineIdentity] = Counter()
    keys = []
    for identity in identify_lines(lines):
        keys.append((*identity, counts[identity]))
        counts[identity] += 1
    return keys


def lines_by_key(lines: Sequence[str]) -> dict[tuple[str, str, int], str]:
    """Return the lines of a text by their identity."""
    return dict(zip(line_keys(lines), lines, strict=True))


def compare_lines(
    before: Mapping[tuple[str, str, int], str], after: Mapping[tuple[str, str, int], str]
) -> LineDifference:
    """Return how many lines differ. Lines with the same key correspond, whatever their order."""
    return LineDifference(
        sum(key not in before for key in after),
        sum(key not in after for key in before),
        sum(key in before and before[key] != line for key, line in after.items()),
    )


def stage_records(
    stages: Sequence[Stage], extra: Mapping[str, str], texts: Table[str]
) -> tuple[StageRecord, ...]:
    """Return the records of stages, and of `extra` texts by name, such as the schedule."""
    shapes: Table[str] = Table()
    shape_of: dict[str, int] = {}
    records: list[StageRecord] = []
    printer: Printer | None = None
    previous: Module | None = None
    keyed: dict[tuple[str, str, int], str] = {}
    operations = 0
    runs: tuple[tuple[int, int], ...] = ()
    folds: tuple[Repetition, ...] = ()
    for stage in stages:
        difference = LineDifference(0, 0, 0)
        if previous is None or not has_same_operations(previous, stage.module):
            if printer is None or printer.meshes != stage.module.meshes:
                printer = Printer(stage.module.meshes)
            lines = printer.module(stage.module).splitlines()
            before, keyed = keyed, lines_by_key(lines)
            if previous is not None:
                difference = compare_lines(before, keyed)
            for line in lines:
                if line not in shape_of:
                    shape_of[line] = shapes.number(without_names(line))
            operations = count_operations(stage.module)
            runs = find_runs(map(texts.number, lines))
            folds = find_repetitions([shape_of[line] for line in lines])
        previous = stage.module
        records.append(StageRecord(stage.name, stage.step, operations, *difference, runs, folds))
    for name, text in extra.items():
        numbers = find_runs(map(texts.number, text.splitlines()))
        records.append(StageRecord(name, "", 0, 0, 0, 0, numbers, ()))
    return tuple(records)


def has_same_operations(module: Module, other: Module) -> bool:
    """Return whether two modules differ in no operation, so that their texts are the same."""
    return module is other or (
        module.meshes == other.meshes
        and len(module.functions) == len(other.functions)
        and all(map(_is_same_function, module.functions, other.functions))
    )


def _is_same_function(function: Function, other: Function) -> bool:
    body, rest = function.body, other.body
    # Values and operations compare by identity.
    return (
        function.name == other.name
        and body.params == rest.params
        and body.ops == rest.ops
        and body.returns == rest.returns
        and function.result_shardings == other.result_shardings
        and function.spmd == other.spmd
    )


def find_runs(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the runs of consecutive integers: (first integer, count)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        first, count = runs[-1] if runs else (0, 0)
        if runs and number == first + count:
            runs[-1] = first, count + 1
        else:
            runs.append((number, 1))
    return tuple(runs)


def count_operations(module: Module) -> int:
    """Return the number of operations of a module, including those of nested blocks."""
    return sum(1 for function in module.functions for _ in function.body.walk())


def definition_records(
    stages: Sequence[Stage], places: Mapping[tuple[str, str], Loc], tables: ReportTables
) -> tuple[DefinitionRecord, ...]:
    """Return the source line and the reason of each value of any stage, the last stage first."""
    result: dict[tuple[str, str], DefinitionRecord] = {}
    for stage in reversed(stages):
        for function in stage.module.functions:
            for op in function.body.walk():
                for value in op.results:
                    name = f"%{format_name(value.name)}"
                    key = function.name, name
                    known = result.get(key)
                    if known is not None and (known.why or not op.why):
                        continue
                    loc = tables.location(_location(op, function.name, name, places))
                    result[key] = DefinitionRecord(function.name, name, loc, op.why)
    return tuple(result.values())


def _location(
    op: Op, function: str, name: str, places: Mapping[tuple[str, str], Loc]
) -> Loc | None:
    return op.loc or find_location(function, name, places)
