"""Merge slices, pads and concatenations that shift rows, so that devices exchange halos once.

before: `%p = pad(%x, %0, low=[1], high=[1], interior=[0]) : f32[18@x]`,
        `%l = slice(%p, starts=[0], strides=[1]) : f32[16@x]`
after:  `%l = pad(%x, %0, low=[1], high=[-1], interior=[0]) : f32[16@x]`

A slice of a padded value becomes one pad with negative padding where the slice drops elements; two
slices concatenated in swapped order become a `roll`. Results keep their shardings, and unused
operations remain for `dce`. Only sharded dimensions benefit, so other programs do not change.
"""

from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.passes.pipeline import Pass

DefiningOps = dict[Value, Op]


@dataclass(frozen=True)
class MergeShifts(Pass, name="merge-shifts"):
    """Merge slices of padded values to pads, and concatenations of swapped slices to rolls."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_rewrite_function, module.functions)))


def _rewrite_function(function: Function) -> Function:
    return function if function.spmd else replace(function, body=_rewrite_block(function.body, {}))


def _rewrite_block(block: Block, outer: DefiningOps) -> Block:
    makers, ops = dict(outer), []
    for op in block.ops:
        op = _rewrite_operation(op, makers)
        if op.blocks:
            op = replace(op, blocks=tuple(_rewrite_block(inner, makers) for inner in op.blocks))
        makers.update(dict.fromkeys(op.results, op))
        ops.append(op)
    return replace(block, ops=tuple(ops))


def _rewrite_operation(op: Op, makers: DefiningOps) -> Op:
    if op.spec is specs.slice_:
        return _merge_slice_of_pad(op, makers) or op
    if op.spec is specs.concatenate:
        return _merge_to_roll(op, makers) or op
    return op


def _merge_slice_of_pad(op: Op, makers: DefiningOps) -> Op | None:
    """Return one pad that equals the slice of a pad, or `None` for interior padding or strides."""
    inner = makers.get(op.operands[0])
    if inner is None or inner.spec is not specs.pad:
        return None
    x, value = inner.operands
    low, high = list(inner.attrs["low"]), list(inner.attrs["high"])
    moved = [
        d
        for d, (size, result_size) in enumerate(zip(op.operands[0].type.shape, op.result.type.shape,
                                             strict=True))
        if (op.attrs["starts"][d], op.attrs["strides"][d], result_size) != (0, 1, size)
    ]  # fmt: skip
    if any(op.attrs["strides"][d] != 1 or inner.attrs["interior"][d] for d in moved):
        return None
    if not any(_is_sharded(v, d) for d in moved for v in (x, op.operands[0], op.result)):
        return None
    for d in moved:
        start = op.attrs["starts"][d]
        low[d] -= start
        high[d] -= op.operands[0].type.shape[d] - start - op.result.type.shape[d]
        if low[d] < -x.type.shape[d] or high[d] < -x.type.shape[d]:
            return None
    attrs = {**inner.attrs, "low": tuple(low), "high": tuple(high)}
    return replace(op, spec=inner.spec, operands=(x, value), attrs=attrs)


def _merge_to_roll(op: Op, makers: DefiningOps) -> Op | None:
    """Return the roll that equals a concatenation of the end and then the beginning of one
    value."""
    parts = [makers.get(value) for value in op.operands]
    if len(parts) != 2 or any(part is None or part.spec is not specs.slice_ for part in parts):
        return None
    back, front = (part for part in parts if part is not None)
    (x,), dim = back.operands, op.attrs["dim"]
    if front.operands != (x,) or x.type != op.result.type:
        return None
    if not (_is_sharded(x, dim) or _is_sharded(op.result, dim)):
        return None
    rest = front.result.type.shape[dim]
    for part, start in ((back, rest), (front, 0)):
        starts = tuple(start if d == dim else 0 for d in range(x.type.rank))
        if tuple(part.attrs["starts"]) != starts or set(part.attrs["strides"]) != {1}:
            return None
    if not rest:  # A roll shifts by less than the size of the dimension.
        return None
    shift = x.type.shape[dim] - rest
    return replace(op, spec=OPS["roll"], operands=(x,), attrs={"dim": dim, "shift": shift})


def _is_sharded(value: Value, dim: int) -> bool:
    return value.sharding is not None and bool(value.sharding.dims[dim].axes)
