"""Which values inside a manual computation may differ from device to device.

What comes in cut along an axis varies along it, what depends on it varies, and a sum over the axis
does not. From that follows whether a result may be said to be the same everywhere, and what the
gradient of a function is that runs inside: a value that does not vary is one value that the
devices share. Its cotangent is one too, namely the sum of what it is on each device for whom it
became a value of its own. `shared` makes that explicit before differentiation: it puts `vary`
where a shared value meets one that varies, and marks sums as shared.

before: `%y = mul(%w, %x)`, where `%x` varies along `a` and `%w` does not
after:  `%w.each = vary(%w, axes=[a])`, `%y = mul(%w.each, %x)`
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardir.build import Builder, Names
from shardir.ir import Block, Function, Op, Value
from shardir.placement import Axes, Axis

Varying = frozenset[Axis]
NONE: Varying = frozenset()
OWN = ("custom-jvp", "custom-vjp")
"""Regions whose derivatives are the user's: they know of one device only."""


def varying(block: Block, known: Mapping[Value, Varying]) -> dict[Value, Varying]:
    """Along which axes each value of a block, and of the blocks inside it, may vary.

    `known` says it of parameters and of what the block uses from outside; of others it is none.
    """
    found = dict(known)
    _sweep(block, found)
    return found


def _union(values: Sequence[Value], found: Mapping[Value, Varying]) -> Varying:
    return NONE.union(*(found.get(value, NONE) for value in values))


def _sweep(block: Block, found: dict[Value, Varying]) -> None:
    for op in block.ops:
        if op.name == "manual_computation":
            _manual(op, found)
        elif op.edges():
            _around(op, found)
        elif op.blocks:
            _inside(op, found)
        elif op.name == "optimization_barrier":
            for result, value in zip(op.results, op.operands, strict=True):
                found[result] = found.get(value, NONE)
        else:
            axes = _along(op)
            made = _union(op.operands, found)
            made = made - axes if op.name == "all-reduce" else made | axes
            found.update(dict.fromkeys(op.results, made))


def _along(op: Op) -> Varying:
    return frozenset(op.attrs["axes"]) if op.spec.spmd else NONE


def _around(op: Op, found: dict[Value, Varying]) -> None:
    """Loops and branches: what goes round varies if it does anywhere on its way."""
    deciding = [value for value in op.operands if value.type.rank == 0 and op.name == "case"]
    while True:
        before = dict(found)
        for edge in op.edges():
            made = _union((*edge.sources, *edge.targets, *deciding), found)
            found.update(dict.fromkeys((*edge.targets, *edge.stacked), made))
        for block in op.blocks:
            _sweep(block, found)
        if op.name == "while":
            # Devices that stop at different times have different results.
            going = found.get(op.blocks[0].returns[0], NONE)
            for result in op.results:
                found[result] = found.get(result, NONE) | going
        if found == before:
            return


def _inside(op: Op, found: dict[Value, Varying]) -> None:
    """Any other operation with blocks: their parameters are its operands."""
    made = _union(tuple(op.uses()), found)
    for block in op.blocks:
        if len(block.params) == len(op.operands):
            for param, value in zip(block.params, op.operands, strict=True):
                found[param] = found.get(value, NONE)
        else:
            found.update(dict.fromkeys(block.params, made))
        _sweep(block, found)
    first = op.blocks[0]
    if len(first.params) == len(op.operands) and len(first.returns) == len(op.results):
        for result, value in zip(op.results, first.returns, strict=True):
            found[result] = found.get(value, NONE)
    else:
        found.update(dict.fromkeys(op.results, made))


def _manual(op: Op, found: dict[Value, Varying]) -> None:
    (body,) = op.blocks
    own = frozenset(op.attrs["axes"])
    for param, value, cuts in zip(body.params, op.operands, op.attrs["in_axes"], strict=True):
        cut = frozenset(axis for dim in cuts for axis in dim)
        found[param] = found.get(value, NONE) | cut
    _sweep(body, found)
    for result, value in zip(op.results, body.returns, strict=True):
        found[result] = found.get(value, NONE) - own


def shared(
    function: Function, known: Mapping[Value, Varying], axes: Axes, names: Names
) -> Function:
    """The function, in which it shows where values that the devices along `axes` share become
    values of each of them. These get names of `names`."""
    found = varying(function.body, known)
    return replace(function, body=_Sharing(found, axes, names).block(function.body))


class _Sharing:
    def __init__(self, found: Mapping[Value, Varying], axes: Axes, names: Names) -> None:
        self.found, self.axes, self.names = found, axes, names

    def block(self, block: Block) -> Block:
        b = Builder(self.names)
        for op in block.ops:
            b.loc, b.why = op.loc, op.why
            self.op(op, b)
        return Block(block.params, tuple(b.ops), block.returns)

    def op(self, op: Op, b: Builder) -> None:
        if op.blocks:
            inner = tuple(map(self.block, op.blocks))
            if op.name in OWN:
                wanted = _union(op.operands, self.found)
                op = replace(op, operands=self.each(op.operands, wanted, b), blocks=inner)
            elif op.edges():
                op = self.loop(replace(op, blocks=inner), b)
            else:
                op = replace(op, blocks=inner)
        elif op.name == "all-reduce":
            wanted = self.found.get(op.operands[0], NONE) | frozenset(op.attrs["axes"])
            attrs = {**op.attrs}
            if all(axis in self.axes for axis in op.attrs["axes"]):
                attrs["shared"] = True
            op = replace(op, operands=self.each(op.operands, wanted, b), attrs=attrs)
        elif op.name not in ("vary", "optimization_barrier"):
            wanted = _union(op.operands, self.found) | _along(op)
            op = replace(op, operands=self.each(op.operands, wanted, b))
        b.append(op)

    def loop(self, op: Op, b: Builder) -> Op:
        """Carried values vary before the first round if they do after it."""
        wants: dict[Value, Varying] = {}
        for edge in op.edges():
            target = self.found.get(edge.targets[0], NONE)
            wants.update(dict.fromkeys(edge.sources, target))
        operands = tuple(self.one(v, wants.get(v, NONE), b) for v in op.operands)
        blocks = []
        for block in op.blocks:
            inner = Builder(self.names, b.loc)
            returns = [self.one(v, wants.get(v, NONE), inner) for v in block.returns]
            blocks.append(Block(block.params, (*block.ops, *inner.ops), tuple(returns)))
        return replace(op, operands=operands, blocks=tuple(blocks))

    def each(self, values: Sequence[Value], wanted: Varying, b: Builder) -> tuple[Value, ...]:
        return tuple(self.one(value, wanted, b) for value in values)

    def one(self, value: Value, wanted: Varying, b: Builder) -> Value:
        missing = wanted - self.found.get(value, NONE)
        axes = tuple(axis for axis in self.axes if axis in missing)
        if not axes:
            return value
        made: Value = b.vary(value, axes=axes, name=f"{value.name}.each")
        return made


def without_sharing(block: Block) -> Block:
    """The block without what `shared` made explicit, for it is of no use any more."""
    new: dict[Value, Value] = {}

    def rebuilt(block: Block) -> Block:
        ops = []
        for op in block.ops:
            operands = tuple(new.get(v, v) for v in op.operands)
            if op.name == "vary":
                new[op.result] = operands[0]
                continue
            attrs = op.attrs
            if "shared" in attrs and op.name == "all-reduce":
                attrs = {name: attr for name, attr in attrs.items() if name != "shared"}
            blocks = tuple(map(rebuilt, op.blocks))
            ops.append(replace(op, operands=operands, attrs=attrs, blocks=blocks))
        return Block(block.params, tuple(ops), tuple(new.get(v, v) for v in block.returns))

    return rebuilt(block)
