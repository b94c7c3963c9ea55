"""Forward-mode rules of regions.

A checkpoint remains one and computes tangents too. So does a manual computation: tangents enter and
leave beside their primals. A custom_jvp is replaced by its rule. A custom_vjp has no forward-mode
derivative.
"""

from dataclasses import replace

from shardir.ir.module import Op
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.make_varying import remove_explicit_varying
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
    active = [outer.get(value) is not None for value in op.operands]
    check_closed(op, active)
    (rule,) = instantiate_rule(op, outer.b, active)
    count, num_results = len(op.operands), len(op.results)
    owners = op.operands[: count - op.attrs.get("closed", 0)]
    tangents = [outer.get_or_zeros(x) for x in owners if x.type.dtype in INEXACT]
    forward, places = inline_block(rule, [*op.operands, *tangents], op.results, op)
    for new_op in forward:
        outer.append(new_op)
    inexact_results = [y for y in op.results if y.type.dtype in INEXACT]
    for result, tangent in zip(inexact_results, rule.returns[num_results:], strict=True):
        outer.set_tangent(result, places.get(tangent, tangent))


def _refuse_custom_vjp(outer: Pushforward, op: Op) -> None:
    raise error(
        f"%{op.results[0].name} = {op.attrs['rule']} has a custom_vjp, which defines no "
        "forward-mode derivative; take grad or vjp of it, or define a custom_jvp",
        op,
    )


def _push_manual(outer: Pushforward, op: Op) -> None:
    (body,) = op.blocks
    ins, outs = op.attrs["in_axes"], op.attrs["out_axes"]
    active = [i for i, value in enumerate(op.operands) if outer.get(value) is not None]
    inner = outer.inner()
    params = []
    for i, param in enumerate(body.params):
        inner.set_tangent(param, inner.b.param(param.type) if i in active else None)
        if (tangent := inner.get(param)) is not None:
            params.append(tangent)
    inner.run(body.ops)
    positions = [i for i, value in enumerate(body.returns) if inner.get(value) is not None]
    block = inner.block(
        (*body.params, *params),
        (*body.returns, *(inner.get_or_zeros(body.returns[i]) for i in positions)),
    )
    # A custom_jvp rule inside of the body may already contain explicit `vary` operations.
    (block,) = remove_explicit_varying(op.attrs["axes"], block)
    results = []
    for i in positions:
        tangent = outer.b.param(op.results[i].type)
        outer.set_tangent(op.results[i], tangent)
        results.append(tangent)
    attrs = {
        **op.attrs,
        "in_axes": (*ins, *(ins[i] for i in active)),
        "out_axes": (*outs, *(outs[i] for i in positions)),
    }
    operands = (*op.operands, *(outer.get_or_zeros(op.operands[i]) for i in active))
    outer.append(
        replace(op, operands=operands, results=(*op.results, *results), attrs=attrs,
                blocks=(block,))
    )  # fmt: skip


HANDLERS: dict[str, Handler] = {
    "checkpoint": _push_checkpoint,
    "custom-jvp": _push_custom_jvp,
    "custom-vjp": _refuse_custom_vjp,
    "manual_computation": _push_manual,
}
