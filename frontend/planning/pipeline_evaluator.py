"""Evaluation of plans of programs with pipelines: the costs of the compiled program, in which calls
stand for pipelines, and of the stages on their rows of devices."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

from shardir.cost.communication import sum_collectives
from shardir.frontend.pipelines.costs import PipelineCosts, costs_of_pipelines
from shardir.frontend.pipelines.inspection import describe_pipelines, find_pipeline_calls
from shardir.ir.module import Module
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.planning.programs.assignment import ArgumentAxes
from shardir.passes.planning.programs.evaluation import (
    Cost,
    Evaluation,
    ProgramEvaluator,
    annotate_arguments,
)
from shardir.passes.simulation.breakdown import Breakdown
from shardir.passes.simulation.host_calls import HostCallCost
from shardir.passes.simulation.utilization import add_flops


@final
class PipelineEvaluator(ProgramEvaluator):
    """Evaluates shardings of the arguments of a program with pipelines.

    Each stage is partitioned on its row of devices. The flops and bytes are those of a device of
    the row with the most arithmetic.
    """

    def partition(self, arguments: ArgumentAxes) -> Module:
        """Return the program of each device, with calls in place of pipelines."""
        annotated = annotate_arguments(self.module, self.mesh, arguments, self.state_pairs)
        return self.pipeline(describe_pipelines(annotated))

    def least_cost(self, module: Module) -> Cost:
        """Return no cost, because the bounds of a partitioned program do not include pipelines."""
        return ()

    def evaluate_partitioned(self, arguments: ArgumentAxes, module: Module) -> Evaluation:
        """Return the evaluation of a partitioned program."""
        costs = costs_of_pipelines(module)
        calls: dict[Callable[..., Any], HostCallCost] = {
            call: self._predict(each)
            for call, each in zip(find_pipeline_calls(module).values(), costs, strict=True)
        }
        found = self.evaluate_with_calls(arguments, module, calls)
        rows = [row for each in costs for row in each.collectives_of(each.largest_rank)]
        sent = sum_collectives(rows)
        flops = add_flops(*(each.executed_flops for each in calls.values()))
        return replace(
            found,
            flops=found.flops + sum(flops.values()),
            bytes_sent=found.bytes_sent + sent.sent,
            collective_count=found.collective_count + sent.executions,
            called=tuple(row for each in costs for row in each.collectives()),
        )

    def _predict(self, costs: PipelineCosts) -> HostCallCost:
        """Return the cost of a pipeline on the machine, without one only its memory and flops."""
        if self.machine is not None:
            return costs.predict(self.machine)
        return HostCallCost(Breakdown(), costs.largest_memory, {}, costs.executed_flops)


def evaluator_of(module: Module) -> type[ProgramEvaluator]:
    """Return the class that evaluates plans of a traced program."""
    return PipelineEvaluator if has_pipelines(module) else ProgramEvaluator
