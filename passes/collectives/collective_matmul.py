"""Collective matmul: decompose a gather before, or a reduce-scatter after, a contraction into a
ring.

before: `%g = all-gather(%x, dim=0, axes=[x])`, `%y = dot(%g, %w, dims="bi,io->bo")`
after:  a loop over the devices along `x`, `%8, %9, %10 = scan(%x, %0, %y.index, ...)`. It
        multiplies the local shard, `%y.partial = dot(%x.1, %w, dims="bi,io->bo")`, sends it to the
        next device and receives one from the previous device,
        `%x.1.next = collective-permute(%x.1, ...)`. The products are the rows of `%y`.

before: `%p = dot(%x, %w, dims="bi,io->bo")`, `%y = reduce-scatter(%p, dim=0, axes=[x], op=add)`
after:  a loop, `%y, %16 = scan(%y.partial, %y.index.next, ...)`, in which a partial sum for each
        device passes through the ring, `%y.received = collective-permute(%y.partial.1, ...)`, and
        every device adds its contribution, `%14 = add(%y.received, %y.partial.2)`

The bytes sent are those of the collective, in as many steps as there are devices; with a following
`overlap`, the steps run while the device multiplies. The pass is optional: loops of small
products are slower than one large product. The algorithm is that of "Overlap Communication with
Dependent Computation via Decomposition" (Wang et al., ASPLOS 2023).
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from shardir import ops as specs
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.sharding import Axes, count_positions
from shardir.ir.types import TensorType
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rebuild_device_programs


@dataclass(frozen=True)
class CollectiveMatmul(Pass, name="collective-matmul"):
    """Decompose gathers before contractions, and reduce-scatters after them, into rings.

    Tensors of fewer than `minimum` bytes (after the gather, or before the scatter) are not
    decomposed.
    """

    minimum: int = 1 << 20

    def __call__(self, module: Module) -> Module:
        return rebuild_device_programs(module, self, self.block)

    def block(self, block: Block, names: UniqueNames) -> Block:
        uses = Counter(value for op in block.ops for value in op.uses())
        uses.update(block.returns)
        definitions = {value: op for op in block.ops for value in op.results}
        taken: set[Op] = set()
        rings: dict[Op, tuple[Op, Op]] = {}
        for op in block.ops:
            pair = self.match_gather(op, definitions, uses) or self.match_scatter(
                op, definitions, uses
            )
            if pair and pair[0] not in taken:
                taken.update(pair)
                rings[op] = pair
        ops: list[Op] = []
        for op in block.ops:
            if op in rings:
                first, second = rings[op]
                ring = _gather_ring if first.spec is specs.all_gather else _scatter_ring
                ops.extend(ring(first, second, names))
            elif op not in taken:
                inner = tuple(self.block(each, names) for each in op.blocks)
                ops.append(replace(op, blocks=inner) if inner else op)
        return replace(block, ops=tuple(ops))

    def match_gather(
        self, op: Op, definitions: dict[Value, Op], uses: Counter[Value]
    ) -> tuple[Op, Op] | None:
        """Return the gather before a contraction and the contraction if the gather has no other
        use."""
        if op.spec is not specs.dot:
            return None
        for value in op.operands:
            gather = definitions.get(value)
            if (
                gather is not None
                and gather.spec is specs.all_gather
                and uses[value] == 1
                and value.type.nbytes >= self.minimum
                and count_positions(gather.attrs["axes"]) > 1
                and _is_gathered_dim_kept(gather, op)
            ):
                return gather, op
        return None

    def match_scatter(
        self, op: Op, definitions: dict[Value, Op], uses: Counter[Value]
    ) -> tuple[Op, Op] | None:
        """Return the contraction before a reduce-scatter and the scatter if the contraction has no
        other use."""
        if op.spec is not specs.reduce_scatter or op.attrs["op"] != "add":
            return None
        (value,) = op.operands
        dot = definitions.get(value)
        if dot is None or dot.spec is not specs.dot or uses[value] != 1:
            return None
        if count_positions(op.attrs["axes"]) == 1 or value.type.nbytes < self.minimum:
            return None
        return dot, op


def _is_gathered_dim_kept(gather: Op, dot: Op) -> bool:
    """Return whether the result of the contraction has the gathered dimension.

    If the dimension is reduced, every device would begin the sum with its own shard, and the
    addition order would differ between replicas that must be equal.
    """
    inputs, output = dot.attrs["dims"].split("->")
    word = inputs.split(",")[dot.operands.index(gather.result)]
    return word[gather.attrs["dim"]] in output


def _gather_ring(gather: Op, dot: Op, names: UniqueNames) -> list[Op]:
    """Return the contraction of a gathered operand as a loop over its shards."""
    axes: Axes = gather.attrs["axes"]
    count = count_positions(gather.attrs["axes"])
    inputs, output = dot.attrs["dims"].split("->")
    letters = inputs.split(",")
    side = dot.operands.index(gather.result)
    letter = letters[side][gather.attrs["dim"]]
    (piece,), other, result = gather.operands, dot.operands[1 - side], dot.result
    sliced = letters[1 - side].find(letter)
    at = output.index(letter)
    size = piece.type.shape[gather.attrs["dim"]]
    b = _builder(dot, names)

    def step(b: Builder, piece: Value, total: Value, position: Value) -> Value:
        """Return the total with the product of one shard inserted."""
        start = b.mul(position, b.full(size, position.type))
        rest = other if sliced < 0 else _slice_dim(b, other, sliced, start, size)
        pair = (piece, rest) if side == 0 else (rest, piece)
        part = b.dot(
            *pair,
            dims=dot.attrs["dims"],
            result=_with_dim_size(result.type, at, size),
            name=f"{result.name}.partial",
        )
        starts = _starts(b, part, at, start)
        output: Value = b.dynamic_update_slice(
            total, part, *starts, name=f"{result.name}.accumulator"
        )
        return output

    position = b.axis_index(axes=axes, name=f"{result.name}.index")
    total = b.full(0, result.type)
    pairs = tuple(((i + 1) % count, i) for i in range(count))

    def body(b: Builder, piece: Value, total: Value, position: Value) -> list[Value]:
        name = f"{piece.name}.next"
        following = b.collective_permute(piece, axes=axes, pairs=pairs, name=name)
        return [
            following,
            step(b, piece, total, position),
            _next_ring_position(b, position, 1, count),
        ]

    piece, total, position = _emit_loop(b, count - 1, [piece, total, position], body)
    total = step(b, piece, total, position)
    return [*b.ops[:-1], replace(b.ops[-1], results=(result,))]


def _scatter_ring(dot: Op, scatter: Op, names: UniqueNames) -> list[Op]:
    """Return the reduce-scattered contraction as a loop in which partial sums pass through the
    ring."""
    axes: Axes = scatter.attrs["axes"]
    count = count_positions(scatter.attrs["axes"])
    inputs, output = dot.attrs["dims"].split("->")
    letters = inputs.split(",")
    dim, result = scatter.attrs["dim"], scatter.result
    size = result.type.shape[dim]
    b = _builder(scatter, names)

    def part(b: Builder, position: Value) -> Value:
        """Return this device's contribution to the sum for the device at `position`."""
        start = b.mul(position, b.full(size, position.type))
        pair = [
            _slice_dim(b, value, word.index(output[dim]), start, size)
            if output[dim] in word
            else value
            for value, word in zip(dot.operands, letters, strict=True)
        ]
        new_value: Value = b.dot(
            *pair, dims=dot.attrs["dims"], result=result.type, name=f"{result.name}.partial"
        )
        return new_value

    here = b.axis_index(axes=axes, name=f"{result.name}.index")
    position = _next_ring_position(b, here, count - 1, count)
    total = part(b, position)
    pairs = tuple((i, (i + 1) % count) for i in range(count))

    def body(b: Builder, total: Value, position: Value) -> list[Value]:
        name = f"{result.name}.received"
        arriving = b.collective_permute(total, axes=axes, pairs=pairs, name=name)
        position = _next_ring_position(b, position, count - 1, count)
        return [b.add(arriving, part(b, position)), position]

    total, position = _emit_loop(b, count - 1, [total, position], body)
    (loop,) = (op for op in b.ops if total in op.results)
    new = replace(loop, results=(result, *loop.results[1:]))
    return [new if op is loop else op for op in b.ops]


def _builder(op: Op, names: UniqueNames) -> Builder:
    b = Builder(names, op.loc)
    b.why = op.why
    return b


def _emit_loop(b: Builder, length: int, carried: list[Value], body: Any) -> list[Value]:
    inner = b.inner()
    inner.why = b.why
    params = [inner.param(value.type, value.name) for value in carried]
    block = inner.block(params, body(inner, *params))
    result = b.emit(
        specs.scan, *carried, blocks=(block,), carries=len(carried), length=length, reverse=False
    )
    return list(result)


def _next_ring_position(b: Builder, position: Value, by: int, count: int) -> Value:
    """Return the ring position `by` devices further."""
    further = b.add(position, b.full(by, position.type))
    result: Value = b.rem(further, b.full(count, position.type), name=f"{position.name}.next")
    return result


def _slice_dim(b: Builder, value: Value, dim: int, start: Value, size: int) -> Value:
    type = _with_dim_size(value.type, dim, size)
    result: Value = b.dynamic_slice(value, *_starts(b, value, dim, start), result=type)
    return result


def _starts(b: Builder, value: Value, dim: int, start: Value) -> list[Value]:
    zero = b.full(0, start.type)
    return [start if i == dim else zero for i in range(value.type.rank)]


def _with_dim_size(type: TensorType, dim: int, size: int) -> TensorType:
    """Return the type with another size along a dimension."""
    return type.with_shape((*type.shape[:dim], size, *type.shape[dim + 1 :]))
