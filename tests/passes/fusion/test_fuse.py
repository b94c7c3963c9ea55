"""Operations that `fuse` combines into one loop nest: text before and after."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from shardir.errors import PipelineError
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.builder import Builder
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module
from shardir.ir.types import TensorType
from shardir.ops.control_flow.fused import fused
from shardir.passes.fusion.fuse import Fuse
from shardir.passes.pipeline import Pipeline
from shardir.passes.simplify.inline import Inline
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.call_count import count_calls
from tests.passes.random_cases import functions

ONE = Mesh("m", (("x", 1),))
HEAD = "func @f(\n  %x: f32[4, 8],\n  %y: f32[4, 8],\n  %b: f32[8],\n) -> ({types}) {{\n"


def program(body: str, returns: str = "%z", types: str = "f32[4, 8]") -> Module:
    return parse(f"{HEAD.format(types=types)}{body}\n  return {returns}\n}}\n")


def after(module: Module, pass_: Fuse | None = None) -> Module:
    """Return the module with fused groups, after checks of validity and of equal bits."""
    made = (pass_ or Fuse())(module)
    verify(made)
    arguments = random_arguments(module)
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        assert want.tobytes() == got.tobytes()
    return made


def names(module: Module) -> list[str]:
    return [op.name for op in module.main.body.ops]


def inside(module: Module, number: int = 0) -> list[str]:
    """Return the operations of the group with this number."""
    groups = [op for op in module.main.body.ops if op.spec is fused]
    return [op.name for op in groups[number].blocks[0].ops]


def test_a_chain_is_one_fused_group() -> None:
    module = program(
        "  %a = exp(%x) : f32[4, 8]\n"
        "  %c = constant(value=2.0) : f32[4, 8]\n"
        "  %p = mul(%a, %c) : f32[4, 8]\n"
        "  %w = broadcast(%b, dims=[1]) : f32[4, 8]\n"
        "  %z = add(%p, %w) : f32[4, 8]"
    )
    assert str(after(module)) == HEAD.format(types="f32[4, 8]") + (
        "  %z = fused(%x, %b) : f32[4, 8] {\n"
        "    (%x.1: f32[4, 8], %b.1: f32[8]) =>\n"
        "    %a.1 = exp(%x.1) : f32[4, 8]\n"
        "    %c.1 = constant(value=2.0) : f32[4, 8]\n"
        "    %p.1 = mul(%a.1, %c.1) : f32[4, 8]\n"
        "    %w.1 = broadcast(%b.1, dims=[1]) : f32[4, 8]\n"
        "    %z.1 = add(%p.1, %w.1) : f32[4, 8]\n"
        "    yield %z.1\n"
        "  }\n"
        "  return %z\n"
        "}\n"
    )  # fmt: skip


def test_a_group_states_its_reason() -> None:
    module = program("  %a = exp(%x) : f32[4, 8]\n  %z = neg(%a) : f32[4, 8]")
    (op,) = after(module).main.body.ops
    assert op.why == "exp, neg over 4x8"


def test_values_with_other_uses_are_results_of_the_group() -> None:
    module = program(
        "  %a = exp(%x) : f32[4, 8]\n"
        '  %d = dot(%a, %y, dims="ij,kj->ik") : f32[4, 4]\n'
        "  %z = neg(%a) : f32[4, 8]",
        "%z, %d",
        "f32[4, 8], f32[4, 4]",
    )
    made = after(module)
    assert names(made) == ["fused", "dot"]
    assert [v.name for v in made.main.body.ops[0].results] == ["a", "z"]


def test_groups_have_no_cyclic_dependence() -> None:
    """The dot uses exp, and an operation uses both the dot and exp, so that there are two
    groups.
    """
    module = program(
        "  %a = exp(%x) : f32[4, 8]\n"
        "  %n = neg(%a) : f32[4, 8]\n"
        '  %d = dot(%n, %y, dims="ij,kj->ik") : f32[4, 4]\n'
        '  %e = dot(%d, %y, dims="ij,jk->ik") : f32[4, 8]\n'
        "  %p = mul(%e, %a) : f32[4, 8]\n"
        "  %z = sin(%p) : f32[4, 8]"
    )
    made = after(module)
    assert names(made) == ["fused", "dot", "dot", "fused"]
    assert inside(made, 1) == ["mul", "sin"]


def test_a_group_is_placed_after_its_operands() -> None:
    module = program(
        "  %a = exp(%x) : f32[4, 8]\n"
        '  %d = dot(%x, %y, dims="ij,kj->ik") : f32[4, 4]\n'
        '  %e = dot(%d, %y, dims="ij,jk->ik") : f32[4, 8]\n'
        "  %z = mul(%e, %a) : f32[4, 8]"
    )
    made = after(module)
    assert names(made) == ["dot", "dot", "fused"]
    assert inside(made) == ["exp", "mul"]


def test_a_softmax_is_one_group() -> None:
    module = program(
        "  %m = max(%x, dims=[1]) : f32[4]\n"
        "  %o = broadcast(%m, dims=[0]) : f32[4, 8]\n"
        "  %s = sub(%x, %o) : f32[4, 8]\n"
        "  %e = exp(%s) : f32[4, 8]\n"
        "  %t = sum(%e, dims=[1]) : f32[4]\n"
        "  %u = broadcast(%t, dims=[0]) : f32[4, 8]\n"
        "  %z = div(%e, %u) : f32[4, 8]"
    )
    made = after(module)
    assert names(made) == ["fused"]
    assert len(made.main.body.ops[0].operands) == 1


def test_dimensions_of_size_one_do_not_matter() -> None:
    module = program(
        "  %m = sum(%x, dims=[1]) : f32[4]\n"
        "  %r = reshape(%m) : f32[4, 1]\n"
        "  %q = sqrt(%r) : f32[4, 1]\n"
        "  %o = broadcast(%q, dims=[0, 1]) : f32[4, 8]\n"
        "  %z = div(%x, %o) : f32[4, 8]"
    )
    assert names(after(module)) == ["fused"]


def test_reductions_of_other_axes_stay_outside() -> None:
    module = program(
        "  %a = mul(%x, %y) : f32[4, 8]\n"
        "  %s = sum(%a, dims=[0]) : f32[8]\n"
        "  %t = sum(%a, dims=[1]) : f32[4]",
        "%s, %t",
        "f32[8], f32[4]",
    )
    made = after(module)
    assert names(made) == ["fused", "sum"]
    assert inside(made) == ["mul", "sum"]


def test_a_value_with_two_layouts_is_two_parameters() -> None:
    module = parse(
        "func @f(%x: f32[5]) -> (f32[5, 5]) {\n"
        "  %a = broadcast(%x, dims=[0]) : f32[5, 5]\n"
        "  %b = broadcast(%x, dims=[1]) : f32[5, 5]\n"
        "  %z = sub(%a, %b) : f32[5, 5]\n"
        "  return %z\n"
        "}\n"
    )
    (op,) = after(module).main.body.ops
    assert [v.name for v in op.operands] == ["x", "x"]


def test_cheap_operations_are_duplicated_into_every_group() -> None:
    module = program(
        "  %w = broadcast(%b, dims=[1]) : f32[4, 8]\n"
        "  %a = add(%x, %w) : f32[4, 8]\n"
        '  %d = dot(%a, %w, dims="ij,kj->ik") : f32[4, 4]\n'
        '  %e = dot(%d, %y, dims="ij,jk->ik") : f32[4, 8]\n'
        "  %z = mul(%e, %w) : f32[4, 8]"
    )
    made = after(module)
    assert names(made) == ["broadcast", "fused", "dot", "dot", "fused"]


BITS = """\
  %a = exp(%x) : f32[4, 8]
  %i = bitcast(%a) : i32[4, 8]
  %j = not(%i) : i32[4, 8]
  %z = bitcast(%j) : f32[4, 8]
"""


def test_bitcasts_are_fused() -> None:
    module = after(program(BITS + "  %s = mul(%z, %y) : f32[4, 8]", "%s"))
    assert names(module) == ["fused"]
    assert inside(module) == ["exp", "bitcast", "not", "bitcast", "mul"]


def test_bitcasts_used_only_outside_are_not_fused() -> None:
    """Outside of a group, a bitcast moves no data."""
    module = after(program(BITS.rstrip()))
    assert names(module) == ["fused", "bitcast"]
    assert inside(module) == ["exp", "bitcast", "not"]
    apart = after(program(BITS.rstrip()), Fuse(without="bitcast"))
    assert names(apart) == ["exp", "bitcast", "not", "bitcast"]


def test_bitcasts_of_parts_are_not_fused() -> None:
    body = "  %a = exp(%x) : f32[4, 8]\n  %i = bitcast(%a) : u16[4, 8, 2]\n"
    module = program(body + "  %z = not(%i) : u16[4, 8, 2]", types="u16[4, 8, 2]")
    assert names(after(module)) == ["exp", "bitcast", "not"]


def test_cheap_values_are_recomputed() -> None:
    """tanh is expensive and stored; values computed from it are recomputed."""
    module = program(
        "  %a = mul(%x, %x) : f32[4, 8]\n"
        "  %t = tanh(%a) : f32[4, 8]\n"
        "  %p = add(%t, %x) : f32[4, 8]\n"
        "  %q = mul(%t, %x) : f32[4, 8]\n"
        '  %d = dot(%p, %y, dims="ij,kj->ik") : f32[4, 4]\n'
        '  %e = dot(%d, %y, dims="ij,jk->ik") : f32[4, 8]\n'
        "  %r = mul(%e, %q) : f32[4, 8]\n"
        "  %s = add(%a, %t) : f32[4, 8]\n"
        "  %z = mul(%r, %s) : f32[4, 8]"
    )
    made = after(module)
    assert names(made) == ["fused", "dot", "dot", "fused"]
    first, last = made.main.body.ops[0], made.main.body.ops[3]
    assert [v.name for v in first.results] == ["t", "p"]
    assert [v.name for v in last.operands] == ["x", "t", "e"]
    assert inside(made, 1) == ["mul", "mul", "mul", "add", "mul"]


def test_groups_with_a_common_operand_and_equal_loops_are_merged() -> None:
    module = program(
        "  %a = mul(%x, %y) : f32[4, 8]\n"
        "  %p = sum(%a, dims=[0]) : f32[8]\n"
        "  %q = max(%x, dims=[0]) : f32[8]\n"
        "  %z = sum(%x, dims=[1]) : f32[4]",
        "%p, %q, %z",
        "f32[8], f32[8], f32[4]",
    )
    made = after(module)
    assert names(made) == ["fused", "sum"]
    assert [v.name for v in made.main.body.ops[0].results] == ["p", "q"]


def test_dependent_siblings_are_not_merged() -> None:
    module = program(
        "  %a = exp(%x) : f32[4, 8]\n"
        "  %n = neg(%a) : f32[4, 8]\n"
        '  %d = dot(%n, %y, dims="ij,kj->ik") : f32[4, 4]\n'
        '  %e = dot(%d, %y, dims="ij,jk->ik") : f32[4, 8]\n'
        "  %p = mul(%e, %x) : f32[4, 8]\n"
        "  %z = sin(%p) : f32[4, 8]"
    )
    assert names(after(module)) == ["fused", "dot", "dot", "fused"]


def test_groups_inside_loops() -> None:
    module = parse(
        "func @f(%x: f32[3, 4]) -> (f32[4]) {\n"
        "  %c = constant(value=0.0) : f32[4]\n"
        "  %s = scan(%c, %x, carries=1, length=3) : f32[4] {\n"
        "    (%k: f32[4], %v: f32[4]) =>\n"
        "    %e = exp(%v) : f32[4]\n"
        "    %n = add(%k, %e) : f32[4]\n"
        "    yield %n\n"
        "  }\n"
        "  return %s\n"
        "}\n"
    )
    made = after(module)
    assert names(made) == ["constant", "scan"]
    (inner,) = made.main.body.ops[1].blocks[0].ops
    assert inner.spec is fused


def test_limits_of_group_size() -> None:
    body = "\n".join(f"  %a{i} = exp(%{f'a{i - 1}' if i else 'x'}) : f32[4, 8]" for i in range(9))
    module = program(body, "%a8")
    assert [len(op.blocks[0].ops) for op in after(module, Fuse(most_ops=3)).main.body.ops] == [
        3
    ] * 3
    assert names(after(module, Fuse(without="exp"))) == ["exp"] * 9
    summed = program(
        "  %a = exp(%x) : f32[4, 8]\n  %z = sum(%a, dims=[0, 1]) : f32[]", types="f32[]"
    )
    assert names(after(summed)) == ["fused"]
    assert names(after(summed, Fuse(reductions=False))) == ["exp", "sum"]
    chain = program("  %a = exp(%x) : f32[4, 8]\n  %z = neg(%a) : f32[4, 8]")
    assert names(after(chain, Fuse(reductions=False))) == ["fused"]
    many = Builder()
    params = [many.param(TensorType((3,), "f32")) for _ in range(9)]
    total = params[0]
    for param in params[1:]:
        total = many.add(total, param)
    module = Module((), (Function("f", many.block(params, [total]), (None,)),))
    groups = after(module, Fuse(most_operands=4)).main.body.ops
    assert max(len(op.operands) for op in groups) == 4
    assert {op.name for op in groups} <= {"fused", "add"}


def test_the_pipeline_accepts_the_pass() -> None:
    text = "fuse{most_operands=4,without=exp+log}"
    assert str(Pipeline.parse(text)) == text
    with pytest.raises(PipelineError, match="no operation is called 'exb', which `without` names"):
        Fuse(without="exb")(program("  %z = exp(%x) : f32[4, 8]"))


def test_a_program_without_groups_is_returned_unchanged() -> None:
    module = program("  %z = exp(%x) : f32[4, 8]")
    assert Fuse()(module) is module


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate),
          suppress_health_check=list(HealthCheck))  # fmt: skip
@given(functions(ONE, 10))
def test_random_programs_compute_equal_bits(function: Function) -> None:
    """The test compares the program before fusion, after it, and after inlining of the groups."""
    module = Inline()(Module((ONE,), (function,)))
    made = Fuse()(module)
    verify(made)
    arguments = random_arguments(module, whole=True)
    expected = run(module, arguments)
    for other in (made, Inline()(made)):
        for want, got in zip(expected, run(other, arguments), strict=True):
            assert want.tobytes() == got.tobytes()


def training_step(length: int) -> Module:
    """Return a program with this number of operations, similar to a training step."""
    b = Builder()
    type = TensorType((8, 16), "f32")
    x, weight = b.param(type, "x"), b.param(TensorType((16, 16), "f32"), "w")
    params, now, kept = [x, weight], x, []
    while len(b.ops) < length:
        mean = b.div(b.sum(now, dims=(1,)), b.full(16.0, TensorType((8,), "f32")))
        low = b.sub(now, b.broadcast(mean, dims=(0,), result=type))
        now = b.add(now, b.dot(b.tanh(low), weight, dims="ij,jk->ik"))
        kept.append(low)
        if len(kept) > 40:
            now = b.mul(now, kept[len(kept) // 2])
    return Module((), (Function("f", b.block(params, [now]), (None,)),))


def test_the_work_is_linear_in_the_size_of_the_program() -> None:
    short, long = training_step(1_000), training_step(8_000)
    Fuse()(short)
    base = count_calls(lambda: Fuse()(short))
    assert count_calls(lambda: Fuse()(long)) < 9 * base
    assert len(Fuse()(long).main.body.ops) < 3200


def test_the_order_of_collectives_is_kept() -> None:
    """One group of `%a` and `%z` would need the second sum before it returns the operand of the
    first.
    """
    module = parse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
  %y: f32[4] of f32[8@x],
) -> (f32[4] of f32[4], f32[4] of f32[8@x]) {
  %a = exp(%x) : f32[4]
  %p = all-reduce(%a, axes=[x], op=add) : f32[4]
  %q = all-reduce(%y, axes=[x], op=add) : f32[4]
  %z = add(%a, %q) : f32[4]
  return %p, %z
}
""")
    made = Fuse()(module)
    verify(made)
    sums = [op.result.name for op in made.main.body.ops if op.spec.collective]
    assert sums == ["p", "q"]
