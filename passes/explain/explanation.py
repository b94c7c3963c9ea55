"""Explanation of the sharding of one value, and an overview of the shardings of a program."""

from collections.abc import Iterator
from typing import NamedTuple

from shardir.errors import suggest_name
from shardir.ir.module import Module, Value
from shardir.passes.explain.absences import absences
from shardir.passes.explain.axis_origins import axis_chains, origin_annotations
from shardir.passes.explain.conflicts import conflicts_of
from shardir.passes.explain.history import FunctionHistory, SourceLocations, value_text
from shardir.passes.explain.order_sensitivity import order_sensitivity_of
from shardir.passes.explain.propagated_program import ExplainError, Program, propagate_with_history
from shardir.passes.explain.reports import Annotation, Chain, Explanation, Summary
from shardir.passes.explain.unused_annotations import stated_annotations
from shardir.passes.explain.what_if import communication_totals, count_traffic
from shardir.passes.propagation.propagate import Propagate
from shardir.text.literals import format_name


class AxisOrigin(NamedTuple):
    """An axis that shards a value, and the annotations that its parts come from."""

    axis: str
    annotations: tuple[Annotation, ...]


def explain(
    program: Program,
    value: str,
    *,
    function: str | None = None,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
) -> Explanation:
    """Return the origin of each axis of a value, and why each other axis of the mesh is absent.

    `value` is its name (`h` or `%h`), `function` the function that contains it (the first by
    default). Raises `ExplainError` if there is no such value.
    """
    history = propagate_with_history(program, propagate, places).history(function)
    return explanation(history, find_value(history, value))


def find_value(history: FunctionHistory, name: str) -> Value:
    """Return the value with a name in the prepared function."""
    bare = name.removeprefix("%").strip('"')
    for each, value in history.values.items():
        if bare in (each, format_name(each)):
            return value
    names = [f"%{format_name(each)}" for each in history.values]
    hint = suggest_name(f"%{bare}", names) or "`shardir opt` prints the program with all names"
    raise ExplainError(f"@{history.name} has no value called {name!r}; {hint}")


def explanation(history: FunctionHistory, value: Value) -> Explanation:
    written = history.story.written[value]
    return Explanation(
        value_text(value),
        history.printer.sharded_type(written.type, written.sharding),
        history.name,
        history.loc_of_value(value.name),
        tuple(chains_of(history, value)),
        tuple(absences(history, value)),
    )


def chains_of(history: FunctionHistory, value: Value) -> list[Chain]:
    """Return the chains of all axes of a value."""
    sharding = history.story.written[value].sharding
    if sharding is None:
        return []
    cell = history.story.cells[value]
    return [
        chain
        for dim, cut in enumerate(sharding.dims)
        for axis in cut.axes
        for chain in axis_chains(history, cell, dim, axis)
    ]


def origins_of_value(history: FunctionHistory, value: Value) -> Iterator[AxisOrigin]:
    """Yield the axes of a value with the annotations that they come from, without the paths."""
    sharding = history.story.written[value].sharding
    cell = history.story.cells[value]
    for dim, cut in enumerate(sharding.dims if sharding else ()):
        for axis in cut.axes:
            yield AxisOrigin(
                history.axis(axis, history.mesh(sharding)),
                origin_annotations(history, cell, dim, axis),
            )


def summarize(
    program: Program,
    *,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    partitioned: Module | None = None,
) -> Summary:
    """Return the number of sharded values, the annotations, and the number of findings of each
    kind.

    `partitioned` is the per-device program, which is made by default.
    """
    run = propagate_with_history(program, propagate, places)
    histories = run.histories.values()
    values = [v for history in histories for v in history.made.values() if v.type.rank]
    return Summary(
        tuple(
            history.annotation(said)
            for history in histories
            for said in stated_annotations(history)
        ),
        len(values),
        sum(1 for v in values if v.sharding and any(v.sharding.axes)),
        tuple(row for history in histories for row in conflicts_of(history)),
        len(order_sensitivity_of(run, propagate or Propagate()).rows),
        sum(len(history.story.impassable) for history in histories),
        communication_totals(run.module, propagate or Propagate())
        if partitioned is None
        else count_traffic(partitioned),
    )
