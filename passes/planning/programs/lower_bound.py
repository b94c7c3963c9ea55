"""A lower bound of the cost of plans, from the planning problem of the program.

The engines of planning problems prove it: no program of the space that `strategy_problem.py`
describes costs less. Message passing nearly always finds the optimum without toulbar2.
"""

from dataclasses import dataclass

from shardir.passes.pipeline import Pipeline
from shardir.passes.planning.automatic import Engines
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.planning_request import PREPARATION, PlanningRequest
from shardir.passes.planning.programs.state_pairs import find_state_pairs
from shardir.passes.planning.programs.strategy_problem import build_strategy_problem
from shardir.passes.planning.search import load_kernels, search
from shardir.passes.planning.solution import Incumbent


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The costs that no program in the space of `strategy_problem.py` is below, on each device.

    No program executes fewer than `flops`, and none with this number sends less than `bytes_sent`.
    On the machine of the plan, the matrix products and convolutions of each program take at least
    `seconds`, whatever it sends; `None` without a machine.
    """

    flops: int
    bytes_sent: int
    seconds: float | None = None


def find_lower_bound(request: PlanningRequest, chosen: Evaluation, seconds: float) -> LowerBound:
    """Return a lower bound of the cost of all plans; the time limit is `seconds`, and a bound that
    proves the chosen plan the best ends the search. Raises `MachineError` if the machine has no
    rate of a dtype in which the program multiplies matrices."""
    module = Pipeline.parse(PREPARATION)(request.module)
    found = build_strategy_problem(
        module,
        request.mesh,
        find_state_pairs(module.main, request.count),
        request.fixed or (),
        request.count,
        request.memory_limit,
        pads=request.pads,
    )
    machine = request.machine
    seconds_at_peak = (
        None
        if machine is None
        else sum(n / machine.peak_flops(dtype) for dtype, n in found.flops_by_dtype.items())
    )
    if found.problem.edges:
        load_kernels()  # The time limit does not include their compilation.
    incumbent = Incumbent(found.problem, seconds)

    def is_proven() -> bool:
        return found.flops < chosen.flops or (incumbent.lower_bound or 0) >= chosen.bytes_sent

    if found.problem.edges and not is_proven():
        engines = Engines(incumbent)
        try:
            search(incumbent, is_done=lambda: is_proven() or engines.is_done())
        finally:
            engines.close()
    return LowerBound(found.flops, max(incumbent.lower_bound or 0, 0), seconds_at_peak)
