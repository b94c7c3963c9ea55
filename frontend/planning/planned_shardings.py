"""The shardings of a plan, as a request for the shardings of a traced function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from shardir.frontend.errors import ArgumentError
from shardir.frontend.shardings.deferred_sharding import (
    ChosenShardings,
    DeferredSharding,
    UnshardedProgram,
)
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.ir.types import TensorType
from shardir.passes.explain.reports import Report
from shardir.passes.planning.programs.assignment import DimAxes
from shardir.passes.planning.programs.evaluation import annotate_values


@final
@dataclass(frozen=True, slots=True, eq=False)
class PlannedShardings(DeferredSharding):
    """The shardings of a plan for arguments of given types."""

    types: Sequence[TensorType]
    arguments: tuple[Sharding, ...]
    results: tuple[Sharding | None, ...]
    constraints: Mapping[str, DimAxes]
    plan: Report

    def choose(self, program: UnshardedProgram) -> ChosenShardings:
        """Return the shardings of the plan; raise `ArgumentError` for arguments of other types."""
        function = program.module.main
        given = [value.type for value in function.body.params]
        if given != list(self.types):
            raise ArgumentError(
                with_location(
                    f"the plan of {function.name} is for arguments of the types "
                    f"({', '.join(map(str, self.types))}), and the call has "
                    f"({', '.join(map(str, given))}); make another plan for them"
                )
            )
        constrain = (
            partial(annotate_values, constraints=self.constraints) if self.constraints else None
        )
        return ChosenShardings(
            self.arguments, self.results, constrain, lambda function, lowered: self.plan
        )
