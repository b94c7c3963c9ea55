"""Programs with the shardings of plans compute the same numbers on devices of the CPU backend."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.nn import softmax
from tests.frontend.planning.test_plan import mesh_of
from tests.passes.planning.programs.program_corpus import load_script

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def normal(*shape: int) -> Any:
    rng = np.random.default_rng(len(shape) + shape[0])
    return rng.normal(size=shape).astype(np.float32)


def make_digits() -> Case:
    names = load_script("examples/digits.py")
    labels = np.eye(10, dtype=np.float32)[np.arange(128) % 10]
    return names["train_step"], (names["initial_params"](), normal(128, 64), labels)


def make_experts() -> Case:
    names = load_script("examples/expert_parallelism.py")
    width, experts, hidden = names["WIDTH"], names["EXPERTS"], names["HIDDEN"]
    weights = normal(experts, width, hidden), normal(experts, hidden, width)
    tokens = normal(names["DEVICES"] * names["TOKENS"], width)
    return names["layer_of_one_device"], (normal(width, experts), *weights, tokens)


def make_loop() -> Case:
    def run(x: Any, w: Any) -> Any:
        def body(carry: Any, _: Any) -> Any:
            carry = sd.numpy.tanh(carry @ w)
            return carry, carry.sum()

        return sd.lax.scan(body, x, None, length=3)

    return run, (normal(16, 32), normal(32, 32) / 8)


def make_branches() -> Case:
    def run(x: Any, w: Any) -> Any:
        return sd.lax.cond(x.sum() > 0, lambda x: x @ w, lambda x: sd.numpy.sin(x @ w.T), x)

    return run, (normal(16, 32), normal(32, 32))


def make_sort() -> Case:
    def run(x: Any, w: Any) -> Any:
        return sd.numpy.sort(x @ w, axis=-1), sd.numpy.cumsum(x, axis=0), x[::2].T @ x[1::2]

    return run, (normal(16, 32), normal(32, 64))


def make_attention_gradient() -> Case:
    def loss(q: Any, k: Any, v: Any) -> Any:
        weights = softmax(sd.numpy.einsum("bqhd,bkhd->bhqk", q, k))
        return (sd.numpy.einsum("bhqk,bkhd->bqhd", weights, v) ** 2).sum()

    return sd.grad(loss, (0, 1, 2)), (normal(4, 8, 4, 8),) * 3


CASES = {
    "digits": make_digits,
    "experts": make_experts,
    "loop": make_loop,
    "branches": make_branches,
    "sort": make_sort,
    "attention": make_attention_gradient,
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("shape", [(4,), (2, 2), (4, 2)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_planned_programs_compute_the_same_numbers(name: str, shape: tuple[int, ...]) -> None:
    function, args = CASES[name]()
    plan = sd.plan(function, args, mesh_of(*shape), evaluations=30)
    planned = plan.jit()
    compiled = planned.lower(*args).compile()
    assert compiled.collectives() == plan.collectives()
    found, expected = (sd.tree.leaves(each(*args)) for each in (planned, sd.jit(function)))
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-4)
