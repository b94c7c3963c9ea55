"""`overlap`: collectives start early and finish before their first use; results are equal."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.cost.communication import list_collectives
from shardir.errors import PipelineError, VerifyError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.ops.communication.async_collectives import START_OPS
from shardir.passes import Pipeline
from shardir.passes.collectives.overlap import Overlap
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.programs.strategies import spmd_modules

HEAD = """\
mesh @m = [x=4]

spmd func @f(
  %p: f32[64, 64] of f32[256@x, 64@-],
  %u: f32[512, 512] of f32[512@-, 512@-],
) -> (f32[64, 64] of f32[256@x, 64@-], f32[512, 512] of f32[512@-, 512@-]) {
"""


def run_overlap(lines: str) -> str:
    """Return the operations after the pass."""
    module = Overlap()(parse(f"{HEAD}{lines}}}\n"))
    verify(module)
    return str(module).removeprefix(HEAD).removesuffix("}\n")


def test_independent_computation_is_between_start_and_end() -> None:
    assert (
        run_overlap("""\
  %a = all-reduce(%p, axes=[x], op=add) : f32[64, 64]
  %c = neg(%a) : f32[64, 64]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[512, 512]
  return %c, %b
""")
        == """\
  %a.start = all-reduce-start(%p, axes=[x], op=add) : f32[64, 64]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[512, 512]
  %a = done(%a.start) : f32[64, 64]
  %c = neg(%a) : f32[64, 64]
  return %c, %b
"""
    )


def test_a_collective_starts_before_earlier_independent_computation() -> None:
    assert (
        run_overlap("""\
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[512, 512]
  %a = all-reduce(%p, axes=[x], op=add) : f32[64, 64]
  return %a, %b
""")
        == """\
  %a.start = all-reduce-start(%p, axes=[x], op=add) : f32[64, 64]
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[512, 512]
  %a = done(%a.start) : f32[64, 64]
  return %a, %b
"""
    )


def test_a_collective_without_overlap_is_not_split() -> None:
    lines = """\
  %a = all-reduce(%p, axes=[x], op=add) : f32[64, 64]
  %c = neg(%a) : f32[64, 64]
  return %c, %u
"""
    assert run_overlap(lines) == lines


def test_the_end_of_another_collective_is_no_computation() -> None:
    module = parse(f"""{HEAD}\
  %a = all-reduce(%p, axes=[x], op=add) : f32[64, 64]
  %k = neg(%u) : f32[512, 512]
  %c = all-reduce(%k, axes=[x], op=add) : f32[512, 512]
  return %a, %c
}}
""")
    after = Overlap(network=1e6)(module)
    names = [op.name for op in after.main.body.ops]
    assert names == ["all-reduce-start", "neg", "all-reduce", "done"]


def test_unpartitioned_programs_are_not_changed() -> None:
    module = parse("func @f(%x: f32[4]) -> (f32[4]) {\n  %y = neg(%x) : f32[4]\n  return %y\n}")
    assert str(Overlap()(module)) == str(module)


def test_start_and_end_count_as_one_collective() -> None:
    lines = """\
  %b = dot(%u, %u, dims="ij,jk->ik") : f32[512, 512]
  %a = all-reduce(%p, axes=[x], op=add) : f32[64, 64]
  return %a, %b
"""
    module = parse(f"{HEAD}{lines}}}\n")
    (before,), (after,) = list_collectives(module), list_collectives(Overlap()(module))
    assert (before.kind, before.sent, before.nbytes) == (after.kind, after.sent, after.nbytes)


@given(spmd_modules(), st.floats(1e6, 1e15), st.floats(1e6, 1e15))
def test_the_text_round_trips(module: Module, flops: float, network: float) -> None:
    changed = Overlap(flops=flops, network=network)(module)
    verify(changed)
    assert str(parse(str(changed))) == str(changed)
    assert whole_operations(changed) == whole_operations(module)


def whole_operations(module: Module) -> list[str]:
    """Return the operations of a module, with start and end joined."""
    names = (op.name.removesuffix("-start") for op in module.main.body.walk())
    return sorted(name for name in names if name != "done")


TRAINING = """\
mesh @m = [data=4, model=2]

func @step(%w1: f32[16, 32@model], %w2: f32[32@model, 8], %x: f32[8@data, 16]) -> (
  f32[16, 32@model], f32[32@model, 8], f32[8@data, 8]
) {
  %h = dot(%x, %w1, dims="bi,ih->bh") : f32[8, 32]
  %y = dot(%h, %w2, dims="bh,ho->bo") : f32[8, 8]
  %g2 = dot(%h, %y, dims="bh,bo->ho") : f32[32, 8]
  %gh = dot(%y, %w2, dims="bo,ho->bh") : f32[8, 32]
  %g1 = dot(%x, %gh, dims="bi,bh->ih") : f32[16, 32]
  return %g1, %g2, %y
}
"""


def test_a_training_step_overlaps_with_equal_results() -> None:
    module = parse(TRAINING)
    parted = Pipeline.parse(DEFAULT_PIPELINE)(module)
    changed = Overlap()(parted)
    names = [op.name for op in changed.main.body.ops]
    assert "all-reduce-start" in names
    args = random_arguments(module, whole=True)
    for before, after in zip(run(parted, args), run(changed, args), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "%s = all-reduce-start(%p, axes=[x], op=add) : f32[64, 64]\n  return %s, %u\n",
            "%s is not complete; return the result of its done",
        ),
        (
            "%s = all-reduce-start(%p, axes=[x], op=add) : f32[64, 64]\n"
            "  %t = neg(%s) : f32[64, 64]\n  %d = done(%s) : f32[64, 64]\n  return %t, %u\n",
            "%s is not complete; use the result of its done",
        ),
        (
            "%s = all-reduce-start(%p, axes=[x], op=add) : f32[64, 64]\n  return %p, %u\n",
            "%s is taken by 0 done; exactly one takes it",
        ),
        (
            "%d = done(%p) : f32[64, 64]\n  return %d, %u\n",
            "done takes the value of a collective started in this block, not %p",
        ),
    ],
)
def test_start_and_end_must_match(lines: str, message: str) -> None:
    with pytest.raises(VerifyError) as error:
        verify(parse(f"{HEAD}  {lines}}}\n"))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["flops", "memory", "network"])
def test_invalid_machine_parameters_are_errors(name: str) -> None:
    with pytest.raises(PipelineError) as error:
        Overlap(**{name: 0.0})(parse("func @f() -> () {\n  return\n}"))
    assert str(error.value) == f"{name} of overlap is more than 0, got 0.0"


def test_a_latency_below_zero_is_an_error() -> None:
    with pytest.raises(PipelineError) as error:
        Overlap(latency=-1e-5)(parse("func @f() -> () {\n  return\n}"))
    assert str(error.value) == "latency of overlap is at least 0, got -1e-05"


LOOP = """\
  %a = all-reduce(%p, axes=[x], op=add) : f32[64, 64]
  %s = scan(%u, carries=1, length=50) : f32[512, 512] {
    (%v: f32[512, 512]) =>
    %t = reduce-scatter(%v, dim=0, axes=[x], op=add) : f32[128, 512]
    %w = all-gather(%t, dim=0, axes=[x]) : f32[512, 512]
    yield %w
  }
"""


def test_a_loop_costs_the_latency_of_each_of_its_transfers() -> None:
    module = parse(f"{HEAD}{LOOP}  return %a, %s\n}}\n")
    all_reduce, loop = module.main.body.ops
    machine, without = Overlap(latency=1e-3), Overlap(latency=0.0)
    assert machine.seconds(loop) - without.seconds(loop) == pytest.approx(0.1)
    assert machine.seconds(all_reduce) - without.seconds(all_reduce) == pytest.approx(1e-3)


def test_a_transfer_that_ends_inside_of_a_loop_is_complete_after_it() -> None:
    # The first transfer takes 1 ms, and the 100 transfers of the loop take 100 ms.
    lines = f"{LOOP}  %b = neg(%s) : f32[512, 512]\n  return %a, %b\n"
    after = Overlap(network=1e14, latency=1e-3)(parse(f"{HEAD}{lines}}}\n"))
    assert [op.name for op in after.main.body.ops] == ["all-reduce-start", "scan", "done", "neg"]


def test_every_collective_has_a_start_operation() -> None:
    assert sorted(spec.name for spec in START_OPS) == [
        "all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter",
    ]  # fmt: skip
