"""The causes of the collectives of programs with pipelines."""

from shardir.cost.communication import Collective
from shardir.frontend.pipelines.costs import costs_of_pipelines
from shardir.frontend.pipelines.inspection import describe_pipelines
from shardir.ir.location import SourceLocations
from shardir.ir.module import Module
from shardir.passes.explain.collective_causes import CollectiveCause, explain_collective
from shardir.passes.explain.propagated_program import ExplainError


def explain_collective_beside_pipelines(
    module: Module,
    partitioned: Module,
    collective: Collective | str,
    pipeline: str,
    places: SourceLocations,
) -> CollectiveCause:
    """Return the cause of a collective of a traced program with pipelines, or of a pipeline.

    `partitioned` is the program of each device, in which calls stand for pipelines. The cause of a
    collective of a pipeline is its `why`, which states the pass and the stage. Raises
    `ExplainError` for a name that several collectives of pipelines have, or none.
    """
    rows = [row for costs in costs_of_pipelines(partitioned) for row in costs.collectives()]
    if isinstance(collective, str):
        named = [row for row in rows if row.value == collective.removeprefix("%")]
        if len(named) > 1:
            raise ExplainError(
                f"{len(named)} collectives of pipelines make %{named[0].value}; pass one of "
                "collectives() instead of its name"
            )
    else:
        named = [row for row in rows if row == collective]
    if named:
        return CollectiveCause(named[0], "", None, (), ())
    return explain_collective(
        describe_pipelines(module), collective, pipeline=pipeline, places=places
    )
