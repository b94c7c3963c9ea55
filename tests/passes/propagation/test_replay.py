"""Replay without one annotation has the result of a separate run."""

import pytest

from shardir.op_rules.custom_rules import rules_in_force
from shardir.passes import Propagate
from shardir.passes.propagation.propagate import initial_state
from shardir.passes.propagation.propagation_levels import PROPAGATION_LEVELS
from shardir.passes.propagation.propagation_network import StepperTable
from shardir.passes.propagation.replay import PropagationReplay
from shardir.passes.propagation.step import NO_SHARDING, ShardingTable
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import MESH

# Both layers have equal shardings, so that they share the outcomes of steps.
LAYERS = """\
func @f(
  %x: f32[16@x, 8],
  %w1: f32[8, 12@y],
  %w2: f32[12@y, 8],
  %v1: f32[8, 12@y],
  %v2: f32[12, 8@z],
) -> (f32[16, 8], f32[16, 8@z]) {
  %a = dot(%x, %w1, dims="bi,ih->bh") : f32[16, 12]
  %b = tanh(%a) : f32[16, 12]
  %c = dot(%b, %w2, dims="bh,ho->bo") : f32[16, 8]
  %d = dot(%c, %v1, dims="bi,ih->bh") : f32[16, 12]
  %e = tanh(%d) : f32[16, 12]
  %g = dot(%e, %v2, dims="bh,ho->bo") : f32[16, 8]
  return %c, %g
}
"""
CHAINS = """\
func @f(
  %a: f32[8@x?, 8],
  %b: f32[8@x?, 8],
  %c: f32[8, 8@y?],
) -> (f32[8, 8], f32[8, 8], f32[8, 8@z?]) {
  %d = neg(%a) : f32[8, 8]
  %e = neg(%b) : f32[8, 8]
  %g = exp(%d) : f32[8, 8]
  %h = exp(%e) : f32[8, 8@z?]
  %i = add(%g, %c) : f32[8, 8]
  %j = add(%h, %i) : f32[8, 8]
  %k = transpose(%j, perm=[1, 0]) : f32[8, 8@y?]
  %l = add(%k, %d) : f32[8, 8]
  return %j, %l, %k
}
"""
LOOP = """\
func @f(
  %a: f32[8, 8],
  %w: f32[8, 8@x],
) -> (f32[8@y, 8]) {
  %r = while(%a) : f32[8, 8] {
    (%t: f32[8, 8]) =>
    %s = sum(%t, dims=[0, 1]) : f32[]
    %n = constant(value=9.0) : f32[]
    %c = lt(%s, %n) : bool[]
    yield %c
  } {
    (%p: f32[8, 8]) =>
    %q = dot(%p, %w, dims="ik,kj->ij") : f32[8, 8]
    yield %q
  }
  return %r
}
"""
OPAQUE = 'operation="x.y", head="x.y %, %, %", attributes="", types=""'
# A second visit of the operation would shard its result, since it changes an operand that it has
# twice; no operation visits itself.
TWICE = """\
func @f(
  %a: f32[8, 2@y],
  %p: f32[2],
) -> (f32[2]) {
  %r = opaque(%a, %p, %p, OPAQUE, rule="([j, k], [i], [k]) -> ([i]) {i=2, j=8, k=2}") : f32[2]
  return %r
}
""".replace("OPAQUE", OPAQUE)
# `neg` wakes the three operations before it, and `sin` the last of them, which keeps its place
# behind `dot`: the first one of these two shards %s.
WAITING = """\
func @f(
  %a: f32[8],
  %s: f32[8, 8],
) -> (f32[8], f32[8], f32[8]) {
  %c = exp(%a) : f32[8]
  %h = sin(%c) : f32[8]
  %d = dot(%c, %s, dims="i,ij->j") : f32[8]
  %r = opaque(%c, %h, %s, OPAQUE, rule="([j], [j], [i, j]) -> ([j]) {i=8, j=8}") : f32[8]
  %n = neg(%c) : f32[8@x?]
  return %d, %r, %n
}
""".replace("OPAQUE", OPAQUE)


@pytest.mark.parametrize("level", PROPAGATION_LEVELS)
@pytest.mark.parametrize("text", [LAYERS, CHAINS, LOOP, TWICE, WAITING])
def test_replay_without_one_annotation_is_a_run_without_it(text: str, level: str) -> None:
    module, propagate = parse(MESH + text), Propagate(level=level)
    steppers = StepperTable(ShardingTable(module), explain=False)
    prepared = propagate.prepare_function(module.main, steppers, rules_in_force())
    network, stated = prepared.network, prepared.stated
    begin = initial_state(module.main, network, stated, steppers.shardings)
    run = propagate.start_run(prepared, steppers)
    replay = PropagationReplay(network, run, begin)
    run.run(begin)
    assert replay.now == [*begin.cells, *begin.results]
    initial = [*replay.initial]
    for cell, number in enumerate(initial):
        assert replay.differences_without(cell, number) == {}
        if number != NO_SHARDING:
            alone = initial_state(module.main, network, stated, steppers.shardings)
            states = alone.cells if cell < len(alone.cells) else alone.results
            states[cell % len(alone.cells)] = NO_SHARDING
            run.run(alone)
            final = [*alone.cells, *alone.results]
            differences = replay.differences_without(cell, NO_SHARDING)
            assert differences == {
                i: new
                for i, (old, new) in enumerate(zip(replay.now, final, strict=True))
                if old != new
            }
