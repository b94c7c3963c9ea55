"""Plans constrain values inside of a function whose dimensions no argument determines."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.errors import ArgumentError
from shardir.sharding import PartitionSpec as P


def correlation(key: Any) -> Any:
    noise = sd.random.uniform(key, (256, 512))
    gram = noise @ noise.T
    return snp.sum(gram**2)


def mesh() -> Any:
    return sd.make_mesh((2, 2), ("x", "y"), devices=sd.devices("cpu")[:4])


def key() -> Any:
    return sd.random.key(0)


def test_a_value_without_dimensions_of_arguments_is_constrained() -> None:
    plan = sd.plan(correlation, (key(),), mesh())
    assert plan.constraints == {"noise": P(), "gram": P(None, ("y", "x"))}
    assert plan.evaluation.flops * 4 == plan.compare().evaluations["replicated"].flops
    row = plan.constraint_rows()[-1]
    assert row[:2] == ("%gram", "f32[256, 256@(y, x)]")
    assert row[2].endswith("test_constraints.py:16")
    assert plan.lower_bound().bytes_gap == 0


def test_the_function_of_a_plan_has_its_constraints() -> None:
    plan = sd.plan(correlation, (key(),), mesh())
    planned = plan.jit()
    compiled = planned.lower(key()).compile()
    assert compiled.collectives() == plan.collectives()
    np.testing.assert_allclose(planned(key()), sd.jit(correlation)(key()), rtol=1e-5)


def test_auto_constrains_values() -> None:
    plan = sd.plan(correlation, (key(),), mesh())
    planned = sd.jit(correlation, in_shardings=sd.AUTO(mesh()))
    assert planned.lower(key()).compile().collectives() == plan.collectives()
    np.testing.assert_allclose(planned(key()), sd.jit(correlation)(key()), rtol=1e-5)


def test_constraints_are_shown_and_exported() -> None:
    plan = sd.plan(correlation, (key(),), mesh())
    lines = str(plan).split("\n")
    assert [line.split()[0] for line in lines[5:8]] == ["constraint", "%noise", "%gram"]
    assert "  dimension 1 of %gram over x; without it:" in str(plan)
    *_, head, _, constraint = plan.as_jax().splitlines()
    assert head == "# The plan constrains these values, with jax.lax.with_sharding_constraint:"
    assert constraint.startswith("# %gram: f32[256, 256@(y, x)], P(None, ('y', 'x')), of ")
    assert "%gram = " in plan.as_ir()
    assert "f32[256@-, 256@(y, x)]" in plan.as_ir()
    assert '[<@mesh, [{}, {"y", "x"}]>]' in plan.as_sdy()
    assert constraint.endswith("; without it: " + plan.constraint_rows()[-1][3])


def test_dimensions_of_arguments_need_no_constraint() -> None:
    struct = sd.ShapeDtypeStruct((64, 64), "float32")
    plan = sd.plan(lambda x, w: snp.tanh(x) @ w.T, (struct, struct), mesh())
    assert plan.constraints == {}


def test_dimensions_that_clash_are_constrained() -> None:
    """An axis can shard the rows of `x` or of `x.T`, and the constraint needs neither."""
    struct = sd.ShapeDtypeStruct((64, 128), "float32")
    plan = sd.plan(lambda x: snp.tanh(x) @ x.T, (struct,), mesh())
    assert plan.in_specs == (P(),)
    assert list(plan.constraints.values()) == [P(("y", "x"))]
    assert plan.collectives() == plan.jit().lower(struct).compile().collectives() == []
    assert plan.lower_bound().flops_gap == 0


def test_the_function_of_a_plan_has_the_shardings_of_state() -> None:
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * sd.grad(lambda w: ((x @ w) ** 2).sum())(w)

    w, x = np.ones((64, 128), "f"), np.ones((16, 64), "f")
    plan = sd.plan(step, (w, x), mesh())
    planned = plan.jit()
    first = planned(w, x)
    assert first.sharding.spec == plan.out_specs
    np.testing.assert_allclose(planned(first, x), sd.jit(step)(first, x), rtol=1e-4)


def test_other_arguments_than_the_planned_ones_are_an_error() -> None:
    struct = sd.ShapeDtypeStruct((64, 128), "float32")
    plan = sd.plan(lambda x: snp.tanh(x) @ x.T, (struct,), mesh())
    with pytest.raises(ArgumentError) as caught:
        plan.jit()(np.ones((64, 64), "f"))
    assert str(caught.value).startswith(
        "the plan of lambda is for arguments of the types (f32[64, 128]), and the call has "
        "(f32[64, 64]); make another plan for them\n"
    )
