"""Let small collectives travel together: one message instead of many.

before: `%a = all-reduce(%p, axes=[x], op=add)`, `%b = all-reduce(%q, axes=[x], op=add)`
after:  the elements of `%p` and `%q` in one row, one all-reduce of it, and the row apart again

The bytes sent are the same, the messages fewer, and what that costs is copying. A collective waits
for others of its kind until one of its results is needed or there are enough bytes. Results of the
same element type, along the same axes, travel together.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import prod

from shardir.build import Builder, Names
from shardir.ir import Block, Function, Module, Op, Value
from shardir.opset import OPS
from shardir.passes.pipeline import Pass
from shardir.passes.program import names_of
from shardir.types import TensorType

KINDS = ("all-reduce", "all-gather")


@dataclass(frozen=True)
class Combine(Pass, name="combine"):
    """Join all-reduces, and all-gathers, until together they have `limit` bytes.

    Bytes are those of the results on one device. A collective that has as many by itself travels
    alone.
    """

    limit: int = 1 << 22

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(self.function, module.functions)))

    def function(self, function: Function) -> Function:
        if function.spmd is None:
            return function
        return replace(function, body=self.block(function.body, names_of(function)))

    def block(self, block: Block, names: Names) -> Block:
        made: list[Op] = []
        waiting: dict[Hashable, _Group] = {}
        owner: dict[Value, Hashable] = {}

        def send(key: Hashable) -> None:
            made.extend(waiting.pop(key).together(names))

        for op in block.ops:
            if op.blocks:
                op = replace(op, blocks=tuple(self.block(inner, names) for inner in op.blocks))
            for key in dict.fromkeys(owner[v] for v in op.uses() if v in owner):
                if key in waiting and waiting[key].makes(op):
                    send(key)
            if op.name not in KINDS or op.result.type.nbytes >= self.limit:
                made.append(op)
                continue
            key = (op.name, op.attrs["axes"], op.attrs.get("op"), op.result.type.dtype)
            if key in waiting and waiting[key].nbytes + op.result.type.nbytes > self.limit:
                send(key)
            waiting.setdefault(key, _Group()).ops.append(op)
            owner[op.result] = key
        for key in list(waiting):
            send(key)
        return replace(block, ops=tuple(made))


@dataclass
class _Group:
    """Collectives of one kind that wait for one another."""

    ops: list[Op] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(op.result.type.nbytes for op in self.ops)

    def makes(self, user: Op) -> bool:
        """Whether a result of the group is needed."""
        results = {op.result for op in self.ops}
        return any(value in results for value in user.uses())

    def together(self, names: Names) -> list[Op]:
        """The group as one collective, with what takes its results apart."""
        if len(self.ops) == 1:
            return self.ops
        first = self.ops[0]
        b = Builder(names, first.loc)
        b.why = f"{len(self.ops)} of them together: " + "; ".join(
            dict.fromkeys(op.why for op in self.ops if op.why)
        )
        rows = [_row(b, op.operands[0]) for op in self.ops]
        sizes = [row.type.size for row in rows]
        joined = b.concatenate(*rows, dim=1, name=f"{first.result.name}.joined")
        attrs = dict(first.attrs) | ({"dim": 0} if first.name == "all-gather" else {})
        name = f"{first.result.name}.together"
        sent: Value = b.emit(first.spec, joined, name=name, **attrs)
        start = 0
        for op, size in zip(self.ops, sizes, strict=True):
            type = TensorType((sent.type.shape[0], size), sent.type.dtype)
            name = f"{op.result.name}.row"
            part = b.slice(sent, starts=(0, start), strides=(1, 1), result=type, name=name)
            _finish(b, part, op)
            start += size
        return b.ops


def _row(b: Builder, value: Value) -> Value:
    """All elements of a value in one row."""
    type = value.type.with_shape((1, value.type.size))
    row: Value = b.reshape(value, result=type, name=f"{value.name}.row")
    return row


def _finish(b: Builder, part: Value, op: Op) -> None:
    """Rows of one collective's elements as its result: for a gather, one row a device."""
    b.loc, b.why = op.loc, op.why
    local = op.operands[0].type.shape
    if op.name == "all-gather":
        dim, count = op.attrs["dim"], prod(axis.size for axis in op.attrs["axes"])
        pieces = b.reshape(part, result=part.type.with_shape((count, *local)))
        order = (*range(1, dim + 1), 0, *range(dim + 1, len(local) + 1))
        part = b.transpose(pieces, perm=order)
    b.append(Op(OPS["reshape"], (part,), (op.result,), {}, (), op.loc, op.why))
