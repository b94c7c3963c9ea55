"""Explanation of the sharding of one value, and an overview of the shardings of a program."""

from collections.abc import Iterator

from shardir.errors import suggest_name
from shardir.ir.location import SourceLocations
from shardir.ir.module import Module
from shardir.passes.explain.communication import communication_totals, count_traffic
from shardir.passes.explain.conflicts import conflicts_of
from shardir.passes.explain.order_sensitivity import order_sensitivity_of
from shardir.passes.explain.propagated_program import (
    ExplainError,
    Program,
    pipeline_of,
    propagate_with_history,
    result_number,
)
from shardir.passes.explain.propagation_history.absences import absences
from shardir.passes.explain.propagation_history.axis_origins import axis_chains
from shardir.passes.explain.propagation_history.history import (
    RESULT_PREFIX,
    ExplainedValue,
    FunctionHistory,
    stated_annotations,
)
from shardir.passes.explain.reports import Chain, Explanation, Revision, Summary
from shardir.passes.propagation.propagate import Propagate
from shardir.text.literals import format_name


def explain(
    program: Program,
    value: str,
    *,
    function: str | None = None,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    pipeline: str | None = None,
) -> Explanation:
    """Return the origin of each axis of a value, and why each other axis of the mesh is absent.

    `value` is its name (`h` or `%h`) or a result of the function (`result 0`); `function` is the
    function that contains it (the first by default). The shardings are those with which `pipeline`
    partitions the program: by default the pipeline with which a lowered function is compiled, and
    the default pipeline of a module. `propagate` replaces its propagation pass. Raises
    `ExplainError` if there is no such value, and `PipelineError` for a pipeline without
    propagation.
    """
    run = propagate_with_history(program, pipeline_of(program, pipeline, propagate), places)
    history = run.history(function)
    return explanation(history, find_value(history, value))


def find_value(history: FunctionHistory, name: str) -> ExplainedValue:
    """Return the value with a name in the prepared function, or the result of the function."""
    if name.startswith(RESULT_PREFIX):
        return history.explained_result(result_number(history.function, name))
    bare = name.removeprefix("%").strip('"')
    for each, value in history.values.items():
        if bare in (each, format_name(each)):
            return history.explained_value(value)
    names = [f"%{format_name(each)}" for each in history.values]
    hint = suggest_name(f"%{bare}", names) or "`shardir opt` prints the program with all names"
    raise ExplainError(f"@{history.name} has no value called {name!r}; {hint}")


def explanation(history: FunctionHistory, explained: ExplainedValue) -> Explanation:
    """Return the explanation of a value or result of a function."""
    name, value, cell, sharding, _ = explained
    loc = (
        history.loc_of_value(value.name) if cell >= 0 else history.places.get((history.name, name))
    )
    return Explanation(
        name,
        history.printer.sharded_type(value.type, sharding),
        history.name,
        loc,
        tuple(chains_of(history, explained)),
        tuple(absences(history, explained)),
        tuple(revisions_of(history, explained)),
    )


def revisions_of(history: FunctionHistory, explained: ExplainedValue) -> Iterator[Revision]:
    """Yield the changes of a value by passes after propagation."""
    value, show = explained.value, history.printer.sharded_type
    for change in history.changes_of(value.name):
        before, after = (
            show(value.type, sharding and sharding.close())
            for sharding in (change.before, change.after)
        )
        yield Revision(change.by, before, after, change.why)


def chains_of(history: FunctionHistory, explained: ExplainedValue) -> list[Chain]:
    """Return the chains of all axes of a value that propagation gave it."""
    sharding = explained.sharding
    if sharding is None:
        return []
    return [
        chain
        for dim, dim_sharding in enumerate(sharding.dims)
        for axis in dim_sharding.axes
        for chain in axis_chains(history, explained.cell, dim, axis)
    ]


def summarize(
    program: Program,
    *,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    partitioned: Module | None = None,
    pipeline: str | None = None,
) -> Summary:
    """Return the number of sharded values, the annotations, and the number of findings of each
    kind.

    `partitioned` is the per-device program, which is made by default. `pipeline` and `propagate`
    are those of `explain`.
    """
    run = propagate_with_history(program, pipeline_of(program, pipeline, propagate), places)
    histories = run.histories.values()
    values = [v for history in histories for v in history.made.values() if v.type.rank]
    return Summary(
        tuple(
            history.annotation(stated)
            for history in histories
            for stated in stated_annotations(history)
        ),
        len(values),
        sum(1 for v in values if v.sharding and any(v.sharding.axes)),
        tuple(row for history in histories for row in conflicts_of(history)),
        len(order_sensitivity_of(run).rows),
        sum(len(history.story.impassable) for history in histories),
        communication_totals(run.decided, run.pipeline)
        if partitioned is None
        else count_traffic(partitioned),
    )
