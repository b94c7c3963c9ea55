"""The time of steps on a machine with round numbers, computed by hand.

A value f32[8, 8] has 256 bytes. Its product with another one takes 1024 ns (2 * 8^3 flops), a
sum of two of them 768 ns (three tensors are read or written), an all-reduce 1024 ns along x, and
512 ns along y.
"""

import random
from dataclasses import replace

import pytest

from shardir.errors import MachineError
from shardir.ir.module import Module, Op
from shardir.passes.simulation import Simulation, simulate
from shardir.text.parser import parse
from tests.passes.simulation.round_machine import MACHINE


def program(body: str, results: str = "%c") -> str:
    return f"""
mesh @m = [x=4, y=2]

spmd func @step(
  %p: f32[8, 8] of f32[8, 8],
  %q: f32[8, 8] of f32[8, 8],
  %u: f32[8, 8] of f32[8, 8],
) -> (f32[8, 8] of f32[8, 8]) {{
{body}
  return {results}
}}
"""


def simulated(body: str, **options: object) -> Simulation:
    return simulate(parse(program(body)), MACHINE, **options)  # type: ignore[arg-type]


def nanoseconds(times: object) -> object:
    if isinstance(times, int):
        return times / 1000
    assert isinstance(times, dict)
    return {key: value / 1000 for key, value in times.items()}


SYNCHRONOUS = """
  %a = all-reduce(%p, axes=[x], op=add) : f32[8, 8]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]"""

STARTED = """
  %a.start = all-reduce-start(%p, axes=[x], op=add) : f32[8, 8]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[8, 8]
  %a = done(%a.start) : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]"""


def test_a_synchronous_collective_is_exposed() -> None:
    parts = simulated(SYNCHRONOUS).breakdown
    assert nanoseconds(parts.duration) == 1024 + 1024 + 768
    assert nanoseconds(parts.compute) == {"matrix products": 1024, "elementwise": 768}
    assert nanoseconds(parts.exposed) == {"x": 1024}
    assert nanoseconds(parts.hidden) == {"x": 0}


def test_a_started_collective_is_hidden_by_computation() -> None:
    parts = simulated(STARTED).breakdown
    assert nanoseconds(parts.duration) == 1024 + 768
    assert nanoseconds(parts.exposed) == {"x": 0}
    assert nanoseconds(parts.hidden) == {"x": 1024}


def test_the_rest_of_a_long_transfer_is_exposed() -> None:
    parts = simulated("""
  %a.start = all-reduce-start(%p, axes=[x, y], op=add) : f32[8, 8]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[8, 8]
  %a = done(%a.start) : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]""").breakdown
    # 6 ns for each of 256 bytes are 1536 ns, of which the product hides 1024 ns.
    assert nanoseconds(parts.duration) == 1536 + 768
    assert nanoseconds(parts.exposed) == {"x, y": 512}
    assert nanoseconds(parts.hidden) == {"x, y": 1024}
    assert nanoseconds(parts.exposed_total) == 512


def test_transfers_along_two_axes_run_at_the_same_time() -> None:
    parts = simulated("""
  %a.start = all-reduce-start(%p, axes=[x], op=add) : f32[8, 8]
  %b.start = all-reduce-start(%q, axes=[y], op=add) : f32[8, 8]
  %a = done(%a.start) : f32[8, 8]
  %b = done(%b.start) : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]""").breakdown
    assert nanoseconds(parts.duration) == 1024 + 768
    assert nanoseconds(parts.exposed) == {"x": 1024, "y": 512}
    assert nanoseconds(parts.exposed_total) == 1024
    assert parts.bubbles == 0


def test_transfers_along_one_axis_follow_each_other() -> None:
    parts = simulated("""
  %a.start = all-reduce-start(%p, axes=[y], op=add) : f32[8, 8]
  %b.start = all-reduce-start(%q, axes=[y], op=add) : f32[8, 8]
  %a = done(%a.start) : f32[8, 8]
  %b = done(%b.start) : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]""").breakdown
    assert nanoseconds(parts.duration) == 2 * 512 + 768
    assert nanoseconds(parts.exposed) == {"y": 1024}


SCAN = """
  %c = scan(%p, carries=1, length=5, reverse=false) : f32[8, 8] {
    (%h: f32[8, 8]) =>
    %a.start = all-reduce-start(%h, axes=[x], op=add) : f32[8, 8]
    %b = dot(%h, %u, dims="ij,jk->ik") : f32[8, 8]
    %a = done(%a.start) : f32[8, 8]
    %d = add(%a, %b) : f32[8, 8]
    yield %d
  }"""


def test_a_loop_takes_the_time_of_its_body_times_its_trip_count() -> None:
    simulation = simulated(SCAN)
    parts = simulation.breakdown
    assert nanoseconds(parts.duration) == 5 * (1024 + 768)
    assert nanoseconds(parts.compute) == {"matrix products": 5 * 1024, "elementwise": 5 * 768}
    assert nanoseconds(parts.hidden) == {"x": 5 * 1024}
    # 5 * 1024 flops at 2 flops per ns take 2560 ns.
    assert simulation.hfu == pytest.approx(2560 / (5 * 1792))


def test_a_transfer_is_hidden_by_a_loop_that_uses_another_axis() -> None:
    parts = simulated("""
  %t.start = all-reduce-start(%q, axes=[y], op=add) : f32[8, 8]
  %s = scan(%p, carries=1, length=5, reverse=false) : f32[8, 8] {
    (%h: f32[8, 8]) =>
    %a = all-reduce(%h, axes=[x], op=add) : f32[8, 8]
    yield %a
  }
  %t = done(%t.start) : f32[8, 8]
  %c = add(%s, %t) : f32[8, 8]""").breakdown
    assert nanoseconds(parts.duration) == 5 * 1024 + 768
    assert nanoseconds(parts.exposed) == {"x": 5 * 1024, "y": 0}
    assert nanoseconds(parts.hidden) == {"x": 0, "y": 512}


def test_a_counted_while_is_multiplied_and_its_condition_runs_once_more() -> None:
    simulation = simulated(
        """
  %0 = constant(value=0) : i32[]
  %c, %i = while(%p, %0) : f32[8, 8], i32[] {
    (%h: f32[8, 8], %j: i32[]) =>
    %n = constant(value=3) : i32[]
    %l = lt(%j, %n) : bool[]
    yield %l
  } {
    (%g: f32[8, 8], %k: i32[]) =>
    %b = dot(%g, %u, dims="ij,jk->ik") : f32[8, 8]
    %1 = constant(value=1) : i32[]
    %o = add(%k, %1) : i32[]
    yield %b, %o
  }""",
        fusion="",
    )
    # The comparison moves 4 + 4 + 1 bytes, the addition 12.
    assert nanoseconds(simulation.breakdown.duration) == 4 * 9 + 3 * (1024 + 12)
    assert simulation.notes == ()


def test_a_while_without_a_constant_trip_count_counts_once() -> None:
    simulation = simulated("""
  %0 = constant(value=0) : i32[]
  %c, %i = while(%p, %0) : f32[8, 8], i32[] {
    (%h: f32[8, 8], %j: i32[]) =>
    %l = lt(%j, %j) : bool[]
    yield %l
  } {
    (%g: f32[8, 8], %k: i32[]) =>
    %b = dot(%g, %u, dims="ij,jk->ik") : f32[8, 8]
    yield %b, %k
  }""")
    assert nanoseconds(simulation.breakdown.compute)["matrix products"] == 1024  # type: ignore[index]
    assert simulation.notes == (
        "%c is a while whose trip count is not a constant; its body counts once",
    )


def test_a_case_takes_the_time_of_its_slowest_branch() -> None:
    parts = simulated("""
  %0 = constant(value=1) : i32[]
  %c = case(%0) : f32[8, 8] {
    yield %p
  } {
    %b = dot(%p, %u, dims="ij,jk->ik") : f32[8, 8]
    yield %b
  }""").breakdown
    assert nanoseconds(parts.compute) == {"matrix products": 1024}


def test_fused_operations_read_and_write_only_the_ends_of_the_group() -> None:
    chain = """
  %a = exp(%p) : f32[8, 8]
  %b = mul(%a, %q) : f32[8, 8]
  %c = add(%b, %a) : f32[8, 8]"""
    assert nanoseconds(simulated(chain).breakdown.duration) == 3 * 256
    assert nanoseconds(simulated(chain, fusion="").breakdown.duration) == 8 * 256


def test_views_and_local_permutes_take_no_time() -> None:
    parts = simulated(
        """
  %a = reshape(%p) : f32[64]
  %b = optimization_barrier(%a) : f32[64]
  %d = collective-permute(%b, source=[x], target=[x]) : f32[64]
  %c = reshape(%d) : f32[8, 8]""",
        fusion="",
    ).breakdown
    assert parts.duration == 0


def test_slices_read_only_what_they_return() -> None:
    parts = simulated(
        """
  %a = slice(%p, starts=[0, 0], strides=[1, 1]) : f32[2, 8]
  %0 = constant(value=1) : i32[]
  %c = dynamic_update_slice(%q, %a, %0, %0) : f32[8, 8]""",
        fusion="",
    ).breakdown
    # Each moves the 64 bytes of the slice twice; the update also reads two indices.
    assert nanoseconds(parts.compute) == {"data movement": 128 + 128 + 16}


def shuffled(module: Module, seed: int) -> Module:
    """Return the module with its operations in another topological order."""
    chosen, left = list[Op](), list(module.main.body.ops)
    generator = random.Random(seed)
    while left:
        missing = {value for op in left for value in op.results}
        ready = [op for op in left if missing.isdisjoint(op.uses())]
        op = generator.choice(ready)
        left.remove(op)
        chosen.append(op)
    body = replace(module.main.body, ops=tuple(chosen))
    return replace(module, functions=(replace(module.main, body=body),))


def test_the_time_does_not_depend_on_the_order_of_operations_that_commute() -> None:
    lines = []
    for i in range(6):
        lines += [
            f'%p{i} = dot(%p, %u, dims="{"ij,jk->ik" if i % 2 else "ij,kj->ik"}") : f32[8, 8]',
            f"%s{i} = all-reduce-start(%p{i}, axes=[{'xy'[i % 2]}], op=add) : f32[8, 8]",
            f"%t{i} = transpose(%q, perm=[1, 0]) : f32[8, 8]",
            f'%v{i} = dot(%t{i}, %p{i}, dims="ij,jk->ik") : f32[8, 8]',
            f"%w{i} = all-gather(%v{i}, dim=0, axes=[y]) : f32[16, 8]",
            f"%d{i} = done(%s{i}) : f32[8, 8]",
            f"%e{i} = all-slice(%w{i}, dim=0, axes=[y]) : f32[8, 8]",
            f"%f{i} = {'add' if i < 3 else 'mul'}(%d{i}, %e{i}) : f32[8, 8]",
        ]
    lines += ["%g1 = add(%f0, %f1) : f32[8, 8]"]
    lines += [f"%g{i} = add(%g{i - 1}, %f{i}) : f32[8, 8]" for i in range(2, 6)]
    module = parse(program("\n".join(f"  {line}" for line in lines), "%g5"))
    expected = simulate(module, MACHINE, fusion="").breakdown
    assert 0 < sum(expected.hidden.values()) < sum(expected.collectives.values())
    for seed in range(20):
        assert simulate(shuffled(module, seed), MACHINE, fusion="").breakdown == expected


def test_the_place_of_a_done_does_not_matter() -> None:
    early = """
  %a.start = all-reduce-start(%p, axes=[x], op=add) : f32[8, 8]
  %a = done(%a.start) : f32[8, 8]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]"""
    assert simulated(early).breakdown == simulated(STARTED).breakdown


def test_a_program_that_has_not_been_partitioned_is_refused() -> None:
    text = """
mesh @m = [x=4]

func @f(%x: f32[8@x]) -> (f32[8]) {
  %y = exp(%x) : f32[8]
  return %y
}
"""
    with pytest.raises(MachineError) as raised:
        simulate(parse(text), MACHINE)
    assert str(raised.value) == (
        "@f has not been partitioned, and a simulation needs the program of each device; run the "
        "default passes first"
    )
