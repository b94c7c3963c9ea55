"""The time of steps on a machine with round numbers, computed by hand.

A value f32[8, 8] has 256 bytes. Its product with another one takes 1024 ns (2 * 8^3 flops), a
sum of two of them 768 ns (three tensors are read or written), an all-reduce 1024 ns along x, and
512 ns along y.
"""

import random
from dataclasses import replace

import pytest

from shardir.errors import MachineError
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Module, Op
from shardir.passes.simulation import Simulation, simulate
from shardir.passes.simulation.argument_kinds import MemoryKind
from shardir.passes.simulation.breakdown import Breakdown, break_down
from shardir.passes.simulation.host_calls import HostCallCost
from shardir.passes.simulation.list_scheduler import Event
from shardir.passes.simulation.simulate import least_seconds
from shardir.passes.simulation.work import Work
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


def test_collectives_along_axes_of_one_device_take_no_time() -> None:
    text = program("  %c = all-reduce(%p, axes=[y], op=add) : f32[8, 8]")
    parts = simulate(parse(text.replace("y=2", "y=1")), MACHINE).breakdown
    assert (parts.duration, parts.exposed) == (0, {})


def test_a_permute_to_another_axis_takes_time() -> None:
    text = program("  %c = collective-permute(%p, source=[x], target=[y]) : f32[8, 8]")
    parts = simulate(parse(text.replace("x=4", "x=2")), MACHINE).breakdown
    assert nanoseconds(parts.exposed) == {"x, y": 256 * (4 + 2)}


def test_time_in_which_nothing_runs_is_a_bubble() -> None:
    (op,) = parse(program("  %c = exp(%p) : f32[8, 8]")).main.body.ops
    computation = Event(op, Work("elementwise", ("compute",), 10), 0)
    transfers = [
        Event(op, Work("all-reduce", (axis,), duration, axis), start)
        for axis, duration, start in (("x", 10, 5), ("x", 10, 20), ("y", 15, 25), ("x", 10, 50))
    ]
    parts = break_down([computation, *transfers], {})
    # Something runs from 0 to 15, from 20 to 40 and from 50 to 60.
    assert (parts.duration, parts.bubbles) == (60, 5 + 10)
    assert (parts.compute, parts.exposed_total) == ({"elementwise": 10}, 5 + 20 + 10)
    assert (parts.exposed, parts.hidden) == ({"x": 25, "y": 15}, {"x": 5, "y": 0})


def test_rules_of_derivatives_take_no_time() -> None:
    simulation = simulated(
        """
  %c = custom-jvp(%p, rule="f") : f32[8, 8] {
    (%a: f32[8, 8]) =>
    %b = dot(%a, %u, dims="ij,jk->ik") : f32[8, 8]
    yield %b
  } {
    (%a2: f32[8, 8], %t2: f32[8, 8]) =>
    %b2 = dot(%a2, %u, dims="ij,jk->ik") : f32[8, 8]
    %d2 = dot(%t2, %u, dims="ij,jk->ik") : f32[8, 8]
    yield %b2, %d2
  }""",
        fusion="",
    )
    assert nanoseconds(simulation.breakdown.compute) == {"matrix products": 1024}
    assert simulation.notes == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('%c = dot(%p, %q, dims="ij,jk->ik") : f32[8, 8]', "matrix products"),
        ("%c = exp(%p) : f32[8, 8]", "elementwise"),
        ("%c = max(%p, dims=[1]) : f32[8]", "reductions"),
        ("%c = transpose(%p, perm=[1, 0]) : f32[8, 8]", "data movement"),
        ("%c = cumsum(%p, dim=1, reverse=false) : f32[8, 8]", "cumsum"),
        (
            '%c = convolution(%i, %k, dims="b0f,0io->b0f", strides=[1], padding=[[0, 0]], '
            "lhs_dilation=[1], rhs_dilation=[1]) : f32[8, 8, 1]",
            "convolutions",
        ),
    ],
)
def test_each_computation_has_a_kind(body: str, expected: str) -> None:
    text = (
        "func @f(%p: f32[8, 8], %q: f32[8, 8], %i: f32[8, 8, 1], %k: f32[1, 1, 1]) -> () {\n"
        f"  {body}\n  return\n}}\n"
    )
    assert list(simulate(parse(text), MACHINE, fusion="").breakdown.compute) == [expected]


def test_a_fused_operation_with_a_reduction_is_a_reduction() -> None:
    text = program("  %e = exp(%p) : f32[8, 8]\n  %c = sum(%e, dims=[1]) : f32[8]")
    text = text.replace("(f32[8, 8] of f32[8, 8])", "(f32[8] of f32[8])")
    assert nanoseconds(simulate(parse(text), MACHINE).breakdown.compute) == {"reductions": 256 + 32}


def run_on_devices() -> None:
    raise AssertionError("the simulation calls no function")


def test_the_cost_of_a_host_function_is_that_which_the_caller_states() -> None:
    text = """
  %a = pure-callback(%p, function="run", method="none") : f32[8, 8]
  %b = pure-callback(%q, function="other", method="none") : f32[8, 8]
  %c = add(%a, %b) : f32[8, 8]"""
    module = parse(program(text))
    first, *others = module.main.body.ops
    run = replace(first, attrs={**first.attrs, "function": HostFunction("run", run_on_devices)})
    body = replace(module.main.body, ops=(run, *others))
    module = replace(module, functions=(replace(module.main, body=body),))
    own = Breakdown(5_000_000, {"elementwise": 3_000_000}, bubbles=2_000_000)
    cost = HostCallCost(own, {MemoryKind.ACTIVATIONS: 4096}, {}, {}, "lanes", ("a note",))
    simulation = simulate(module, MACHINE, fusion="", calls={run_on_devices: cost})
    parts = simulation.breakdown
    # The other call moves 512 bytes, as does a kernel.
    assert nanoseconds(parts.duration) == 5000 + 512 + 768
    assert nanoseconds(parts.compute) == {
        "pure-callback": 512,
        "elementwise": 3000 + 768,
    }
    assert nanoseconds(parts.bubbles) == 2000
    assert (simulation.lanes, simulation.notes) == (("lanes",), ("a note",))
    assert simulation.memory.by_kind[MemoryKind.ACTIVATIONS] == 4096
    assert simulation.memory.position == "%a = pure-callback"
    unknown = simulate(module, MACHINE, fusion="")
    assert nanoseconds(unknown.breakdown.compute) == {"pure-callback": 1024, "elementwise": 768}


@pytest.mark.parametrize(("body", "expected"), [(SYNCHRONOUS, 2048), (STARTED, 1024)])
def test_the_lower_bound_counts_products_and_synchronous_collectives(
    body: str, expected: int
) -> None:
    module = parse(program(body))
    assert least_seconds(module, MACHINE) == pytest.approx(expected * 1e-9)
    assert least_seconds(module, MACHINE) < simulate(module, MACHINE).step_seconds
