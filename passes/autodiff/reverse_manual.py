"""Reverse-mode rule of manual computations: cotangents have the shardings of their values.

Each device pulls back through its own operations. With inferred varying axes (`check_vma=true`),
`make_varying_explicit` marks where a value becomes varying, and cotangents are summed there. An
operand that is and stays replicated along an axis needs no sum, and the cotangent of a replicated
result is not divided.

With `check_vma=false` every value varies along all manual axes. An operand that is replicated along
an axis then becomes varying on entry, so its gradient is summed over the devices. A result that is
declared replicated along an axis is the mean over the devices: each gets an equal part of its
cotangent.

Residuals remain on the devices, stacked along a leading dimension that is sharded over the axes
along which they vary; a replicated residual is one value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardir import ops
from shardir.ir.builder import Builder, as_values, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import NOT_VARYING, Symbol, Varying
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ops.control_flow.manual_computation import (
    ManualDimAxes,
    manual_computation,
    manual_global_type,
)
from shardir.passes.autodiff.activity import active_values
from shardir.passes.autodiff.make_varying import make_varying_explicit, remove_explicit_varying
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


@dataclass(frozen=True)
class _VaryingTypes:
    """The manual axes along which the values of one computation vary.

    `inferred` states whether they follow from the operations; otherwise all values vary along all
    axes.
    """

    op: Op
    inferred: bool

    @classmethod
    def of(cls, op: Op) -> "_VaryingTypes":
        axes = op.attrs["axes"]
        dim_axes = (*op.attrs["in_axes"], *op.attrs["out_axes"])
        is_fully_manual = all(axis in axes for each in dim_axes for axis in sharding_axes(each))
        return cls(op, op.attrs.get("check_vma", True) and is_fully_manual)

    @property
    def axes(self) -> Axes:
        axes: Axes = self.op.attrs["axes"]
        return axes

    def varying_axes(self, body: Block) -> Mapping[Value, Varying]:
        """Return the varying axes of each value; empty for an unchecked computation."""
        if not self.inferred:
            return {}
        initial = {
            param: sharding_axes(dim_axes)
            for param, dim_axes in zip(body.params, self.op.attrs["in_axes"], strict=True)
        }
        return infer_varying_axes(body, initial, self.axes)

    def explicit_body(self, outer: Pullback) -> Block:
        """Return the body with `vary` where a value becomes varying."""
        (body,) = self.op.blocks
        if not self.inferred:
            return body
        ends = [sharding_axes(dim_axes) for dim_axes in self.op.attrs["out_axes"]]
        new_body = make_varying_explicit(
            body, self.varying_axes(body), self.axes, outer.b.names, returns=ends
        )
        chosen = [param for param in new_body.params if param in outer.active]
        outer.active |= active_values(new_body, chosen)
        return new_body

    def axes_to_sum(self, index: int) -> Axes:
        """Return the axes along which the gradient of a parameter has yet to be summed."""
        return () if self.inferred else _replicated_axes(self.axes, self.op.attrs["in_axes"][index])

    def axes_to_divide(self, index: int, varies: Varying) -> Axes:
        """Return the axes along which a result varies although it is declared replicated."""
        rest = _replicated_axes(self.axes, self.op.attrs["out_axes"][index])
        return tuple(axis for axis in rest if axis in varies) if self.inferred else rest

    def stacked_axes(self, varies: Varying) -> Axes:
        """Return the axes along which a value varies."""
        return tuple(a for a in self.axes if a in varies) if self.inferred else self.axes


def _pull_manual(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    """Pull back by another manual computation along the same axes."""
    types = _VaryingTypes.of(op)
    axes, ins, outs = op.attrs["axes"], op.attrs["in_axes"], op.attrs["out_axes"]
    if not types.inferred:
        _check_custom_rules(op)
    body = types.explicit_body(outer)
    varies = types.varying_axes(body)
    pullback = outer.inner()
    b = pullback.b

    # Cotangents have the shardings of the results.
    result_positions = [i for i, g in enumerate(cotangents) if g is not None]
    params = [
        b.param(body.returns[i].type, f"{body.returns[i].name}.grad") for i in result_positions
    ]
    for i, param in zip(result_positions, params, strict=True):
        share = count_positions(types.axes_to_divide(i, varies.get(body.returns[i], NOT_VARYING)))
        piece = param if share == 1 else b.div(param, b.full(share, param.type))
        pullback.accumulate(body.returns[i], piece)
    forward = replace(body, ops=pullback.run(body.ops))
    position_gradients = [
        (i, g) for i, p in enumerate(body.params) if (g := pullback.pop_cotangent(p)) is not None
    ]
    returns = []
    for i, gradient in position_gradients:
        if rest := types.axes_to_sum(i):
            gradient = b.all_reduce(gradient, axes=rest, op=Symbol("add"))
        returns.append(gradient)
    if not returns:
        return op
    back = Block(tuple(params), eliminate_dead_operations(b.ops, returns), tuple(returns))
    forward, back = remove_explicit_varying(axes, forward, back)

    saving = _ManualResiduals(outer, types, forward)
    back = saving.add_residuals(back)
    gradients = as_values(
        outer.b.emit(
            manual_computation,
            *(g for i in result_positions if (g := cotangents[i]) is not None),
            *saving.operands,
            blocks=(back,),
            **{
                **op.attrs,
                "in_axes": (*(outs[i] for i in result_positions), *saving.dim_axes),
                "out_axes": tuple(ins[i] for i, _ in position_gradients),
            },
        )
    )
    for (i, _), gradient in zip(position_gradients, gradients, strict=True):
        outer.accumulate(op.operands[i], gradient)
    return saving.op


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


class _ManualResiduals:
    """Lets a manual computation return the residuals of its reverse.

    `op` is the extended computation; `operands` are the residuals, sharded by `dim_axes`, in the
    order in which `add_residuals` adds parameters.
    """

    def __init__(self, outer: Pullback, types: _VaryingTypes, forward: Block) -> None:
        self.op, self.operands, self.dim_axes = types.op, list[Value](), list[ManualDimAxes]()
        self._names, self._types, self._forward = outer.b.names, types, forward

    def add_residuals(self, back: Block) -> Block:
        """Return `back` with parameters for its residuals."""
        forward, op = self._forward, self.op
        handover = find_residuals(forward, back, self._names)
        varies = self._types.varying_axes(forward)
        seen = dict(zip(forward.params, zip(op.operands, op.attrs["in_axes"], strict=True),
                        strict=True))  # fmt: skip
        for value, result, dim_axes in zip(
            forward.returns, op.results, op.attrs["out_axes"], strict=True
        ):
            seen.setdefault(value, (result, dim_axes))
        stacking, opening = Builder(self._names, op.loc), Builder(self._names, op.loc)
        more: list[tuple[Value, Value, ManualDimAxes]] = []
        params, new = [], dict(handover.new)
        for value in handover.saved:
            if value in seen:
                operand, dim_axes = seen[value]
                param = Value(value.type, self._names.fresh(value.name))
                new[value] = param
            else:
                saved = self._names.fresh(f"{value.name.removesuffix('.saved')}.saved")
                shards = self._types.stacked_axes(varies.get(value, NOT_VARYING))
                residual, dim_axes = value, ((),) * value.type.rank
                if shards:
                    dim_axes = (shards, *dim_axes)
                    residual = stacking.reshape(
                        value, result=value.type.with_shape((1, *value.type.shape))
                    )
                operand = Value(
                    manual_global_type(residual.type, dim_axes, op.attrs["axes"]), saved
                )
                more.append((residual, operand, dim_axes))
                param = Value(residual.type, self._names.fresh(value.name))
                new[value] = opening.reshape(param, result=value.type) if shards else param
            params.append(param)
            self.operands.append(operand)
            self.dim_axes.append(dim_axes)
        self.op = replace(
            op,
            results=(*op.results, *(operand for _, operand, _ in more)),
            attrs={
                **op.attrs,
                "out_axes": (*op.attrs["out_axes"], *(dim_axes for _, _, dim_axes in more)),
            },
            blocks=(
                Block(
                    forward.params,
                    (*forward.ops, *stacking.ops),
                    (*forward.returns, *(value for value, _, _ in more)),
                ),
            ),
        )
        block = Block((*back.params, *params), (*handover.recompute, *back.ops), back.returns)
        renamed = substitute(block, new)
        return replace(renamed, ops=(*opening.ops, *renamed.ops))


HANDLERS: dict[str, Handler] = {"manual_computation": _pull_manual}
