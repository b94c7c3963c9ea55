"""The memory of steps by kind and by line, and utilization."""

from dataclasses import replace

import pytest

from shardir.ir.module import Loc, Module
from shardir.passes.simulation import Simulation, simulate
from shardir.passes.simulation.argument_kinds import MemoryKind, kinds_of_arguments
from shardir.passes.simulation.memory_use import MemoryUse, share_memory
from shardir.passes.simulation.simulation import Remedy
from shardir.text.parser import parse
from tests.passes.simulation.round_machine import MACHINE

STEP = """
mesh @m = [x=2]

// One step of stochastic gradient descent with momentum, whose forward product is recomputed.
spmd func @step(
  %w: f32[8, 8] of f32[8, 8],
  %m: f32[8, 8] of f32[8, 8],
  %x: f32[4, 8] of f32[8@x, 8],
) -> (f32[8, 8] of f32[8, 8], f32[8, 8] of f32[8, 8], f32[] of f32[]) {
  %h = dot(%x, %w, dims="bi,ij->bj") : f32[4, 8] loc("step.py":3:7)
  %a = tanh(%h) : f32[4, 8] loc("step.py":4:7)
  %s = sum(%a, dims=[0, 1]) : f32[] loc("step.py":5:7)
  %loss = all-reduce(%s, axes=[x], op=add) : f32[] loc("step.py":5:7)
  %h2 = dot(%x, %w, dims="bi,ij->bj") : f32[4, 8] why("recomputed for the gradient of %h")
  %b = mul(%a, %h2) : f32[4, 8] loc("step.py":4:7) why("gradient of %a")
  %g.partial = dot(%x, %b, dims="bi,bj->ij") : f32[8, 8] loc("step.py":3:7) why("gradient of %h")
  %g = all-reduce(%g.partial, axes=[x], op=add) : f32[8, 8] loc("step.py":3:7)
  %m2 = add(%m, %g) : f32[8, 8] loc("step.py":7:7)
  %w2 = sub(%w, %m2) : f32[8, 8] loc("step.py":8:7)
  return %w2, %m2, %loss
}
"""


def step(donated: tuple[int, ...] = (), memory_bytes: int | None = None) -> Simulation:
    return simulate(parse(STEP), MACHINE, donated=donated, memory_bytes=memory_bytes, fusion="")


def kinds(simulation: Simulation) -> dict[str, int]:
    return kinds_of(simulation.memory)


def kinds_of(use: MemoryUse) -> dict[str, int]:
    return {kind.value: nbytes for kind, nbytes in use.by_kind.items()}


def test_memory_by_kind_with_donated_state() -> None:
    simulation = step((0, 1))
    # At the gradient: the weights, the momentum and the batch; the activation %a was used before,
    # and the gradient and its partial sum are alive, with the loss.
    assert simulation.memory.position == "%g = all-reduce, step.py:3"
    assert kinds(simulation) == {
        "arguments": 128,
        "parameters": 256,
        "optimizer state": 256,
        "temporaries": 512,
        "results": 4,
    }
    assert simulation.memory.peak == sum(kinds(simulation).values())


def test_results_that_reuse_no_argument_count() -> None:
    # The last operation has the new state and the loss in addition to the arguments.
    *_, last = step().memory.alive.values()
    assert last == 640 + 256 + 256 + 4
    *_, last = step((0, 1)).memory.alive.values()
    assert last == 640 + 4


def test_values_of_the_forward_computation_that_the_gradient_uses_are_activations() -> None:
    text = STEP.split("  %g.partial")[0].replace(
        "(f32[8, 8] of f32[8, 8], f32[8, 8] of f32[8, 8], f32[] of f32[])",
        "(f32[4, 8] of f32[8@x, 8])",
    )
    simulation = simulate(parse(text + "  return %b\n}\n"), MACHINE, fusion="")
    assert simulation.memory.position == "%b = mul, step.py:4"
    assert kinds(simulation) == {
        "arguments": 256 + 256,
        # The batch has the type of the result, so that it counts as state.
        "parameters": 128,
        "activations": 128,
        "temporaries": 128,
        "results": 128,
    }


def test_memory_by_line() -> None:
    rows = [
        (row.place, row.kind.value, row.nbytes, row.values) for row in step((0, 1)).memory.by_line
    ]
    assert rows == [
        ("step.py:3", "temporaries", 512, ("%g.partial", "%g")),
        ("parameters", "parameters", 256, ("%w",)),
        ("optimizer state", "optimizer state", 256, ("%m",)),
        ("arguments", "arguments", 128, ("%x",)),
        ("step.py:5", "results", 4, ("%loss",)),
    ]


def test_recomputed_flops_count_only_as_executed() -> None:
    simulation = step()
    # Three products of 2 * 4 * 8 * 8 flops at 2 flops per ns, one of them recomputed.
    seconds = simulation.step_seconds
    assert simulation.hfu == 3 * 512 / 2e9 / seconds
    assert simulation.mfu == 2 * 512 / 2e9 / seconds


def test_model_flops_are_those_of_the_traced_program() -> None:
    traced = parse("""
func @step(%w: f32[8, 8], %x: f32[8, 8]) -> (f32[8, 8]) {
  %h = dot(%x, %w, dims="bi,ij->bj") : f32[8, 8]
  return %h
}""")
    simulation = simulate(parse(STEP), MACHINE, traced=traced, fusion="")
    assert simulation.mfu == 1024 / 2e9 / (2 * simulation.step_seconds)


def test_the_memory_of_a_loop_is_that_of_its_body() -> None:
    module: Module = parse("""
func @f(%x: f32[16], %y: f32[4, 16]) -> (f32[16], f32[4, 16]) {
  %r, %s = scan(%x, %y, carries=1, length=4, reverse=false) : f32[16], f32[4, 16] {
    (%c: f32[16], %e: f32[16]) =>
    %a = add(%c, %e) : f32[16] loc("f.py":2:1)
    %b = exp(%a) : f32[16] loc("f.py":3:1)
    yield %a, %b
  }
  return %r, %s
}""")
    simulation = simulate(module, MACHINE, fusion="")
    # The carried value has the memory of the result; %e is a slice, %a and %b are values.
    assert simulation.memory.by_kind[MemoryKind.TEMPORARIES] == 3 * 64
    assert simulation.memory.peak == 64 + 256 + 64 + 256 + 3 * 64


def test_results_reuse_the_memory_of_donated_arguments_once() -> None:
    """An argument that is a result itself keeps its memory."""
    body = parse("""
func @f(%p: f32[8], %q: f32[8], %r: f32[8]) -> (f32[8], f32[8], f32[8], f32[8]) {
  %a = exp(%q) : f32[8]
  %b = exp(%a) : f32[8]
  return %a, %a, %p, %b
}""").main.body
    p, q, r = body.params
    a, b = (op.result for op in body.ops)
    assert share_memory(body, (0, 1)) == {a: q}
    assert share_memory(body, (1, 2)) == {a: q, b: r}
    twice = replace(body, returns=(a, a, p))
    assert share_memory(twice, (1, 2)) == {a: q}
    assert share_memory(replace(body, returns=(a, b)), (0, 1)) == {a: p, b: q}


@pytest.mark.parametrize("loop", [False, True])
def test_the_parameters_of_a_step_that_returns_only_state_are_multiplied(loop: bool) -> None:
    product = '%h = dot(%x, %w, dims="bi,ij->bj") : f32[8, 8]'
    if loop:
        product = f"""%h = scan(%x, carries=1, length=2) : f32[8, 8] {{ (%c: f32[8, 8]) =>
    {product.replace("%h", "%d").replace("%x", "%c")}
    yield %d
  }}"""
    main = parse(f"""
func @step(%w: f32[8, 8], %m: f32[8, 8], %x: f32[8, 8]) -> (f32[8, 8], f32[8, 8]) {{
  {product}
  %m2 = add(%m, %h) : f32[8, 8]
  %w2 = sub(%w, %m2) : f32[8, 8]
  return %w2, %m2
}}""").main
    found = kinds_of_arguments(main)
    assert [found[value].value for value in main.body.params] == [
        *("parameters", "optimizer state", "arguments")
    ]


def test_operations_that_depend_on_a_gradient_use_activations() -> None:
    module = parse("""
func @f(%x: f32[16]) -> (f32[16]) {
  %h = exp(%x) : f32[16]
  %g = mul(%x, %x) : f32[16] why("gradient of %h")
  %r = add(%g, %h) : f32[16]
  return %r
}""")
    use = simulate(module, MACHINE, fusion="").memory
    assert use.position == "%r = add"
    assert use.by_kind[MemoryKind.ACTIVATIONS] == 64


@pytest.mark.parametrize(
    ("why", "kind"), [('why("gradient of %s")', "activations"), ("", "temporaries")]
)
def test_a_fused_operation_belongs_to_the_gradient_with_all_its_computations(
    why: str, kind: str
) -> None:
    """A broadcast inside of it costs nothing. Its inner values have no memory."""
    module = parse(f"""
func @f(%x: f32[16], %s: f32[]) -> (f32[16]) {{
  %h = exp(%x) : f32[16]
  %r = fused(%h, %s) : f32[16] {{
    (%a: f32[16], %t: f32[]) =>
    %b = broadcast(%t, dims=[]) : f32[16]
    %c = mul(%a, %b) : f32[16] {why}
    %d = mul(%c, %b) : f32[16] why("gradient of %h")
    yield %d
  }}
  return %r
}}""")
    use = simulate(module, MACHINE, fusion="").memory
    # The argument has the type of the result, and no product depends on it.
    assert kinds_of(use) == {"arguments": 4, "optimizer state": 64, kind: 64, "results": 64}


def test_a_program_without_operations_has_its_arguments() -> None:
    use = simulate(parse("func @f(%x: f32[16]) -> (f32[16]) {\n  return %x\n}"), MACHINE).memory
    assert (use.peak, use.position) == (64, "")


def test_values_without_a_line_have_the_line_that_the_caller_states() -> None:
    module = parse("""
func @f(%x: f32[16]) -> (f32[4, 4]) {
  %h = exp(%x) : f32[16]
  %r = reshape(%h) : f32[4, 4]
  return %r
}""")
    places = {("f", "%h"): Loc("f.py", 3, 1)}
    for given, position, row in ((places, "%h = exp, f.py:3", "f.py:3"), (None, "%h = exp", "")):
        use = simulate(module, MACHINE, fusion="", places=given).memory
        assert use.position == position
        assert use.by_line[1].place == row


TABLE = """\
one step of @step on round, 2 devices: 4.884 us

part                   time      share
computation            3.844 us  78.7%
  elementwise          2.176 us  44.6%
  matrix products      1.536 us  31.4%
  reductions           132 ns    2.7%
exposed communication  1.04 us   21.3%
bubbles                0         0.0%

communication along  exposed  hidden
  x                  1.04 us  0

collectives   time
  all-reduce  1.04 us

MFU 10.5%, HFU 15.7%

peak memory of each device: 1.1 KiB, at %g = all-reduce, step.py:3
  arguments        128 B
  parameters       256 B
  optimizer state  256 B
  temporaries      512 B
  results          4 B

memory by line     kind             bytes  values
  step.py:3        temporaries      512 B  %g.partial, %g
  parameters       parameters       256 B  %w
  optimizer state  optimizer state  256 B  %m
  arguments        arguments        128 B  %x
  step.py:5        results          4 B    %loss
"""


def test_the_table() -> None:
    assert f"{step((0, 1))}\n" == TABLE


def test_the_table_states_whether_the_program_fits() -> None:
    *_, last = str(step((0, 1), 1024)).splitlines()
    assert last == (
        "the program does not fit into 1.0 KiB: 132 B too much; the peak has 512 B of temporaries "
        "(step.py:3), 256 B of parameters, 256 B of optimizer state"
    )
    *_, last = str(step((0, 1), 2048)).splitlines()
    assert last == "the program fits into 2.0 KiB: 892 B free"
    assert [step((0, 1), memory).fits for memory in (None, 1024, 2048)] == [None, False, True]


def test_the_table_of_a_program_without_products_has_no_utilization() -> None:
    lines = "".join(f"  %h{i} = exp(%x) : f32[4]\n" for i in range(4))
    module = parse(
        f"func @f(%x: f32[4]) -> (f32[16]) {{\n{lines}"
        "  %r = concatenate(%h0, %h1, %h2, %h3, dim=0) : f32[16]\n  return %r\n}"
    )
    text = str(simulate(module, MACHINE, fusion="", memory_bytes=100))
    assert "MFU" not in text
    (row,) = (line for line in text.splitlines() if "temporaries  64 B" in line and "%" in line)
    assert row == "  no line       temporaries  64 B   %h0, %h1 and 2 more"
    assert text.splitlines()[-1] == (
        "the program does not fit into 100 B: 44 B too much; the peak has 64 B of temporaries, "
        "64 B of results, 16 B of arguments"
    )


def test_the_table_has_the_remedies_that_were_found() -> None:
    tried = replace(step((0, 1), 1024), evaluated_changes=3)
    assert str(tried).splitlines()[-2:] == [
        "remedies, of 3 simulated changes  time  peak  fits",
        "  none of them reduces the peak",
    ]
    remedy = Remedy(("donate_argnums=(0, 1)", "a", "b", "c"), 2_000_000, 512, fits=True)
    assert str(replace(tried, remedies=(remedy,))).splitlines()[-1] == (
        "  donate_argnums=(0, 1), a, b and 1 more  2 us  512 B  yes"
    )
