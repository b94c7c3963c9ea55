"""Combine small collectives: one message instead of many.

before: `%a = all-reduce(%p, axes=[x], op=add)`, `%b = all-reduce(%q, axes=[x], op=add)`
after:  `%a.packed = concatenate(%p.row, %q.row, dim=1)`, the elements of `%p` and `%q` in one
        row; `%a.combined = all-reduce(%a.packed, axes=[x], op=add)`; and slices of it, reshaped to
        `%a` and `%b`

The bytes sent are the same in fewer messages, at the cost of copies. A collective is delayed until
one of the combined results is needed or the byte limit is reached. Results of the same element type
along the same axes are combined. Operands of `reduce-scatter` and `all-to-all` have one row per
destination device.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Any

from shardir import ops as specs
from shardir.cost.communication import REQUESTED
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.operation import OPS, Attr
from shardir.ir.sharding import count_positions
from shardir.op_rules.batching import dimension_attributes
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rebuild_device_programs

COMBINED_SPECS = (
    specs.all_reduce,
    specs.all_gather,
    specs.reduce_scatter,
    specs.all_to_all,
    specs.collective_permute,
)


@dataclass(frozen=True)
class CombineCollectives(Pass, name="combine-collectives"):
    """Combine collectives of each kind up to `limit` bytes.

    Bytes are those of the results on one device. A collective of `limit` bytes or more is not
    combined.
    """

    limit: int = 1 << 22

    def __call__(self, module: Module) -> Module:
        return rebuild_device_programs(module, self, self.block)

    def block(self, block: Block, names: UniqueNames) -> Block:
        new_ops: list[Op] = []
        waiting: dict[Hashable, _CollectiveGroup] = {}
        owner: dict[Value, Hashable] = {}

        def send(key: Hashable) -> None:
            new_ops.extend(waiting.pop(key).combine(names))

        for op in block.ops:
            if op.blocks:
                op = replace(op, blocks=tuple(self.block(inner, names) for inner in op.blocks))
            for key in dict.fromkeys(owner[v] for v in op.uses() if v in owner):
                if key in waiting and waiting[key].is_used_by(op):
                    send(key)
            if op.spec not in COMBINED_SPECS or op.result.type.nbytes >= self.limit:
                new_ops.append(op)
                continue
            key = (op.name, op.result.type.dtype, tuple(_common_attributes(op).items()))
            if key in waiting and waiting[key].nbytes + op.result.type.nbytes > self.limit:
                send(key)
            waiting.setdefault(key, _CollectiveGroup()).ops.append(op)
            owner[op.result] = key
        for key in list(waiting):
            send(key)
        return replace(block, ops=tuple(new_ops))


@dataclass
class _CollectiveGroup:
    """Collectives of one kind that are to be combined."""

    ops: list[Op] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(op.result.type.nbytes for op in self.ops)

    def is_used_by(self, user: Op) -> bool:
        """Return whether an operation uses a result of the group."""
        results = {op.result for op in self.ops}
        return any(value in results for value in user.uses())

    def combine(self, names: UniqueNames) -> list[Op]:
        """Return the combined collective and the operations that extract the results."""
        if len(self.ops) == 1:
            return self.ops
        first = self.ops[0]
        b = Builder(names, first.loc)
        b.why = f"{len(self.ops)} of them together: " + "; ".join(
            dict.fromkeys(op.why or REQUESTED for op in self.ops)
        )
        rows = [_flatten_operand(b, op) for op in self.ops]
        sizes = [row.type.shape[1] for row in rows]
        joined = b.concatenate(*rows, dim=1, name=f"{first.result.name}.packed")
        dims: dict[str, Any] = dict(zip(dimension_attributes(first.spec), (0, 1), strict=False))
        name = f"{first.result.name}.combined"
        sent: Value = b.emit(first.spec, joined, name=name, **_common_attributes(first), **dims)
        if first.spec is specs.all_to_all:  # the elements of each device are one row again
            sent = b.reshape(sent, result=joined.type)
        start = 0
        for op, size in zip(self.ops, sizes, strict=True):
            type = sent.type.with_shape((sent.type.shape[0], size))
            name = f"{op.result.name}.row"
            part = b.slice(sent, starts=(0, start), strides=(1, 1), result=type, name=name)
            _unflatten_result(b, part, op)
            start += size
        return b.ops


def _common_attributes(op: Op) -> dict[str, Attr]:
    """Return the attributes that combined collectives have in common: all but dimension indices."""
    dims = dimension_attributes(op.spec)
    return {name: value for name, value in op.attrs.items() if name not in dims}


def _flatten_operand(b: Builder, op: Op) -> Value:
    """Return all elements of the operand in one row, or in one row per destination device."""
    (value,) = op.operands
    name, shape, count = f"{value.name}.row", value.type.shape, 1
    if op.spec in (specs.reduce_scatter, specs.all_to_all):
        dim, count = (
            op.attrs["dim" if "dim" in op.attrs else "split"],
            count_positions(op.attrs["axes"]),
        )
        split_shape = (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :])
        order = (dim, *(i for i in range(len(split_shape)) if i != dim))
        value = b.transpose(b.reshape(value, result=value.type.with_shape(split_shape)), perm=order)
    rows = value.type.with_shape((count, value.type.size // count))
    result: Value = b.reshape(value, result=rows, name=name)
    return result


def _unflatten_result(b: Builder, part: Value, op: Op) -> None:
    """Append the reshape (and transpose) of a slice of the combined result to the result of
    `op`."""
    b.loc, b.why = op.loc, op.why
    if op.spec in (specs.all_gather, specs.all_to_all):
        dim = op.attrs["dim" if "dim" in op.attrs else "concat"]
        count, shape = count_positions(op.attrs["axes"]), op.result.type.shape
        local = (*shape[:dim], shape[dim] // count, *shape[dim + 1 :])
        pieces = b.reshape(part, result=part.type.with_shape((count, *local)))
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(local) + 1))
        part = b.transpose(pieces, perm=order)
    b.append(Op(OPS["reshape"], (part,), (op.result,), {}, (), op.loc, op.why))
