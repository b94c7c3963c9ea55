"""Reverse-mode rule of manual computations: cotangents have the shardings of their values.

Each device pulls back through its own operations. With inferred varying axes (`check_vma=true`),
`make_varying_explicit` marks where a value becomes varying, and cotangents are summed there. An
operand that is and stays replicated along an axis needs no sum, and the cotangent of a replicated
result is not divided.

With `check_vma=false` every value varies along all manual axes. An operand that is replicated along
an axis then becomes varying on entry, so its gradient is summed over the devices. A result that is
declared replicated along an axis is the mean over the devices: each gets an equal part of its
cotangent.
"""

from dataclasses import replace

from shardir import ops
from shardir.ir.builder import as_values, substitute
from shardir.ir.module import Block, Op
from shardir.ir.operation import NOT_VARYING, Symbol, Varying
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ops.control_flow.manual_computation import ManualDimAxes, manual_computation
from shardir.passes.autodiff.activity import active_values
from shardir.passes.autodiff.make_varying import make_varying_explicit, remove_explicit_varying
from shardir.passes.autodiff.manual_residuals import ManualTypes, save_manual_residuals
from shardir.passes.autodiff.pullback import Cotangents, Handler, Pullback, error
from shardir.passes.autodiff.residuals import eliminate_dead_operations, find_residuals
from shardir.passes.autodiff.varying import infer_varying_axes, sharding_axes


def _replicated_axes(axes: Axes, dim_axes: ManualDimAxes) -> Axes:
    """Return the manual axes along which a tensor is replicated."""
    used = sorted(axis for dim in dim_axes for axis in dim)
    left: list[Axis] = []
    for axis in axes:
        start = axis.pre
        for part in used:
            if axis.contains(part):
                if start < part.pre:
                    left.append(Axis(axis.name, start, part.pre // start))
                start = part.next
        if start < axis.next:
            left.append(Axis(axis.name, start, axis.next // start))
    return tuple(left)


def _make_explicit(types: ManualTypes, outer: Pullback) -> Block:
    """Return the body with `vary` where a value becomes varying."""
    (body,) = types.op.blocks
    if not types.inferred:
        return body
    ends = [sharding_axes(dim_axes) for dim_axes in types.op.attrs["out_axes"]]
    new_body = make_varying_explicit(
        body, types.varying_axes(body), types.axes, outer.b.names, returns=ends
    )
    chosen = [param for param in new_body.params if param in outer.active]
    outer.active |= active_values(new_body, chosen)
    return new_body


def _axes_to_sum(types: ManualTypes, index: int) -> Axes:
    """Return the axes along which the gradient of a parameter has yet to be summed."""
    return () if types.inferred else _replicated_axes(types.axes, types.op.attrs["in_axes"][index])


def _axes_to_divide(types: ManualTypes, index: int, varies: Varying) -> Axes:
    """Return the axes along which a result varies although it is declared replicated."""
    rest = _replicated_axes(types.axes, types.op.attrs["out_axes"][index])
    return tuple(axis for axis in rest if axis in varies) if types.inferred else rest


def _pull_manual(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    """Pull back by another manual computation along the same axes."""
    types = ManualTypes.of(op)
    axes, ins, outs = op.attrs["axes"], op.attrs["in_axes"], op.attrs["out_axes"]
    if not types.inferred:
        _check_custom_rules(op)
    body = _make_explicit(types, outer)
    varies = types.varying_axes(body)
    pullback = outer.inner()
    b = pullback.b

    # Cotangents have the shardings of the results.
    result_positions = [i for i, g in enumerate(cotangents) if g is not None]
    params = [
        b.param(body.returns[i].type, f"{body.returns[i].name}.grad") for i in result_positions
    ]
    for i, param in zip(result_positions, params, strict=True):
        share = count_positions(_axes_to_divide(types, i, varies.get(body.returns[i], NOT_VARYING)))
        piece = param if share == 1 else b.div(param, b.full(share, param.type))
        pullback.accumulate(body.returns[i], piece)
    forward = replace(body, ops=pullback.run(body.ops))
    position_gradients = [
        (i, g) for i, p in enumerate(body.params) if (g := pullback.pop_cotangent(p)) is not None
    ]
    returns = []
    for i, gradient in position_gradients:
        if rest := _axes_to_sum(types, i):
            gradient = b.all_reduce(gradient, axes=rest, op=Symbol("add"))
        returns.append(gradient)
    if not returns:
        return op
    back = Block(tuple(params), eliminate_dead_operations(b.ops, returns), tuple(returns))
    forward, back = remove_explicit_varying(axes, forward, back)

    handover = find_residuals(forward, back, b.names)
    saved = save_manual_residuals(replace(op, blocks=(forward,)), handover.saved, b.names)
    back = Block((*back.params, *saved.params), (*handover.recompute, *back.ops), back.returns)
    back = substitute(back, handover.new | saved.new)
    gradients = as_values(
        outer.b.emit(
            manual_computation,
            *(g for i in result_positions if (g := cotangents[i]) is not None),
            *saved.operands,
            blocks=(replace(back, ops=(*saved.opening, *back.ops)),),
            **{
                **op.attrs,
                "in_axes": (*(outs[i] for i in result_positions), *saved.dim_axes),
                "out_axes": tuple(ins[i] for i, _ in position_gradients),
            },
        )
    )
    for (i, _), gradient in zip(position_gradients, gradients, strict=True):
        outer.accumulate(op.operands[i], gradient)
    return saved.op


def _check_custom_rules(op: Op) -> None:
    """Raise `DifferentiateError` for a custom_vjp that would be given partial cotangents.

    With `check_vma=false` devices that share a value each have a part of its cotangent. Linear
    operations are correct on parts; a custom rule of a function that ends in a sum over devices
    would be given only a part.
    """
    (body,) = op.blocks
    rules = [each for each in body.walk() if each.spec is ops.custom_vjp]
    if not rules:
        return
    initial = {
        param: sharding_axes(dim_axes)
        for param, dim_axes in zip(body.params, op.attrs["in_axes"], strict=True)
    }
    varying_axes = infer_varying_axes(body, initial, op.attrs["axes"])
    for each in rules:
        sums = any(inner.spec is ops.all_reduce for inner in each.blocks[0].walk())
        own = frozenset(op.attrs["axes"])
        if sums and any(not own <= varying_axes.get(value, frozenset()) for value in each.results):
            raise error(
                f"%{each.results[0].name} = {each.attrs['rule']} has a custom_vjp and a "
                "result that is a sum over devices, which check_vma=False does not "
                "detect; move the sum out of it, or leave check_vma true",
                each,
            )


HANDLERS: dict[str, Handler] = {"manual_computation": _pull_manual}
