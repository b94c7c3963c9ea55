"""Effects of adding, changing or removing annotations."""

from collections.abc import Container, Sequence
from dataclasses import replace

from shardir.ir.location import SourceLocations
from shardir.ir.sharding import Sharding
from shardir.passes.explain.annotation_edits import (
    add_annotation,
    changes,
    read_annotation,
    remove_annotation,
)
from shardir.passes.explain.communication import communication_totals
from shardir.passes.explain.explanation import explanation, find_value
from shardir.passes.explain.propagated_program import (
    ExplainError,
    Program,
    module_of,
    pipeline_of,
    propagate_with_history,
)
from shardir.passes.explain.propagation_history.history import FunctionHistory
from shardir.passes.explain.reports import Absence, Difference, Explanation
from shardir.passes.propagation.propagate import Propagate
from shardir.text.literals import format_name


def what_if(
    program: Program,
    annotations: Sequence[str] = (),
    *,
    without: Sequence[str] = (),
    function: str | None = None,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    pipeline: str | None = None,
) -> Difference:
    """Return the changes that other annotations would cause.

    `annotations` are written as in the text of the program, `%w: f32[128, 256@model]`, or `result
    0: f32[64@data]`; they replace existing ones. `without` names values (`%w`) and results whose
    annotations are removed. `pipeline` and `propagate` are those of `explain`. Raises
    `ExplainError` for an unknown value, `ParseError` for an annotation that cannot be parsed.
    """
    module = module_of(program)
    if isinstance(annotations, str) or isinstance(without, str):
        raise ExplainError("annotations must be a list, such as ['%w: f32[128, 256@model]']")
    edits: dict[str, Sharding | None] = {}
    changed = module
    for text in annotations:
        name, _, sharding = read_annotation(module, text)
        edits[name] = sharding
        changed = add_annotation(changed, text, function)
    for name in without:
        edits[name.strip()] = None
        changed = remove_annotation(changed, name, function)
    explained = pipeline_of(program, pipeline, propagate)
    locations = places if places is not None else getattr(program, "user_locations", {})
    old, run = explained.decide(module), propagate_with_history(changed, explained, locations)
    found = tuple(changes(old, run.decided))
    refused, others = _explain_edits(run.history(function), edits)
    return Difference(
        (*annotations, *(f"without {name}" for name in without)),
        found,
        communication_totals(old, explained),
        communication_totals(run.decided, explained),
        tuple(refused),
        () if found else tuple(f"{each.value} is {each.type}" for each in others),
    )


def _explain_edits(
    history: FunctionHistory, edits: dict[str, Sharding | None]
) -> tuple[list[Explanation], list[Explanation]]:
    """Return the explanations of the edited values that lack axes which their new annotations
    state, with the absences of these axes only, and the explanations of the others."""
    refused, others = [], []
    for name, sharding in edits.items():
        value = find_value(history, name)
        found = explanation(history, value)
        if absent := _absent_axes(sharding, value.sharding):
            absences = tuple(each for each in found.absences if _is_of(each, absent))
            refused.append(replace(found, absences=absences))
        else:
            others.append(found)
    return refused, others


def _absent_axes(stated: Sharding | None, decided: Sharding | None) -> set[tuple[str, int]]:
    """Return the stated axes that do not shard the same dimension of the value, by their names."""
    return {
        (format_name(axis.name), dim)
        for dim, axes in enumerate(stated.axes if stated else ())
        for axis in axes
        if axis not in (decided.axes[dim] if decided else ())
    }


def _is_of(absence: Absence, axes: Container[tuple[str, int]]) -> bool:
    """Return whether an absence is that of one of these axes of dimensions."""
    name = absence.axis.partition(":")[0]  # Without the part of a sub-axis.
    return (name, absence.dim) in axes
