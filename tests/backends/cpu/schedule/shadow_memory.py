"""Execution of schedules on shadow memory: every byte contains the number of its last written
value.

The operands of an operation must have been written for the values that it reads. Its results must
not overlap the operands, except for elementwise operations and for operations that update a part of
their operand.
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
from shardir.backends.cpu.schedule.buffer_views import IN_PLACE_OPS, is_view_op, written_results
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
"""For each value carried by a loop: the parameter, the value of an iteration, the view that is
read, the result."""


class ShadowError(AssertionError):
    """An operation would read bytes that were written for another value."""


class ShadowExecution:
    """One execution. `seed` determines the branches, the iteration counts and the donated
    arguments."""

    def __init__(self, function: Function, seed: int) -> None:
        self.function, self.random = function, random.Random(seed)
        made: list[function_lowering.FunctionLowering] = []

        class RecordingLowering(function_lowering.FunctionLowering):
            def __init__(self, orders: Mapping[str, Order]) -> None:
                super().__init__(orders)
                made.append(self)

        with patch.object(function_lowering, "FunctionLowering", RecordingLowering):
            self.lowered = function_lowering.lower_function(function, LAYOUT_RULES)
        self.views = made[0].views
        self.makers = {result: op for op in function.body.walk() for result in op.results}
        reused = reuse_operands(self.lowered.pairs)
        arena = [each for each in self.lowered.buffers if each.kind is BufferKind.ARENA]
        memory = np.zeros(assign_offsets(arena), np.int64)
        self.places: list[tuple[Bytes, int]] = [
            (memory, each.offset)
            if each.kind is BufferKind.ARENA
            else (np.zeros(each.nbytes, np.int64), 0)
            for each in self.lowered.buffers
        ]
        for argument, result in reused:
            returned = (BufferKind.ARGUMENT, argument) in self.lowered.sources
            if not returned and self.random.random() < 0.5:
                place = self.places[self.slot(BufferKind.ARGUMENT, argument)]
                self.places[self.slot(BufferKind.RESULT, result)] = place
        self.marks: dict[Value, int] = {}
        self.count = 0
        self.same: dict[Value, Value] = {}
        """Values with several names."""

    def slot(self, kind: BufferKind, number: int) -> int:
        """Return the buffer of an argument or result."""
        buffers = enumerate(self.lowered.buffers)
        return next(i for i, each in buffers if (each.kind, each.number) == (kind, number))

    def run(self) -> None:
        """Raise `ShadowError` if an operation would read wrong bytes."""
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
        """Return the contents of a view; the bytes of each element are the last dimension."""
        memory, offset = self.places[view.slot]
        strides = (*(8 * stride for stride in view.strides), 8)
        return as_strided(memory[offset + view.offset :], (*view.shape, view.itemsize), strides)

    def byte_offsets(self, view: BufferView) -> Bytes:
        """Return the offsets of the bytes of a view."""
        memory, offset = self.places[view.slot]
        numbers = np.arange(len(memory))[offset + view.offset :]
        strides = (*(8 * stride for stride in view.strides), 8)
        return as_strided(numbers, (*view.shape, view.itemsize), strides)

    def is_disjoint(self, one: BufferView, other: BufferView) -> bool:
        """Return whether two views have no common byte."""
        if self.places[one.slot][0] is not self.places[other.slot][0]:
            return True
        return not np.intersect1d(self.byte_offsets(one), self.byte_offsets(other)).size

    def has_equal_addresses(self, one: BufferView, other: BufferView) -> bool:
        """Return whether corresponding elements of two views have equal addresses."""
        both = self.byte_offsets(one), self.byte_offsets(other)
        return both[0].shape == both[1].shape and bool((both[0] == both[1]).all())

    def root(self, value: Value) -> Value:
        """Return the value whose bytes a value is a view of."""
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
        """Mark all bytes of a value as its own."""
        self.count += 1
        self.marks[value] = self.count
        self.same.pop(value, None)
        self.bytes(self.views[value] if view is None else view)[...] = self.count

    def read(self, value: Value, view: BufferView, reader: str) -> None:
        """Check that all bytes of a view are marked with the value."""
        if (self.bytes(view) != self.marks[self.root(value)]).any():
            raise ShadowError(f"{reader} reads something else than %{value.name}")

    # Items.

    def items(self, items: Items) -> None:
        for item in items:
            if isinstance(item, WorkItem):
                self.work(item)
            elif isinstance(item, CopyItem):
                if not self.has_equal_addresses(item.source, item.target):
                    assert self.is_disjoint(item.source, item.target), item.why
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
        reader = f"%{op.results[0].name} = {op.name}" if op.results else op.name
        for number, (value, view) in enumerate(zip(op.operands, item.operands, strict=True)):
            self.read(value, view, reader)
            for result in self.written_views(item):
                in_place = function_lowering.is_elementwise(op) or (
                    op.spec in IN_PLACE_OPS and not number
                )
                if not (
                    in_place and self.has_equal_addresses(view, result)
                ) and not self.is_disjoint(view, result):
                    raise ShadowError(f"{reader} writes over %{value.name} while it reads it")
        for number in written_results(op):
            self.write(op.results[number], item.results[number])

    def written_views(self, item: WorkItem) -> Sequence[BufferView]:
        """Return the views that an operation writes; parts of a concatenation that are already in
        place are omitted."""
        if item.op.name != "concatenate":
            return [item.results[number] for number in written_results(item.op)]
        (whole,), dim, start, parts = item.results, item.op.attrs["dim"], 0, []
        for view in item.operands:
            offset = whole.offset + start * whole.strides[dim]
            part = whole._replace(offset=offset, shape=view.shape)
            start += view.shape[dim]
            if not self.has_equal_addresses(view, part):
                parts.append(part)
        return parts

    # Loops and branches.

    def enter_loop(self, op: Op, body: Block, count: int) -> Carried:
        """Check and mark the first `count` values of a loop on entry; values that every iteration
        passes on unchanged keep their identity."""
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

    def end_iteration(self, op: Op, carried: Carried, swaps: Sequence[tuple[int, int]]) -> None:
        """End an iteration: the next iteration reads the values of this one."""
        other = dict(swaps)
        for _, made, view, _ in carried:
            self.read(made, view._replace(slot=other.get(view.slot, view.slot)), op.name)
        for one, two in swaps:
            self.places[one], self.places[two] = self.places[two], self.places[one]
        for param, _, _, _ in carried:
            self.write(param)

    def leave_loop(self, carried: Carried) -> None:
        """Mark the final carried values as the results."""
        for _, _, view, result in carried:
            self.write(result, view)

    def loop(self, item: ScanItem) -> None:
        op = item.op
        assert op is not None
        (body,), count = op.blocks, op.attrs["carries"]
        carried = self.enter_loop(op, body, count)
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
            self.end_iteration(op, carried, item.swaps)
        for result in op.results[count:]:
            self.read(result, self.views[result], op.name)
        self.leave_loop(carried)

    def loop_while(self, item: WhileItem) -> None:
        op = item.op
        assert op is not None
        condition, body = op.blocks
        carried = self.enter_loop(op, body, len(body.params))
        self.same.update(zip(condition.params, body.params, strict=True))
        for left in reversed(range(self.random.randint(1, 4))):
            self.items(item.condition)
            self.read(condition.returns[0], item.going, op.name)
            if left:
                self.items(item.body)
                self.end_iteration(op, carried, item.swaps)
        self.leave_loop(carried)

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
