"""The steps of `plan_program`: which of them a program needs, and which plan each of them keeps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs import plan_program as steps
from shardir.passes.planning.programs.assignment import ArgumentAxes, Assignment, DimAxes
from shardir.passes.planning.programs.constrained_values import ConstrainedPlan
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.plan_program import ProgramPlan, _respects, plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.text.parser import parse

LINE = Mesh("mesh", (("x", 4),))
UNSHARDED: DimAxes = ((), ())
ROWS: DimAxes = (("x",), ())
UNUSED: Any = None
PRODUCT = parse("""\
func @f(%x: f32[64, 32], %w: f32[32, 128]) -> (f32[64, 128]) {
  %y = dot(%x, %w, dims="ik,kj->ij") : f32[64, 128]
  return %y
}
""")


def request_for(passes: str = DEFAULT_PIPELINE, **options: Any) -> PlanningRequest:
    return PlanningRequest(PRODUCT, LINE, Pipeline.parse(passes), **options)


def evaluation_of(nbytes: int, flops: int = 0, arguments: ArgumentAxes = ()) -> Evaluation:
    return Evaluation(arguments, None, flops, nbytes, 0, 0, {}, Module((), ()))


def plan_of(
    chosen: Evaluation,
    request: PlanningRequest | None = None,
    count: int = 0,
    baselines: Mapping[str, Evaluation] = MappingProxyType({}),
) -> ProgramPlan:
    """Return a plan after `count` evaluations."""
    evaluator: Any = SimpleNamespace(count=count)
    return ProgramPlan(
        request or request_for(), chosen, chosen, baselines, {}, (), Assignment(), evaluator,
        UNUSED, lambda arguments: arguments,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("all layers", ["anchors", "space", "search", "split", "pad", "constrain", "check"]),
        ("few layers", ["space", "search", "split", "check"]),
        ("stages", ["space", "search", "check"]),
    ],
)
def test_a_search_with_few_layers_or_stages_has_fewer_steps(
    monkeypatch: pytest.MonkeyPatch, kind: str, names: list[str]
) -> None:
    """Values inside of a program are planned only in the program that is evaluated, and stages are
    partitioned on their own."""
    request = request_for(machine_of=lambda mesh: None)
    plan = plan_of(evaluation_of(1), request)
    run: list[str] = []

    def step(name: str, result: object) -> Callable[..., object]:
        def record(*_: object) -> object:
            run.append(name)
            return result

        return record

    folded = object() if kind == "few layers" else None
    monkeypatch.setattr(steps, "has_pipelines", lambda _: kind == "stages")
    monkeypatch.setattr(steps, "fold_program", lambda _: folded)
    for function, name, result in (
        ("find_search_anchors", "anchors", ()),
        ("make_search_space", "space", None),
        ("_plan_on_mesh", "search", plan),
        ("_split_axes", "split", plan),
        ("_pad_anchors", "pad", plan),
        ("_constrain_values", "constrain", plan),
        ("check_memory", "check", None),
    ):
        monkeypatch.setattr(steps, function, step(name, result))
    assert plan_program(request).chosen is plan.chosen
    assert run == names


class SplitSpace:
    """A search space in which the parts of axes send `nbytes`."""

    def __init__(self, nbytes: int) -> None:
        self.request = self.program = request_for(max_evaluations=400)
        self.reader = SimpleNamespace(axes_of=lambda start: start)
        self.evaluated: list[object] = []
        self.evaluator = SimpleNamespace(evaluate=self.evaluate, count=1)
        self.nbytes = nbytes

    def evaluate(self, arguments: object, worst: object) -> Evaluation:
        self.evaluated.append(arguments)
        return evaluation_of(self.nbytes)

    def model_contractions(self) -> None:
        pass

    def split(self, split: object) -> "SplitSpace":
        return self

    def with_max_evaluations(self, count: int) -> "SplitSpace":
        return self


def split_axes(
    monkeypatch: pytest.MonkeyPatch, plan: ProgramPlan, nbytes: int, better: ProgramPlan | None
) -> tuple[ProgramPlan, list[object]]:
    """Return the plan after the search of parts of axes, which finds `better`, and the evaluated
    starts; `None` for a search that may not begin."""
    starts = [(SimpleNamespace(mesh=LINE), number) for number in range(4)]
    space: Any = SplitSpace(nbytes)
    monkeypatch.setattr(steps, "predict_splits", lambda *_: starts)
    monkeypatch.setattr(steps, "_plan_on_mesh", lambda *_: better or pytest.fail("a search began"))
    return steps._split_axes(space, plan, None), space.evaluated


def test_the_candidates_with_parts_of_axes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, starts in ((1, [0]), (32, [0]), (64, [0, 1]), (400, [0, 1, 2, 3])):
        plan = plan_of(evaluation_of(8), count=count)
        assert split_axes(monkeypatch, plan, 8, None) == (plan, starts)


def test_parts_of_axes_are_searched_only_from_a_better_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(evaluation_of(8), count=40)
    assert split_axes(monkeypatch, plan, 9, None)[0] is plan
    better = plan_of(evaluation_of(4), count=5)
    found = split_axes(monkeypatch, plan, 6, better)[0]
    assert (found.chosen, found.rejected) == (better.chosen, 40)


def test_a_plan_with_parts_of_axes_that_sends_more_with_all_layers_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(evaluation_of(8), count=40)
    assert split_axes(monkeypatch, plan, 6, plan_of(evaluation_of(9)))[0] is plan


def pad_anchors(
    monkeypatch: pytest.MonkeyPatch,
    plan: ProgramPlan,
    better: ProgramPlan | None,
    anchors: Sequence[object] = ("anchor",),
) -> ProgramPlan:
    """Return the plan after the search with padding, which finds `better`; `None` for a search that
    may not begin."""
    monkeypatch.setattr(steps, "find_search_anchors", lambda request: tuple(anchors))
    monkeypatch.setattr(steps, "make_search_space", lambda *_: None)
    monkeypatch.setattr(steps, "_plan_on_mesh", lambda *_: better or pytest.fail("a search began"))
    return steps._pad_anchors(plan.request, plan, None)


REPEATED = {"replicated": evaluation_of(0, flops=400)}
"""The baseline of a plan whose devices repeat the arithmetic of others with more than 101 flops."""


def test_values_are_padded_if_devices_repeat_the_arithmetic_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repeated = plan_of(evaluation_of(8, flops=102), count=40, baselines=REPEATED)
    better = plan_of(evaluation_of(8, flops=100))
    found = pad_anchors(monkeypatch, repeated, better)
    assert (found.chosen, found.rejected) == (better.chosen, 40)
    divided = plan_of(evaluation_of(8, flops=101), baselines=REPEATED)
    assert pad_anchors(monkeypatch, divided, None) is divided
    unknown = plan_of(evaluation_of(8, flops=102))
    assert pad_anchors(monkeypatch, unknown, None) is unknown


@pytest.mark.parametrize("passes", ["propagate,reshard{uneven=replicate},partition", "propagate"])
def test_values_are_not_padded_if_no_pass_pads(
    monkeypatch: pytest.MonkeyPatch, passes: str
) -> None:
    plan = plan_of(evaluation_of(8, flops=102), request_for(passes), baselines=REPEATED)
    assert pad_anchors(monkeypatch, plan, None) is plan


def test_values_are_not_padded_if_none_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(evaluation_of(8, flops=102), baselines=REPEATED)
    assert pad_anchors(monkeypatch, plan, None, plan.request.anchors) is plan


def test_a_plan_with_padding_that_costs_more_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(evaluation_of(8, flops=102), baselines=REPEATED)
    assert pad_anchors(monkeypatch, plan, plan_of(evaluation_of(9, flops=102))) is plan


def test_constraints_that_gain_less_than_a_minimum_are_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of(evaluation_of(1_000_000), count=40)
    evaluator: Any = SimpleNamespace(count=3)
    for nbytes, chosen in ((999_999, 1_000_000), (500_000, 500_000)):
        found = ConstrainedPlan(plan.request, evaluator, evaluation_of(nbytes))
        monkeypatch.setattr(steps, "constrain_values", lambda *_, found=found: found)
        assert steps._constrain_values(plan).chosen.bytes_sent == chosen


def with_all_layers(
    found: Evaluation, given: Evaluation, fixed: tuple[DimAxes | None, ...] | None
) -> ProgramPlan:
    """Return a plan with all layers, in which the annotated plan is `given`."""
    request = request_for(annotated=given.arguments, fixed=fixed)
    whole = SimpleNamespace(
        module=PRODUCT, require=lambda _: found, evaluate=lambda _: given, state_pairs={}
    )
    space: Any = SimpleNamespace(
        program=request, folded=object(), whole=whole, expand=lambda arguments: arguments
    )
    return steps._with_all_layers(plan_of(evaluation_of(1)), space)


@pytest.mark.parametrize(
    ("nbytes", "fixed", "chosen"),
    [
        (4, None, 4),
        (4, (None, ROWS), 4),
        (4, (UNSHARDED, None), 8),  # The annotations are not those that are required.
        (8, None, 8),
        (9, None, 8),
    ],
)
def test_cheaper_annotations_of_all_layers_are_chosen(
    nbytes: int, fixed: tuple[DimAxes | None, ...] | None, chosen: int
) -> None:
    found = evaluation_of(8, arguments=(UNSHARDED, UNSHARDED))
    given = evaluation_of(nbytes, arguments=(ROWS, ROWS))
    plan = with_all_layers(found, given, fixed)
    assert plan.chosen.bytes_sent == chosen
    assert (plan.chosen is found) is (chosen == 8)
    assert plan.baselines["annotated"] is given
    assert plan.is_extrapolated


def test_a_plan_of_all_layers_is_not_evaluated_again() -> None:
    request = request_for(memory_limit=1 << 20)
    space: Any = SimpleNamespace(program=request, folded=None)
    plan = plan_of(evaluation_of(1))
    assert steps._with_all_layers(plan, space) == replace(plan, request=request)


@pytest.mark.parametrize(
    ("size", "batch", "names"),
    [
        (4, (0,), {"replicated", "data parallel"}),
        (4, None, {"replicated"}),
        (1, (0,), {"replicated"}),
    ],
    ids=["batch", "no batch", "one device"],
)
def test_a_data_parallel_plan_needs_a_batch_and_devices(
    size: int, batch: tuple[int, ...] | None, names: set[str]
) -> None:
    request = replace(request_for(batch=batch, max_evaluations=1), mesh=Mesh("m", (("x", size),)))
    assert plan_program(request).baselines.keys() == names


def test_arguments_without_required_shardings_may_have_any() -> None:
    assert _respects((ROWS, UNSHARDED), (None, UNSHARDED))
    assert not _respects((ROWS, UNSHARDED), (None, ROWS))
