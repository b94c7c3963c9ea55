"""Collectives in two levels: inside of processes, and between them.

before: `%g = all-reduce(%p, axes=[data], op=add)`, where two processes have four devices each
after:  `%g.near = all-reduce(%p, axes=[data:(2)4], op=add)`
        `%g = all-reduce(%g.near, axes=[data:(1)2], op=add)`

What devices of one process have for one another is a matter of memory; between processes one
message says it for all of them. A sum of floating-point numbers of which a process would receive
little is gathered and added up in the order of the devices, as one process does it, so that it has
the same bits on any number of processes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from shardir.build import Builder
from shardir.groups import groups, positions, senders
from shardir.ir import Block, Function, Module, Op, Value
from shardir.levels import Levels, in_one
from shardir.ops.check import Ints
from shardir.ops.overlap import STARTED, is_started, kind_of
from shardir.opset import OPS
from shardir.passes.merge_devices import mesh_of_devices
from shardir.passes.merging.arrange import rows
from shardir.passes.pipeline import Pass
from shardir.passes.program import names_of
from shardir.placement import Axes
from shardir.types import COMPLEX, FLOATS

SUMS = {"add": "sum", "mul": "prod"}
"""Reductions whose results depend on their order, and what they are over a dimension."""


@dataclass(frozen=True)
class TwoLevels(Pass, name="two-levels"):
    """Split each collective into one inside of processes and one between them.

    `across` says into how many blocks each axis of the mesh is cut, with one block for each
    process: `data:2/model:1`. With `at`, the program is that of the process at this place,
    `data:1/model:0`, where its devices stand along the axes is known. Sums of floating-point
    numbers are added up in the order of the devices where a process receives at most `small`
    bytes for that.

    Raises `MergeError` where the blocks do not fit the parts of axes that a program uses.
    """

    across: str = ""
    at: str = ""
    small: int = 1 << 16

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(self._function(f, module) for f in module.functions))

    def _function(self, function: Function, module: Module) -> Function:
        if function.spmd is None:
            return function
        levels = Levels.parse(mesh_of_devices(function, module), self.across, self.at)
        splitter = _Splitter(Builder(names_of(function)), levels, self.small)
        return replace(function, body=splitter.block(function.body))


class _Splitter:
    """Grows a block in `b`."""

    def __init__(self, b: Builder, levels: Levels, small: int) -> None:
        self.b, self.levels, self.small = b, levels, small

    def block(self, block: Block) -> Block:
        """The block with its collectives split."""
        inner = _Splitter(self.b.inner(), self.levels, self.small)
        new: dict[Value, Value] = {}
        there: set[Value] = set()
        for op in block.ops:
            if any(value in new for value in op.operands):
                op = replace(op, operands=tuple(new.get(v, v) for v in op.operands))
            if op.name == "done" and op.operands[0] in there:
                new[op.result] = op.operands[0]
            elif not inner.split(op):
                there.add(op.result)
        returns = tuple(new.get(value, value) for value in block.returns)
        return Block(block.params, tuple(inner.b.ops), returns)

    def split(self, op: Op) -> bool:
        """Append an operation; false where its result was started and now comes at once."""
        b, rule = self.b, RULES.get(kind_of(op))
        if op.blocks:
            op = replace(op, blocks=tuple(map(self.block, op.blocks)))
        if rule is None or not self.concerns(op):
            b.append(op)
            return True
        b.loc, b.why = op.loc, op.why
        start = len(b.ops)
        made = rule(self, op)
        if len(b.ops) == start:
            b.reshape(made, result=made.type)
        last = b.ops[-1]
        started = is_started(op) and self.is_between(last)
        spec = STARTED[last.spec] if started else last.spec
        b.ops[-1] = replace(last, spec=spec, results=op.results)
        return started or not is_started(op)

    def concerns(self, op: Op) -> bool:
        """Whether an operation is about several levels, or about places that are known."""
        axes = (*op.attrs.get("axes", ()), *op.attrs.get("source", ()), *op.attrs.get("target", ()))
        far = bool(self.levels.far(axes))
        if op.name in PLACED:
            return far and (self.levels.place is not None or bool(self.levels.near(axes)))
        return far and bool(self.levels.near(axes))

    def is_between(self, op: Op) -> bool:
        """Whether it is a collective between processes."""
        axes = op.attrs.get("axes", ())
        return op.spec in STARTED and bool(self.levels.far(axes))

    def name(self, op: Op, run: Axes) -> str:
        """What the part of a collective along axes of one level is called."""
        return f"{op.result.name}.{'far' if self.levels.is_far(run[0]) else 'near'}"

    # Steps that several collectives are made of

    def gather(self, op: Op, x: Value, dim: int) -> Value:
        """The pieces of all positions along the axes of `op`, the minor ones first."""
        for run in reversed(self.levels.runs(op.attrs["axes"])):
            x = self.b.all_gather(x, dim=dim, axes=run, name=self.name(op, run))
        return x

    def cut(self, x: Value, dim: int, run: Axes) -> Value:
        """Each device's piece of what all along a run of one level have."""
        if self.levels.place is None or not self.levels.is_far(run[0]):
            made: Value = self.b.all_slice(x, dim=dim, axes=run, name=f"{x.name}.piece")
            return made
        size = x.type.shape[dim] // prod(axis.size for axis in run)
        return rows(self.b, x, dim, self.levels.position(run) * size, size)

    def total(self, op: Op, x: Value) -> Value | None:
        """What all devices along the axes have, combined in their order; `None` where every order
        gives the same, or too much would be received."""
        kind, axes, type = op.attrs["op"], op.attrs["axes"], x.type
        if kind not in SUMS or type.dtype not in (*FLOATS, *COMPLEX):
            return None
        far, near = (prod(axis.size for axis in each) for each in self.sides(axes))
        if (far - 1) * near * type.nbytes > self.small:
            return None
        row = self.b.reshape(x, result=type.with_shape((1, *type.shape)), name=f"{x.name}.row")
        parts = self.gather(op, row, 0)
        made: Value = self.b.emit(OPS[SUMS[kind]], parts, dims=(0,), name=f"{op.result.name}.all")
        return made

    def sides(self, axes: Axes) -> tuple[Axes, Axes]:
        """The far and the near parts of axes."""
        return self.levels.far(axes), self.levels.near(axes)

    def halved(self, op: Op, x: Value, combine: Callable[[Value], Value]) -> Value:
        """`combine` of the parts that are combined inside of processes already, which keep more
        than 16 bits between the two."""
        near, kind, type = self.sides(op.attrs["axes"])[1], op.attrs["op"], x.type
        wide = kind in SUMS and type.dtype in FLOATS and type.numpy.itemsize == 2
        if wide:
            x = self.b.convert(x, result=type.with_dtype("f32"), name=f"{x.name}.wide")
        made = combine(self.b.all_reduce(x, axes=near, op=kind, name=self.name(op, near)))
        if wide:
            made = self.b.convert(made, result=made.type.with_dtype(type.dtype))
        return made


# Collectives


def _all_reduce(splitter: _Splitter, op: Op) -> Value:
    b, kind = splitter.b, op.attrs["op"]
    far = splitter.levels.far(op.attrs["axes"])
    made = splitter.total(op, op.operands[0])
    if made is None:
        made = splitter.halved(
            op,
            op.operands[0],
            lambda near: b.all_reduce(near, axes=far, op=kind, name=splitter.name(op, far)),
        )
    return made


def _reduce_scatter(splitter: _Splitter, op: Op) -> Value:
    dim, kind, levels = op.attrs["dim"], op.attrs["op"], splitter.levels
    runs = levels.runs(op.attrs["axes"])

    def scattered(made: Value) -> Value:
        for run in runs:
            if levels.is_far(run[0]):
                name = splitter.name(op, run)
                made = splitter.b.reduce_scatter(made, dim=dim, axes=run, op=kind, name=name)
            else:
                made = splitter.cut(made, dim, run)
        return made

    total = splitter.total(op, op.operands[0])
    if total is None:
        return splitter.halved(op, op.operands[0], scattered)
    for run in runs:
        total = splitter.cut(total, dim, run)
    return total


def _all_gather(splitter: _Splitter, op: Op) -> Value:
    return splitter.gather(op, op.operands[0], op.attrs["dim"])


def _all_slice(splitter: _Splitter, op: Op) -> Value:
    made = op.operands[0]
    for run in splitter.levels.runs(op.attrs["axes"]):
        made = splitter.cut(made, op.attrs["dim"], run)
    return made


def _all_to_all(splitter: _Splitter, op: Op) -> Value:
    """Each run of axes swaps a part of the one dimension for a part of the other."""
    (x,), b = op.operands, splitter.b
    runs = splitter.levels.runs(op.attrs["axes"])
    sizes = tuple(prod(axis.size for axis in run) for run in runs)
    split, concat = op.attrs["split"], op.attrs["concat"]
    shape: list[int] = []
    starts: dict[int, int] = {}
    for dim, size in enumerate(x.type.shape):
        starts[dim] = len(shape)
        if dim == split:
            shape += [*sizes, size // prod(sizes)]
        elif dim == concat:
            shape += [*(1 for _ in sizes), size]
        else:
            shape.append(size)
    x = b.reshape(x, result=x.type.with_shape(shape), name=f"{x.name}.parts")
    for i, run in enumerate(runs):
        x = b.all_to_all(
            x,
            split=starts[split] + i,
            concat=starts[concat] + i,
            axes=run,
            name=splitter.name(op, run),
        )
    made: Value = b.reshape(x, result=op.result.type)
    return made


def _collective_permute(splitter: _Splitter, op: Op) -> Value:
    """Axes that are renamed become pairs of positions along all of them."""
    levels, b = splitter.levels, splitter.b
    if "pairs" in op.attrs:
        axes, pairs = op.attrs["axes"], op.attrs["pairs"]
    else:
        source, target = op.attrs["source"], op.attrs["target"]
        parts = levels.split((*source, *target))
        axes = in_one(dict.fromkeys(axis for axis in parts if axis.size > 1))
        if any(a is not b and a.overlaps(b) for a in axes for b in axes):
            return _whole_permute(splitter, op)
        pairs = _pairs(levels, axes, source, target)
    made: Value = b.collective_permute(op.operands[0], axes=axes, pairs=pairs)
    return made


def _whole_permute(splitter: _Splitter, op: Op) -> Value:
    """A permute along whole axes, parts of which it names in several ways."""
    levels, b = splitter.levels, splitter.b
    source, target = op.attrs["source"], op.attrs["target"]
    names = dict.fromkeys(axis.name for axis in (*source, *target))
    axes = tuple(levels.whole(name) for name in names)
    pairs = _pairs(levels, axes, source, target)
    made: Value = b.collective_permute(op.operands[0], axes=axes, pairs=pairs)
    return made


def _pairs(levels: Levels, axes: Axes, source: Axes, target: Axes) -> tuple[Ints, ...]:
    """From where to where along `axes` things go that move from `source` to `target`."""
    mesh = levels.mesh
    place, sender = positions(mesh, axes), senders(mesh, source, target)
    group = groups(mesh, axes)[0]
    found = ((int(place[sender[device]]), int(place[device])) for device in group)
    return tuple(sorted(found))


def _axis_index(splitter: _Splitter, op: Op) -> Value:
    """The position along all axes, from those along the axes of each level."""
    b, levels, type = splitter.b, splitter.levels, op.result.type
    known, step = 0, 1
    terms: list[Value] = []
    for run in reversed(levels.runs(op.attrs["axes"])):
        if levels.place is not None and levels.is_far(run[0]):
            known += step * levels.position(run)
        else:
            index = b.axis_index(axes=run, name=splitter.name(op, run))
            terms.append(index if step == 1 else b.mul(index, b.full(step, type)))
        step *= prod(axis.size for axis in run)
    if known or not terms:
        terms.append(b.full(known, type))
    return reduce(b.add, terms)


RULES: dict[str, Callable[[_Splitter, Op], Value]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "collective-permute": _collective_permute,
    "all-slice": _all_slice,
    "axis-index": _axis_index,
}
PLACED = ("all-slice", "axis-index")
"""Operations that depend on where a device is, and on nothing else of the mesh."""
