"""Callbacks: one call per device, with the shards of that device.

before: `%y = pure-callback(%x, function=f, method=expand_dims) : f32[2, 3]`, differing along `a`
after:  `%y = pure-callback(%x, function=f, method=expand_dims, batch=1) : f32[4, 2, 3]`

The dimensions of devices precede those that the program has mapped, and the function is called once
for each position along them, independent of `method`, which applies to the dimensions of a `vmap`
only.
"""

from collections.abc import Iterable, Sequence
from math import prod

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Op, Value
from shardir.passes.whole_program.collective_rules import distribute_shards, gather_shards
from shardir.passes.whole_program.dim_arrangement import reshape_if_needed
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule, merge_error
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes


def _pure_callback(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    sub_axes = merger.union(op.operands)
    operands = [merger.broadcast_to(value, sub_axes) for value in op.operands]
    types = tuple(merger.type(value.type, sub_axes) for value in op.results)
    attrs = dict(op.attrs)
    if sub_axes:
        attrs["batch"] = attrs.get("batch", 0) + len(sub_axes)
    results = merger.b.emit(
        op.spec, *operands, result=types[0] if len(types) == 1 else types, **attrs
    )
    return [
        BatchedValue(value, sub_axes)
        for value in (results if isinstance(results, tuple) else (results,))
    ]


def _pipeline_call(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Call the function once with all parts of the operands that the devices of a process hold."""
    b = merger.b
    operands = []
    for value, dims in zip(op.operands, op.attrs["in_axes"], strict=True):
        part = merger.get(value)
        for dim, axes in enumerate(dims):
            if sub_axes := merger.sub_axes.of(axes):
                part = gather_shards(merger, part, dim, sub_axes)
        operands.append(_take_first(b, part))
    shardings = [[merger.sub_axes.of(axes) for axes in dims] for dims in op.attrs["out_axes"]]
    types = tuple(
        value.type.with_shape(
            [
                n * prod(axis_sizes(sub_axes))
                for n, sub_axes in zip(value.type.shape, dims, strict=True)
            ]
        )
        for value, dims in zip(op.results, shardings, strict=True)
    )
    made = b.emit(
        ops.pure_callback,
        *operands,
        result=types[0] if len(types) == 1 else types,
        function=op.attrs["function"],
        method="none",
    )
    results = []
    for value, dims in zip(made if isinstance(made, tuple) else (made,), shardings, strict=True):
        result = BatchedValue(value, ())
        for dim, sub_axes in enumerate(dims):
            if sub_axes:
                result = distribute_shards(merger, result, dim, sub_axes)
        results.append(result)
    return results


def _take_first(b: Builder, value: BatchedValue) -> Value:
    """Return a value that is equal on all devices, from the first of them."""
    type, count = value.value.type, len(value.sub_axes)
    if not count:
        return value.value
    one = type.with_shape((*(1,) * count, *type.shape[count:]))
    first = b.slice(value.value, starts=(0,) * type.rank, strides=(1,) * type.rank, result=one)
    return reshape_if_needed(b, first, type.shape[count:])


def check_no_callback(blocks: Iterable[Block]) -> None:
    """Raise `MergeError` for a callback in blocks that only some of the devices execute."""
    for block in blocks:
        for op in block.ops:
            if op.spec is ops.pure_callback:
                raise merge_error(op, "is called on only some of the devices")
            check_no_callback(op.blocks)


CALLBACK_RULES: dict[str, MergeRule] = {
    "pure-callback": _pure_callback,
    "pipeline-call": _pipeline_call,
}
