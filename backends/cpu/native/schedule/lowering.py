"""From the operations of a function to items of work between views of buffers.

Every value gets a view. Operations that move nothing give views of their operands; the results of
others go into buffers of their own. A block is told where its results are wanted, and an operation
writes there at once: into the function's results, a loop's carried values, a row of what a scan
stacks up (`targets`). Until the arena is arranged, a view's slot is the number of its buffer.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.native.data import Order, View, packed
from shardir.backends.cpu.native.schedule import control
from shardir.backends.cpu.native.schedule.items import Copy, Item, Work
from shardir.backends.cpu.native.schedule.memory import Buffer, Kind
from shardir.backends.cpu.native.schedule.schedule import Source
from shardir.backends.cpu.native.schedule.views import (
    are_one,
    demanded,
    is_packed,
    order_of,
    restrided,
    seen_through,
)
from shardir.backends.cpu.native.schedule.writing import IN_PLACE
from shardir.ir import Block, Function, Op, Value
from shardir.opset import Dense
from shardir.types import TensorType


def is_map(op: Op) -> bool:
    """Whether each element of the results depends on the same element of the operands only, but
    for operands of other shapes."""
    if op.name != "fused":
        return op.spec.elementwise
    flat = ("broadcast", "reshape", "iota", "constant", "bitcast")
    return all(inner.spec.elementwise or inner.name in flat for inner in op.blocks[0].ops)


class Lowered(NamedTuple):
    """A function as items of work, and the memory that they speak of.

    `types` are those of its results, `sources` says for each of them whose memory it is. `rows` are
    the buffers that show the rows of others, and what they are rows of; `constants` the numbers of
    constant buffers. `pairs` are (position, operand, result) of buffers that may be one.
    """

    items: tuple[Item, ...]
    types: tuple[TensorType, ...]
    buffers: tuple[Buffer, ...]
    constants: tuple[npt.NDArray[np.generic], ...]
    sources: tuple[Source, ...]
    rows: Mapping[int, View]
    pairs: tuple[tuple[int, Buffer, Buffer], ...]


def lower(function: Function, orders: Mapping[str, Order]) -> Lowered:
    """Lower a function that is no per-device program.

    `orders` has for some operations how their results would best lie in memory.
    """
    lowering = Lowering(orders)
    body = function.body
    for i, param in enumerate(body.params):
        lowering.views[param] = lowering.buffer(param, Kind.ARGUMENT, number=i)
        lowering.use(lowering.views[param])
    wanted = [lowering.buffer(v, Kind.RESULT, number=i) for i, v in enumerate(body.returns)]
    items, ends = lowering.block(body, wanted, owned=True)
    held = [lowering.buffers[view.slot] for view in ends]
    return Lowered(
        tuple(items),
        tuple(value.type for value in body.returns),
        tuple(lowering.buffers),
        tuple(lowering.constants),
        tuple((buffer.kind, buffer.number) for buffer in held),
        lowering.rows,
        tuple(lowering.pairs),
    )


class Lowering:
    """What is known on the way: the views of values, buffers, and how many operations ran."""

    def __init__(self, orders: Mapping[str, Order]) -> None:
        self.orders = orders
        self.buffers: list[Buffer] = []
        self.constants: list[npt.NDArray[np.generic]] = []
        self.views: dict[Value, View] = {}
        self.targets: dict[Value, View] = {}
        self.rows: dict[int, View] = {}
        self.pairs: list[tuple[int, Buffer, Buffer]] = []
        self.position = 0

    # Buffers.

    def buffer(
        self,
        value: Value,
        kind: Kind = Kind.ARENA,
        strides: tuple[int, ...] | None = None,
        number: int = 0,
        pinned: bool = False,
    ) -> View:
        """A new buffer for a value; the view of all of it."""
        self.buffers.append(Buffer(kind, value.type.nbytes, number, value.name, pinned=pinned))
        lies = packed(value.type) if strides is None else strides
        return View(len(self.buffers) - 1, 0, value.type.shape, lies, value.type.dtype)

    def use(self, *views: View) -> None:
        """The memory behind the views is alive now."""
        for view in views:
            self.buffers[view.slot].use(self.position)
            if view.slot in self.rows:
                self.use(self.rows[view.slot])

    def hold(self, start: int) -> None:
        """What was there before `start`, and has been used since, is alive now: a loop ends."""
        for buffer in self.buffers:
            if buffer.first < start <= buffer.last:
                buffer.use(self.position)

    # Blocks.

    def block(
        self, block: Block, wanted: Sequence[View], owned: bool = False
    ) -> tuple[list[Item], list[View]]:
        """The items of a block, and where its results are in the end: where they are wanted.

        `owned`: a result may as well be all of an argument, or lie where another result lies.
        """
        makers = {result: op for op in block.ops for result in op.results}
        users: dict[Value, list[Op]] = {}
        for op in block.ops:
            for value in op.uses():
                users.setdefault(value, []).append(op)
        demands = [
            self._demanded(value, view, makers)
            for value, view in zip(block.returns, wanted, strict=True)
        ]
        # A value that is returned twice is made as it lies best, and turned afterwards.
        for value, view in sorted(filter(None, demands), key=lambda each: not is_packed(each[1])):
            self.targets.setdefault(value, view)
        for op in reversed(block.ops):
            if op.name == "concatenate" and op.result in self.targets:
                self._demand_parts(op, users, makers)
            elif op.name == "scatter" and op.result in self.targets:
                found, view = op.operands[0], self.targets[op.result]
                maker = makers.get(found)
                if maker is not None and maker.name == "gather" and users[found] == [op]:
                    self.targets.setdefault(found, view)
        items: list[Item] = []
        for op in block.ops:
            self._op(op, users, items)
        ends = []
        for value, view in zip(block.returns, wanted, strict=True):
            here = self.views[value]
            if are_one(here, view) or (owned and self._may_stand(here)):
                ends.append(here)
                continue
            self.position += 1
            self.use(here, view)
            items.append(Copy(here, view, f"%{value.name} is returned"))
            ends.append(view)
        return items, ends

    def _demanded(
        self, value: Value, view: View, makers: Mapping[Value, Op]
    ) -> tuple[Value, View] | None:
        """What an operation is to write where, so that a value lies where `view` is, if it can."""
        strides: tuple[int, ...] | None = view.strides
        op = makers.get(value)
        while op is not None:
            moved = demanded(op, strides) if strides is not None else None
            if moved is None:
                break
            strides, value = moved, op.operands[0]
            op = makers.get(value)
        makes = op is not None and (op.name not in control.HANDLERS or op.name in control.WRITING)
        if not makes or strides is None:
            return None
        type = value.type
        return value, View(view.slot, view.offset, type.shape, strides, type.dtype)

    def _demand_parts(
        self, op: Op, users: Mapping[Value, Sequence[Op]], makers: Mapping[Value, Op]
    ) -> None:
        """Have what is joined for this concatenation alone joined where it belongs in that."""
        whole, dim, start = self.targets[op.result], op.attrs["dim"], 0
        for value in op.operands:
            maker, shape = makers.get(value), value.type.shape
            if maker is not None and maker.name == "concatenate" and users[value] == [op]:
                offset = whole.offset + start * whole.strides[dim]
                self.targets.setdefault(value, whole._replace(offset=offset, shape=shape))
            start += shape[dim]

    def _may_stand(self, view: View) -> bool:
        """Whether a result may be this view: all of an argument's or of a result's memory."""
        held = self.buffers[view.slot]
        whole = held.kind in (Kind.ARGUMENT, Kind.RESULT) and held.nbytes == view.nbytes
        return whole and view.offset == 0 and is_packed(view)

    # Operations.

    def _op(self, op: Op, users: Mapping[Value, Sequence[Op]], items: list[Item]) -> None:
        self.position += 1
        if op.name in control.HANDLERS:
            items.extend(control.HANDLERS[op.name](self, op))
            return
        if op.name == "constant":
            self._constant(op)
        if op.name == "constant" or not (op.results or op.spec.effect):
            return
        operands = tuple(self.views[value] for value in op.operands)
        wanted = bool(op.results) and op.results[0] in self.targets
        seen = None if wanted else seen_through(op, operands)
        if seen is not None:
            self.views.update(zip(op.results, seen, strict=True))
            return
        if op.name == "reshape":
            self._rearranged(op, operands[0], items)
            return
        results = tuple(self._place(op, value, operands, users) for value in op.results)
        self.views.update(zip(op.results, results, strict=True))
        self.use(*operands, *results)
        items.append(Work(op, operands, results))
        if is_map(op):
            self._pair(operands, results)
        elif op.name in IN_PLACE and all(v.slot != operands[0].slot for v in operands[1:]):
            self._pair(operands[:1], results)

    def _pair(self, operands: Sequence[View], results: Sequence[View]) -> None:
        """Note the results that may be written over an operand, element by element."""
        for result in results:
            for view in operands:
                lies = [(each.shape, each.strides, each.offset) for each in (view, result)]
                alike = lies[0] == lies[1]
                only = all(other == view for other in operands if other.slot == view.slot)
                old, new = self.buffers[view.slot], self.buffers[result.slot]
                if alike and only and old.nbytes == new.nbytes == result.nbytes:
                    self.pairs.append((self.position, old, new))

    def _rearranged(self, op: Op, source: View, items: list[Item]) -> None:
        """A reshape whose operand does not lie evenly is a copy to where it does.

        So is one that is wanted elsewhere than its operand is.
        """
        target = self.targets.get(op.result)
        seen = seen_through(op, (source,))
        if target is not None and seen is not None:
            self.use(source, target)
            self.views[op.result] = target
            items.append(Copy(seen[0], target, f"%{op.result.name} = reshape"))
            return
        reached = target and restrided(target.shape, target.strides, source.shape)
        lies = target if target is not None and reached else self.buffer(op.result)
        strides = reached or restrided(lies.shape, lies.strides, source.shape)
        assert strides is not None, "what is packed can be seen in any shape"
        written = View(lies.slot, lies.offset, source.shape, strides, source.dtype)
        self.use(source, lies)
        self.views[op.result] = lies
        items.append(Copy(source, written, f"%{op.result.name} = reshape"))

    def _constant(self, op: Op) -> None:
        """One number stands for a tensor full of it."""
        given, type = op.attrs["value"], op.result.type
        full = not isinstance(given, Dense) and prod(type.shape) > 0
        whole = type.with_shape((1,)) if full else type
        made = op.spec.reference(result=whole, **op.attrs) if op.spec.reference else given
        kept = np.ascontiguousarray(made)
        number = len(self.constants)
        self.constants.append(kept)
        self.buffers.append(Buffer(Kind.CONSTANT, kept.nbytes, number, op.result.name))
        strides = (0,) * type.rank if full else packed(type)
        view = View(len(self.buffers) - 1, 0, type.shape, strides, type.dtype)
        self.views[op.result] = view

    def _place(
        self,
        op: Op,
        value: Value,
        operands: Sequence[View],
        users: Mapping[Value, Sequence[Op]],
    ) -> View:
        """Where a result goes: where it is wanted, or into a buffer of its own."""
        if value in self.targets:
            return self.targets[value]
        strides = packed(value.type, self._order(op, value, operands))
        return self.buffer(value, strides=self._wish(value, strides, users) or strides)

    def _order(self, op: Op, value: Value, operands: Sequence[View]) -> Sequence[int] | None:
        """The order in which the dimensions of a result lie best, outermost first.

        Unless an operation says otherwise, as those of its largest operand. What goes between
        processes is in the same order in all of them.
        """
        if op.spec.collective:
            return range(value.type.rank)
        if op.name in self.orders:
            return self.orders[op.name](op, operands)
        alike = [v for v in operands if v.shape == value.type.shape and 0 not in v.strides]
        return order_of(max(alike, key=lambda v: v.nbytes)) if alike else None

    def _wish(
        self, value: Value, strides: tuple[int, ...], users: Mapping[Value, Sequence[Op]]
    ) -> tuple[int, ...] | None:
        """Strides with which a reshape further on is a view, where with `strides` it is a copy, or
        with which the value can be sent as it lies."""
        for op in users.get(value, ()):
            if op.spec.collective:
                return packed(value.type)
            if op.name == "transpose":
                seen = tuple(strides[d] for d in op.attrs["perm"])
            elif op.name == "reshape":
                found = restrided(value.type.shape, strides, op.result.type.shape)
                if found is None:
                    return restrided(op.result.type.shape, packed(op.result.type), value.type.shape)
                seen = found
            else:
                continue
            further = self._wish(op.result, seen, users)
            if further is not None:
                back = demanded(op, further)
                if back is not None:
                    return back
        return None
