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
from shardir.text.program_difference import function_parts, identify_line


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


def compare_lines(before: Sequence[str], after: Sequence[str]) -> LineDifference:
    """Return how many lines differ between the texts of two programs, in any order.

    Lines that define the same values correspond; others correspond if they are equal.
    """
    old, new = dict(function_parts(before)), dict(function_parts(after))
    added = removed = changed = 0
    for function in dict.fromkeys((*old, *new)):
        left = Counter(old.get(function, ()))
        right = Counter(new.get(function, ()))
        rest = _count_definitions(left - right), _count_definitions(right - left)
        count = (rest[0] & rest[1]).total()
        changed += count
        removed += rest[0].total() - count
        added += rest[1].total() - count
    return LineDifference(added, removed, changed)


def _count_definitions(lines: Counter[str]) -> Counter[str]:
    """Return the number of lines that define the same values, or that have the same text."""
    counts: Counter[str] = Counter()
    for line, number in lines.items():
        counts[identify_line(line)] += number
    return counts


def stage_records(
    stages: Sequence[Stage], extra: Mapping[str, str], texts: Table[str]
) -> tuple[StageRecord, ...]:
    """Return the records of stages, and of `extra` texts by name, such as the schedule."""
    shapes: Table[str] = Table()
    shape_of: dict[str, int] = {}
    records: list[StageRecord] = []
    printer: Printer | None = None
    previous: Module | None = None
    lines: list[str] = []
    operations = 0
    runs: tuple[tuple[int, int], ...] = ()
    folds: tuple[Repetition, ...] = ()
    for stage in stages:
        difference = LineDifference(0, 0, 0)
        if previous is None or not has_same_operations(previous, stage.module):
            if printer is None or printer.meshes != stage.module.meshes:
                printer = Printer(stage.module.meshes)
            before, lines = lines, printer.module(stage.module).splitlines()
            if previous is not None:
                difference = compare_lines(before, lines)
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
    records: dict[str, dict[str, DefinitionRecord]] = {}
    seen: set[Op] = set()
    for stage in reversed(stages):
        for function in stage.module.functions:
            known = records.setdefault(function.name, {})
            # Passes share the operations that they do not change.
            new = [op for op in function.body.walk() if op not in seen]
            seen.update(new)
            for op in new:
                for value in op.results:
                    record = known.get(value.name)
                    if record is None or (op.why and not record.why):
                        name = f"%{format_name(value.name)}"
                        loc = tables.location(_location(op, function.name, name, places))
                        known[value.name] = DefinitionRecord(function.name, name, loc, op.why)
    return tuple(record for known in records.values() for record in known.values())


def _location(
    op: Op, function: str, name: str, places: Mapping[tuple[str, str], Loc]
) -> Loc | None:
    return op.loc or find_location(function, name, places)
