"""Rows of the tables of a plan: the names of arguments, with those of repeated layers once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardir.frontend.planning import export, plan_tables
from shardir.ir.module import Value
from shardir.passes.planning.programs.assignment import DimAxes
from shardir.passes.planning.programs.decision_effects import measure_constraints
from shardir.passes.planning.programs.evaluation import Evaluation, sharding_of
from shardir.text.literals import format_name

if TYPE_CHECKING:
    from shardir.passes.planning.programs.plan_program import ProgramPlan

MAX_SHOWN_NAMES = 4
"""The number of arguments of one class that a row names."""


def list_argument_rows(plan: "ProgramPlan") -> list[tuple[str, str]]:
    """Return the names of arguments and their sharded type; those of repeated layers with one
    sharding have one row."""
    params, arguments = plan.request.module.main.body.params, plan.chosen.arguments
    rows = []
    for kind in plan.classes:
        by_text: dict[str, list[int]] = {}
        for number in kind:
            text = sharded_text(plan, params[number], arguments[number])
            by_text.setdefault(text, []).append(number)
        rows += [(_join_names(plan, kind, same), text) for text, same in by_text.items()]
    return rows


def list_constraint_rows(plan: "ProgramPlan") -> list[tuple[str, str, str, str]]:
    """Return the name, the sharded type and the source line of each constrained value, and how the
    cost changes without the constraint."""
    found = plan.constraints
    without = measure_constraints(plan) if found else {}
    return [
        (
            f"%{format_name(value.name)}",
            sharded_text(plan, value, found[value.name]),
            str(op.loc or ""),
            plan_tables.describe_effect(without[value.name], plan.chosen),
        )
        for op in plan.request.module.main.body.ops
        for value in op.results
        if value.name in found
    ]


def list_changes(plan: "ProgramPlan", other: Evaluation) -> tuple[tuple[str, str, str], ...]:
    """Return the names of the arguments that have another sharding in an evaluation, and their
    types in the plan and there."""
    params, mine, theirs = (
        plan.request.module.main.body.params,
        plan.chosen.arguments,
        other.arguments,
    )
    changes = []
    for kind in plan.classes:
        by_texts: dict[tuple[str, str], list[int]] = {}
        for number in kind:
            if mine[number] != theirs[number]:
                texts = (
                    sharded_text(plan, params[number], mine[number]),
                    sharded_text(plan, params[number], theirs[number]),
                )
                by_texts.setdefault(texts, []).append(number)
        changes += [(_join_names(plan, kind, same), *texts) for texts, same in by_texts.items()]
    return tuple(changes)


def describe_dims(plan: "ProgramPlan", dims: Sequence[tuple[int, int]]) -> str:
    """Return dimensions of arguments and of constrained values as text; those of repeated layers
    once."""
    texts = []
    for kind in plan.classes:
        by_dim: dict[int, list[int]] = {}
        for number, dim in dims:
            if number in kind:
                by_dim.setdefault(dim, []).append(number)
        texts += [
            f"dimension {dim} of {_join_names(plan, kind, numbers)}"
            for dim, numbers in sorted(by_dim.items())
        ]
    count = len(plan.reader.params)
    texts += [
        f"dimension {dim} of %{format_name(plan.anchors[number - count].name)}"
        for number, dim in dims
        if number >= count and not plan.is_extrapolated
    ]
    return ", ".join(texts)


def sharded_text(plan: "ProgramPlan", value: Value, axes: DimAxes | None) -> str:
    """Return the type of a value with the axes of its dimensions."""
    mesh = plan.request.mesh
    return export.argument_text(value, None if axes is None else sharding_of(axes, mesh), mesh)


def _join_names(plan: "ProgramPlan", kind: Sequence[int], numbers: Sequence[int]) -> str:
    """Return the names of some arguments of a class."""
    params = plan.request.module.main.body.params
    if len(kind) == len(numbers):
        name = export.class_name([params[number].name for number in kind])
        return name if len(kind) == 1 else f"{name} ({len(kind)})"
    names = [export.class_name([params[number].name]) for number in numbers]
    rest = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(names[:MAX_SHOWN_NAMES]) + rest
