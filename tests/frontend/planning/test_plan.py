"""`plan` finds shardings of arguments, and the program that `jit` compiles with them is as
predicted."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import virtual_devices
from shardir.nn import relu
from shardir.passes.explain.propagated_program import ExplainError
from shardir.passes.planning.problem import PlanningError
from shardir.report import load
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
    plan = sd.plan(step, args, abstract_mesh(4, 2), "a100x8", evaluations=25)
    planned = sd.jit(step, in_shardings=plan.in_shardings, out_shardings=plan.out_shardings)
    compiled = planned.lower(*args).compile()
    assert plan.collectives() == compiled.collectives()
    simulation = compiled.simulate("a100x8")
    assert plan.peak_memory == simulation.memory.peak
    assert plan.step_seconds == simulation.step_seconds


@pytest.mark.parametrize(
    ("function", "difference"),
    [
        (lambda x, w: x @ w, 0),
        # The kernel holds no more than the product and its result do.
        (lambda x, w: snp.exp(snp.sin(snp.tanh(x @ w))), 0),
        # Each operation has a shard of 64 * 64 / 4 values as operand and as result.
        (lambda x, w: snp.exp(snp.sin(snp.tanh(x + w))), 64 * 64),
    ],
    ids=["product", "product and kernel", "kernel"],
)
def test_the_predicted_peak_is_that_of_kernels(function: Any, difference: int) -> None:
    """`memory_analysis` counts the same live ranges before fusion."""
    args = [np.ones((64, 64), np.float32)] * 2
    plan = sd.plan(function, args, abstract_mesh(4))
    compiled = plan.jit().lower(*args).compile()
    assert compiled.simulate("a100x8").memory.peak == plan.peak_memory
    assert compiled.memory_analysis().peak_memory_in_bytes == plan.peak_memory + difference


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


def test_the_report_of_a_plan_has_its_decisions(tmp_path: Path) -> None:
    plan = sd.plan(step, arguments(rows=256, width=512), abstract_mesh(4), evaluations=12)
    made = plan.report(tmp_path / "plan.html")
    assert load(tmp_path / "plan.html") == made
    planning = made.data.planning
    assert planning is not None
    text = str(plan)
    words = [planning.title, *planning.sentences]
    tables = {table.head[0]: table for table in planning.tables}
    assert list(tables) == ["argument", "decision", "plan", "not chosen", "collective"]
    rejected = tables["not chosen"].rows
    for head, table in tables.items():
        words += [cell for row in table.rows if head != "not chosen" for cell in row]
    assert [word for word in words if word not in text] == []
    assert [word for word in words if word not in str(made)] == []
    assert {row[0]: row[1] for row in rejected} == {
        "replicated": "more flops",
        "data parallel": "more sent bytes",
        f"without {tables['decision'].rows[0][0]}": "more flops",
    }
    assert made.data.total.sent == plan.evaluation.bytes_sent


def test_plans_are_exported() -> None:
    plan = sd.plan(step, arguments(), abstract_mesh(4))
    assert plan.as_jax() == (
        "import jax\n"
        "from jax.sharding import AxisType, PartitionSpec as P\n"
        "\n"
        "mesh = jax.make_mesh((4,), ('data',), axis_types=(AxisType.Auto,))\n"
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
            "batch of plan has 'z', which is not an argument of step; its arguments are params, x, "
            "y",
        ),
        (
            {"batch": 3},
            "batch of plan has 3, which is not an argument of step; its arguments are params, x, y",
        ),
        (
            {"batch": 1.5},
            'batch of plan is 1.5; use the names or numbers of arguments, such as ("x", "y")',
        ),
        ({"evaluations": 0}, "evaluations of plan is 0; use a positive integer"),
        ({"progress": 3}, "progress of plan is 3; use a function or None"),
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


def test_only_functions_have_plans() -> None:
    with pytest.raises(ArgumentError) as caught:
        sd.plan(3, arguments(), abstract_mesh(4))  # type: ignore[arg-type]
    assert str(caught.value).partition("\n")[0] == "plan takes a function, got 3"


def test_a_mesh_of_one_device_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        sd.plan(step, arguments(), abstract_mesh(1))
    assert str(caught.value).partition("\n")[0] == (
        "the mesh of plan has one device, so that there is nothing to shard"
    )


def test_shardings_that_no_plan_can_have_are_refused() -> None:
    mesh = abstract_mesh(4)
    _, x, _ = arguments()
    y = sd.ShapeDtypeStruct((510, 16), x.dtype, sharding=NamedSharding(mesh, P("data")))
    with pytest.raises(ArgumentError) as caught:
        sd.plan(lambda x, y: (x.sum(), y), (x, y), mesh)
    assert str(caught.value).partition("\n")[0] == (
        "the sharding of the argument %y of plan shards dimension 0, of size 510, into 4 parts; a "
        'plan shards only dimensions that the mesh axes divide, except for jit(..., uneven="pad")'
    )


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (
            "%x: f32[32, 16@data:(1)2]",
            "'%x: f32[32, 16@data:(1)2]' has a part of a mesh axis; name an axis of the plan's "
            "mesh",
        ),
        (
            "%x: f32[32@data, 16@data]",
            "'%x: f32[32@data, 16@data]' uses the mesh axis 'data' twice; each axis shards one "
            "dimension",
        ),
        (
            "%y: f32[3@data, 16]",
            "'%y: f32[3@data, 16]' shards dimension 0, of size 3, into 4 parts; a plan shards only "
            'dimensions that the mesh axes divide, except for jit(..., uneven="pad")',
        ),
        (
            "%x: f32[32@data, 16], %y: f32[3, 16]",
            "'%x: f32[32@data, 16], %y: f32[3, 16]' has several annotations; write only the first "
            "one",
        ),
        (
            "result 0: f32[32@data, 16]",
            "'result 0: f32[32@data, 16]' states the sharding of no argument of double; a plan "
            "decides those of arguments",
        ),
        (3, "3 is not an annotation; write it as %w: f32[128, 256@model]"),
    ],
)
def test_wrong_annotations_of_why_not(annotation: Any, message: str) -> None:
    def double(x: Any, y: Any) -> Any:
        return 2 * x, 2 * y

    structs = [sd.ShapeDtypeStruct((rows, 16), np.float32) for rows in (32, 3)]
    plan = sd.plan(double, structs, abstract_mesh(4))
    with pytest.raises((ArgumentError, ExplainError)) as caught:
        plan.why_not(annotation)
    assert str(caught.value).partition("\n")[0] == message


@pytest.mark.parametrize(
    ("seconds", "fault"),
    [
        (0, "0.0; use a positive finite number"),
        (np.float32(np.nan), "nan; use a positive finite number"),
        (float("inf"), "inf; use a positive finite number"),
        (10**400, f"a real number, got {brief(10**400)}"),
        ("1", "a real number, got '1'"),
    ],
)
def test_wrong_seconds_of_lower_bound(seconds: Any, fault: str) -> None:
    plan = sd.plan(lambda x: x, (np.ones(4),), abstract_mesh(4), evaluations=1)
    with pytest.raises(ArgumentError) as caught:
        plan.lower_bound(seconds)
    assert str(caught.value).partition("\n")[0] == f"seconds of lower_bound is {fault}"


def test_diff_with_another_object_is_refused() -> None:
    plan = sd.plan(lambda x: x, (np.ones(4),), abstract_mesh(4))
    with pytest.raises(ArgumentError) as caught:
        plan.diff(3)  # type: ignore[arg-type]
    assert str(caught.value).partition("\n")[0] == (
        "diff compares a plan with another plan, not with 3"
    )


def test_captured_arrays_keep_their_shardings() -> None:
    mesh = mesh_of(4)
    w = sd.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, P("data")))
    x = np.ones((32, 64), np.float32)

    def multiply(x: Any) -> Any:
        return x @ w

    plan = sd.plan(multiply, (x,), mesh)
    compiled = plan.jit().lower(x).compile()
    assert plan.collectives() == compiled.collectives() != []
    assert "%w: f32[64@data, 64@-]" in plan.as_ir()


def test_numbers_of_numpy_are_accepted() -> None:
    mesh = abstract_mesh(4)
    plan = sd.plan(step, arguments(), mesh, memory=np.int64(10**9), evaluations=np.int64(5))  # type: ignore[arg-type]
    assert plan.memory_limit == 10**9


def test_a_function_without_arguments() -> None:
    plan = sd.plan(lambda: snp.ones(4), (), abstract_mesh(4))
    assert "candidate\n\nno arguments\n\nplan" in str(plan)


class Layer(NamedTuple):
    w: Any
    b: Any


@sd.tree.register_dataclass
@dataclass
class Model:
    first: Layer
    rest: list[Any]


def update(model: Model, x: Any) -> Any:
    return sd.tree.map(lambda p: p - 0.1 * (x**2).mean(), model)


def model_arguments() -> tuple[Any, ...]:
    def layer() -> Layer:
        return Layer(np.ones((8, 8), np.float32), np.ones(8, np.float32))

    return Model(layer(), [layer()]), np.ones((16, 8), np.float32)


def test_code_for_jax_imports_classes() -> None:
    plan = sd.plan(update, model_arguments(), abstract_mesh(2, 2), evaluations=5)
    code = plan.as_jax()
    assert f"from {__name__} import Layer\nfrom {__name__} import Model\n" in code
    assert "axis_types=(AxisType.Auto, AxisType.Auto))" in code
    assert "Model(first=Layer(w=P(" in code


def test_code_for_jax_has_the_order_of_devices_and_the_types_of_axes() -> None:
    devices = np.array(virtual_devices(4))[[3, 1, 2, 0]]
    mesh = sd.sharding.Mesh(devices, ("data",), axis_types=(sd.sharding.AxisType.Explicit,))
    plan = sd.plan(lambda x: x, (np.ones(4),), mesh)
    assert plan.as_jax().startswith(
        "import jax\n"
        "import numpy as np\n"
        "from jax.sharding import AxisType, PartitionSpec as P\n"
        "\n"
        "devices = np.array(jax.devices())[[3, 1, 2, 0]].reshape((4,))\n"
        "mesh = jax.sharding.Mesh(devices, ('data',), axis_types=(AxisType.Explicit,))\n"
    )


def test_classes_that_code_for_jax_cannot_import() -> None:
    class Local(NamedTuple):
        x: Any

    plan = sd.plan(lambda p: p.x, (Local(np.ones(4)),), abstract_mesh(4))
    with pytest.raises(ArgumentError) as caught:
        plan.as_jax()
    assert str(caught.value).partition("\n")[0] == (
        "as_jax cannot import the class Local of an argument or result, which a function defines; "
        "define the class in a module, or use in_specs and out_specs"
    )


@pytest.mark.long
def test_jax_runs_the_exported_code() -> None:
    pytest.importorskip("jax")
    plan = sd.plan(step, arguments(layers=2), abstract_mesh(2, 4), evaluations=20)
    run = """
import jax.numpy as jnp
import numpy as np

def loss(params, x, y):
    for w, b in params:
        x = jax.nn.relu(x @ w + b)
    return ((x - y) ** 2).mean()

def step(params, x, y):
    value, gradients = jax.value_and_grad(loss)(params, x, y)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

params = [(np.ones((16, 16), "f"), np.ones(16, "f")) for _ in range(2)]
with jax.set_mesh(mesh):
    planned = jax.jit(step, in_shardings=in_specs, out_shardings=out_specs)
    value, new = planned(params, np.ones((512, 16), "f"), np.ones((512, 16), "f"))
assert new[0][0].sharding.spec == out_specs[1][0][0], new[0][0].sharding
print("ran")
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
                   "JAX_PLATFORMS": "cpu"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", plan.as_jax() + run],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ran\n", done.stderr


def test_memory_errors_of_pipelines_do_not_propose_remat() -> None:
    """The pass changes the programs of stages, which the planned program only calls."""

    def staged_loss(weights: Any, x: Any) -> Any:
        for stage, weight in enumerate(weights):
            x = sd.stage(stage)(lambda w, x: sd.numpy.tanh(x @ w))(weight, x)
        with sd.stage(1):
            return sd.numpy.mean(x**2)

    def staged_step(weights: Any, x: Any) -> Any:
        gradients = sd.grad(sd.pipeline(staged_loss, microbatches=4))(weights, x)
        return sd.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)

    weights = [sd.ShapeDtypeStruct((16, 16), np.float32)] * 2
    mesh = sd.make_mesh((2, 3), ("pipe", "x"))
    args = weights, sd.ShapeDtypeStruct((8, 16), np.float32)
    with pytest.raises(PlanningError) as caught:
        sd.plan(sd.jit(staged_step, uneven="pad"), args, mesh, evaluations=40, memory=4149)
    assert "no plan fits into 4.1 KiB on each device" in str(caught.value)
    assert "remat" not in str(caught.value)
