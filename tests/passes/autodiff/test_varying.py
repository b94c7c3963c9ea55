"""Varying manual axes of values, and the casts that derivatives insert."""

from dataclasses import replace

import numpy as np
import pytest

from shardir import ops as ops  # declares the operations
from shardir.errors import DifferentiateError
from shardir.interpret.interpreter import run
from shardir.ir.builder import UniqueNames
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block, Function, Module, Op
from shardir.ir.operation import OPS, Symbol
from shardir.ir.sharding import Axis
from shardir.ops.control_flow.derivative_regions import DerivativeRule, derivative_rule_of
from shardir.passes.autodiff.jvp import jvp
from shardir.passes.autodiff.make_varying import make_varying_explicit, remove_explicit_varying
from shardir.passes.autodiff.varying import (
    dependent_values,
    infer_varying_axes,
    sharding_axes,
    vma_of,
)
from shardir.passes.autodiff.vjp import vjp
from shardir.passes.rewriting import used_names
from shardir.text.parser import parse
from shardir.verify.verifier import verify

HEAD = "mesh @m = [x=4, y=2]\n\n"


def program(
    body: str,
    ins: str = "[], [[x]]",
    outs: str = "[[x]]",
    axes: str = "x",
    attrs: str = "",
    result: str = "f32[8]",
) -> Module:
    """Return a manual computation with a replicated value `%v` and a sharded value `%p`."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return parse(
        f"{HEAD}func @f(\n  %w: f32[],\n  %a: f32[8],\n) -> ({result}) {{\n"
        f"  %r = manual_computation(%w, %a, axes=[{axes}], in_axes=[{ins}], "
        f"out_axes=[{outs}]{attrs}) : {result} {{\n    (%v: f32[], %p: f32[2]) =>\n{lines}\n  }}\n"
        "  return %r\n}\n"
    )


def computation(module: Module) -> Op:
    return module.main.body.ops[0]


def vma(body: str, axes: str = "x") -> dict[str, str]:
    """Return the varying axes of the values of a body by name."""
    op = computation(program(body, axes=axes, result="f32[8]"))
    (block,) = op.blocks
    known = {
        p: sharding_axes(cuts) for p, cuts in zip(block.params, op.attrs["in_axes"], strict=True)
    }
    found = infer_varying_axes(block, known, op.attrs["axes"])
    return {
        value.name: "".join(sorted(axis.name for axis in axes)) for value, axes in found.items()
    }


def print_explicit(body: str, axes: str = "x") -> str:
    """Return the body with the casts along the first axis of the computation."""
    module = program(body, axes=axes)
    op = computation(module)
    (block,) = op.blocks
    known = {
        p: sharding_axes(cuts) for p, cuts in zip(block.params, op.attrs["in_axes"], strict=True)
    }
    made = make_varying_explicit(block, known, op.attrs["axes"][:1], used_names(module.main))
    (back,) = remove_explicit_varying(op.attrs["axes"][:1], made)
    verify(with_body(module, back))
    return text_of(with_body(module, made))


def with_body(module: Module, block: Block) -> Module:
    main = module.main
    op = computation(module)
    new = Op(op.spec, op.operands, op.results, op.attrs, (block,))
    body = Block(main.body.params, (new,), main.body.returns)
    return Module(module.meshes, (Function(main.name, body, main.result_shardings),))


def text_of(module: Module, number: int = 0) -> str:
    """Return the body of a manual computation of a program."""
    lines = str(Module(module.meshes, module.functions)).splitlines()
    starts = [i for i, line in enumerate(lines) if "manual_computation(" in line]
    start = starts[number] + 2
    end = next(i for i in range(start, len(lines)) if lines[i] == "  }")
    return "\n".join(line.removeprefix("    ") for line in lines[start:end])


def test_every_per_device_operation_declares_varying_axes() -> None:
    silent = [spec.name for spec in OPS.values() if spec.spmd and spec.vma is None]
    assert silent == []


def test_varying_axes_follow_from_the_operation() -> None:
    found = vma(
        """
%two = constant(value=2) : f32[2]
%d = mul(%p, %two) : f32[2]
%i = axis-index(axes=[x]) : i32[]
%j = axis-index(axes=[y]) : i32[]
%s = all-reduce(%d, axes=[x], op=add) : f32[2]
%g = all-gather(%s, dim=0, axes=[y]) : f32[4]
%t = all-reduce(%d, axes=[y], op=max) : f32[2]
%n = vary(%v, axes=[y]) : f32[]
yield %d
""",
        axes="x, y",
    )
    whole = {"p": "x", "d": "x", "i": "x", "j": "y", "g": "y", "t": "x", "n": "y"}
    assert {name: axes for name, axes in found.items() if axes} == whole


def test_collectives_in_groups_give_varying_values() -> None:
    found = vma(
        """
%s = all-reduce(%v, axes=[x:(1)2], op=add) : f32[]
%t = all-reduce(%p, axes=[x:(2)2], op=add) : f32[2]
yield %t
"""
    )
    assert (found["s"], found["t"]) == ("x", "x")
    module = program("%s = all-reduce(%v, axes=[x:(1)2, y], op=add) : f32[]\nyield %p", axes="x, y")
    op = computation(module)
    x, y = op.attrs["axes"]
    # The sum along all of y needs a value of each device, and so does that along a part of x.
    found_axes = vma_of(op.blocks[0].ops[0], [frozenset()], (x, y))
    assert (found_axes.operands, found_axes.results) == ((frozenset({x, y}),), frozenset({x}))


def test_a_carried_value_varies_if_it_varies_in_any_iteration() -> None:
    found = vma(
        """
%c, %k = scan(%v, %v, carries=2, length=3) : f32[], f32[] {
  (%c0: f32[], %k0: f32[]) =>
  %h = sum(%p, dims=[0]) : f32[]
  %c1 = mul(%c0, %h) : f32[]
  %k1 = mul(%k0, %v) : f32[]
  yield %c1, %k1
}
yield %p
"""
    )
    assert [found[name] for name in ("c", "c0", "c1", "k", "k0", "k1")] == ["x"] * 3 + [""] * 3


def test_a_varying_condition_makes_carried_values_varying() -> None:
    found = vma(
        """
%i = axis-index(axes=[x]) : i32[]
%n, %c = while(%i, %v) : i32[], f32[] {
  (%n0: i32[], %c0: f32[]) =>
  %four = constant(value=4) : i32[]
  %more = lt(%n0, %four) : bool[]
  yield %more
} {
  (%n1: i32[], %c1: f32[]) =>
  %one = constant(value=1) : i32[]
  %n2 = add(%n1, %one) : i32[]
  %c2 = mul(%c1, %v) : f32[]
  yield %n2, %c2
}
yield %p
"""
    )
    assert (found["c"], found["one"], found["c2"]) == ("x", "x", "x")


def test_a_cast_is_inserted_once_at_the_definition() -> None:
    """A cast in the loop that uses the value would sum cotangents in every iteration."""
    assert print_explicit(
        """
%q = mul(%p, %v) : f32[2]
yield %q
""".replace("mul(%p, %v)", "mul(%p, %vb)").replace(
            "\n%q", "\n%vb = broadcast(%v, dims=[]) : f32[2]\n%q", 1
        )
    ) == (
        "%vb = broadcast(%v, dims=[]) : f32[2]\n"
        "%v.varying = vary(%v, axes=[x]) : f32[]\n"
        "%vb.varying = broadcast(%v.varying, dims=[]) : f32[2]\n"
        "%q = mul(%p, %vb.varying) : f32[2]\n"
        "yield %q"
    )
    assert print_explicit(
        """
%h = sum(%p, dims=[0]) : f32[]
%c = scan(%v, carries=1, length=3) : f32[] {
  (%c0: f32[]) =>
  %m = mul(%h, %v) : f32[]
  %n = mul(%c0, %v) : f32[]
  %o = add(%m, %n) : f32[]
  yield %o
}
yield %p
"""
    ) == (
        "%h = sum(%p, dims=[0]) : f32[]\n"
        "%v.varying = vary(%v, axes=[x]) : f32[]\n"
        "%c = scan(%v.varying, carries=1, length=3) : f32[] {\n"
        "  (%c0: f32[]) =>\n"
        "  %m = mul(%h, %v.varying) : f32[]\n"
        "  %n = mul(%c0, %v.varying) : f32[]\n"
        "  %o = add(%m, %n) : f32[]\n"
        "  yield %o\n"
        "}\n"
        "yield %p"
    )


BRANCHES = """
%i = axis-index(axes=[x]) : i32[]
%k = case(%i) : f32[] {
  yield %v
} {
  %s = sin(%v) : f32[]
  yield %s
}
%kb = broadcast(%k, dims=[]) : f32[2]
%z = mul(%p, %kb) : f32[2]
yield %z
"""


def test_no_cast_is_inserted_in_a_divergent_branch() -> None:
    assert print_explicit(BRANCHES).splitlines()[:7] == [
        "%i = axis-index(axes=[x]) : i32[]",
        "%v.varying = vary(%v, axes=[x]) : f32[]",
        "%k = case(%i) : f32[] {",
        "  yield %v.varying",
        "} {",
        "  %s = sin(%v.varying) : f32[]",
        "  yield %s",
    ]
    back = text_of(Module(program(BRANCHES).meshes, (vjp(program(BRANCHES).main, [0]),)), 1)
    assert back.count("all-reduce") == 1
    assert (
        back.splitlines()[-2].strip().startswith("%v.grad = all-reduce(%v.varying.grad, axes=[x]")
    )


def test_varying_values_are_not_cast() -> None:
    """The cotangent of a cast would be summed."""
    made = print_explicit("%q = vary(%p, axes=[x]) : f32[2]\nyield %q")
    assert made == "%q = reshape(%p) : f32[2]\nyield %q"


def test_an_all_reduce_over_checked_and_other_axes_is_split() -> None:
    module = program("%q = all-reduce(%p, axes=[y, x], op=add) : f32[2]\nyield %q", axes="x, y")
    op = computation(module)
    (block,) = op.blocks
    known = {
        p: sharding_axes(cuts) for p, cuts in zip(block.params, op.attrs["in_axes"], strict=True)
    }
    made = make_varying_explicit(block, known, (Axis("x", 1, 4),), used_names(module.main))
    assert text_of(with_body(module, made)) == (
        "%0 = all-reduce(%p, axes=[y], op=add) : f32[2]\n"
        "%q = all-reduce(%0, axes=[x], op=add, shared=true) : f32[2]\n"
        "yield %q"
    )


MEAN = """
%s = sum(%p, dims=[0]) : f32[]
%t = all-reduce(%s, axes=[x], op=add) : f32[]
%u = mul(%t, %v) : f32[]
yield %u
"""


def test_the_backward_pass_of_replicated_values_does_not_communicate() -> None:
    module = program(MEAN, outs="[]", result="f32[]")
    both = Module(module.meshes, (vjp(module.main, [0, 1]),))
    verify(both)
    assert text_of(both, 1) == (
        "%t.grad = mul(%u.grad, %v.1) : f32[]\n"
        "%v.grad = mul(%u.grad, %t.1) : f32[]\n"
        "%p.grad = broadcast(%t.grad, dims=[]) : f32[2]\n"
        "yield %v.grad, %p.grad"
    )
    # A replicated residual is one value, and not one value per device.
    assert "in_axes=[[], [[x]]], out_axes=[[], []])" in str(both)


def test_without_check_vma_every_value_varies() -> None:
    module = program(MEAN, outs="[]", result="f32[]", attrs=", check_vma=false")
    both = Module(module.meshes, (vjp(module.main, [0, 1]),))
    verify(both)
    back = text_of(both, 1)
    assert back.count("all-reduce") == 2
    assert "div(%u.grad" in back
    assert parse(str(module)).main.body.ops[0].attrs["check_vma"] is False


@pytest.mark.parametrize("attrs", ["", ", check_vma=false"])
def test_results_are_equal_with_and_without_check_vma(attrs: str) -> None:
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal(8).astype("f"), np.float32(0.5)
    module = program(MEAN, outs="[]", result="f32[]", attrs=attrs)
    back = Module(module.meshes, (vjp(module.main, [0, 1]),))
    made = run(back, [w, a, np.float32(3)])
    for got, expected in zip(made, [a.sum() * w, 3 * a.sum(), np.full(8, 3 * w)], strict=True):
        np.testing.assert_allclose(got, expected, 1e-5)
    ahead = Module(module.meshes, (jvp(module.main, [0, 1]),))
    step = rng.standard_normal(8).astype("f")
    _, tangent = run(ahead, [w, a, np.float32(2), step])
    np.testing.assert_allclose(tangent, 2 * a.sum() + w * step.sum(), 1e-5)


def test_residuals_of_values_that_a_part_of_a_manual_axis_shards() -> None:
    """Their varying axes are unknown, so that each device keeps its own residual."""
    module = parse(f"""{HEAD}
func @f(%w: f32[], %a: f32[8]) -> (f32[8]) {{
  %r = manual_computation(%w, %a, axes=[x], in_axes=[[], [[x:(1)2]]], out_axes=[[[x:(1)2]]])
      : f32[8] {{
    (%v: f32[], %p: f32[4]) =>
    %s = sin(%p) : f32[4]
    %b = broadcast(%v, dims=[]) : f32[4]
    %q = mul(%s, %b) : f32[4]
    yield %q
  }}
  return %r
}}
""")
    verify(module)
    rng = np.random.default_rng(0)
    a, g = rng.standard_normal((2, 8)).astype("f")
    w = np.float32(0.5)
    back = Module(module.meshes, (vjp(module.main, [0, 1]),))
    verify(back)
    made = run(back, [w, a, g])
    for got, expected in zip(made, [w * np.sin(a), np.sin(a) @ g, w * np.cos(a) * g], strict=True):
        np.testing.assert_allclose(got, expected, 1e-5)


def test_vary_is_the_identity() -> None:
    module = program("%q = vary(%v, axes=[x]) : f32[]\n%z = mul(%q, %v) : f32[]\nyield %p")
    op = computation(module)
    (block,) = op.blocks
    inner = Function("g", Block(block.params, block.ops, (block.ops[1].result,)), (None,))
    ahead = jvp(inner, [0]).body
    assert [each.name for each in ahead.ops] == ["vary", "vary", "mul", "mul", "mul", "add"]


RULE = """
%h = custom-jvp(%v, rule="f") : f32[] {
  (%a1: f32[]) =>
  %s1 = sin(%a1) : f32[]
  yield %s1
} {
  (%a2: f32[], %t2: f32[]) =>
  %s2 = sin(%a2) : f32[]
  %i2 = axis-index(axes=[x]) : i32[]
  %n2 = convert(%i2) : f32[]
  %u2 = mul(%n2, %t2) : f32[]
  yield %s2, %u2
}
yield %p
"""


def test_a_rule_whose_tangent_varies_more_than_its_result_is_an_error() -> None:
    with pytest.raises(DifferentiateError) as caught:
        print_explicit(RULE)
    assert str(caught.value) == (
        "the rule of f returns a tangent that may differ between devices, but the result of f is "
        "replicated; reduce it as the function does, for example by lax.psum"
    )


def test_a_rule_whose_integer_result_varies_more_than_that_of_the_function_is_an_error() -> None:
    with pytest.raises(DifferentiateError) as caught:
        print_explicit(
            """
%h, %k = custom-jvp(%v, rule="f") : f32[], i32[] {
  (%a1: f32[]) =>
  %s1 = sin(%a1) : f32[]
  %k1 = constant(value=1) : i32[]
  yield %s1, %k1
} {
  (%a2: f32[], %t2: f32[]) =>
  %s2 = sin(%a2) : f32[]
  %u2 = mul(%s2, %t2) : f32[]
  %i2 = axis-index(axes=[x]) : i32[]
  yield %s2, %i2, %u2
}
yield %p
"""
        )
    assert str(caught.value) == (
        "the rule of f returns a result that may differ between devices, but the result of f is "
        "replicated; reduce it as the function does, for example by lax.psum"
    )


def test_values_in_the_block_of_a_pipeline_vary_as_its_operands() -> None:
    """A pipeline does not state which values enter and leave its block."""
    text = print_explicit(
        """
%l = pipeline(%v, %p, microbatches=1, schedule="gpipe", axis="y", batched=[1]) : f32[] {
  (%c: f32[], %d: f32[2]) =>
  %two = constant(value=2) : f32[]
  %e = mul(%c, %two) : f32[]
  yield %e
}
yield %p
"""
    )
    assert "%v.varying = vary(%v, axes=[x])" in text
    assert "%two.varying = vary(%two, axes=[x])" in text


RULE_WITH_CAPTURE = """
%h = custom-jvp(%p, rule="f") : f32[2] {
  (%a1: f32[2]) =>
  %s1 = sin(%a1) : f32[2]
  yield %s1
} {
  (%a2: f32[2], %t2: f32[2]) =>
  %s2 = sin(%a2) : f32[2]
  %c = scan(%t2, carries=1, length=2) : f32[2] {
    (%c0: f32[2]) =>
    %b0 = broadcast(%v, dims=[]) : f32[2]
    %c1 = mul(%c0, %b0) : f32[2]
    yield %c1
  }
  %b = broadcast(%v, dims=[]) : f32[2]
  %u = mul(%c, %b) : f32[2]
  yield %s2, %u
}
yield %h
"""


def test_a_rule_casts_a_captured_value_once_before_its_loops() -> None:
    lines = print_explicit(RULE_WITH_CAPTURE).splitlines()
    rule = [line.strip() for line in lines[lines.index("} {") + 1 :]]
    assert sum("= vary(%v, axes=[x])" in line for line in rule) == 1
    cast = next(i for i, line in enumerate(rule) if "= vary(%v, axes=[x])" in line)
    assert cast < next(i for i, line in enumerate(rule) if "= scan(" in line)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
%k = constant(value=3) : i32[]
%i = axis-index(axes=[x]) : i32[]
%s = add(%i, %k) : i32[]
yield %p""",
            id="integers",
        ),
        pytest.param(
            """
%n = vary(%v, axes=[y]) : f32[]
%m = vary(%n, axes=[x, y]) : f32[]
yield %p""",
            id="casts that state another axis",
        ),
        pytest.param(
            """
%s = all-reduce(%p, axes=[y], op=add) : f32[2]
yield %s""",
            id="sum along another axis",
        ),
        pytest.param(
            """
%h = custom-jvp(%p, rule="f") : f32[2] {
  (%a1: f32[2]) =>
  %s1 = sin(%a1) : f32[2]
  yield %s1
}
yield %h""",
            id="rule that only its name states",
        ),
    ],
)
def test_programs_without_casts(body: str) -> None:
    assert print_explicit(body, axes="x, y") == body.strip()


def test_shared_sums_along_other_axes_stay_shared() -> None:
    module = program(
        "%q = all-reduce(%p, axes=[y], op=add, shared=true) : f32[2]\n"
        "%t = all-reduce(%q, axes=[x], op=add, shared=true) : f32[2]\nyield %t",
        axes="x, y",
    )
    op = computation(module)
    (made,) = remove_explicit_varying(op.attrs["axes"][:1], op.blocks[0])
    assert text_of(with_body(module, made)) == (
        "%q = all-reduce(%p, axes=[y], op=add, shared=true) : f32[2]\n"
        "%t = all-reduce(%q, axes=[x], op=add) : f32[2]\n"
        "yield %t"
    )


SUMMED_GRADIENT = """
%h = custom-vjp(%p, rule="f") : f32[2] {
  (%a1: f32[2]) =>
  %s1 = sin(%a1) : f32[2]
  yield %s1
} {
  (%a2: f32[2]) =>
  %s2 = sin(%a2) : f32[2]
  yield %s2
} {
  (%g: f32[2]) =>
  %t = all-reduce(%g, axes=[x], op=add) : f32[2]
  yield %t
}
yield %p
"""


def test_a_rule_whose_gradient_varies_less_than_its_argument_is_an_error() -> None:
    with pytest.raises(DifferentiateError) as caught:
        print_explicit(SUMMED_GRADIENT)
    assert str(caught.value) == (
        "the rule of f returns a gradient of argument %a1 that does not vary along 'x', and "
        "argument %a1 does; return the value of each device, for example without lax.psum, or, if "
        "the devices have equal values, lax.pcast(value, 'x', to=\"varying\")"
    )


VARYING_GRADIENT = """
%h = custom-vjp(%v, rule="f") : f32[] {
  (%a1: f32[]) =>
  %s1 = sin(%a1) : f32[]
  yield %s1
} {
  (%a2: f32[]) =>
  %s2 = sin(%a2) : f32[]
  yield %s2
} {
  (%g: f32[]) =>
  %i = axis-index(axes=[x]) : i32[]
  %n = convert(%i) : f32[]
  %t = mul(%g, %n) : f32[]
  yield %t
}
yield %p
"""


def test_a_rule_whose_gradient_varies_more_than_its_argument_is_an_error() -> None:
    with pytest.raises(DifferentiateError) as caught:
        print_explicit(VARYING_GRADIENT)
    assert str(caught.value) == (
        "the rule of f returns a gradient of argument %a1 that may vary along 'x', and argument "
        "%a1 does not; return lax.psum(gradient, 'x') if each device computes its contribution, or "
        "lax.pmean(gradient, 'x') if the devices have equal gradients"
    )


def test_contributions_of_the_devices_to_a_gradient_of_a_derived_rule_are_summed() -> None:
    """A rule that was derived from the function, such as that of `linear_call`, has no sums."""
    op = computation(program(VARYING_GRADIENT))
    (block,) = op.blocks
    (call,) = block.ops
    rule = DerivativeRule(lambda _: call.blocks[1:], ("v",), {}, sums_gradients=True)
    named = replace(call, blocks=call.blocks[:1], attrs={"rule": HostFunction("f", rule)})
    known = dict(zip(block.params, [frozenset(), frozenset(op.attrs["axes"])], strict=True))
    names = UniqueNames([value.name for value in block.values()])
    made = make_varying_explicit(replace(block, ops=(named,)), known, op.attrs["axes"], names)
    new_rule = derivative_rule_of(made.ops[0])
    assert new_rule is not None
    _, back = new_rule([True])
    total = back.ops[-1]
    assert (total.name, total.attrs) == (
        "all-reduce",
        {"axes": op.attrs["axes"], "op": Symbol("add"), "shared": True},
    )
    assert (total.operands, total.results) == ((call.blocks[2].returns[0],), back.returns)


UNCHECKED_RULE = """
%h = custom-vjp(%{argument}, rule="f") : {type} {{
  (%a1: {type}) =>
  {primal}
  yield %s1
}} {{
  (%a2: {type}) =>
  %s2 = sin(%a2) : {type}
  yield %s2
}} {{
  (%g: {type}) =>
  yield %g
}}
%b = broadcast(%h, dims={dims}) : f32[2]
yield %b
"""
SUM = "%t1 = all-reduce(%a1, axes=[x], op=add) : f32[2]"


@pytest.mark.parametrize(
    ("argument", "primal", "is_allowed"),
    [
        ("v", "%s1 = sin(%a1) : f32[]", True),
        ("p", f"{SUM}\n  %s1 = mul(%t1, %a1) : f32[2]", True),
        ("p", f"{SUM}\n  %s1 = sin(%t1) : f32[2]", False),
    ],
    ids=["no sum", "sum in a result of each device", "sum as a result"],
)
def test_without_check_vma_a_custom_vjp_must_not_return_a_sum(
    argument: str, primal: str, is_allowed: bool
) -> None:
    type, dims = ("f32[]", "[]") if argument == "v" else ("f32[2]", "[0]")
    text = UNCHECKED_RULE.format(argument=argument, primal=primal, type=type, dims=dims)
    main = program(text, attrs=", check_vma=false").main
    if is_allowed:
        vjp(main, [0, 1])
        return
    with pytest.raises(DifferentiateError) as caught:
        vjp(main, [0, 1])
    assert str(caught.value) == (
        "%h = f has a custom_vjp and a result that is a sum over devices, which check_vma=False "
        "does not detect; move the sum out of it, or leave check_vma true"
    )


def test_dependence_on_a_value() -> None:
    module = program(
        """
%i = convert(%v) : i32[]
%k, %n = scan(%v, %v, carries=2, length=2) : f32[], f32[] {
  (%k0: f32[], %n0: f32[]) =>
  %one = constant(value=1) : f32[]
  %k1 = mul(%k0, %one) : f32[]
  yield %k1, %one
}
%s = sin(%p) : f32[2]
yield %s
"""
    )
    (block,) = computation(module).blocks
    found = {value.name for value in dependent_values(block, block.params[:1])}
    assert found == {"v", "i", "k", "n", "k0", "n0", "k1"}
