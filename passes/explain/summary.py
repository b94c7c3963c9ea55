"""Overview of the shardings of a program."""

from shardir.passes.explain.data import Summary
from shardir.passes.explain.disagreements import conflicts_of
from shardir.passes.explain.edits import traffic
from shardir.passes.explain.history import Places
from shardir.passes.explain.idle import stated
from shardir.passes.explain.order import order_sensitive
from shardir.passes.explain.program import Program, tell
from shardir.passes.propagate import Propagate


def summarize(
    program: Program, *, propagate: Propagate | None = None, places: Places | None = None
) -> Summary:
    """Return the number of sharded values, the annotations, and the number of findings of each
    kind."""
    run = tell(program, propagate, places)
    histories = run.histories.values()
    values = [v for history in histories for v in history.made.values() if v.type.rank]
    return Summary(
        tuple(history.annotation(said) for history in histories for said in stated(history)),
        len(values),
        sum(1 for v in values if v.sharding and any(v.sharding.axes)),
        tuple(row for history in histories for row in conflicts_of(history)),
        len(order_sensitive(program, propagate=propagate, places=places).rows),
        sum(len(history.story.mute) for history in histories),
        traffic(run.module, propagate or Propagate()),
    )
