"""Callbacks: one call per device, with the shards of that device.

before: `%y = pure-callback(%x, function=f, method=expand_dims) : f32[2, 3]`, differing along `a`
after:  `%y = pure-callback(%x, function=f, method=expand_dims, batch=1) : f32[4, 2, 3]`

The dimensions of devices precede those that the program has mapped, and the function is called once
for each position along them, independent of `method`, which applies to the dimensions of a `vmap`
only.
"""

from collections.abc import Iterable, Sequence

from shardir import ops
from shardir.ir.module import Block, Op
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule, merge_error


def _pure_callback(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    atoms = merger.union(op.operands)
    operands = [merger.broadcast_to(value, atoms) for value in op.operands]
    types = tuple(merger.type(value.type, atoms) for value in op.results)
    attrs = dict(op.attrs)
    if atoms:
        attrs["batch"] = attrs.get("batch", 0) + len(atoms)
    results = merger.b.emit(
        op.spec, *operands, result=types[0] if len(types) == 1 else types, **attrs
    )
    return [
        BatchedValue(value, atoms)
        for value in (results if isinstance(results, tuple) else (results,))
    ]


def check_no_callback(blocks: Iterable[Block]) -> None:
    """Raise `MergeError` for a callback in blocks that only some of the devices execute."""
    for block in blocks:
        for op in block.ops:
            if op.spec is ops.pure_callback:
                raise merge_error(op, "is called on only some of the devices")
            check_no_callback(op.blocks)


CALLBACK_RULES: dict[str, MergeRule] = {"pure-callback": _pure_callback}
