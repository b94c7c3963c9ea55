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
from shardir.passes.resharding.planner import PLANNERS, PlanStep, plan_reshard, same_placement
from shardir.text.parser import parse
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


def test_the_greedy_plan_may_receive_more() -> None:
    source, target = Sharding.of("m", [(X, Y), ()]), Sharding.of("m", [(Y,), (X,)])
    assert names(plan_reshard(source, target, TYPE)) == ["all-to-all", "all-to-all"]
    greedy = plan_reshard(source, target, TYPE, "greedy")
    assert names(greedy) == ["collective-permute", "all-to-all"]
    assert received_bytes(source, target) < received_bytes(source, target, planner="greedy")


@pytest.mark.parametrize("planner", PLANNERS)
def test_sums_are_complete_before_maxima_begin(planner: str) -> None:
    dims = Sharding.of("m", [(), ()]).dims
    sums = Sharding("m", dims, unreduced=(X,))
    maxima = replace(sums, reduction="max")
    assert names(plan_reshard(sums, maxima, TYPE, planner)) == ["all-reduce", "unreduce"]
    assert names(plan_reshard(maxima, maxima, TYPE, planner)) == []


def test_halves_and_thirds_of_one_axis_are_gathered_and_sliced() -> None:
    half, third = Axis("w", 1, 2), Axis("w", 1, 3)
    steps = plan_reshard(
        Sharding.of("m", [(half,)]), Sharding.of("m", [(third,)]), TensorType((6,), "f32")
    )
    assert names(steps) == ["all-gather", "all-slice"]


PLANS = [
    # A dimension that the axes of both ends divide is not padded in between.
    ("x=2, z=3", "f32[16@x, 5]", "f32[16@(z, x), 5]", ["all-gather 160 x", "all-slice 0 z x"]),
    # An uneven dimension keeps the bounds of the common prefix.
    (
        "a=3, x=2, y=3, z=3",
        "f32[11@x, 3@(y, z)] unreduced(a)",
        "f32[11@(x, y), 3@z]",
        ["all-gather 192 y z", "all-slice 0 y", "all-slice 0 z", "all-reduce 11 a"],
    ),
    # Axes of different sizes are factored into at most four primes.
    (
        "x=2, y=6, z=4",
        "f32[48@(x, y)] unreduced(z)",
        "f32[48@z]",
        ["all-reduce 24 z", "collective-permute 16 x y", "all-gather 32 y"],
    ),
    # Axes of equal sizes are not factored.
    (
        "x=4, y=4",
        "f32[6, 12@(x, y)]",
        "f32[6@x, 12@y]",
        ["all-gather 360 x y", "all-slice 0 x", "all-slice 0 y"],
    ),
    # The permutation moves b, which keeps its position among axes of other sizes.
    (
        "a=2, b=3, c=5, d=2, e=2",
        "f32[60@(a, b, c), 60@-, 60@-, 5@(d, e)]",
        "f32[60@c, 60@b, 60@a, 5@(e, d)]",
        [
            "collective-permute 57600 a b c",
            "all-to-all 28800 a",
            "all-to-all 38400 b",
            "collective-permute 57600 d e",
        ],
    ),
    # With more than four axes, moves lead to the goal.
    (
        "a=2, b=2, c=2, d=2, e=2",
        "f32[216@(a, b, c, d)] unreduced(e)",
        "f32[216@(e, a, d)]",
        ["reduce-scatter 28 e", "all-gather 868 a b c d e", "all-slice 0 e a d"],
    ),
    (
        "a=2, b=3, c=2, d=2, e=3, f=2",
        "f32[216@(c, f, a, d)]",
        "f32[216@(a, e, c, b, d)]",
        ["all-gather 840 c f a d", "all-slice 0 a e c b d"],
    ),
    (
        "a=2, b=2, c=2, d=2, e=2, f=2",
        "f32[216@f, 72@(b, d, e, c)] unreduced(a)",
        "f32[216@(a, d, c), 72@(f, e)]",
        [
            "reduce-scatter 1080 a",
            "collective-permute 1080 f a b d e",
            "all-gather 16200 f e b c",
            "all-slice 0 c",
            "all-slice 0 f e",
        ],
    ),
    (
        "a=3, b=3, c=3, d=2, e=2",
        "f32[72@c, 72@(e, d, b), 72]",
        "f32[72@(d, a), 72, 72@b]",
        [
            "all-to-all 27648 b",
            "all-to-all 20736 d",
            "all-slice 0 a",
            "collective-permute 13824 c d a",
            "all-gather 13824 e",
            "all-gather 55296 c",
        ],
    ),
    # Sums are scattered along axes of the target only.
    (
        "x=2, y=2, z=2",
        "f32[24@(x, y)] unreduced(z)",
        "f32[24@x]",
        ["all-reduce 24 z", "all-gather 24 y"],
    ),
    # Adjacent steps of different kinds on one dimension are separate, and so are exchanged axes.
    ("x=3, y=6", "f32[1@y]", "f32[1@x]", ["all-gather 20 y", "all-slice 0 x"]),
    (
        "x=3, y=3",
        "f32[5@x, 9] unreduced(y)",
        "f32[5@-, 9@-]",
        ["all-reduce 96 y", "all-gather 144 x"],
    ),
    ("x=2, y=2", "f32[16@(y, x)]", "f32[16@x]", ["collective-permute 16 y x", "all-gather 16 y"]),
]


@pytest.mark.parametrize(("mesh", "source", "target", "expected"), PLANS)
def test_the_steps_of_plans(mesh: str, source: str, target: str, expected: list[str]) -> None:
    text = f"mesh @m = [{mesh}]\n\nfunc @f(%x: {source}, %y: {target}) -> ({target}) {{\n"
    x, y = parse(f"{text}  return %y\n}}\n").main.body.params
    assert x.sharding is not None
    assert y.sharding is not None
    steps = plan_reshard(x.sharding.close(), y.sharding.close(), x.type)
    assert [format_step(step) for step in steps] == expected


def format_step(step: PlanStep) -> str:
    """Return the kind, the bytes and the axes of a step; of a permutation, the replaced axes."""
    attributes = dict(step.attrs)
    axes = attributes.get("axes") or attributes["source"]
    return " ".join([step.kind.value, str(step.nbytes), *(axis.name for axis in axes)])


def test_values_are_placed_alike_if_their_pending_reductions_are_equal() -> None:
    def place(reduction: str) -> Sharding:
        return replace(Sharding.of("m", [()]), unreduced=(X,), reduction=reduction)

    assert same_placement(place("max"), place("max"))
    assert not same_placement(place("max"), place("add"))
    complete = Sharding.of("m", [()])
    assert same_placement(complete, replace(complete, reduction="max"))


def test_planning_time_is_independent_of_the_number_of_devices() -> None:
    for size in (4, 64, 4096):
        mesh = Mesh("m", (("x", size), ("y", size)))
        x, y = Axis.full("x", mesh), Axis.full("y", mesh)
        type = TensorType((1 << 24, 1 << 24), "f32")
        steps = plan_reshard(Sharding.of("m", [(x,), (y,)]), Sharding.of("m", [(y,), (x,)]), type)
        assert names(steps) == ["collective-permute"]
