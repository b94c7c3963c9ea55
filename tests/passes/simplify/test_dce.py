"""`dce`: operations without effect on a result are removed, also inside loops."""

from hypothesis import given, strategies as st

from shardir.ir.module import Function, Module
from shardir.passes import DeadCodeElimination, Pipeline
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.programs.bit_exact_programs import must_be_exact
from tests.programs.strategies import modules


def run_dce(text: str) -> str:
    module = DeadCodeElimination()(parse(text))
    verify(module)
    return str(module)


def test_dead_operations_and_their_operands_are_removed() -> None:
    assert (
        run_dce("""\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %a = exp(%x) : f32[4]
  %b = sin(%a) : f32[4]
  %y = neg(%x) : f32[4]
  return %y
}
""")
        == """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %y = neg(%x) : f32[4]
  return %y
}
"""
    )


def test_unused_collectives_are_removed() -> None:
    assert "all-gather" not in run_dce("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[2] of f32[4@x],
) -> (f32[2] of f32[4@x]) {
  %a = all-gather(%x, dim=0, axes=[x]) : f32[4]
  return %x
}
""")


def test_an_operation_with_one_used_result_is_kept() -> None:
    text = """\
func @f(
  %x: f32[4],
) -> (i32[2]) {
  %v, %i = top_k(%x) : f32[2], i32[2]
  return %i
}
"""
    assert run_dce(text) == text


def test_unused_results_of_a_branch_are_removed() -> None:
    assert (
        run_dce("""\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4]) {
  %r, %s = case(%p) : f32[4], f32[4] {
    %a = exp(%x) : f32[4]
    %b = sin(%x) : f32[4]
    yield %a, %b
  } {
    yield %x, %x
  }
  return %s
}
""")
        == """\
func @f(
  %x: f32[4],
  %p: bool[],
) -> (f32[4]) {
  %s = case(%p) : f32[4] {
    %b = sin(%x) : f32[4]
    yield %b
  } {
    yield %x
  }
  return %s
}
"""
    )


def test_carried_values_used_only_by_themselves_are_removed() -> None:
    assert (
        run_dce("""\
func @f(
  %x: f32[4],
  %n: i32[],
) -> (f32[4]) {
  %zero = constant(value=0) : i32[]
  %one = constant(value=1) : i32[]
  %r, %s, %k = while(%x, %x, %n) : f32[4], f32[4], i32[] {
    (%a: f32[4], %b: f32[4], %i: i32[]) =>
    %more = gt(%i, %zero) : bool[]
    yield %more
  } {
    (%c: f32[4], %d: f32[4], %j: i32[]) =>
    %left = sub(%j, %one) : i32[]
    %e = exp(%c) : f32[4]
    %g = sin(%d) : f32[4]
    yield %e, %g, %left
  }
  return %r
}
""")
        == """\
func @f(
  %x: f32[4],
  %n: i32[],
) -> (f32[4]) {
  %zero = constant(value=0) : i32[]
  %one = constant(value=1) : i32[]
  %r, %k = while(%x, %n) : f32[4], i32[] {
    (%a: f32[4], %i: i32[]) =>
    %more = gt(%i, %zero) : bool[]
    yield %more
  } {
    (%c: f32[4], %j: i32[]) =>
    %left = sub(%j, %one) : i32[]
    %e = exp(%c) : f32[4]
    yield %e, %left
  }
  return %r
}
"""
    )


def test_carried_values_used_in_later_iterations_are_kept() -> None:
    text = """\
func @f(
  %x: f32[4],
  %y: f32[4],
) -> (f32[4]) {
  %r, %s = scan(%x, %y, carries=2, length=3, reverse=false) : f32[4], f32[4] {
    (%a: f32[4], %b: f32[4]) =>
    %c = exp(%b) : f32[4]
    yield %b, %c
  }
  return %r
}
"""
    assert run_dce(text) == text


def test_unused_slices_of_a_scan_are_removed() -> None:
    assert (
        run_dce("""\
func @f(
  %x: f32[4],
  %us: f32[3, 4],
  %vs: f32[3, 4],
) -> (f32[3, 4]) {
  %r, %ps, %qs = scan(%x, %us, %vs, carries=1, length=3, reverse=false) : \
f32[4], f32[3, 4], f32[3, 4] {
    (%a: f32[4], %u: f32[4], %v: f32[4]) =>
    %b = add(%a, %u) : f32[4]
    %p = exp(%u) : f32[4]
    %q = exp(%v) : f32[4]
    yield %b, %p, %q
  }
  return %qs
}
""")
        == """\
func @f(
  %x: f32[4],
  %us: f32[3, 4],
  %vs: f32[3, 4],
) -> (f32[3, 4]) {
  %qs = scan(%vs, carries=0, length=3, reverse=false) : f32[3, 4] {
    (%v: f32[4]) =>
    %q = exp(%v) : f32[4]
    yield %q
  }
  return %qs
}
"""
    )


@given(st.data())
def test_results_are_bitwise_equal(data: st.DataObject) -> None:
    module = data.draw(modules())
    body = module.main.body
    returns = tuple(v for v in body.returns if data.draw(st.booleans()))
    block = type(body)(body.params, body.ops, returns)
    module = Module(module.meshes, (Function("f", block, (None,) * len(returns)),))
    kept = DeadCodeElimination()(module)
    verify(kept)
    assert str(DeadCodeElimination()(kept)) == str(kept)
    must_be_exact(module, kept)


def test_a_process_program_keeps_collectives_of_other_processes() -> None:
    program = parse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
) -> (f32[4] of f32[8@x]) {
  %a = neg(%x) : f32[4]
  %b = exp(%x) : f32[4]
  %y = all-reduce(%a, axes=[x], op=add) : f32[4]
  return %x
}
""")
    assert [op.name for op in Pipeline.parse("dce")(program).main.body.ops] == []
    kept = Pipeline.parse("dce{keep=collectives}")(program)
    assert [op.name for op in kept.main.body.ops] == ["neg", "all-reduce"]


def test_a_started_collective_is_kept_or_removed_with_its_done() -> None:
    program = parse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
) -> (f32[4] of f32[8@x]) {
  %t = all-reduce-start(%x, axes=[x], op=add) : f32[4]
  %y = done(%t) : f32[4]
  return %x
}
""")
    for options, names in (("", []), ("{keep=collectives}", ["all-reduce-start", "done"])):
        kept = Pipeline.parse(f"dce{options}")(program)
        verify(kept)
        assert [op.name for op in kept.main.body.ops] == names


def test_a_loop_keeps_what_an_effect_in_its_body_uses() -> None:
    module = parse("""\
func @f(%x: f32[4]) -> (f32[4]) {
  %zero = constant(value=0) : i32[]
  %n, %y, %z = while(%zero, %x, %x) : i32[], f32[4], f32[4] {
    (%i: i32[], %a: f32[4], %b: f32[4]) =>
    %three = constant(value=3) : i32[]
    %p = lt(%i, %three) : bool[]
    yield %p
  } {
    (%i.1: i32[], %a.1: f32[4], %b.1: f32[4]) =>
    %one = constant(value=1) : i32[]
    %j = add(%i.1, %one) : i32[]
    %c = sin(%a.1) : f32[4]
    %d = cos(%b.1) : f32[4]
    sharding_group(%b.1, group=0)
    yield %j, %c, %d
  }
  return %y
}
""")
    verify(module)
    assert str(DeadCodeElimination()(module)) == str(module)
