"""Programs with fewer layers are those that the function gives for fewer layers."""

import re
from dataclasses import replace
from typing import Any

import pytest

import shardir as sd
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.nn import relu
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.programs import extrapolation
from shardir.passes.planning.programs.fold_layers import LayerFolder
from shardir.passes.planning.programs.plan_program import plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest, make_evaluator
from shardir.text.printer import print_module


def loss(params: Any, x: Any) -> Any:
    x = x @ params["embedding"]
    for layer in params["layers"]:
        x = x + relu(x @ layer["up"]) @ layer["down"]
    return ((x @ params["head"]) ** 2).sum()


def step(params: Any, x: Any) -> Any:
    return sd.tree.map(lambda p, g: p - 0.1 * g, params, sd.grad(loss)(params, x))


def trace(layers: int, words: int = 8) -> Module:
    def struct(*shape: int) -> Any:
        return sd.ShapeDtypeStruct(shape, "float32")

    layer = {"up": struct(16, 64), "down": struct(64, 16)}
    params = {
        "embedding": struct(words, 16),
        "head": struct(16, 8),
        "layers": [dict(layer) for _ in range(layers)],
    }
    module: Module = sd.jit(step).lower(params, struct(32, words)).module
    return module


def without_names(module: Module) -> list[str]:
    return sorted(re.sub(r"%[\w.]+", "%", line) for line in print_module(module).splitlines())


@pytest.mark.parametrize("kept", [2, 3])
def test_a_folded_program_is_that_of_fewer_layers(kept: int) -> None:
    folded = LayerFolder(trace(8)).fold(kept)
    assert folded is not None
    assert without_names(folded.module) == without_names(trace(kept))


def test_programs_without_layers_are_not_folded() -> None:
    module: Module = sd.jit(lambda x: x @ x.T).lower(sd.ShapeDtypeStruct((4, 8), "float32")).module
    assert LayerFolder(module).fold(2) is None


@pytest.mark.parametrize("words", [8, 128], ids=["few words", "many words"])
def test_the_costs_of_all_layers_are_those_of_few(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many words, few layers have their peak at the gradient of the embedding, and eight
    layers at that of the last layer."""
    monkeypatch.setattr(extrapolation, "MIN_OPERATIONS", 10)
    mesh = Mesh("mesh", (("x", 4),))
    request = PlanningRequest(
        trace(8, words), mesh, Pipeline.parse(DEFAULT_PIPELINE), max_evaluations=10
    )
    plan = plan_program(request)
    assert plan.is_extrapolated
    whole, few = plan.chosen, plan.searched
    assert (*whole.cost, whole.peak) == (*few.cost, few.peak)
    assert few.cost == min(each.cost for each in plan.evaluator.evaluate_all())
    assert len(whole.arguments) == 8 * 2 + 3


COLUMNS, ROWS = ((), ("x",)), (("x",), ())


def mixed_axes(module: Module) -> tuple[Any, ...]:
    """Return axes of the arguments of eight layers: those of the last layers are sharded by columns
    and rows, and nothing else."""
    return tuple(
        (COLUMNS if value.name.endswith("up") else ROWS)
        if re.search(r"layers\.[4-7]", value.name)
        else ((),) * value.type.rank
        for value in module.main.body.params
    )


def plan_few_layers(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr(extrapolation, "MIN_OPERATIONS", 10)
    mesh, pipeline = Mesh("mesh", (("x", 4),)), Pipeline.parse(DEFAULT_PIPELINE)
    module = trace(8)
    request = PlanningRequest(module, mesh, pipeline, batch=(), max_evaluations=1)
    plan = plan_program(replace(request, **options))
    assert plan.is_extrapolated
    return plan, make_evaluator(request).require(mixed_axes(module))


def test_annotations_that_differ_between_layers_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a search, the annotations are better than replicated arguments. The first layer that
    stands for the others is not sharded."""
    plan, given = plan_few_layers(monkeypatch, annotated=mixed_axes(trace(8)))
    assert plan.baselines["annotated"] == given
    assert plan.chosen == given
    assert given.flops < plan.baselines["replicated"].flops


def test_given_shardings_that_differ_between_layers_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, given = plan_few_layers(monkeypatch, fixed=mixed_axes(trace(8)))
    assert plan.chosen == given
