"""Lower the operations of a function to work items between views of buffers.

Every value has a view. Results of operations that move no data are views of their operands; other
results have buffers of their own. A block receives target views for its results, and operations
write to them directly: function results, carried values of a loop, rows of a stacked result
(`targets`). Until the arena is planned, the slot of a view is the number of its buffer.
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
    """Return whether each result element depends only on the same element of the operands.

    Operands of other shapes are exempt.
    """
    if op.name != "fused":
        return op.spec.elementwise
    flat = ("broadcast", "reshape", "iota", "constant", "bitcast")
    return all(inner.spec.elementwise or inner.name in flat for inner in op.blocks[0].ops)


class Lowered(NamedTuple):
    """A function as work items, and their buffers.

    `types` are the types of its results, `sources` says whose memory each result is. `rows` maps
    buffers that point to rows to the view of all rows; `constants` are the values of constant
    buffers. `pairs` are (position, operand, result) of buffers that may share memory.
    """

    items: tuple[Item, ...]
    types: tuple[TensorType, ...]
    buffers: tuple[Buffer, ...]
    constants: tuple[npt.NDArray[np.generic], ...]
    sources: tuple[Source, ...]
    rows: Mapping[int, View]
    pairs: tuple[tuple[int, Buffer, Buffer], ...]


def lower(function: Function, orders: Mapping[str, Order]) -> Lowered:
    """Lower a function over unsharded arrays.

    `orders` maps operation names to rules for the preferred layout of their results.
    """
    lowering = Lowering(orders)
    body = function.body
    for i, param in enumerate(body.params):
        lowering.views[param] = lowering.buffer(param, Kind.ARGUMENT, number=i)
        lowering.use(lowering.views[param])
    result_views = [lowering.buffer(v, Kind.RESULT, number=i) for i, v in enumerate(body.returns)]
    items, ends = lowering.block(body, result_views, owned=True)
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
    """The state of lowering: views of values, buffers, and the position in the program."""

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
        """Add a buffer for a value and return the view of all of it."""
        self.buffers.append(Buffer(kind, value.type.nbytes, number, value.name, pinned=pinned))
        byte_strides = packed(value.type) if strides is None else strides
        return View(len(self.buffers) - 1, 0, value.type.shape, byte_strides, value.type.dtype)

    def use(self, *views: View) -> None:
        """Mark the memory of the views as live at the current position."""
        for view in views:
            self.buffers[view.slot].use(self.position)
            if view.slot in self.rows:
                self.use(self.rows[view.slot])

    def hold(self, start: int) -> None:
        """Extend buffers that are older than `start` and used since then: a loop ends here."""
        for buffer in self.buffers:
            if buffer.first < start <= buffer.last:
                buffer.use(self.position)

    # Blocks.

    def block(
        self, block: Block, targets: Sequence[View], owned: bool = False
    ) -> tuple[list[Item], list[View]]:
        """Lower a block; return its items and the views of its results, which are `targets`.

        `owned` results may instead be all of an argument, or the memory of another result.
        """
        makers = {result: op for op in block.ops for result in op.results}
        users: dict[Value, list[Op]] = {}
        for op in block.ops:
            for value in op.uses():
                users.setdefault(value, []).append(op)
        demands = [
            self._demanded(value, view, makers)
            for value, view in zip(block.returns, targets, strict=True)
        ]
        # A value that is returned twice is produced in the target that is contiguous, and copied to
        # the other.
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
        for value, view in zip(block.returns, targets, strict=True):
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
        """Trace a target view back through view operations; return the value that should be written
        to it.

        Returns the value and its view, or `None` if no operation can write there.
        """
        strides: tuple[int, ...] | None = view.strides
        op = makers.get(value)
        while op is not None:
            input_strides = demanded(op, strides) if strides is not None else None
            if input_strides is None:
                break
            strides, value = input_strides, op.operands[0]
            op = makers.get(value)
        can_write = op is not None and (
            op.name not in control.HANDLERS or op.name in control.WRITING
        )
        if not can_write or strides is None:
            return None
        type = value.type
        return value, View(view.slot, view.offset, type.shape, strides, type.dtype)

    def _demand_parts(
        self, op: Op, users: Mapping[Value, Sequence[Op]], makers: Mapping[Value, Op]
    ) -> None:
        """Let concatenates that only feed this concatenate write directly into its target."""
        target, dim, start = self.targets[op.result], op.attrs["dim"], 0
        for value in op.operands:
            maker, shape = makers.get(value), value.type.shape
            if maker is not None and maker.name == "concatenate" and users[value] == [op]:
                offset = target.offset + start * target.strides[dim]
                self.targets.setdefault(value, target._replace(offset=offset, shape=shape))
            start += shape[dim]

    def _may_stand(self, view: View) -> bool:
        """Return whether a result may be this view: all of the memory of an argument or of a
        result."""
        buffer = self.buffers[view.slot]
        is_complete = buffer.kind in (Kind.ARGUMENT, Kind.RESULT) and buffer.nbytes == view.nbytes
        return is_complete and view.offset == 0 and is_packed(view)

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
        has_target = bool(op.results) and op.results[0] in self.targets
        views = None if has_target else seen_through(op, operands)
        if views is not None:
            self.views.update(zip(op.results, views, strict=True))
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
        """Record results that may overwrite an operand element by element."""
        for result in results:
            for view in operands:
                layouts = [(each.shape, each.strides, each.offset) for each in (view, result)]
                same_layout = layouts[0] == layouts[1]
                sole_view = all(other == view for other in operands if other.slot == view.slot)
                old, new = self.buffers[view.slot], self.buffers[result.slot]
                if same_layout and sole_view and old.nbytes == new.nbytes == result.nbytes:
                    self.pairs.append((self.position, old, new))

    def _rearranged(self, op: Op, source: View, items: list[Item]) -> None:
        """Lower a reshape whose operand has incompatible strides to a copy.

        A reshape with a target elsewhere is a copy, too.
        """
        target = self.targets.get(op.result)
        views = seen_through(op, (source,))
        if target is not None and views is not None:
            self.use(source, target)
            self.views[op.result] = target
            items.append(Copy(views[0], target, f"%{op.result.name} = reshape"))
            return
        target_strides = target and restrided(target.shape, target.strides, source.shape)
        destination = target if target is not None and target_strides else self.buffer(op.result)
        strides = target_strides or restrided(destination.shape, destination.strides, source.shape)
        assert strides is not None, "a contiguous buffer has strides for any shape"
        written = View(destination.slot, destination.offset, source.shape, strides, source.dtype)
        self.use(source, destination)
        self.views[op.result] = destination
        items.append(Copy(source, written, f"%{op.result.name} = reshape"))

    def _constant(self, op: Op) -> None:
        """Store a constant; a splat constant is a single element with strides of 0."""
        given, type = op.attrs["value"], op.result.type
        is_splat = not isinstance(given, Dense) and prod(type.shape) > 0
        stored_type = type.with_shape((1,)) if is_splat else type
        computed = op.spec.reference(result=stored_type, **op.attrs) if op.spec.reference else given
        values = np.ascontiguousarray(computed)
        number = len(self.constants)
        self.constants.append(values)
        self.buffers.append(Buffer(Kind.CONSTANT, values.nbytes, number, op.result.name))
        strides = (0,) * type.rank if is_splat else packed(type)
        view = View(len(self.buffers) - 1, 0, type.shape, strides, type.dtype)
        self.views[op.result] = view

    def _place(
        self,
        op: Op,
        value: Value,
        operands: Sequence[View],
        users: Mapping[Value, Sequence[Op]],
    ) -> View:
        """Return the view of a result: its target, or a buffer of its own."""
        if value in self.targets:
            return self.targets[value]
        strides = packed(value.type, self._order(op, value, operands))
        return self.buffer(value, strides=self._wish(value, strides, users) or strides)

    def _order(self, op: Op, value: Value, operands: Sequence[View]) -> Sequence[int] | None:
        """Return the preferred dimension order of a result, outermost first.

        The default is the order of the largest operand. Data that is exchanged between processes is
        row-major, so that all processes agree.
        """
        if op.spec.collective:
            return range(value.type.rank)
        if op.name in self.orders:
            return self.orders[op.name](op, operands)
        candidates = [v for v in operands if v.shape == value.type.shape and 0 not in v.strides]
        return order_of(max(candidates, key=lambda v: v.nbytes)) if candidates else None

    def _wish(
        self, value: Value, strides: tuple[int, ...], users: Mapping[Value, Sequence[Op]]
    ) -> tuple[int, ...] | None:
        """Return strides with which a later reshape is a view instead of a copy.

        Also return row-major strides for a value that a collective sends without a copy. Return
        `None` if `strides` need no change.
        """
        for op in users.get(value, ()):
            if op.spec.collective:
                return packed(value.type)
            if op.name == "transpose":
                user_strides = tuple(strides[d] for d in op.attrs["perm"])
            elif op.name == "reshape":
                found = restrided(value.type.shape, strides, op.result.type.shape)
                if found is None:
                    return restrided(op.result.type.shape, packed(op.result.type), value.type.shape)
                user_strides = found
            else:
                continue
            user_preference = self._wish(op.result, user_strides, users)
            if user_preference is not None:
                input_strides = demanded(op, user_preference)
                if input_strides is not None:
                    return input_strides
        return None
