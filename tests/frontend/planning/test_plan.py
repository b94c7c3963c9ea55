"""`plan` finds shardings of arguments, and the program that `jit` compiles with them is as
predicted."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError
from shardir.frontend.shardings.devices import virtual_devices
from shardir.nn import relu
from shardir.sharding import NamedSharding, PartitionSpec as P


def loss(params: Any, x: Any, y: Any) -> Any:
    for w, b in params:
        x = relu(x @ w + b)
    return ((x - y) ** 2).mean()


def step(params: Any, x: Any, y: Any) -> Any:
    value, gradients = sd.value_and_grad(loss)(params, x, y)
    return value, sd.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def arguments(rows: int = 512, width: int = 16, layers: int = 1) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    params = [(random(width, width), random(width)) for _ in range(layers)]
    return params, random(rows, width), random(rows, width)


def mesh_of(*shape: int) -> Any:
    names = ("data", "model")[: len(shape)]
    return sd.make_mesh(shape, names, devices=sd.devices("cpu")[: int(np.prod(shape))])


def abstract_mesh(*shape: int) -> Any:
    names = ("data", "model")[: len(shape)]
    return sd.make_mesh(shape, names, devices=virtual_devices(int(np.prod(shape))))


@pytest.mark.parametrize("shape", [(4,), pytest.param((2, 2), marks=pytest.mark.long)])
def test_planned_programs_compute_the_same_numbers(shape: tuple[int, ...]) -> None:
    args = arguments(layers=2)
    plan = sd.plan(step, args, mesh_of(*shape), evaluations=60)
    planned = sd.jit(step, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    value, params = planned(*args)
    expected_value, expected = sd.jit(step)(*args)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5)
    for mine, theirs in zip(sd.tree.leaves(params), sd.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_model_is_the_compiled_program() -> None:
    args = arguments(rows=256, width=512)
    plan = sd.plan(step, args, abstract_mesh(4, 2), "a100x8", evaluations=60)
    planned = sd.jit(step, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    compiled = planned.lower(*args).compile()
    assert plan.collectives() == compiled.collectives()
    simulation = compiled.simulate("a100x8")
    assert plan.peak_memory == simulation.memory.peak
    assert plan.step_seconds == simulation.step_seconds


def test_results_that_are_state_have_the_shardings_of_arguments() -> None:
    plan = sd.plan(step, arguments(), abstract_mesh(4))
    value, params = plan.out_specs
    assert value is None
    assert params == plan.in_specs[0]
    assert any(spec != P() for spec in sd.tree.leaves(params))


def test_shardings_of_arguments_are_compared_or_kept() -> None:
    mesh = abstract_mesh(4)
    params, x, y = arguments()
    struct = sd.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P(None, "data")))
    plan = sd.plan(step, (params, struct, y), mesh)
    assert list(plan.compare().evaluations) == ["plan", "replicated", "data parallel", "annotated"]
    kept = sd.plan(step, (params, struct, y), mesh, keep=True)
    assert kept.in_specs[1] == P(None, "data")
    assert kept.evaluation.key(None) >= plan.evaluation.key(None)


def test_why_not_plans_again_with_a_given_choice() -> None:
    plan = sd.plan(step, arguments(), abstract_mesh(4))
    difference = plan.why_not("%params.0.0: f32[16@data, 16]")
    assert difference.after.arguments[0] == (("data",), ())
    assert difference.before.key(None) <= difference.after.key(None)
    assert difference.changes[0] == ("%params.0.0", "f32[16, 16@data]", "f32[16@data, 16]")


def test_two_plans_are_equal_and_their_difference_is_empty() -> None:
    mesh = abstract_mesh(2, 2)
    first, second = (sd.plan(step, arguments(), mesh, evaluations=30) for _ in range(2))
    assert first.in_specs == second.in_specs
    assert str(first) == str(second)
    difference = first.diff(second)
    assert difference.changes == ()
    assert str(difference).endswith("all arguments have the same shardings")


def test_plans_are_exported() -> None:
    plan = sd.plan(step, arguments(), abstract_mesh(4))
    assert plan.as_jax() == (
        "import jax\n"
        "from jax.sharding import PartitionSpec as P\n"
        "\n"
        "mesh = jax.make_mesh((4,), ('data',))\n"
        "in_specs = ([(P(None, 'data'), P('data'))], P(), P(None, 'data'))\n"
        "out_specs = (None, [(P(None, 'data'), P('data'))])\n"
    )
    assert "%y: f32[512@-, 16@data]" in plan.as_ir()
    assert '#sdy.sharding<@mesh, [{}, {"data"}]>' in plan.as_sdy()


def test_the_largest_effect_comes_first() -> None:
    plan = sd.plan(step, arguments(), abstract_mesh(4))
    first = plan.decisions[0]
    assert (first.dims, first.axis) == (((0, 1), (1, 0), (3, 1)), "data")
    assert first.without is not None
    assert first.without.flops == 4 * plan.evaluation.flops


def test_a_front_of_cost_and_memory() -> None:
    front = sd.plan(step, arguments(), abstract_mesh(4)).pareto().evaluations
    found = list(front.values())
    assert len(found) > 1
    assert [each.peak for each in found] == sorted((each.peak for each in found), reverse=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": 4}, "the mesh of plan is 4, which is not a mesh"),
        ({"args": 3.5}, "args of plan are a tuple of arguments, not 3.5; write (x,)"),
        (
            {"batch": "z"},
            "batch of plan has 'z', which is no argument of step; its arguments are params, x, y",
        ),
        (
            {"batch": 3},
            "batch of plan has 3, which is no argument of step; its arguments are params, x, y",
        ),
        ({"evaluations": 0}, "evaluations of plan is 0; use a positive integer"),
        (
            {"machine": 7},
            "the machine of plan is a name, a path, or a result of shardir.machine.load_machine, "
            "not 7",
        ),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {"args": arguments(), "mesh": abstract_mesh(4), **options}
    with pytest.raises(ArgumentError) as caught:
        sd.plan(step, **call)
    assert str(caught.value).partition("\n")[0] == message


def test_a_mesh_of_one_device_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        sd.plan(step, arguments(), abstract_mesh(1))
    assert str(caught.value).partition("\n")[0] == (
        "the mesh of plan has one device, so that there is nothing to shard"
    )


def test_why_not_of_other_values_is_refused() -> None:
    plan = sd.plan(step, arguments(), abstract_mesh(4), evaluations=5)
    with pytest.raises(ArgumentError) as caught:
        plan.why_not("%params.0.0: f32[16, 16@data:(1)2]")
    assert str(caught.value).partition("\n")[0] == (
        "'%params.0.0: f32[16, 16@data:(1)2]' has a part of a mesh axis; a plan shards along whole "
        "axes"
    )
