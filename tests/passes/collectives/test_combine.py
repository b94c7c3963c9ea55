"""`combine-collectives`: several small collectives become one with the same bytes and results."""

import numpy as np
from hypothesis import given, strategies as st

from shardir.cost.communication import list_collectives, sum_collectives
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes import CombineCollectives, Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.programs.strategies import spmd_modules

HEAD = """\
mesh @m = [x=4]

spmd func @f(
  %p: f32[4, 2] of f32[16@x, 2@-],
  %q: f32[3] of f32[12@x],
) -> (f32[4, 2] of f32[4@-, 2@-], f32[3] of f32[3@-]) {
"""


def combined(lines: str, limit: int = 1 << 20) -> str:
    """Return the operations after the pass."""
    module = CombineCollectives(limit)(parse(f"{HEAD}{lines}}}\n"))
    verify(module)
    return str(module).removeprefix(HEAD).removesuffix("}\n")


SUMS = """\
  %a = all-reduce(%p, axes=[x], op=add) : f32[4, 2]
  %b = all-reduce(%q, axes=[x], op=add) : f32[3]
  return %a, %b
"""


def test_all_reduces_are_combined() -> None:
    assert (
        combined(SUMS)
        == """\
  %p.row = reshape(%p) : f32[1, 8]
  %q.row = reshape(%q) : f32[1, 3]
  %a.packed = concatenate(%p.row, %q.row, dim=1) : f32[1, 11]
  %a.combined = all-reduce(%a.packed, axes=[x], op=add) : f32[1, 11]
  %a.row = slice(%a.combined, starts=[0, 0], strides=[1, 1]) : f32[1, 8]
  %a = reshape(%a.row) : f32[4, 2]
  %b.row = slice(%a.combined, starts=[0, 8], strides=[1, 1]) : f32[1, 3]
  %b = reshape(%b.row) : f32[3]
  return %a, %b
"""
    )


def test_the_combined_collective_states_each_reason_once() -> None:
    lines = SUMS.replace("f32[4, 2]", 'f32[4, 2] why("partial sums")')
    lines += f"  {SUMS.splitlines()[1].strip().replace('%b', '%c')}\n"
    *_, returned, third = lines.splitlines(keepends=True)
    module = parse(f"{HEAD}{''.join(lines.splitlines(keepends=True)[:-2])}{third}{returned}}}\n")
    (one,) = list_collectives(CombineCollectives()(module))
    assert one.why == "3 of them together: partial sums; the program requests it"


def test_a_used_all_reduce_is_not_delayed() -> None:
    lines = """\
  %a = all-reduce(%p, axes=[x], op=add) : f32[4, 2]
  %c = neg(%a) : f32[4, 2]
  %b = all-reduce(%q, axes=[x], op=add) : f32[3]
  return %c, %b
"""
    assert combined(lines) == lines


def test_only_compatible_collectives_are_combined() -> None:
    lines = SUMS.replace("%q, axes=[x], op=add", "%q, axes=[x], op=max")
    assert combined(lines) == lines


def test_the_limit_is_the_total_of_bytes() -> None:
    assert combined(SUMS, limit=4 * 11) != SUMS
    assert combined(SUMS, limit=4 * 11 - 1) == SUMS


def names_of(lines: str, limit: int = 1 << 20) -> list[str]:
    """The values that the pass computes, in order, without rows."""
    text = combined(lines, limit)
    names = [line.partition(" = ")[0].strip() for line in text.splitlines() if " = " in line]
    return [name for name in names if not name.endswith((".row", ".packed"))]


def test_a_large_sum_neither_waits_nor_makes_others_travel_apart() -> None:
    lines = """\
  %b = all-reduce(%q, axes=[x], op=add) : f32[3]
  %a = all-reduce(%p, axes=[x], op=add) : f32[4, 2]
  %c = all-reduce(%b, axes=[x], op=add) : f32[3]
  %d = all-reduce(%q, axes=[x], op=add) : f32[3]
  return %a, %d
"""
    assert names_of(lines, limit=4 * 8) == ["%a", "%b", "%c.combined", "%c", "%d"]


def test_what_has_arrived_may_be_used_while_others_wait() -> None:
    lines = """\
  %b = all-reduce(%q, axes=[x], op=add) : f32[3]
  %c = neg(%b) : f32[3]
  %d = exp(%b) : f32[3]
  %e = all-reduce(%d, axes=[x], op=add) : f32[3]
  %g = sin(%b) : f32[3]
  %a = all-reduce(%p, axes=[x], op=add) : f32[4, 2]
  %h = add(%e, %g) : f32[3]
  return %a, %h
"""
    assert names_of(lines) == ["%b", "%c", "%d", "%g", "%e.combined", "%e", "%a", "%h"]


GATHERS = """\
mesh @m = [x=4, y=2]

spmd func @f(
  %p: f32[4, 2, 3] of f32[16@x, 4@y, 3@-],
  %q: f32[3] of f32[12@x],
) -> (
  f32[4, 8, 3] of f32[4@-, 16@y, 3@-],
  f32[4, 2, 12] of f32[4@-, 4@y, 12@-],
  f32[12] of f32[12@-],
) {
  %a = all-gather(%p, dim=1, axes=[x]) : f32[4, 8, 3]
  %b = all-gather(%p, dim=2, axes=[x]) : f32[4, 2, 12]
  %c = all-gather(%q, dim=0, axes=[x]) : f32[12]
  return %a, %b, %c
}
"""


def test_all_gathers_along_any_dimension_are_combined() -> None:
    before = parse(GATHERS)
    after = CombineCollectives()(before)
    verify(after)
    (one,) = list_collectives(after)
    assert one.nbytes == sum_collectives(list_collectives(before)).nbytes
    assert one.why.startswith("3 of them together")


DEALT = """\
mesh @m = [x=4, y=2]

spmd func @f(
  %p: f32[4, 8, 3] of f32[16@x, 8@-, 3@-],
  %q: f32[12] of f32[12@-],
) -> (
  f32[4, 2, 3] of f32[4@-, 8@x, 3@-],
  f32[3] of f32[12@x],
  f32[1, 8, 12] of f32[4@x, 8@-, 12@-],
  f32[4, 2, 12] of f32[4@-, 8@x, 12@-],
  f32[4, 8, 3] of f32[16@x, 8@-, 3@-],
  f32[12] of f32[48@x],
) {
  %a = reduce-scatter(%p, dim=1, axes=[x], op=add) : f32[4, 2, 3]
  %b = reduce-scatter(%q, dim=0, axes=[x], op=add) : f32[3]
  %c = all-to-all(%p, split=0, concat=2, axes=[x]) : f32[1, 8, 12]
  %d = all-to-all(%p, split=1, concat=2, axes=[x]) : f32[4, 2, 12]
  %e = collective-permute(%p, axes=[x], pairs=[[0, 1], [1, 2]]) : f32[4, 8, 3]
  %g = collective-permute(%q, axes=[x], pairs=[[0, 1], [1, 2]]) : f32[12]
  return %a, %b, %c, %d, %e, %g
}
"""


def test_reduce_scatters_and_permutes_are_combined() -> None:
    before = parse(DEALT)
    after = CombineCollectives()(before)
    verify(after)
    made = list_collectives(after)
    kinds = ["reduce-scatter", "all-to-all", "collective-permute"]
    assert [each.kind for each in made] == kinds
    assert sum_collectives(made).sent == sum_collectives(list_collectives(before)).sent
    args = random_arguments(before)
    for want, got in zip(run(before, args), run(after, args), strict=True):
        np.testing.assert_array_equal(got, want)


def test_permutes_with_other_pairs_are_not_combined() -> None:
    lines = """\
  %a = collective-permute(%p, axes=[x], pairs=[[0, 1]]) : f32[4, 2]
  %b = collective-permute(%q, axes=[x], pairs=[[1, 0]]) : f32[3]
  return %a, %b
"""
    assert combined(lines) == lines


def test_a_training_step_sends_equal_bytes_in_one_collective() -> None:
    module = parse("""\
mesh @m = [data=4]

func @step(%w1: f32[16, 32], %w2: f32[32, 8], %x: f32[8@data, 16]) -> (f32[16, 32], f32[32, 8]) {
  %h = dot(%x, %w1, dims="bi,ih->bh") : f32[8, 32]
  %y = dot(%h, %w2, dims="bh,ho->bo") : f32[8, 8]
  %g2 = dot(%h, %y, dims="bh,bo->ho") : f32[32, 8]
  %gh = dot(%y, %w2, dims="bo,ho->bh") : f32[8, 32]
  %g1 = dot(%x, %gh, dims="bi,bh->ih") : f32[16, 32]
  return %g1, %g2
}
""")
    before = Pipeline.parse(DEFAULT_PIPELINE)(module)
    after = CombineCollectives()(before)
    verify(after)
    assert (len(list_collectives(before)), len(list_collectives(after))) == (2, 1)
    assert (
        sum_collectives(list_collectives(after)).sent
        == sum_collectives(list_collectives(before)).sent
    )
    args = random_arguments(module, whole=True)
    for want, got in zip(run(before, args), run(after, args), strict=True):
        np.testing.assert_array_equal(got, want)


@given(spmd_modules(), st.sampled_from([16, 256, 1 << 20]))
def test_random_programs_stay_valid_and_send_equal_bytes(module: Module, limit: int) -> None:
    after = CombineCollectives(limit)(module)
    verify(after)
    assert str(parse(str(after))) == str(after)
    assert (
        sum_collectives(list_collectives(after)).nbytes
        == sum_collectives(list_collectives(module)).nbytes
    )
    assert len(list_collectives(after)) <= len(list_collectives(module))
