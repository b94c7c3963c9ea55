"""Schedules run without numbers: every byte of memory says which value was last written there.

What an operation reads must have been written for the value that it reads. What it writes must lie
apart from that, but for operations that go element by element, or write a part of what is there.
"""

import random
from collections.abc import Mapping, Sequence
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from shardir.backends.cpu.kernel_api import BufferView, Order, row_major_strides
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES
from shardir.backends.cpu.schedule import function_lowering
from shardir.backends.cpu.schedule.arena import BufferKind, assign_offsets, reuse_operands
from shardir.backends.cpu.schedule.buffer_views import IN_PLACE_OPS, is_view_op
from shardir.backends.cpu.schedule.items import (
    BranchItem,
    CopyItem,
    Items,
    ScanItem,
    WhileItem,
    WorkItem,
)
from shardir.ir.module import Block, Function, Op, Value

Bytes = npt.NDArray[np.int64]
Carried = list[tuple[Value, Value, BufferView, Value]]
"""For what goes round a loop: parameter, what a round makes, where it is read, the result."""


class ShadowError(AssertionError):
    """An operation would read what was not written for it."""


class Shadow:
    """One run. `seed` decides branches, how often loops go round, and what was donated."""

    def __init__(self, function: Function, seed: int) -> None:
        self.function, self.random = function, random.Random(seed)
        made: list[function_lowering.FunctionLowering] = []

        class Recorded(function_lowering.FunctionLowering):
            def __init__(self, orders: Mapping[str, Order]) -> None:
                super().__init__(orders)
                made.append(self)

        with patch.object(function_lowering, "FunctionLowering", Recorded):
            self.lowered = function_lowering.lower_function(function, LAYOUT_RULES)
        self.views = made[0].views
        self.makers = {result: op for op in function.body.walk() for result in op.results}
        offered = reuse_operands(self.lowered.pairs)
        arena = [each for each in self.lowered.buffers if each.kind is BufferKind.ARENA]
        memory = np.zeros(assign_offsets(arena), np.int64)
        self.places: list[tuple[Bytes, int]] = [
            (memory, each.offset)
            if each.kind is BufferKind.ARENA
            else (np.zeros(each.nbytes, np.int64), 0)
            for each in self.lowered.buffers
        ]
        for argument, result in offered:
            returned = (BufferKind.ARGUMENT, argument) in self.lowered.sources
            if not returned and self.random.random() < 0.5:
                place = self.places[self.slot(BufferKind.ARGUMENT, argument)]
                self.places[self.slot(BufferKind.RESULT, result)] = place
        self.marks: dict[Value, int] = {}
        self.count = 0
        self.same: dict[Value, Value] = {}
        """Values that are others by another name."""

    def slot(self, kind: BufferKind, number: int) -> int:
        """The buffer of an argument or result."""
        buffers = enumerate(self.lowered.buffers)
        return next(i for i, each in buffers if (each.kind, each.number) == (kind, number))

    def run(self) -> None:
        """Raises `ShadowError` where an operation would read the wrong bytes."""
        constants = [op.result for op in self.function.body.walk() if op.name == "constant"]
        for value in (*self.function.body.params, *constants):
            if value in self.views:
                self.write(value)
        self.items(self.lowered.items)
        returned = zip(self.function.body.returns, self.lowered.sources, strict=True)
        for value, source in returned:
            type = value.type
            view = BufferView(
                self.slot(*source), 0, type.shape, row_major_strides(type), type.dtype
            )
            self.read(value, view, "the caller")

    # Bytes.

    def bytes(self, view: BufferView) -> Bytes:
        """What the bytes of a view say, its elements' bytes side by side."""
        memory, offset = self.places[view.slot]
        strides = (*(8 * stride for stride in view.strides), 8)
        return as_strided(memory[offset + view.offset :], (*view.shape, view.itemsize), strides)

    def touched(self, view: BufferView) -> Bytes:
        """Which bytes of its memory a view has."""
        memory, offset = self.places[view.slot]
        numbers = np.arange(len(memory))[offset + view.offset :]
        strides = (*(8 * stride for stride in view.strides), 8)
        return as_strided(numbers, (*view.shape, view.itemsize), strides)

    def apart(self, one: BufferView, other: BufferView) -> bool:
        """Whether two views have no byte in common."""
        if self.places[one.slot][0] is not self.places[other.slot][0]:
            return True
        return not np.intersect1d(self.touched(one), self.touched(other)).size

    def alike(self, one: BufferView, other: BufferView) -> bool:
        """Whether elements of the same number lie at the same place."""
        both = self.touched(one), self.touched(other)
        return both[0].shape == both[1].shape and bool((both[0] == both[1]).all())

    def root(self, value: Value) -> Value:
        """The value whose bytes a value is a view of."""
        while value not in self.marks:
            op = self.makers.get(value)
            if value in self.same:
                value = self.same[value]
            elif op is not None and is_view_op(op):
                value = op.operands[op.results.index(value)]
            else:
                raise ShadowError(f"%{value.name} was not written")
        return value

    def write(self, value: Value, view: BufferView | None = None) -> None:
        """All bytes of a value are its own."""
        self.count += 1
        self.marks[value] = self.count
        self.same.pop(value, None)
        self.bytes(self.views[value] if view is None else view)[...] = self.count

    def read(self, value: Value, view: BufferView, who: str) -> None:
        """All bytes of a value must be its own."""
        if (self.bytes(view) != self.marks[self.root(value)]).any():
            raise ShadowError(f"{who} reads something else than %{value.name}")

    # Items.

    def items(self, items: Items) -> None:
        for item in items:
            if isinstance(item, WorkItem):
                self.work(item)
            elif isinstance(item, CopyItem):
                if not self.alike(item.source, item.target):
                    assert self.apart(item.source, item.target), item.why
                self.bytes(item.target)[...] = self.bytes(item.source).copy()
            elif isinstance(item, ScanItem):
                self.loop(item)
            elif isinstance(item, WhileItem):
                self.loop_while(item)
            else:
                assert isinstance(item, BranchItem)
                self.branch(item)

    def work(self, item: WorkItem) -> None:
        op = item.op
        who = f"%{op.results[0].name} = {op.name}" if op.results else op.name
        for number, (value, view) in enumerate(zip(op.operands, item.operands, strict=True)):
            self.read(value, view, who)
            for result in self.written(item):
                in_place = function_lowering.is_elementwise(op) or (
                    op.name in IN_PLACE_OPS and not number
                )
                if not (in_place and self.alike(view, result)) and not self.apart(view, result):
                    raise ShadowError(f"{who} writes over %{value.name} while it reads it")
        for value, view in zip(op.results, item.results, strict=True):
            self.write(value, view)

    def written(self, item: WorkItem) -> Sequence[BufferView]:
        """What an operation writes: of what is joined, those parts that do not lie there yet."""
        if item.op.name != "concatenate":
            return item.results
        (whole,), dim, start, parts = item.results, item.op.attrs["dim"], 0, []
        for view in item.operands:
            offset = whole.offset + start * whole.strides[dim]
            part = whole._replace(offset=offset, shape=view.shape)
            start += view.shape[dim]
            if not self.alike(view, part):
                parts.append(part)
        return parts

    # Loops and branches.

    def entered(self, op: Op, body: Block, count: int) -> Carried:
        """What `count` values are as they enter a loop; what each round hands on stays itself."""
        carried: Carried = []
        groups = (body.params, body.returns, op.operands, op.results)
        for param, made, init, result in zip(*(each[:count] for each in groups), strict=True):
            if made is param:
                self.same[param] = self.same[result] = init
                continue
            self.read(init, self.views[param], op.name)
            self.write(param)
            carried.append((param, made, self.views[param], result))
        return carried

    def turned(self, op: Op, carried: Carried, swaps: Sequence[tuple[int, int]]) -> None:
        """The end of a round: what was made is what the next one reads."""
        other = dict(swaps)
        for _, made, view, _ in carried:
            self.read(made, view._replace(slot=other.get(view.slot, view.slot)), op.name)
        for one, two in swaps:
            self.places[one], self.places[two] = self.places[two], self.places[one]
        for param, _, _, _ in carried:
            self.write(param)

    def left(self, carried: Carried) -> None:
        """What went round is the result."""
        for _, _, view, result in carried:
            self.write(result, view)

    def loop(self, item: ScanItem) -> None:
        op = item.op
        assert op is not None
        (body,), count = op.blocks, op.attrs["carries"]
        carried = self.entered(op, body, count)
        taken = len(body.params) - count
        self.same.update(zip(body.params[count:], op.operands[count:], strict=True))
        for result in op.results[count:]:
            self.write(result)
        rounds = range(item.length)
        for i in rounds[::-1] if item.backwards else rounds:
            for row in item.rows:
                memory, offset = self.places[row.start.slot]
                self.places[row.row] = memory, offset + row.start.offset + i * row.step
            self.items(item.body)
            stacked = zip(item.rows[taken:], body.returns[count:], op.results[count:], strict=True)
            for row, made, result in stacked:
                whole = self.views[result]
                view = BufferView(row.row, 0, whole.shape[1:], whole.strides[1:], whole.dtype)
                self.read(made, view, op.name)
                self.bytes(view)[...] = self.marks[result]
            self.turned(op, carried, item.swaps)
        for result in op.results[count:]:
            self.read(result, self.views[result], op.name)
        self.left(carried)

    def loop_while(self, item: WhileItem) -> None:
        op = item.op
        assert op is not None
        condition, body = op.blocks
        carried = self.entered(op, body, len(body.params))
        self.same.update(zip(condition.params, body.params, strict=True))
        for left in reversed(range(self.random.randint(1, 4))):
            self.items(item.condition)
            self.read(condition.returns[0], item.going, op.name)
            if left:
                self.items(item.body)
                self.turned(op, carried, item.swaps)
        self.left(carried)

    def branch(self, item: BranchItem) -> None:
        op = item.op
        assert op is not None
        self.read(op.operands[0], item.index, op.name)
        number = self.random.randrange(len(op.blocks))
        block = op.blocks[number]
        self.same.update(zip(block.params, op.operands[1:], strict=True))
        self.items(item.branches[number])
        for made, result in zip(block.returns, op.results, strict=True):
            self.read(made, self.views[result], op.name)
        for result in op.results:
            self.write(result)
