"""Overview of the shardings of a program."""

from shardir.passes.explain.conflicts import conflicts_of
from shardir.passes.explain.history import SourceLocations
from shardir.passes.explain.order_sensitivity import order_sensitive
from shardir.passes.explain.propagated_program import Program, propagate_with_history
from shardir.passes.explain.reports import Summary
from shardir.passes.explain.unused_annotations import stated_annotations
from shardir.passes.explain.what_if import communication_totals
from shardir.passes.propagation.propagate import Propagate


def summarize(
    program: Program, *, propagate: Propagate | None = None, places: SourceLocations | None = None
) -> Summary:
    """Return the number of sharded values, the annotations, and the number of findings of each
    kind."""
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
        len(order_sensitive(program, propagate=propagate, places=places).rows),
        sum(len(history.story.impassable) for history in histories),
        communication_totals(run.module, propagate or Propagate()),
    )
