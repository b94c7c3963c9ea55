"""`share-reshards` repeats operations only if every device has their operands, and hoists reshards
only to blocks that surely run."""

from shardir.passes import ShareReshards
from shardir.text.parser import parse
from tests.passes.op_lines import body
from tests.passes.resharding.reshard_programs import MESH
from tests.passes.resharding.test_shared_reshards import after
from tests.programs.near_misses import disagreements


def test_only_created_tensors_and_broadcast_scalars_are_computed_again() -> None:
    text = """\
func @f(
  %n: f32[],
  %v: f32[8@x],
) -> (i32[8@-], f32[8@-], f32[8@-, 4]) {
  %i = iota(dim=0) : i32[8@x]
  %a = reshard(%i) : i32[8@-]
  %b = broadcast(%n, dims=[]) : f32[8@x]
  %c = reshard(%b) : f32[8@-]
  %d = broadcast(%v, dims=[0]) : f32[8@x, 4]
  %e = reshard(%d) : f32[8@-, 4]
  return %a, %c, %e
}
"""
    assert after(ShareReshards(), text)[3:] == [
        "%e = reshard(%d) : f32[8@-, 4]",
        "%a = iota(dim=0) : i32[8@-]",
        "%c = broadcast(%n, dims=[]) : f32[8@-]",
    ]
    found = disagreements(parse(MESH + text), "share-reshards,partition")
    assert not found, found[0]


def test_unreduced_tensors_are_not_computed_again() -> None:
    text = """\
func @f(
  %a: f32[8@-, 4@x],
) -> (f32[8@-], f32[8@y]) {
  %s.partial = sum(%a, dims=[0, 1]) : f32[] unreduced(x)
  %b = broadcast(%s.partial, dims=[]) : f32[8@-] unreduced(x)
  %c = reshard(%b) : f32[8@-]
  %d = reshard(%b) : f32[8@y]
  return %c, %d
}
"""
    assert after(ShareReshards(), text)[1:] == [
        "%b = broadcast(%s.partial, dims=[]) : f32[8@-] unreduced(x)",
        "%d = reshard(%b) : f32[8@y]",
        "%c = reshard(%d) : f32[8@-]",
    ]
    found = disagreements(parse(MESH + text), "share-reshards,partition")
    assert not found, found[0]


def test_a_constant_that_is_unreduced_is_completed_once() -> None:
    text = """\
func @f() -> (f32[8@-], f32[8@x]) {
  %z = constant(value=2.0) : f32[8@-] unreduced(x)
  %a = reshard(%z) : f32[8@-]
  %b = reshard(%a) : f32[8@x]
  return %a, %b
}
"""
    assert str(ShareReshards()(parse(MESH + text))) == MESH + text


def test_a_detour_back_to_the_first_sharding_is_left_out() -> None:
    text = """\
func @f(
  %a: f32[8@x],
) -> (f32[8@x], f32[8@-]) {
  %b = reshard(%a) : f32[8@y]
  %c = reshard(%b) : f32[8@x]
  %d = exp(%c) : f32[8@x]
  %e = reshard(%b) : f32[8@-]
  return %d, %e
}
"""
    assert after(ShareReshards(), text) == [
        "%d = exp(%a) : f32[8@x]",
        "%e = reshard(%a) : f32[8@-]",
    ]


def test_each_branch_reshards_for_itself() -> None:
    text = """\
func @f(
  %p: bool[],
  %a: f32[8@x],
) -> (f32[8@-]) {
  %c = case(%p) : f32[8@-] {
    %a.y = reshard(%a) : f32[8@y]
    %z = reshard(%a.y) : f32[8@-]
    yield %z
  } {
    %l = reshard(%a) : f32[8@-]
    yield %l
  }
  %d = reshard(%a) : f32[8@-]
  %e = add(%c, %d) : f32[8@-]
  return %e
}
"""
    module = ShareReshards()(parse(MESH + text))
    assert body(module) == [
        "%c = case(%p) : f32[8@-] {",
        "%z = reshard(%a) : f32[8@-]",
        "%l = reshard(%a) : f32[8@-]",
        "%d = reshard(%a) : f32[8@-]",
        "%e = add(%c, %d) : f32[8@-]",
    ]


def test_reshards_that_send_nothing_are_not_changed() -> None:
    text = """\
func @f(
  %a: f32[8@x],
  %b: f32[8@-],
) -> (f32[8@(x, y)], f32[8@(x, y)]) {
  %c = add(%a, %a) : f32[8@x]
  %d = reshard(%c) : f32[8@(x, y)]
  %e = reshard(%b) : f32[8@x]
  %f = reshard(%e) : f32[8@(x, y)]
  return %d, %f
}
"""
    before = body(parse(MESH + text))
    assert [line for line in before if "%e" not in line] == [
        "%c = add(%a, %a) : f32[8@x]",
        "%d = reshard(%c) : f32[8@(x, y)]",
    ]
    assert str(ShareReshards()(parse(MESH + text))) == MESH + text


def test_a_constant_is_sliced_where_that_sends_nothing() -> None:
    text = """\
func @f(
  %a: f32[8@-],
) -> (f32[8@-], f32[8@x]) {
  %c = constant(value=1.0) : f32[8@-]
  %d = reshard(%c) : f32[8@x]
  %e = add(%a, %c) : f32[8@-]
  return %e, %d
}
"""
    assert str(ShareReshards()(parse(MESH + text))) == MESH + text
