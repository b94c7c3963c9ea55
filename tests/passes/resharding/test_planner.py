"""Reshard plans are correct for all pairs of shardings, and have the known minimal cost."""

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.interpret.shards import slice_shard
from shardir.ir.device_groups import device_positions
from shardir.ir.mesh import Mesh
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.ops.communication import collectives as collectives
from shardir.passes.resharding.planner import PLANNERS, PlanStep, plan_reshard
from tests.programs.shardings import MESHES, shardings

SHAPES = ((16,), (8, 8), (4, 16), (8, 4, 2), (2, 2, 2))
MESH = Mesh("m", (("x", 4), ("y", 2)))
X, Y = Axis.full("x", MESH), Axis.full("y", MESH)
TYPE = TensorType((64, 128), "f32")


def names(steps: tuple[PlanStep, ...]) -> list[str]:
    return [step.kind for step in steps]


def received_bytes(
    source: Sharding, target: Sharding, type: TensorType = TYPE, planner: str = "optimal"
) -> int:
    return sum(step.nbytes for step in plan_reshard(source, target, type, planner))


@st.composite
def problems(draw: st.DrawFn, pending: bool) -> tuple[Mesh, TensorType, Sharding, Sharding]:
    mesh = draw(st.sampled_from(MESHES))
    type = TensorType(draw(st.sampled_from(SHAPES)), "i32")
    source = draw(shardings(mesh, type.shape, pending=pending))
    target = draw(shardings(mesh, type.shape))
    return mesh, type, source, target


def run_plan(
    mesh: Mesh, type: TensorType, source: Sharding, target: Sharding, planner: str
) -> tuple[list[Any], list[Any]]:
    """Return the values of the devices after the plan, and the expected values."""
    rng = np.random.default_rng(0)
    terms = rng.integers(0, 100, (prod(a.size for a in source.unreduced), *type.shape), np.int32)
    place = device_positions(mesh, source.unreduced)
    cuts = replace(source, unreduced=())
    parts = [slice_shard(terms[place[device]], cuts, mesh, device) for device in range(mesh.size)]
    sharding = source
    for step in plan_reshard(source, target, type, planner):
        spec = OPS[step.kind]
        assert spec.exchange is not None
        sharding = step.sharding
        local = type.with_shape(sharding.local_shape(type.shape))
        given = spec.rule_arguments(dict(step.attrs))
        parts = list(spec.exchange(mesh, [(part,) for part in parts], result=local, **given))
        assert all(part.shape == local.shape for part in parts)
    assert sharding.axes == target.axes
    want = [
        slice_shard(terms.sum(0, dtype=np.int32), target, mesh, device)
        for device in range(mesh.size)
    ]
    return parts, want


@pytest.mark.parametrize("planner", PLANNERS)
def test_the_target_does_not_change_the_order_of_terms(planner: str) -> None:
    """Products of complex zeros have a sign that depends on the order."""
    source = replace(Sharding.of("m", [()]), unreduced=(X,), reduction="mul")
    target = Sharding.of("m", [(Axis("x", 2, 2), Axis("x", 1, 2))])
    first = plan_reshard(source, target, TensorType((1,), "c64"), planner)[0]
    assert (first.kind, dict(first.attrs)["axes"]) == ("all-reduce", (X,))


@pytest.mark.parametrize("planner", PLANNERS)
@given(problem=problems(pending=False))
def test_a_plan_moves_every_shard_to_its_target(
    problem: tuple[Mesh, TensorType, Sharding, Sharding], planner: str
) -> None:
    for got, want in zip(*run_plan(*problem, planner), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("planner", PLANNERS)
@given(problem=problems(pending=True))
def test_a_plan_completes_unreduced_sums(
    problem: tuple[Mesh, TensorType, Sharding, Sharding], planner: str
) -> None:
    for got, want in zip(*run_plan(*problem, planner), strict=True):
        np.testing.assert_array_equal(got, want)


@given(problems(pending=True))
def test_the_optimal_plan_costs_at_most_the_greedy_plan(
    problem: tuple[Mesh, TensorType, Sharding, Sharding],
) -> None:
    _, type, source, target = problem
    greedy = received_bytes(source, target, type, "greedy")
    assert received_bytes(source, target, type) <= greedy


@given(problems(pending=True))
def test_a_plan_costs_at_most_reduce_gather_and_slice(
    problem: tuple[Mesh, TensorType, Sharding, Sharding],
) -> None:
    _, type, source, target = problem
    held = type.nbytes // prod(axis.size for axis in source.used_axes())
    waiting = prod(axis.size for axis in source.unreduced)
    plain = 2 * held * (waiting - 1) // waiting + type.nbytes - held
    assert received_bytes(source, target, type) <= plain


CUTS = [
    ((), ()), ((X,), ()), ((), (X,)), ((Y,), ()), ((X,), (Y,)), ((Y,), (X,)), ((X, Y), ()),
    ((Y, X), ()), ((), (X, Y)),
]  # fmt: skip


def test_two_thirds_of_the_pairs_need_one_collective_or_none() -> None:
    kinds: dict[int, int] = {}
    for a, b in product(CUTS, CUTS):
        if a != b:
            steps = plan_reshard(Sharding.of("m", a), Sharding.of("m", b), TYPE)
            number = sum(OPS[step.kind].collective for step in steps)
            kinds[number] = kinds.get(number, 0) + 1
    assert kinds == {0: 14, 1: 34, 2: 21, 3: 3}


@pytest.mark.parametrize(
    ("source", "target", "nbytes"),
    [
        # Manual plans for the pairs for which XLA gathers the full array.
        (((), (X,)), ((Y,), ()), 16384),
        (((Y,), ()), ((), (X,)), 8192),
        (((Y, X), ()), ((), (X,)), 4096 + 8192),
        (((X, Y), ()), ((), (X,)), 12288),
        (((), (X, Y)), ((Y,), ()), 4096 + 16384),
        (((), (X, Y)), ((X,), ()), 12288),
    ],
)
def test_plans_cost_at_most_manual_plans(
    source: tuple[tuple[Axis, ...], ...], target: tuple[tuple[Axis, ...], ...], nbytes: int
) -> None:
    assert received_bytes(Sharding.of("m", source), Sharding.of("m", target)) <= nbytes


def test_unreduced_sums_are_scattered_to_sharded_targets() -> None:
    source = Sharding("m", Sharding.of("m", [(Y,), ()]).dims, unreduced=(X,))
    assert names(plan_reshard(source, Sharding.of("m", [(Y,), ()]), TYPE)) == ["all-reduce"]
    assert names(plan_reshard(source, Sharding.of("m", [(Y,), (X,)]), TYPE)) == ["reduce-scatter"]


def test_one_gather_removes_several_axes() -> None:
    (step,) = plan_reshard(Sharding.of("m", [(X, Y), ()]), Sharding.of("m", [(), ()]), TYPE)
    assert step.kind == "all-gather"
    assert dict(step.attrs) == {"dim": 0, "axes": (X, Y)}
    assert step.nbytes == TYPE.nbytes * 7 // 8


def test_an_unreduced_target_needs_no_communication() -> None:
    whole = Sharding.of("m", [(), ()])
    (step,) = plan_reshard(whole, Sharding("m", whole.dims, unreduced=(X,)), TYPE)
    assert (step.kind, dict(step.attrs), step.nbytes) == ("unreduce", {"axes": (X,)}, 0)


def test_halves_and_thirds_of_one_axis_are_gathered_and_sliced() -> None:
    half, third = Axis("w", 1, 2), Axis("w", 1, 3)
    steps = plan_reshard(
        Sharding.of("m", [(half,)]), Sharding.of("m", [(third,)]), TensorType((6,), "f32")
    )
    assert names(steps) == ["all-gather", "all-slice"]


def test_planning_time_is_independent_of_the_number_of_devices() -> None:
    for size in (4, 64, 4096):
        mesh = Mesh("m", (("x", size), ("y", size)))
        x, y = Axis.full("x", mesh), Axis.full("y", mesh)
        type = TensorType((1 << 24, 1 << 24), "f32")
        steps = plan_reshard(Sharding.of("m", [(x,), (y,)]), Sharding.of("m", [(y,), (x,)]), type)
        assert names(steps) == ["collective-permute"]
