"""Forward-mode rules of regions.

A checkpoint remains one and computes tangents too. A custom_jvp is replaced by its rule. A
custom_vjp has no forward-mode derivative.
"""

from dataclasses import replace

from shardir.ir.module import Op
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.pullback import error
from shardir.passes.autodiff.pushforward import Handler, Pushforward
from shardir.passes.autodiff.regions import check_closed, inline_block, instantiate_rule


def _push_checkpoint(outer: Pushforward, op: Op) -> None:
    (body,) = op.blocks
    inner = outer.inner()
    params, operands = list(body.params), list(op.operands)
    for param, operand in zip(body.params, op.operands, strict=True):
        tangent = outer.get(operand)
        inner.set_tangent(param, None)
        if tangent is not None:
            new_param = inner.b.param(param.type)
            inner.set_tangent(param, new_param)
            params.append(new_param)
            operands.append(tangent)
    inner.run(body.ops)
    returns, results = list(body.returns), list(op.results)
    for value, result in zip(body.returns, op.results, strict=True):
        tangent = inner.get(value)
        if tangent is not None:
            returns.append(tangent)
            new_param = outer.b.param(result.type)
            results.append(new_param)
            outer.set_tangent(result, new_param)
    block = inner.block(params, returns)
    # The batching rule of the block does not describe its tangents.
    attrs = {name: value for name, value in op.attrs.items() if name != "batching"}
    made_op = replace(
        op, operands=tuple(operands), results=tuple(results), blocks=(block,), attrs=attrs
    )
    outer.append(made_op)


def _push_custom_jvp(outer: Pushforward, op: Op) -> None:
    moves = [outer.get(value) is not None for value in op.operands]
    check_closed(op, moves)
    (rule,) = instantiate_rule(op, outer.b, moves)
    count, num_results = len(op.operands), len(op.results)
    owners = op.operands[: count - op.attrs.get("closed", 0)]
    tangents = [outer.get_or_zeros(x) for x in owners if x.type.dtype in INEXACT]
    forward, places = inline_block(rule, [*op.operands, *tangents], op.results, op)
    for new_op in forward:
        outer.append(new_op)
    moving = [y for y in op.results if y.type.dtype in INEXACT]
    for result, slope in zip(moving, rule.returns[num_results:], strict=True):
        outer.set_tangent(result, places.get(slope, slope))


def _refuse_custom_vjp(outer: Pushforward, op: Op) -> None:
    raise error(
        f"%{op.results[0].name} = {op.attrs['rule']} has a custom_vjp, which defines no "
        "forward-mode derivative; take grad or vjp of it, or define a custom_jvp",
        op,
    )


HANDLERS: dict[str, Handler] = {
    "checkpoint": _push_checkpoint,
    "custom-jvp": _push_custom_jvp,
    "custom-vjp": _refuse_custom_vjp,
}
