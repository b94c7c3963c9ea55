"""Shardings that depend on the order of the worklist.

If two annotations have equal priority, the one whose axes arrive first is kept. Two runs with
different orders find such values; the annotations that they depend on are fragile, and one more
annotation would make the result unique.
"""

from collections.abc import Iterator
from dataclasses import replace

from shardir.ir.location import SourceLocations
from shardir.ir.sharding import Sharding
from shardir.passes.explain.propagated_program import (
    Program,
    PropagatedProgram,
    pipeline_of,
    propagate_with_history,
)
from shardir.passes.explain.propagation_history.axis_origins import origin_annotations
from shardir.passes.explain.propagation_history.history import FunctionHistory, value_text
from shardir.passes.explain.reports import Annotation, Dependence, OrderSensitivity
from shardir.passes.propagation.propagate import Propagate


def order_sensitive(
    program: Program,
    *,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    pipeline: str | None = None,
) -> OrderSensitivity:
    """Return the values whose sharding differs between the worklist orders `lifo` and `fifo`.

    `pipeline` and `propagate` are those of `explain`.
    """
    chosen = pipeline_of(program, pipeline, propagate)
    return order_sensitivity_of(propagate_with_history(program, chosen, places))


def order_sensitivity_of(run: PropagatedProgram) -> OrderSensitivity:
    """Return the values of a program whose sharding differs in the other worklist order."""
    propagate = run.pipeline.propagate
    is_lifo = propagate.order == "lifo"
    changed = replace(propagate, order="fifo" if is_lifo else "lifo")
    # A record of the other order is needed for the origins of differing shardings only.
    if not any(_is_different(run, history, changed) for history in run.histories.values()):
        return OrderSensitivity(())
    places = next(iter(run.histories.values())).places
    pipeline = replace(run.pipeline, preparing=(), propagate=changed)
    other = propagate_with_history(run.module, pipeline, places)
    lifo, fifo = (run, other) if is_lifo else (other, run)
    return OrderSensitivity(tuple(
        row
        for name, history in lifo.histories.items()
        for row in _differences(history, fifo.histories[name])
    ))  # fmt: skip


def _is_different(run: PropagatedProgram, history: FunctionHistory, propagate: Propagate) -> bool:
    """Return whether propagation with other options decides other shardings in a function."""
    state, shardings = run.prepared.final_state(history.name, propagate), run.prepared.shardings
    found = {cell: shardings[number] for cell, number in enumerate(state.cells)}
    found |= {-1 - i: shardings[number] for i, number in enumerate(state.results)}
    return found != history.final_shardings


def _differences(lifo: FunctionHistory, fifo: FunctionHistory) -> Iterator[Dependence]:
    for name, value in lifo.made.items():
        other = fifo.made.get(name, value)
        if value.sharding == other.sharding:
            continue
        behind = (
            *_responsible_annotations(lifo, name, value.sharding, other.sharding),
            *_responsible_annotations(fifo, name, other.sharding, value.sharding),
        )
        yield Dependence(
            value_text(value),
            lifo.name,
            lifo.printer.sharded_type(value.type, value.sharding),
            fifo.printer.sharded_type(other.type, other.sharding),
            tuple(dict.fromkeys(behind)),
        )


def _responsible_annotations(
    history: FunctionHistory, name: str, mine: Sharding | None, other: Sharding | None
) -> Iterator[Annotation]:
    """Yield the annotations of the axes of a value in dimensions that differ."""
    if name not in history.values:
        return  # A pass after propagation has made the value.
    cell = history.story.cells[history.values[name]]
    for dim, dim_sharding in enumerate(mine.dims if mine else ()):
        if other is None or dim_sharding != other.dims[dim]:
            for axis in dim_sharding.axes:
                yield from origin_annotations(history, cell, dim, axis)
