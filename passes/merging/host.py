"""Calls of Python functions: once for each device, with what that device has.

before: `%y = pure-callback(%x, function=f, method=expand_dims) : f32[2, 3]`, differing along `a`
after:  `%y = pure-callback(%x, function=f, method=expand_dims, batch=1) : f32[4, 2, 3]`

The dimensions of devices are in front of those that the program has mapped, and the function is
called once for each position along them, whatever it is to be called with under `vmap`: `method`
is about the dimensions of a `vmap`, which the program has, and devices are none.
"""

from collections.abc import Iterable, Sequence

from shardir.ir import Block, Op
from shardir.passes.merging.merger import Merger, Rule, Spread, refusal


def _pure_callback(merger: Merger, op: Op) -> Sequence[Spread]:
    atoms = merger.union(op.operands)
    operands = [merger.whole(value, atoms) for value in op.operands]
    types = tuple(merger.type(value.type, atoms) for value in op.results)
    attrs = dict(op.attrs)
    if atoms:
        attrs["batch"] = attrs.get("batch", 0) + len(atoms)
    made = merger.b.emit(op.spec, *operands, result=types[0] if len(types) == 1 else types, **attrs)
    return [Spread(value, atoms) for value in (made if isinstance(made, tuple) else (made,))]


def check_no_callback(blocks: Iterable[Block]) -> None:
    """Raise `MergeError` for a callback in blocks that only some of the devices go through."""
    for block in blocks:
        for op in block.ops:
            if op.name == "pure-callback":
                raise refusal(op, "is called on some of the devices only")
            check_no_callback(op.blocks)


RULES: dict[str, Rule] = {"pure-callback": _pure_callback}
