"""The memory limit of a plan, and the remedies for a plan that exceeds it."""

from shardir.display.byte_sizes import show_bytes
from shardir.ops.control_flow.pipelines import has_pipelines
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.passes.rematerialization.remat import BudgetError, Remat

MAX_REMAT_OPERATIONS = 5000
"""The number of operations of the largest program of which an error states that recomputation makes
it fit; larger ones take too long."""


def check_memory(chosen: Evaluation, request: PlanningRequest) -> None:
    """Raise `PlanningError` if a plan exceeds the memory limit, with the smallest limit that is
    known to suffice, and the pass with which the plan fits if there is one."""
    limit = request.memory_limit
    if limit is None or chosen.peak <= limit:
        return
    remedy = f"use a limit of at least {chosen.peak} bytes, more devices, or a smaller batch"
    remat = Remat(f"{limit}B")
    if _fits_with(remat, chosen, request):
        remedy = f"add the pass {remat} to the passes of jit, with which a plan fits, or {remedy}"
    raise PlanningError(
        f"no plan fits into {show_bytes(limit)} on each device: the smallest peak found is "
        f"{show_bytes(chosen.peak)}, {show_bytes(chosen.peak - limit)} more; {remedy}"
    )


def _fits_with(remat: Remat, chosen: Evaluation, request: PlanningRequest) -> bool:
    """Return whether a plan fits into the budget of a pass that computes values again. It
    is false for pipelines, because the pass would not change the programs of their stages."""
    is_large = len(chosen.module.main.body.ops) > MAX_REMAT_OPERATIONS
    if is_large or has_pipelines(request.module):
        return False
    if any(isinstance(each, Remat) for each in request.pipeline.passes):
        return False
    try:
        remat(chosen.module)
    except BudgetError:
        return False
    return True
