"""`remat`: values are computed again so that a program fits into a memory budget."""

import re

import numpy as np
import pytest
from hypothesis import assume, given

import shardir as sd
import shardir.numpy as jnp
from shardir.errors import PipelineError
from shardir.ir.module import Module
from shardir.ops import dot, scan
from shardir.passes import Pipeline, Remat
from shardir.passes.autodiff.phases import is_recomputed
from shardir.passes.rematerialization import eviction
from shardir.passes.rematerialization.remat import form_kernels
from shardir.passes.simulation.memory_use import memory_use
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.programs.bit_exact_programs import must_be_exact
from tests.programs.strategies import modules

HEAD = """\
mesh @m = [x=2]

spmd func @f(
  %x: f32[8, 4] of f32[16@x, 4@-],
  %w: f32[4, 16] of f32[4@-, 16@-],
) -> (f32[8, 16] of f32[16@x, 16@-]) {
"""
LINES = """\
  %h = dot(%x, %w, dims="bi,ih->bh") : f32[8, 16] loc("model.py":2:7)
  %c = dot(%h, %h, dims="bh,ch->bc") : f32[8, 8] loc("model.py":3:7)
  %d = dot(%c, %c, dims="bc,de->bcde") : f32[8, 8, 8, 8] loc("model.py":4:7)
  %e = dot(%d, %c, dims="bcde,de->bc") : f32[8, 8] loc("model.py":5:7)
  %g = dot(%e, %h, dims="bc,ch->bh") : f32[8, 16] loc("model.py":6:7)
  return %g
"""
PEAK = 17792
POSSIBLE = 17280
"""The bytes of the program above: of its arguments (384), %d (16384), and %c and %e (512); and 512
of %h if it is not computed again."""


def program(lines: str = LINES) -> Module:
    return parse(f"{HEAD}{lines}}}\n")


def peak_of(module: Module) -> int:
    return memory_use(form_kernels(module)).peak


def layers(ws: list[jnp.ndarray], x: jnp.ndarray) -> jnp.ndarray:
    for w in ws:
        x = x + jnp.tanh(x @ w)
    return jnp.mean(x * x)


def test_a_program_that_fits_is_unchanged() -> None:
    module = program()
    assert peak_of(module) == PEAK
    assert Remat(str(PEAK))(module) is module


def test_a_freed_value_is_computed_again_before_its_next_use() -> None:
    module = Remat(str(POSSIBLE))(program())
    verify(module)
    assert peak_of(module) == POSSIBLE
    assert [op.name for op in module.main.body.ops[-3:]] == ["optimization_barrier", "dot", "dot"]
    assert str(Pipeline.parse("cse,dce,simplify")(module)) == str(module)
    copy = module.main.body.ops[-2]
    assert copy.why == "%h is recomputed, which was freed to save memory"


def test_the_error_states_a_possible_budget_and_the_line_of_the_peak() -> None:
    with pytest.raises(PipelineError) as caught:
        Remat("16KiB")(program())
    assert str(caught.value) == (
        "remat cannot fit @f into a budget of 16.0 KiB on each device; it needs 17.4 KiB without "
        "this pass, and 16.9 KiB with it, at %e = dot, model.py:5; choose a budget of 17280 "
        "bytes, or shard the values of that line further"
    )
    assert peak_of(Remat("17280")(program())) <= 17280


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("remat", "remat needs a budget; write remat{budget=2GiB}"),
        *(
            (
                f"remat{{budget={budget}}}",
                f"the budget of remat is {budget!r}, which is not a memory size; write "
                "remat{budget=2GiB}",
            )
            for budget in ("2GB/s", "-1", "0", "nan", "1e999")
        ),
    ],
)
def test_invalid_budgets_are_errors(text: str, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline.parse(text)(program())
    assert str(caught.value) == message


def test_collectives_are_repeated_with_their_reason() -> None:
    module = Remat(str(POSSIBLE))(
        program(
            LINES.replace(
                '%h = dot(%x, %w, dims="bi,ih->bh")',
                '%p = dot(%x, %w, dims="bi,ih->bh") : f32[8, 16]\n'
                "  %h = all-reduce(%p, axes=[x], op=add)",
            ).replace('f32[8, 16] loc("model.py":2:7)', 'f32[8, 16] why("partial sums")')
        )
    )
    repeated = [op for op in module.main.body.ops if "recomputed" in op.why]
    assert [op.name for op in repeated][-1] == "all-reduce"
    assert repeated[-1].why == ("%h is recomputed, which was freed to save memory; partial sums")


FIRST = '%h = dot(%x, %w, dims="bi,ih->bh")'


@pytest.mark.parametrize(
    "lines",
    [
        FIRST.replace("%h", "%k") + ' : f32[8, 16]\n  %h = pure-callback(%k, function="f")',
        '%k = pure-callback(%x, function="f") : f32[8, 4]\n  ' + FIRST.replace("%x", "%k"),
    ],
)
def test_operations_with_effects_and_loops_are_not_repeated(lines: str) -> None:
    """Neither is an operation repeated whose operand they compute."""
    with pytest.raises(PipelineError, match="cannot fit @f into a budget of"):
        Remat(str(POSSIBLE))(program(LINES.replace(FIRST, lines)))


@pytest.mark.parametrize("limit", ["MAX_REPETITIONS", "MAX_RECOMPUTED_OPERATIONS"])
def test_the_number_of_repeated_operations_is_limited(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = LINES.replace("  return %g", "  %k = tanh(%g) : f32[8, 16]\n  return %k")
    assert peak_of(Remat(str(POSSIBLE))(program(lines))) <= POSSIBLE
    monkeypatch.setattr(eviction, limit, 0)
    with pytest.raises(PipelineError, match="cannot fit @f into a budget of"):
        Remat(str(POSSIBLE))(program(lines))


PINNED = """\
  %c = dot(%x, %w, dims="bi,ih->bh") : f32[8, 16]
  %q = dot(%c, %c, dims="bh,ch->bc") : f32[8, 8]
  %h = dot(%q, %c, dims="bc,ch->bh") : f32[8, 16]
  %z = dot(%h, %h, dims="bh,ch->bc") : f32[8, 8]
  %d = dot(%z, %z, dims="bc,de->bcde") : f32[8, 8, 8, 8]
  %e = dot(%d, %z, dims="bcde,de->bc") : f32[8, 8]
  %k = dot(%h, %c, dims="bh,ch->bc") : f32[8, 8]
  %m = dot(%e, %k, dims="bc,cd->bd") : f32[8, 8]
  %y = dot(%m, %x, dims="bc,ci->bi") : f32[8, 4]
  %g = dot(%y, %w, dims="bi,ih->bh") : f32[8, 16]
  return %g
"""
"""%c and %h are not live while %d is, and then %k uses both."""
ANCHOR = """\
  %c = dot(%x, %w, dims="bi,ih->bh") : f32[8, 16]
  %h = dot(%c, %w, dims="bh,ik->bhik") : f32[8, 16, 4, 16]
  %a = dot(%h, %w, dims="bhik,ik->bh") : f32[8, 16]
  %z = dot(%a, %a, dims="bh,ch->bc") : f32[8, 8]
  %d = dot(%z, %z, dims="bc,de->bcde") : f32[8, 8, 8, 8]
  %e = dot(%d, %c, dims="bcde,bh->ch") : f32[8, 16]
  %i = dot(%e, %e, dims="bh,ch->bc") : f32[8, 8]
  %j = dot(%i, %i, dims="bc,de->bcde") : f32[8, 8, 8, 8]
  %k = dot(%j, %h, dims="bcde,chio->bi") : f32[8, 4]
  %g = dot(%k, %w, dims="bi,ih->bh") : f32[8, 16]
  return %g
"""
"""%h, which is computed from %c, is not live while %d is; %e is the last operation that uses %c."""
CHAIN = "".join(
    f'  %a{i} = dot(%a{i - 1}, %x, dims="bc,ci->bi") : f32[8, 4]\n'
    f'  %a{i + 1} = dot(%a{i}, %x, dims="bi,ci->bc") : f32[8, 8]\n'
    for i in (1, 3, 5, 7)
)
DIAMOND = f"""\
  %u = dot(%x, %w, dims="bi,ih->bh") : f32[8, 16]
  %s = dot(%u, %u, dims="bh,ch->bc") : f32[8, 8]
  %t = dot(%u, %u, dims="bh,ch->cb") : f32[8, 8]
  %v = dot(%s, %t, dims="bc,cd->bd") : f32[8, 8]
  %p = dot(%v, %v, dims="bc,dc->bd") : f32[8, 8]
  %q = dot(%v, %v, dims="bc,dc->db") : f32[8, 8]
  %diamonds = dot(%p, %q, dims="bc,cd->bd") : f32[8, 8]
  %a0 = dot(%x, %x, dims="bi,ci->bc") : f32[8, 8]
{CHAIN}\
  %d = dot(%x, %x, dims="bi,cj->bicj") : f32[8, 4, 8, 4]
  %e = dot(%d, %x, dims="bicj,ci->bj") : f32[8, 4]
  %k = dot(%a8, %diamonds, dims="bc,cd->bd") : f32[8, 8]
  %f = dot(%k, %e, dims="bc,cd->bd") : f32[8, 4]
  %g = dot(%f, %w, dims="bi,ih->bh") : f32[8, 16]
  return %g
"""
"""Seven operations compute %diamonds, and nine compute %a8."""


@pytest.mark.parametrize(
    ("lines", "budget", "expected"),
    [
        (PINNED, 17311, ["c.1", "q.1", "h.1"]),
        (ANCHOR, 50048, ["c.1", "h.1"]),
        (DIAMOND, 5119, ["u.1", "s.1", "t.1", "v.1", "p.1", "q.1", "diamonds.1"]),
    ],
)
def test_the_values_that_are_computed_again(lines: str, budget: int, expected: list[str]) -> None:
    module = Remat(str(budget))(program(lines))
    verify(module)
    assert peak_of(module) <= budget
    repeated = [op for op in module.main.body.ops if "is recomputed" in op.why]
    assert [op.result.name for op in repeated if op.spec is dot] == expected


LIMITED = """\
  %a1 = dot(%x, %w, dims="bi,ih->bh") : f32[8, 16]
  %p1 = dot(%a1, %w, dims="bh,ih->bi") : f32[8, 4]
  %a2 = dot(%p1, %w, dims="bi,ih->bh") : f32[8, 16]
  %p2 = dot(%a2, %w, dims="bh,ih->bi") : f32[8, 4]
  %v = dot(%p2, %w, dims="bi,ih->bh") : f32[8, 16]
  %p3 = dot(%v, %w, dims="bh,ih->bi") : f32[8, 4]
  %u = dot(%p3, %w, dims="bi,ih->bh") : f32[8, 16]
  %q = dot(%v, %v, dims="bh,ch->bc") : f32[8, 8]
  %d = dot(%q, %q, dims="bc,de->bcde") : f32[8, 8, 8, 8]
  %e = dot(%d, %v, dims="bcde,bh->c") : f32[8]
  %q2 = dot(%a2, %a2, dims="bh,ch->bc") : f32[8, 8]
  %d2 = dot(%q2, %q2, dims="bc,de->bcde") : f32[8, 8, 8, 8]
  %e2 = dot(%d2, %a2, dims="bcde,bh->c") : f32[8]
  %f = dot(%e2, %u, dims="b,bh->bh") : f32[8, 16]
  %g = dot(%e, %f, dims="b,bh->bh") : f32[8, 16]
  return %g
"""


def test_a_value_that_only_recomputations_use_is_freed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """%v is live after its last use, since five operations would compute it, until %a2 is
    computed again: then two operations compute it."""
    monkeypatch.setattr(eviction, "MAX_RECOMPUTED_OPERATIONS", 3)
    module = Remat("17568")(program(LIMITED))
    repeated = [op for op in module.main.body.ops if "is recomputed" in op.why]
    names = [op.result.name for op in repeated if op.spec is dot]
    assert names == [
        *("a1.1", "p1.1", "a2.1"),
        *("a1.2", "p1.2", "a2.2", "p2.1", "v.1", "p3.1", "u.1"),
    ]


def test_values_of_a_few_bytes_are_not_computed_again() -> None:
    lines = """\
  %c = dot(%x, %x, dims="bi,bi->") : f32[]
  %z = dot(%x, %x, dims="bi,ci->bc") : f32[8, 8]
  %d = dot(%z, %z, dims="bc,de->bcde") : f32[8, 8, 8, 8]
  %e = dot(%d, %z, dims="bcde,de->bc") : f32[8, 8]
  %f = dot(%e, %c, dims="bc,->bc") : f32[8, 8]
  %y = dot(%f, %x, dims="bc,ci->bi") : f32[8, 4]
  %g = dot(%y, %w, dims="bi,ih->bh") : f32[8, 16]
  return %g
"""
    peak = peak_of(program(lines))
    with pytest.raises(PipelineError, match=f"choose a budget of {peak} bytes"):
        Remat(str(peak - 4))(program(lines))


@given(modules())
def test_results_of_random_programs_are_bitwise_equal(module: Module) -> None:
    """About a third of the programs fit into less memory; the error states the budget of others
    that do not fit into nine tenths."""
    peak = peak_of(module)
    budget = max(peak * 9 // 10, 1)
    try:
        result = Remat(str(budget))(module)
    except PipelineError as error:
        match = re.search(r"choose a budget of (\d+) bytes", str(error))
        assert match is not None
        budget = int(match[1])
        assume(budget < peak)
        result = Remat(str(budget))(module)
    assume(peak > budget)
    verify(result)
    assert peak_of(result) <= budget
    must_be_exact(module, result)


@pytest.mark.parametrize("machine", ["", ",machine=a100x8"])
@pytest.mark.parametrize("devices", [1, 2])
def test_the_executed_peak_decreases_with_the_budget(devices: int, machine: str) -> None:
    rng = np.random.default_rng(0)
    ws = [rng.standard_normal((16, 16), np.float32) for _ in range(8)]
    mesh = sd.make_mesh((devices,), ("data",))
    x = rng.standard_normal((512, 16), np.float32)
    x = sd.device_put(x, NamedSharding(mesh, P("data")))
    lowered = sd.jit(sd.grad(layers)).lower(ws, x)
    compiled = lowered.compile()
    peak = peak_of(compiled.module)
    budget = peak * 6 // 10
    smaller = lowered.compile(passes=f"default,remat{{budget={budget}{machine}}}")
    assert any(map(is_recomputed, smaller.module.main.body.ops))
    before, after = (
        each.memory_analysis().host_peak_memory_in_bytes for each in (compiled, smaller)
    )
    assert before - after >= devices * (peak - budget)
    for left, right in zip(smaller(ws, x), compiled(ws, x), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


@pytest.mark.parametrize("devices", [1, 2])
def test_values_inside_of_a_loop_are_computed_again_in_the_same_iteration(devices: int) -> None:
    def accumulated(ws: list[jnp.ndarray], x: jnp.ndarray) -> list[jnp.ndarray]:
        def step(total: list[jnp.ndarray], one: jnp.ndarray) -> tuple[list[jnp.ndarray], None]:
            return sd.tree.map(jnp.add, total, sd.grad(layers)(ws, one)), None

        total, _ = sd.lax.scan(step, sd.tree.map(jnp.zeros_like, ws), x)
        return list(total)

    rng = np.random.default_rng(0)
    ws = [rng.standard_normal((16, 16), np.float32) for _ in range(8)]
    mesh = sd.make_mesh((devices,), ("data",))
    x = rng.standard_normal((2, 512, 16), np.float32)
    x = sd.device_put(x, NamedSharding(mesh, P(None, "data")))
    lowered = sd.jit(accumulated).lower(ws, x)
    compiled = lowered.compile()
    peak = peak_of(compiled.module)
    budget = peak * 7 // 10
    smaller = lowered.compile(passes=f"default,remat{{budget={budget}}}")
    (loop,) = (op for op in smaller.module.main.body.ops if op.spec is scan)
    assert any(map(is_recomputed, loop.blocks[0].ops))
    assert peak_of(smaller.module) <= budget
    before, after = (
        each.memory_analysis().host_peak_memory_in_bytes for each in (compiled, smaller)
    )
    assert before - after >= devices * (peak - budget)
    for left, right in zip(smaller(ws, x), compiled(ws, x), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
    with pytest.raises(PipelineError, match=r"choose a budget of \d+ bytes"):
        lowered.compile(passes=f"default,remat{{budget={peak // 9}}}")


def test_donated_state_reuses_the_memory_of_arguments() -> None:
    def step(ws: list[jnp.ndarray], x: jnp.ndarray) -> list[jnp.ndarray]:
        return [w - g for w, g in zip(ws, sd.grad(layers)(ws, x), strict=True)]

    mesh = sd.make_mesh((1,), ("data",))
    ws = [sd.ShapeDtypeStruct((64, 64), np.float32)] * 4
    x = sd.ShapeDtypeStruct((8, 64), np.float32, sharding=NamedSharding(mesh, P()))
    module = sd.jit(step).lower(ws, x).compile().module
    peak = memory_use(form_kernels(module), range(5)).peak
    assert peak < peak_of(module)
    assert Remat(str(peak), donated=True)(module) is module
    with pytest.raises(PipelineError, match=r"budget of 132\.0 KiB"):
        Remat(str(peak))(module)


def test_calls_are_inlined_only_if_the_program_exceeds_the_budget() -> None:
    """Values inside of a call cannot be computed again after it."""
    lines = []
    for i in range(3):
        lines.append(f"%h{i} = tanh(%{f'd{i - 1}' if i else 'a'}) : f32[64, 64]")
        lines.append(f'%d{i} = dot(%h{i}, %b, dims="ab,bc->ac") : f32[64, 64]')
    for i in reversed(range(3)):
        lines.append(f"%m{i} = mul(%{f'n{i + 1}' if i < 2 else 'd2'}, %h{i}) : f32[64, 64]")
        lines.append(f'%n{i} = dot(%m{i}, %b, dims="ab,cb->ac") : f32[64, 64]')
    body = "\n    ".join(lines)
    module = parse(f"""\
func @f(
  %x: f32[64, 64],
  %w: f32[64, 64],
) -> (f32[64, 64]) {{
  %y = call(%x, %w, callee="g") : f32[64, 64] {{
    (%a: f32[64, 64], %b: f32[64, 64]) =>
    {body}
    yield %n0
  }}
  return %y
}}
""")
    whole = peak_of(module)
    assert Remat(budget=f"{whole}")(module) is module
    smaller = Remat(budget=f"{whole - 1}")(module)
    assert peak_of(smaller) < whole
    assert [op.name for op in smaller.main.body.walk() if op.name == "call"] == []
    assert [op.name for op in module.main.body.walk() if op.name == "call"] == ["call"]
