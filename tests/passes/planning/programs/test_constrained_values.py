"""The solutions of the planning problem that become candidates, and the removal of the constraints
that a plan does not need."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs import constrained_values
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.constrained_values import (
    ConstrainedPlan,
    _list_solution_axes,
    _reduce_by_propagation,
    _remove_needless,
    constrain_values,
)
from shardir.passes.planning.programs.evaluation import Cost, Evaluation, Evaluator
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.text.parser import parse

X: DimAxes = (("x",),)
CHAIN = """\
func @f(%x: f32[8]) -> (f32[8]) {
  %a = neg(%x) : f32[8]
  %b = exp(%a) : f32[8]
  %c = tanh(%b) : f32[8]
  return %c
}
"""
PRODUCT = """\
func @f(%x: f32[64, 32], %w: f32[32, 128]) -> (f32[64, 128]) {
  %y = dot(%x, %w, dims="ik,kj->ij") : f32[64, 128]
  return %y
}
"""
PRODUCT_FLOPS = 2 * 64 * 32 * 128 // 4
"""The flops of each of four devices."""


def request_for(text: str, **options: Any) -> PlanningRequest:
    pipeline = Pipeline.parse(DEFAULT_PIPELINE)
    return PlanningRequest(parse(text), Mesh("mesh", (("x", 4),)), pipeline, **options)


def evaluation_of(arguments: ArgumentAxes, nbytes: int, flops: int = 0) -> Evaluation:
    return Evaluation(arguments, None, flops, nbytes, 0, 0, {}, Module((), ()))


def constrain(
    monkeypatch: pytest.MonkeyPatch,
    solutions: Sequence[ArgumentAxes],
    sent: Callable[[ArgumentAxes], int],
    max_evaluations: int = 40,
) -> tuple[ConstrainedPlan | None, list[ArgumentAxes]]:
    """Return the plan with constraints for solutions that send some bytes, in place of one that
    sends 10 bytes, and the evaluated axes."""
    tried: list[ArgumentAxes] = []

    class ListedEvaluator(Evaluator):
        def __init__(self, *_: object) -> None:
            super().__init__()

        def on_mesh(self, mesh: Mesh, machine: object) -> "ListedEvaluator":
            return self

        def steps(
            self, arguments: ArgumentAxes, worst: Evaluation | None = None
        ) -> Iterator[Cost | Evaluation]:
            tried.append(arguments)
            yield evaluation_of(arguments, sent(arguments))

    monkeypatch.setattr(constrained_values, "_list_solution_axes", lambda *_: iter(solutions))
    monkeypatch.setattr(constrained_values, "_reduce_by_propagation", lambda _, axes: axes)
    request = request_for(CHAIN, evaluator=ListedEvaluator)
    chosen = evaluation_of((None,) * 4, 10)
    return constrain_values(request, chosen, max_evaluations), tried


def test_the_evaluations_of_solutions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (X, X, None, None), (X, X, X, None)
    sent: dict[ArgumentAxes, int] = {first: 5, second: 3}
    found, tried = constrain(monkeypatch, [first, second], lambda axes: sent.get(axes, 9), 1)
    assert found is not None
    assert found.evaluation.arguments == first
    assert tried == [first]


def test_a_solution_that_sends_more_than_another_one_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (X, X, None, None), (X, None, X, None)
    sent: dict[ArgumentAxes, int] = {first: 3, second: 5}
    found, tried = constrain(monkeypatch, [first, second], lambda axes: sent.get(axes, 9))
    assert found is not None
    assert found.evaluation.arguments == first
    assert tried[:2] == [first, second]


def test_constraints_without_which_the_program_sends_more_remain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only constraints are removed: no axes of arguments, and nothing where none is."""
    solution = (X, X, None, X)
    found, tried = constrain(monkeypatch, [solution], lambda axes: 3 if axes[1] == X else 7)
    assert found is not None
    assert found.evaluation.arguments == (X, X, None, None)
    assert found.evaluation.bytes_sent == 3
    assert tried == [solution, (X, None, None, None), (X, None, None, X), (X, X, None, None)]


def test_shardings_that_cannot_be_compiled_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is a solution, nor one without some constraints."""
    first, second = (X, X, None, None), (X, X, None, X)

    def sent(axes: ArgumentAxes) -> int:
        if axes != second:
            raise PartitionError("uneven")
        return 3

    found, _ = constrain(monkeypatch, [first, second], sent)
    assert found is not None
    assert found.evaluation.arguments == second
    assert constrain(monkeypatch, [first], sent)[0] is None


def test_large_programs_are_not_constrained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constrained_values, "MAX_CONSTRAINED_OPERATIONS", 2)
    assert constrain(monkeypatch, [(X, X, None, None)], lambda axes: 3) == (None, [])


def solution_axes(request: PlanningRequest, flops: int = PRODUCT_FLOPS) -> list[ArgumentAxes]:
    """Return the axes of the solutions that are better than a plan that sends much."""
    return list(_list_solution_axes(request, evaluation_of((), 1 << 30, flops)))


def test_solutions_have_the_given_shardings() -> None:
    """Without them, no solution sends the products of rows and columns."""
    fixed = ((), ("x",)), (("x",), ())
    assert {axes[:2] for axes in solution_axes(request_for(PRODUCT, fixed=fixed))} == {fixed}
    assert fixed not in {axes[:2] for axes in solution_axes(request_for(PRODUCT))}


def test_solutions_with_more_flops_than_the_plan_are_not_tried() -> None:
    assert solution_axes(request_for(PRODUCT))
    assert solution_axes(request_for(PRODUCT), PRODUCT_FLOPS - 1) == []


def test_uneven_placements_of_values_are_no_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    solutions = [SimpleNamespace(strategies=(0, strategy)) for strategy in (0, 1)]
    monkeypatch.setattr(constrained_values, "list_solutions", lambda *_: solutions)
    for size, sharded in ((8, X), (6, None)):
        type = f"f32[{size}]"
        request = request_for(f"func @f(%x: {type}) -> ({type}) {{\n  %y = neg(%x) : {type}\n"
                              "  return %y\n}\n")  # fmt: skip
        (op,) = request.module.main.body.ops
        found = solution_axes(replace(request, anchors=op.results), 0)
        assert {axes[1] for axes in found} == {((),), sharded}


def test_values_get_the_constraints_that_propagation_does_not_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Propagation chooses other axes for `b`, which needs none, and for `c` in spite of its
    constraint, so that `d` is constrained after it."""
    params = SimpleNamespace(params=(object(),))
    anchors = tuple(SimpleNamespace(name=name) for name in "abcd")
    module = SimpleNamespace(main=SimpleNamespace(body=params))
    request: Any = SimpleNamespace(module=module, anchors=anchors)
    tried: list[ArgumentAxes] = []

    def propagate(request: PlanningRequest, axes: ArgumentAxes) -> Mapping[str, DimAxes]:
        tried.append(axes)
        return {"a": X, "b": X, "c": ((),), "d": axes[4] or ((),)}

    monkeypatch.setattr(constrained_values, "_propagate", propagate)
    assert _reduce_by_propagation(request, (X, X, None, X, X)) == (X, None, None, X, X)
    none = (X, None, None, None, None)
    assert tried == [none, (*none[:3], X, None), (*none[:3], X, X)]


@pytest.mark.parametrize(
    ("count", "needed"),
    [(0, set()), (1, set()), (1, {0}), (8, {3}), (8, {0, 7}), (9, {2, 3, 8}), (5, set(range(5)))],
)
def test_the_needed_values_remain(count: int, needed: set[int]) -> None:
    tried: list[tuple[int, ...]] = []

    def is_sufficient(kept: Sequence[int]) -> bool:
        tried.append(tuple(kept))
        return needed <= set(kept)

    _remove_needless(range(count), is_sufficient)
    smallest: tuple[int, ...] = tuple(range(count))
    for kept in tried:
        if needed <= set(kept) and len(kept) < len(smallest):
            smallest = kept
    assert set(smallest) == needed
    assert len(tried) <= 2 * count * max(1, len(needed))


def test_the_removal_ends_without_evaluations() -> None:
    """Each question after the first one that is not answered would be another evaluation."""
    answers = iter([False, True, None])
    _remove_needless(range(8), lambda kept: next(answers))
    assert next(answers, "none") == "none"
