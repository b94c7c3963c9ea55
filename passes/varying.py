"""Inference of varying manual axes: along which axes each value of a program may vary.

What comes in sharded along an axis varies along it, and each operation says what its results do
(`shardir.vma`). Control flow adds two rules. What goes round a loop varies if it does anywhere on
its way. What is computed in a branch or a round that only some devices along an axis take varies
along that axis, whatever it is computed of.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from shardir.ir import Block, Op, Value
from shardir.placement import Axes, Axis
from shardir.vma import NONE, Varying, Vma, joined


def varying(
    block: Block, known: Mapping[Value, Varying], axes: Axes, within: Varying = NONE
) -> dict[Value, Varying]:
    """Along which axes each value of a block, and of the blocks inside it, may vary.

    `axes` are the manual axes around the block. `known` says it of parameters and of what the block
    uses from outside; of others it is none. Only some devices along `within` run the block.
    """
    found = dict(known)
    infer(block.ops, found, axes, within)
    return found


def infer(
    ops: Sequence[Op], found: dict[Value, Varying], axes: Axes, within: Varying = NONE
) -> None:
    """Add to `found` what the results of operations vary along; see `varying`."""
    _Inference(found, axes).sweep(ops, within)


def vma_of(op: Op, operands: Sequence[Varying], axes: Axes) -> Vma:
    """The rule of an operation without blocks, applied.

    Communication along a part of one of the `axes`, among groups of devices, leaves values that
    vary along the whole of it.
    """
    rule = op.spec.vma or joined
    named = [*op.attrs.get("axes", ()), *op.attrs.get("source", ()), *op.attrs.get("target", ())]
    if not op.spec.spmd or all(axis in axes for axis in named):
        return rule(operands, **op.attrs)
    parts = [axis for axis in named if any(axis != a and a.overlaps(axis) for a in axes)]
    cut = frozenset(a for a in axes if any(a.overlaps(axis) for axis in parts))
    made = rule([operand | cut for operand in operands], **op.attrs)
    gone = frozenset(parts)
    return Vma(tuple(each - gone for each in made.operands), made.results - gone)


def depending(block: Block, params: Sequence[Value]) -> set[Value]:
    """The values of a block that depend on any of its parameters given, in whatever way."""
    mark = frozenset((Axis("dependent", 1, 1),))
    found = varying(block, dict.fromkeys(params, mark), ())
    return {value for value, marks in found.items() if marks >= mark}


def union(values: Sequence[Value], found: Mapping[Value, Varying]) -> Varying:
    """Along which axes any of the values varies."""
    return NONE.union(*(found.get(value, NONE) for value in values))


def decision(op: Op, found: Mapping[Value, Varying]) -> Varying:
    """Along which axes devices go different ways through the blocks of an operation."""
    if op.name == "case":
        return union(op.operands[:1], found)
    return union(op.blocks[0].returns, found) if op.name == "while" else NONE


class _Inference:
    """Grows `found` until nothing changes."""

    def __init__(self, found: dict[Value, Varying], axes: Axes) -> None:
        self.found, self.axes = found, axes

    def sweep(self, ops: Sequence[Op], within: Varying) -> None:
        found = self.found
        for op in ops:
            if op.name == "manual_computation":
                self.manual(op, within)
            elif op.edges():
                self.around(op, within)
            elif op.blocks:
                self.inside(op, within)
            else:
                varies = [found.get(value, NONE) for value in op.operands]
                made = vma_of(op, varies, self.axes).results
                found.update(dict.fromkeys(op.results, made | within))

    def around(self, op: Op, within: Varying) -> None:
        """What flows along the edges into, round and out of blocks."""
        found = self.found
        watched = (*op.results, *chain.from_iterable(block.params for block in op.blocks))
        before = None
        while True:
            here = within | decision(op, found)
            for edge in op.edges():
                made = union((*edge.sources, *edge.targets), found) | here
                found.update(dict.fromkeys(edge.targets, made))
            for block in op.blocks:
                self.sweep(block.ops, here)
            now = (decision(op, found), [found.get(value) for value in watched])
            if now == before:
                return
            before = now

    def inside(self, op: Op, within: Varying) -> None:
        """Any other operation with blocks: its results vary as all that it uses."""
        made = union(tuple(op.uses()), self.found) | within
        for block in op.blocks:
            self.found.update(dict.fromkeys(block.params, made))
            self.sweep(block.ops, within)
        self.found.update(dict.fromkeys(op.results, made))

    def manual(self, op: Op, within: Varying) -> None:
        (body,) = op.blocks
        found, own = self.found, op.attrs["axes"]
        for param, value, cuts in zip(body.params, op.operands, op.attrs["in_axes"], strict=True):
            found[param] = found.get(value, NONE) | along(cuts) | within
        _Inference(found, (*self.axes, *own)).sweep(body.ops, within)
        for result, value in zip(op.results, body.returns, strict=True):
            found[result] = found.get(value, NONE) - frozenset(own)


def along(cuts: Iterable[Axes]) -> Varying:
    """The axes that shard a tensor, from those of each dimension."""
    return frozenset(axis for dim in cuts for axis in dim)
