"""The pipeline of an explained program, divided before the first pass that needs all shardings."""

from dataclasses import dataclass, replace
from typing import Self

from shardir.errors import PartitionError, PipelineError
from shardir.ir.module import Module
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pass, Pipeline
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.resharding.reshard import Reshard
from shardir.passes.resharding.resolve_conflicts import ResolveConflicts

PARTITIONING_PASSES = ("merge-shifts", "insert-explicit-reshards", "reshard", "partition")
"""The shardings of all values are decided before the first of these passes."""


@dataclass(frozen=True)
class ExplainedPipeline:
    """The passes of a pipeline before propagation, the propagation, those after it that can change
    shardings, and those that partition the program."""

    preparing: tuple[Pass, ...]
    propagate: Propagate
    deciding: tuple[Pass, ...]
    partitioning: tuple[Pass, ...]

    @classmethod
    def divide(cls, pipeline: str, propagate: Propagate | None = None) -> Self:
        """Return a pipeline with `propagate`, if it is given, as its propagation pass.

        A pipeline that consists of the propagation pass only stands for the default pipeline with
        this pass. Raises `PipelineError` for a pipeline without propagation.
        """
        passes = Pipeline.parse(pipeline).passes
        if len(passes) == 1 and isinstance(passes[0], Propagate):
            propagate = propagate or passes[0]
            passes = Pipeline.parse(DEFAULT_PIPELINE).passes
        at = next((i for i, step in enumerate(passes) if isinstance(step, Propagate)), None)
        if at is None:
            raise PipelineError(
                f"the pipeline {pipeline!r} has no pass called 'propagate', so there are no "
                "decisions to explain; extend the default pipeline, as in default,PASS"
            )
        found, rest = passes[at], passes[at + 1 :]
        assert isinstance(found, Propagate)
        end = next(
            (i for i, step in enumerate(rest) if step.name in PARTITIONING_PASSES), len(rest)
        )
        resolves = any(isinstance(step, ResolveConflicts) for step in rest[:end])
        if propagate is not None:
            found = replace(propagate, leave_open=resolves)
        elif not resolves:
            found = replace(found, leave_open=False)  # Only `resolve-conflicts` closes dimensions.
        return cls(passes[:at], found, rest[:end], rest[end:])

    @property
    def reshard(self) -> Reshard:
        """The pass that inserts the reshards, with its options."""
        default = Reshard()
        return next((step for step in self.partitioning if isinstance(step, Reshard)), default)

    @property
    def whole(self) -> Pipeline:
        """The pipeline with all passes."""
        return Pipeline((*self.preparing, self.propagate, *self.deciding, *self.partitioning))

    @property
    def without_deciding(self) -> Self:
        """The pipeline without passes between propagation and partitioning."""
        propagate = replace(self.propagate, leave_open=False)
        return replace(self, propagate=propagate, deciding=())

    def decide(self, module: Module) -> Module:
        """Return a program with the shardings of all values, before it is partitioned.

        If the program cannot be partitioned, these are the shardings after propagation.
        """
        propagated = Pipeline((*self.preparing, self.propagate))(module)
        try:
            return Pipeline(self.deciding)(propagated)
        except PartitionError:
            return self.without_deciding.decide(module)
