"""Partial evaluation for libraries: known results are values, unknown ones are described."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, numpy as snp
from shardir.interop.in_place_of_jax import UncoveredInternal, run_script
from shardir.interop.jax_shim.partial_evaluation import (
    PartialVal,
    flatten_fun_nokwargs,
    trace_to_jaxpr_nounits,
    wrap_init,
)

SCALAR = sd.ShapeDtypeStruct((), snp.float32)


def test_results_that_depend_on_unknown_inputs_are_unknown() -> None:
    def function(tree: Any, scale: Any) -> dict[str, Any]:
        x, known = tree
        branch = lax.cond(known > 0, lambda: x, lambda: x * 2)
        own = lax.cond(known > 0, lambda: known * 3, lambda: known)
        return {"x": x, "branch": branch, "own": own, "seven": snp.full(2, 7.0), "scaled": scale}

    leaves, structure = sd.tree.flatten(((1.0, 2.0), 3.0))
    flat, get_structure = flatten_fun_nokwargs(wrap_init(function), structure)

    def check(y: Any) -> Any:
        inputs = [PartialVal.unknown(SCALAR), PartialVal.known(y), PartialVal.known(y + 1)]
        program, results, constants = trace_to_jaxpr_nounits(flat, inputs)
        named = sd.tree.unflatten(get_structure(), results)
        assert {name for name in named if not named[name].is_known()} == {"branch", "x"}
        assert named["x"][0].shape == named["branch"][0].shape == ()
        assert constants == ()
        with pytest.raises(UncoveredInternal, match=r"needs jax\.extend\.core\.Jaxpr\.eqns of JAX"):
            list(program.eqns)
        return {name: value[1] for name, value in named.items() if value.is_known()}

    assert leaves == [1, 2, 3]
    for call in (check, sd.jit(check)):
        known = call(2.0)
        assert float(known["own"]) == 6
        assert float(known["scaled"]) == 3
        assert known["seven"].tolist() == [7, 7]


def test_operations_of_unknown_results_leave_no_effects() -> None:
    seen: list[Any] = []

    def function(x: Any) -> list[Any]:
        sd.debug.callback(seen.append, x)
        return [x + 1, snp.ones(2) * 2]

    @sd.jit
    def run() -> Any:
        _, results, _ = trace_to_jaxpr_nounits(wrap_init(function), [PartialVal.unknown(SCALAR)])
        return results[1][1]

    assert run().tolist() == [2, 2]
    assert seen == []


SCRIPT = """\
import jax, jax.numpy as jnp, numpy as np
from flax import linen as nn

class Layers(nn.Module):
    @nn.compact
    def __call__(self, x):
        step = lambda dense, carry, _: (jnp.tanh(dense(carry)), None)
        dense = nn.Dense(4)
        body = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, length=3)
        return body(dense, x, None)[0]

key = jax.random.key(0)
x = jax.random.normal(key, (2, 4))
results = []
for model, arg in (Layers(), x), (nn.RNN(nn.GRUCell(3)), x[None]):
    params = model.init(key, arg)
    loss = lambda params: (model.apply(params, arg) ** 2).sum()
    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    results += [np.asarray(each) for each in jax.tree.leaves((params, value, grads))]
"""


@pytest.mark.long
def test_scans_of_flax_compute_as_with_jax(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, "utf-8")
    ours: dict[str, Any] = run_script(script)
    theirs: dict[str, Any] = {}
    exec(SCRIPT, theirs)
    for one, other in zip(ours["results"], theirs["results"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
