"""Compare the programs before and after passes, as a unified diff.

`ProgramDiff` observes a pipeline. Passes preserve the names of values and the order of operations,
so that a diff shows only the lines that the passes changed.
"""

from collections.abc import Callable, Iterator
from typing import final

from shardir.errors import PipelineError
from shardir.ir.module import Module
from shardir.passes.pass_aliases import current_name
from shardir.passes.pipeline import Pass, Pipeline
from shardir.text.printer import print_module
from shardir.text.program_difference import unified_diff

RANGE_SEPARATOR = ".."
TRACED = "traced"
"""The name of the program before the first pass, as in dumps and reports."""


@final
class ProgramDiff:
    """An observer of a pipeline that compares the programs of `selection`.

    `reshard` selects the programs before and after each pass of this name. `propagate..partition`
    selects the program after the last pass `propagate` and the program after the last pass
    `partition`; `traced..partition` begins with the program before the first pass.
    """

    def __init__(
        self,
        selection: str,
        pipeline: Pipeline,
        module: Module,
        show: Callable[[Module], str] = print_module,
    ) -> None:
        """Raise `PipelineError` if the pipeline does not make the programs of the selection."""
        self._show = show
        self._titles = [TRACED, *(f"after {step}" for step in pipeline.passes)]
        self._pairs = _find_pairs(selection, pipeline)
        self._programs = {0: module}
        self._count = 0

    def __call__(self, step: Pass, before: Module, after: Module, seconds: float) -> None:
        self._count += 1
        if any(self._count in pair for pair in self._pairs):
            self._programs[self._count] = after

    def text(self) -> str:
        """Return the diffs; for programs without a difference, a sentence that states this."""
        return "\n".join(self._diffs()) + "\n"

    def _diffs(self) -> Iterator[str]:
        for pair in self._pairs:
            old, new = (self._titles[number] for number in pair)
            before, after = (self._show(self._programs[number]).splitlines() for number in pair)
            lines = unified_diff(before, after, old, new)
            yield "\n".join(lines) or f"no difference between {old!r} and {new!r}"


def _find_pairs(selection: str, pipeline: Pipeline) -> list[tuple[int, int]]:
    """Return the pairs of programs to compare, each as the number of passes that made it."""
    first, separator, last = map(str.strip, selection.partition(RANGE_SEPARATOR))
    if not first or (separator and not last):
        raise PipelineError(
            f"{selection!r} does not name the programs to compare; name a pass, such as reshard, "
            f"or two programs, such as {TRACED}..partition"
        )
    names = [step.name for step in pipeline.passes]
    if not separator:
        pipeline.through(first)  # Raises an error for an unknown pass.
        return [(i, i + 1) for i, name in enumerate(names) if name == current_name(first)]
    start, end = (
        0 if name == TRACED else len(pipeline.through(name).passes) for name in (first, last)
    )
    if start == end:
        raise PipelineError(
            f"{selection!r} names the same program twice; name two programs, such as "
            f"{TRACED}..partition, or one pass to compare the programs before and after it"
        )
    if start > end:
        raise PipelineError(
            f"the pipeline {str(pipeline)!r} does not run {last!r} after {first!r}; write the "
            "earlier pass first"
        )
    return [(start, end)]
