"""The remedies that an error about too little memory states."""

from dataclasses import replace

import pytest

from shardir.ir.mesh import Mesh
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs import memory_remedies
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.memory_remedies import check_memory
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.text.parser import parse

MODULE = parse(
    "mesh @m = [x=2]\nfunc @f(%x: f32[64@x]) -> (f32[64]) {\n"
    "  %y = neg(%x) : f32[64]\n  return %y\n}\n"
)
REQUEST = PlanningRequest(
    MODULE, Mesh("m", (("x", 2),)), Pipeline.parse(DEFAULT_PIPELINE), memory_limit=2048
)
HEAD = (
    "no plan fits into 2.0 KiB on each device: the smallest peak found is 4.0 KiB, 2.0 KiB more; "
)
LIMIT = "use a limit of at least 4096 bytes, more devices, or a smaller batch"


def evaluation(peak: int) -> Evaluation:
    """Return an evaluation with a peak that recomputation makes smaller."""
    return Evaluation((), None, 0, 0, 0, peak, {}, REQUEST.pipeline(MODULE))


def error_of(request: PlanningRequest) -> str:
    with pytest.raises(PlanningError) as error:
        check_memory(evaluation(4096), request)
    return str(error.value)


@pytest.mark.parametrize(("peak", "limit"), [(2048, 2048), (10**9, None)])
def test_a_plan_that_fits_is_no_error(peak: int, limit: int | None) -> None:
    check_memory(evaluation(peak), replace(REQUEST, memory_limit=limit))


def test_the_pass_with_which_a_plan_fits_is_stated() -> None:
    assert error_of(REQUEST) == (
        f"{HEAD}add the pass remat{{budget=2048B}} to the passes of jit, with which a plan fits, "
        f"or {LIMIT}"
    )


def test_no_pass_is_stated_with_which_no_plan_fits() -> None:
    assert error_of(replace(REQUEST, memory_limit=16)).endswith(f"more; {LIMIT}")


def test_no_pass_is_stated_for_large_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_remedies, "MAX_REMAT_OPERATIONS", 0)
    assert error_of(REQUEST) == HEAD + LIMIT


def test_no_pass_is_stated_for_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_remedies, "has_pipelines", lambda module: module is MODULE)
    assert error_of(REQUEST) == HEAD + LIMIT


def test_a_pass_that_the_pipeline_has_is_not_stated() -> None:
    pipeline = Pipeline.parse(f"{DEFAULT_PIPELINE},remat{{budget=3000B}}")
    assert error_of(replace(REQUEST, pipeline=pipeline)) == HEAD + LIMIT
