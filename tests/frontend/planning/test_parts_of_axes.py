"""Plans shard along parts of mesh axes, and dimensions that axes do not divide, where that is
cheaper, and the programs are as predicted."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError
from shardir.machine import load_machine
from shardir.nn import relu
from shardir.sharding import AbstractMesh, PartitionSpec as P


def step(params: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for w in params:
            h = relu(h @ w)
        return ((h - y) ** 2).mean()

    return [p - 0.1 * g for p, g in zip(params, sd.grad(loss)(params), strict=True)]


def arguments(rows: int, *widths: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    params = [rng.normal(size=shape).astype("f") / shape[0] for shape in pairwise(widths)]
    return params, *(
        rng.normal(size=(rows, width)).astype("f") for width in (widths[0], widths[-1])
    )


FEW_EVALUATIONS = 20
"""A number of evaluations after which a search has found the parts of axes that it prefers."""


def mesh(size: int = 4) -> Any:
    return sd.make_mesh((size,), ("x",), devices=sd.devices("cpu")[:size])


def check_program(plan: Any, args: Any) -> None:
    """Check that the planned program has the predicted costs, and computes the same numbers."""
    planned = plan.jit()
    compiled = planned.lower(*args).compile()
    assert compiled.collectives() == plan.collectives()
    assert compiled.simulate("a100x8").memory.peak == plan.peak_memory
    for mine, theirs in zip(planned(*args), sd.jit(step)(*args), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_parts_of_an_axis_shard_the_batch_and_the_layers() -> None:
    args = arguments(64, *[64] * 5)
    plan = sd.plan(step, args, mesh(), evaluations=FEW_EVALUATIONS)
    assert dict(plan.mesh.shape) == {"x_0": 2, "x_1": 2}
    assert plan.mesh.device_ids == mesh().device_ids
    assert plan.in_specs[1:] == (P(), P())
    whole = plan.compare().evaluations["data parallel"]
    assert (plan.evaluation.flops, plan.evaluation.bytes_sent) == (whole.flops, 48 * 1024)
    assert whole.bytes_sent == 96 * 1024
    check_program(plan, args)
    assert plan.as_jax().splitlines()[3].startswith("mesh = jax.make_mesh((2, 2), ('x_0', 'x_1'), ")
    forced = plan.why_not("%x: f32[64@x_0, 64]")
    assert forced.before.key(None) <= forced.after.key(None)


def test_a_part_of_an_axis_shards_a_dimension_that_the_axis_does_not_divide() -> None:
    args = arguments(6, 31, 1002, 31)
    plan = sd.plan(step, args, mesh())
    assert plan.in_specs == ([P(None, "x_0"), P("x_0")], P("x_1"), P("x_1"))
    assert plan.evaluation.flops * 4 == plan.compare().evaluations["replicated"].flops
    check_program(plan, args)


def test_the_machine_has_the_parts_of_axes() -> None:
    struct = sd.ShapeDtypeStruct((8192, 8192), np.float32)
    structs = [struct] * 4, struct, struct
    line = AbstractMesh((16,), ("x",))
    plan = sd.plan(step, structs, line, "a100x8", evaluations=FEW_EVALUATIONS)
    assert dict(plan.mesh.shape) == {"x_0": 4, "x_1": 4}
    compiled = plan.jit().lower(*structs).compile()
    assert compiled.collectives() == plan.collectives()
    assert compiled.simulate("a100x8").step_seconds == plan.step_seconds
    machine = load_machine("a100x8", axes={"x": 16})
    whole = sd.plan(step, structs, line, machine, evaluations=FEW_EVALUATIONS)
    assert whole.mesh is line
    assert plan.step_seconds
    assert whole.step_seconds
    assert plan.step_seconds < whole.step_seconds


def test_programs_with_shardings_use_whole_axes() -> None:
    args = arguments(64, *[64] * 5)

    def constrained(params: Any, x: Any, y: Any) -> Any:
        return step(params, sd.lax.with_sharding_constraint(x, sd.NamedSharding(mesh(), P())), y)

    assert sd.plan(constrained, args, mesh(), evaluations=FEW_EVALUATIONS).mesh is mesh()


def test_annotated_arguments_have_all_parts_of_their_axis() -> None:
    params, x, y = arguments(64, *[64] * 5)
    struct = sd.ShapeDtypeStruct(x.shape, x.dtype, sharding=sd.NamedSharding(mesh(), P("x")))
    few: dict[str, Any] = {"evaluations": FEW_EVALUATIONS}
    plan = sd.plan(step, (params, struct, y), mesh(), **few)
    assert plan.compare().evaluations["annotated"].arguments[4] == (("x_0", "x_1"), ())
    kept = sd.plan(step, (params, struct, y), mesh(), keep=True, **few)
    assert kept.in_specs[1] in (P("x"), P(("x_0", "x_1")))


def test_arguments_have_uneven_shards_if_the_function_pads_them() -> None:
    args = arguments(7, 31, 1001, 31)
    plan = sd.plan(sd.jit(step, uneven="pad"), args, mesh())
    assert plan.in_specs == ([P(None, "x"), P("x")], P(), P())
    assert plan.evaluation.flops == 544_670  # 251 of 1001 columns.
    assert plan.compare().evaluations["replicated"].flops == 2_172_170
    assert plan.lower_bound().bytes_gap == 0
    check_program(plan, args)
    auto = sd.jit(step, in_shardings=sd.AUTO(mesh()), uneven="pad").lower(*args).compile()
    assert auto.collectives() == plan.collectives()
    with pytest.raises(ArgumentError) as caught:
        plan.as_jax()
    assert str(caught.value).partition("\n")[0] == (
        "as_jax cannot write the plan of step: it shards dimension 1, of size 1001, into 4 parts "
        "of %params.0, and JAX refuses uneven arguments; plan the function without "
        'uneven="pad", or use as_ir or as_sdy'
    )


def test_values_have_uneven_shards_where_arguments_cannot() -> None:
    args = arguments(7, 31, 1001, 31)
    plan = sd.plan(step, args, mesh())
    assert plan.in_specs == ([P(), P()], P(), P())
    assert P(None, "x") in plan.constraints.values()
    assert plan.evaluation.flops == 544_670
    check_program(plan, args)


def test_values_have_even_shards_if_the_function_replicates_uneven_ones() -> None:
    args = arguments(7, 31, 1001, 31)
    plan = sd.plan(sd.jit(step, uneven="replicate"), args, mesh())
    assert plan.constraints == {}
    assert plan.evaluation.flops == plan.compare().evaluations["replicated"].flops
