"""Plans of programs, compared with brute force and with the known best plans of Alpa's tests."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product
from math import prod
from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.nn import relu, softmax
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs.assignment import ArgumentAxes, DimAxes
from shardir.passes.planning.programs.evaluation import Cost, Evaluation, Evaluator
from shardir.passes.planning.programs.lower_bound import LowerBound, find_lower_bound
from shardir.passes.planning.programs.plan_program import ProgramPlan, plan_program
from shardir.passes.planning.programs.planning_request import PlanningRequest
from shardir.passes.rematerialization.remat import BudgetError
from tests.passes.planning.programs.machines import SimpleMachine

LAYERS = 4
LINE, SQUARE = Mesh("mesh", (("x", 4),)), Mesh("mesh", (("x", 2), ("y", 2)))


def struct(*shape: int) -> Any:
    return sd.ShapeDtypeStruct(shape, "float32")


def trace(fun: Callable[..., Any], *args: Any) -> Module:
    module: Module = sd.jit(fun).lower(*args).module
    return module


def make_plan(module: Module, mesh: Mesh, **options: Any) -> ProgramPlan:
    return plan_program(PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE), **options))


def bound_of(module: Module, mesh: Mesh, chosen: Evaluation) -> LowerBound:
    request = PlanningRequest(module, mesh, Pipeline.parse(DEFAULT_PIPELINE))
    return find_lower_bound(request, chosen, seconds=600.0)  # On a slow machine, too.


def is_optimal(module: Module, mesh: Mesh, chosen: Evaluation) -> bool:
    """Return whether the lower bound proves that a plan is the best one."""
    return bound_of(module, mesh, chosen) == LowerBound(chosen.flops, chosen.bytes_sent)


def kinds(found: Evaluation) -> dict[tuple[str, tuple[str, ...]], int]:
    return dict(Counter((each.kind, each.axes) for each in found.collectives))


def shardings(shape: Sequence[int], mesh: Mesh) -> Iterator[DimAxes]:
    """Yield each sharding of a tensor along whole axes."""
    axes = list(mesh.sizes)
    found = set()
    for choice in product([None, *range(len(shape))], repeat=len(axes)):
        for order in permutations(range(len(axes))):
            dims: list[list[str]] = [[] for _ in shape]
            for i in order:
                dim = choice[i]
                if dim is not None:
                    dims[dim].append(axes[i])
            parts = [prod(mesh.sizes[axis] for axis in dim) for dim in dims]
            if not any(size % part for size, part in zip(shape, parts, strict=True)):
                found.add(tuple(map(tuple, dims)))
    yield from sorted(found)


def gradient(x: Any, w: Any) -> Any:
    return sd.grad(lambda w: (relu(x @ w) ** 2).sum())(w)


def small_step(w: Any, v: Any, x: Any) -> Any:
    gradients = sd.grad(lambda p: (relu(x @ p[0]) @ p[1]).sum())((w, v))
    return w - gradients[0], v - gradients[1]


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "product": (lambda x, w: x @ w, [(64, 32), (32, 128)]),
    "chain": (lambda x, w, v: (x @ w) @ v, [(64, 32), (32, 128), (128, 32)]),
    "dense layers": (lambda x, w, v: relu(x @ w) @ v, [(64, 256), (256, 512), (512, 256)]),
    "gram matrix": (lambda x: x.T @ x, [(64, 256)]),
    "gradient": (gradient, [(64, 256), (256, 128)]),
    "step": (small_step, [(64, 128), (128, 32), (256, 64)]),
}


def check_against_brute_force(name: str, mesh: Mesh, machine: SimpleMachine | None) -> None:
    fun, shapes = PROGRAMS[name]
    module = trace(fun, *(struct(*shape) for shape in shapes))
    plan = make_plan(module, mesh, machine=machine)
    candidates = product(*(list(shardings(shape, mesh)) for shape in shapes))
    unconstrained = (None,) * len(plan.anchors)
    found = [plan.evaluator.evaluate((*arguments, *unconstrained)) for arguments in candidates]
    best = min(each.key(None) for each in found if each is not None)
    assert plan.chosen.key(None) <= best
    if machine is None:
        bound = bound_of(module, mesh, plan.chosen)
        assert bound == LowerBound(plan.chosen.flops, plan.chosen.bytes_sent)
        for each in found:
            if each is not None:
                assert (each.flops, each.bytes_sent) >= (bound.flops, bound.bytes_sent)


@pytest.mark.sample(3)
@pytest.mark.parametrize("machine", [None, SimpleMachine()], ids=["no machine", "machine"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_are_as_good_as_brute_force(name: str, machine: SimpleMachine | None) -> None:
    check_against_brute_force(name, LINE, machine)


@pytest.mark.long
@pytest.mark.parametrize(
    "machine",
    [None, SimpleMachine(), SimpleMachine({"y": 1e-8})],
    ids=["no machine", "machine", "slow axis"],
)
@pytest.mark.parametrize("name", ["product", "chain", "gram matrix", "gradient"])
def test_plans_on_two_axes_are_as_good_as_brute_force(
    name: str, machine: SimpleMachine | None
) -> None:
    check_against_brute_force(name, SQUARE, machine)


def perceptron(batch: int, hidden: int) -> Module:
    """Return the step of gradient descent of Alpa's tests."""

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(weights):
            x = x @ w + b
            x = relu(x) if i < LAYERS - 1 else x
        return snp.mean((x - y) ** 2)

    def step(weights: Any, x: Any, y: Any) -> Any:
        gradients = sd.grad(loss)(weights, x, y)
        return sd.tree.map(lambda p, g: p - 0.1 * g, weights, gradients)

    weights = [(struct(hidden, hidden), struct(hidden)) for _ in range(LAYERS)]
    return trace(step, weights, struct(batch, hidden), struct(batch, hidden))


def test_many_rows_and_small_layers_are_data_parallel() -> None:
    module = perceptron(256, 32)
    plan = make_plan(module, LINE)
    assert kinds(plan.chosen) == {("all-reduce", ("x",)): 2 * LAYERS}
    *weights, x, y = plan.chosen.arguments
    assert all(axes is not None and not any(axes) for axes in weights)
    assert (x, y) == ((("x",), ()), (("x",), ()))
    assert is_optimal(module, LINE, plan.chosen)


def test_few_rows_and_large_layers_are_tensor_parallel() -> None:
    """Even layers are sharded by columns and odd ones by rows, with n - 1 all-reduces."""
    module = perceptron(32, 256)
    plan = make_plan(module, LINE)
    assert kinds(plan.chosen) == {("all-reduce", ("x",)): LAYERS - 1}
    assert {each.nbytes for each in plan.chosen.collectives} == {32 * 256 * 4}
    for layer in range(LAYERS):
        weight = plan.chosen.arguments[2 * layer]
        assert weight == ((("x",), ()) if layer % 2 else ((), ("x",)))
    assert is_optimal(module, LINE, plan.chosen)


@pytest.mark.long
def test_plans_on_two_axes_are_not_slower_than_that_of_alpa() -> None:
    """Alpa reduces gradients over one axis and activations over the other one, which is ten times
    as fast; it does not gather weights."""
    machine = SimpleMachine({"x": 1e-9, "y": 1e-10}, seconds_per_flop=1e-6, latency=0)
    weights: list[DimAxes] = []
    for layer in range(LAYERS):
        weights += [(("y",), ()), ((),)] if layer % 2 else [((), ("y",)), (("y",),)]
    rows = (("x",), ())
    plan = make_plan(perceptron(256, 32), SQUARE, machine=machine, annotated=(*weights, rows, rows))
    alpa = plan.baselines["annotated"]
    found = kinds(alpa)
    assert found == {("all-reduce", ("y",)): LAYERS - 1, ("all-reduce", ("x",)): 2 * LAYERS}
    assert plan.chosen.key(None) <= alpa.key(None)


def test_a_memory_limit_shards_the_state() -> None:
    """The replicated program needs twice the memory."""

    def step(w: Any, m: Any, x: Any) -> Any:
        gradient = sd.grad(lambda w: (relu(x @ w) ** 2).sum())(w)
        m = 0.9 * m + gradient
        return w - 0.1 * m, m

    args = struct(256, 512), struct(256, 512), struct(1024, 256)
    module = trace(step, *args)
    machine = SimpleMachine()
    free = make_plan(module, LINE, machine=machine)
    limit = free.baselines["replicated"].peak // 2
    small = make_plan(module, LINE, machine=machine, memory_limit=limit)
    assert small.chosen.peak <= limit
    assert any(axes and any(axes) for axes in small.chosen.arguments)


def test_a_limit_that_no_plan_satisfies_is_refused() -> None:
    module = trace(lambda x, w: x @ w, struct(64, 32), struct(32, 128))
    with pytest.raises(PlanningError) as caught:
        make_plan(module, LINE, memory_limit=4096)
    assert str(caught.value) == (
        "no plan fits into 4.0 KiB on each device: the smallest peak found is 20.0 KiB, 16.0 KiB "
        "more; use a limit of at least 20480 bytes, more devices, or a smaller batch"
    )


def test_recomputation_is_a_remedy_for_too_little_memory() -> None:
    """The pass that the error states makes a plan fit."""

    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = x
            for w in weights:
                y = relu(y @ w)
            return (y**2).sum()

        return sd.tree.map(lambda w, g: w - 0.1 * g, weights, sd.grad(loss)(weights))

    module = trace(step, [struct(16, 16)] * 6, struct(4096, 16))
    options: dict[str, Any] = {"max_evaluations": 5, "memory_limit": 600_000}
    with pytest.raises(PlanningError) as caught:
        make_plan(module, LINE, **options)
    assert (
        "more; add the pass remat{budget=600000B} to the passes of jit, with which a plan "
        in str(caught.value)
    )
    pipeline = Pipeline.parse(f"{DEFAULT_PIPELINE},remat{{budget=600000B}}")
    plan = plan_program(PlanningRequest(module, LINE, pipeline, **options))
    assert plan.chosen.peak <= 600_000
    pipeline = Pipeline.parse(f"{DEFAULT_PIPELINE},remat{{budget=1000B}}")
    with pytest.raises(PlanningError) as caught:
        plan_program(PlanningRequest(module, LINE, pipeline, max_evaluations=1))
    assert str(caught.value).startswith(
        "no sharding of the arguments of @step can be compiled: remat cannot fit @step into a "
        "budget of 1000 B on each device"
    )


def test_the_smallest_of_the_budgets_of_all_candidates_is_stated() -> None:
    class Failing(Evaluator):
        def on_mesh(self, mesh: Mesh, machine: object) -> "Failing":
            return self

        def steps(
            self, arguments: ArgumentAxes, worst: Evaluation | None = None
        ) -> Iterator[Cost | Evaluation]:
            if arguments == ():
                raise PartitionError("uneven")
            raise BudgetError("large", len(arguments[0] or ()))

    evaluator = Failing()
    candidates: list[ArgumentAxes] = [((("x",),) * count,) for count in (3, 1, 2)]
    for arguments in (candidates[0], candidates[1], candidates[2], ()):
        assert evaluator.evaluate(arguments) is None
    arguments, error = evaluator.failure
    assert arguments == candidates[1]
    assert isinstance(error, BudgetError)
    assert error.possible == 1


def test_given_shardings_are_kept() -> None:
    module = trace(lambda x, w: x @ w, struct(64, 32), struct(32, 128))
    fixed = ((("x",), ()), None)
    plan = make_plan(module, LINE, fixed=fixed)
    assert plan.chosen.arguments[0] == (("x",), ())


def test_two_searches_find_the_same_plan() -> None:
    fun, shapes = PROGRAMS["chain"]
    module = trace(fun, *(struct(*shape) for shape in shapes))
    first, second = (make_plan(module, SQUARE) for _ in range(2))
    assert first.chosen == second.chosen
    assert first.assignment == second.assignment


def test_plans_are_not_worse_than_the_given_ones() -> None:
    """With one evaluation there is no search."""
    fixed = ((("x",), ()), (("x",), ()))
    module = trace(lambda x, w: x @ w, struct(64, 32), struct(32, 128))
    plan = make_plan(module, LINE, annotated=fixed, batch=(0,), max_evaluations=1)
    keys = [each.key(None) for each in plan.baselines.values()]
    assert set(plan.baselines) == {"replicated", "data parallel", "annotated"}
    assert plan.chosen.key(None) <= min(keys)


def test_attention_shards_batch_or_heads_without_communication() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return softmax(snp.einsum("bhsd,bhtd->bhst", q, k)) @ v

    shape = struct(4, 4, 16, 8)
    plan = make_plan(trace(attention, shape, shape, shape), SQUARE)
    assert plan.chosen.collective_count == 0
    assert plan.chosen.flops * 4 == plan.baselines["replicated"].flops
