"""Residuals of a manual computation: values of one that another one along the same axes uses.

Residuals remain on the devices, stacked along a leading dimension that is sharded over the axes
along which they vary; a replicated residual is one value. Operands and results of the first
computation need no stacking.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import NOT_VARYING, Varying
from shardir.ir.sharding import Axes
from shardir.ops.control_flow.manual_computation import ManualDimAxes, manual_global_type
from shardir.passes.autodiff.varying import infer_varying_axes, sharding_axes


@dataclass(frozen=True)
class ManualTypes:
    """The manual axes along which the values of one computation vary.

    `inferred` states whether they follow from the operations; otherwise all values vary along all
    axes.
    """

    op: Op
    inferred: bool

    @classmethod
    def of(cls, op: Op) -> "ManualTypes":
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

    def stacked_axes(self, varies: Varying) -> Axes:
        """Return the axes along which a value varies."""
        return tuple(a for a in self.axes if a in varies) if self.inferred else self.axes


@dataclass(frozen=True)
class ManualResiduals:
    """Residuals that a manual computation returns, and another one takes.

    `op` is the first computation, which also returns the residuals. The second has the further
    `operands`, sharded by `dim_axes`, and its block has the `params` for them. The operations
    `opening` of that block compute the values, and `new` maps each saved value to its copy there.
    """

    op: Op
    operands: tuple[Value, ...]
    dim_axes: tuple[ManualDimAxes, ...]
    params: tuple[Value, ...]
    opening: tuple[Op, ...]
    new: dict[Value, Value]

    def extend(self, op: Op) -> Op:
        """Return the second computation with the residuals; its block still refers to copies."""
        (body,) = op.blocks
        block = replace(body, params=(*body.params, *self.params), ops=(*self.opening, *body.ops))
        attrs = {**op.attrs, "in_axes": (*op.attrs["in_axes"], *self.dim_axes)}
        return replace(op, operands=(*op.operands, *self.operands), attrs=attrs, blocks=(block,))


def save_manual_residuals(op: Op, values: Sequence[Value], names: UniqueNames) -> ManualResiduals:
    """Return the residuals for those values of the block of a manual computation."""
    (body,) = op.blocks
    types = ManualTypes.of(op)
    varies = types.varying_axes(body)
    pairs = zip(op.operands, op.attrs["in_axes"], strict=True)
    seen = dict(zip(body.params, pairs, strict=True))
    for value, result, dim_axes in zip(body.returns, op.results, op.attrs["out_axes"], strict=True):
        seen.setdefault(value, (result, dim_axes))
    stacking, opening = Builder(names, op.loc), Builder(names, op.loc)
    more: list[tuple[Value, Value, ManualDimAxes]] = []
    operands, places, params = list[Value](), list[ManualDimAxes](), list[Value]()
    new: dict[Value, Value] = {}
    for value in values:
        if value in seen:
            operand, dim_axes = seen[value]
            param = new[value] = Value(value.type, names.fresh(value.name))
        else:
            saved = names.fresh(f"{value.name.removesuffix('.saved')}.saved")
            shards = types.stacked_axes(varies.get(value, NOT_VARYING))
            residual, dim_axes = value, ((),) * value.type.rank
            if shards:
                dim_axes = (shards, *dim_axes)
                type = value.type.with_shape((1, *value.type.shape))
                residual = stacking.reshape(value, result=type)
            operand = Value(manual_global_type(residual.type, dim_axes, types.axes), saved)
            more.append((residual, operand, dim_axes))
            param = Value(residual.type, names.fresh(value.name))
            new[value] = opening.reshape(param, result=value.type) if shards else param
        params.append(param)
        operands.append(operand)
        places.append(dim_axes)
    block = replace(
        body,
        ops=(*body.ops, *stacking.ops),
        returns=(*body.returns, *(residual for residual, _, _ in more)),
    )
    out_axes = (*op.attrs["out_axes"], *(dim_axes for _, _, dim_axes in more))
    extended = replace(
        op,
        results=(*op.results, *(operand for _, operand, _ in more)),
        attrs={**op.attrs, "out_axes": out_axes},
        blocks=(block,),
    )
    return ManualResiduals(
        extended, tuple(operands), tuple(places), tuple(params), tuple(opening.ops), new
    )
