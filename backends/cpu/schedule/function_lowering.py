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

from shardir import ops
from shardir.backends.cpu.kernel_api import BufferView, Order, row_major_strides
from shardir.backends.cpu.schedule import control_flow
from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.backends.cpu.schedule.buffer_views import (
    IN_PLACE_OPS,
    dimension_order,
    has_same_elements,
    is_row_major,
    operand_strides,
    reshape_strides,
    view_results,
    written_results,
)
from shardir.backends.cpu.schedule.items import CopyItem, Item, ResultSource, WorkItem
from shardir.backends.cpu.schedule.lowering_state import LoweringState
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType


def is_elementwise(op: Op) -> bool:
    """Return whether each result element depends only on the same element of the operands.

    Operands of other shapes are exempt.
    """
    if op.spec is not ops.fused:
        return op.spec.elementwise
    flat = (ops.broadcast, ops.reshape, ops.iota, ops.constant, ops.bitcast)
    return all(inner.spec.elementwise or inner.spec in flat for inner in op.blocks[0].ops)


class Lowered(NamedTuple):
    """A function as work items, and their buffers.

    `types` are the types of its results, `sources` says whose memory each result is. `rows` maps
    buffers that point to rows to the view of all rows; `constants` are the values of constant
    buffers. `pairs` are (position, operand, result) of buffers that may share memory.
    """

    items: tuple[Item, ...]
    types: tuple[TensorType, ...]
    buffers: tuple[PlannedBuffer, ...]
    constants: tuple[npt.NDArray[np.generic], ...]
    sources: tuple[ResultSource, ...]
    rows: Mapping[int, BufferView]
    pairs: tuple[tuple[int, PlannedBuffer, PlannedBuffer], ...]


def lower_function(function: Function, orders: Mapping[str, Order]) -> Lowered:
    """Lower a function over unsharded arrays.

    `orders` maps operation names to rules for the preferred layout of their results.
    """
    lowering = FunctionLowering(orders)
    body = function.body
    for i, param in enumerate(body.params):
        lowering.views[param] = lowering.buffer(param, BufferKind.ARGUMENT, number=i)
        lowering.mark_used(lowering.views[param])
    result_views = [
        lowering.buffer(v, BufferKind.RESULT, number=i) for i, v in enumerate(body.returns)
    ]
    items, ends = lowering.block(body, result_views, owned=True)
    held = [lowering.buffers[view.slot] for view in ends]
    return Lowered(
        tuple(items),
        tuple(value.type for value in body.returns),
        tuple(lowering.buffers),
        tuple(lowering.constants),
        tuple((buffer.kind, buffer.number) for buffer in held),
        lowering.rows,
        tuple(lowering.in_place_pairs),
    )


class FunctionLowering(LoweringState):
    """Lower blocks operation by operation."""

    def block(
        self, block: Block, targets: Sequence[BufferView], owned: bool = False
    ) -> tuple[list[Item], list[BufferView]]:
        makers = {result: op for op in block.ops for result in op.results}
        users: dict[Value, list[Op]] = {}
        for op in block.ops:
            for value in op.uses():
                users.setdefault(value, []).append(op)
        demands = [
            self._propagate_target(value, view, makers)
            for value, view in zip(block.returns, targets, strict=True)
        ]
        # A value that is returned twice is produced in the target that is contiguous, and copied to
        # the other.
        for value, view in sorted(demands, key=lambda each: not is_row_major(each[1])):
            self.targets.setdefault(value, view)
        for op in reversed(block.ops):
            if op.spec is ops.concatenate and op.result in self.targets:
                self._propagate_concatenate_targets(op, users, makers)
            elif op.spec is ops.scatter and op.result in self.targets:
                found, view = op.operands[0], self.targets[op.result]
                maker = makers.get(found)
                if maker is not None and maker.spec is ops.gather and users[found] == [op]:
                    self.targets.setdefault(found, view)
        items: list[Item] = []
        for op in block.ops:
            self._lower_op(op, users, items)
        ends = []
        for value, view in zip(block.returns, targets, strict=True):
            here = self.views[value]
            if has_same_elements(here, view) or (owned and self._can_return_view(here)):
                ends.append(here)
                continue
            self.position += 1
            self.mark_used(here, view)
            items.append(CopyItem(here, view, f"%{value.name} is returned"))
            ends.append(view)
        return items, ends

    def _propagate_target(
        self, value: Value, view: BufferView, makers: Mapping[Value, Op]
    ) -> tuple[Value, BufferView]:
        """Trace a target view back through view operations; return the value that should be written
        to it, and its view.

        Arguments, constants and results of loops, which are stored elsewhere, are copied to it.
        """
        strides = view.strides
        while (op := makers.get(value)) is not None:
            input_strides = operand_strides(op, strides)
            if input_strides is None:
                break
            strides, value = input_strides, op.operands[0]
        type = value.type
        return value, BufferView(view.slot, view.offset, type.shape, strides, type.dtype)

    def _propagate_concatenate_targets(
        self, op: Op, users: Mapping[Value, Sequence[Op]], makers: Mapping[Value, Op]
    ) -> None:
        """Let concatenates that only feed this concatenate write directly into its target."""
        target, dim, start = self.targets[op.result], op.attrs["dim"], 0
        for value in op.operands:
            maker, shape = makers.get(value), value.type.shape
            if maker is not None and maker.spec is ops.concatenate and users[value] == [op]:
                offset = target.offset + start * target.strides[dim]
                self.targets.setdefault(value, target._replace(offset=offset, shape=shape))
            start += shape[dim]

    def _can_return_view(self, view: BufferView) -> bool:
        """Return whether a result may be this view: all of the memory of an argument or of a
        result."""
        buffer = self.buffers[view.slot]
        is_complete = (
            buffer.kind in (BufferKind.ARGUMENT, BufferKind.RESULT) and buffer.nbytes == view.nbytes
        )
        return is_complete and is_row_major(view)

    def _lower_op(self, op: Op, users: Mapping[Value, Sequence[Op]], items: list[Item]) -> None:
        self.position += 1
        if op.name in control_flow.CONTROL_FLOW_LOWERINGS:
            items.extend(control_flow.CONTROL_FLOW_LOWERINGS[op.name](self, op))
            return
        if op.spec is ops.constant:
            self._lower_constant(op)
        if op.spec is ops.constant or not (op.results or op.spec.effect):
            return
        operands = tuple(self.views[value] for value in op.operands)
        has_target = bool(op.results) and op.results[0] in self.targets
        views = None if has_target else view_results(op, operands)
        if views is not None:
            self.views.update(zip(op.results, views, strict=True))
            return
        if op.spec is ops.reshape:
            self._lower_reshape(op, operands[0], items)
            return
        results = tuple(self._result_view(op, value, operands, users) for value in op.results)
        self.views.update(zip(op.results, results, strict=True))
        self.mark_used(*operands, *(results[number] for number in written_results(op)))
        items.append(WorkItem(op, operands, results))
        if is_elementwise(op):
            self._record_in_place_pairs(operands, results)
        elif op.spec in IN_PLACE_OPS and all(v.slot != operands[0].slot for v in operands[1:]):
            self._record_in_place_pairs(operands[:1], results)

    def _record_in_place_pairs(
        self, operands: Sequence[BufferView], results: Sequence[BufferView]
    ) -> None:
        """Record results that may overwrite an operand element by element."""
        for result in results:
            for view in operands:
                layouts = [(each.shape, each.strides, each.offset) for each in (view, result)]
                same_layout = layouts[0] == layouts[1]
                sole_view = all(other == view for other in operands if other.slot == view.slot)
                old, new = self.buffers[view.slot], self.buffers[result.slot]
                if same_layout and sole_view and old.nbytes == new.nbytes == result.nbytes:
                    self.in_place_pairs.append((self.position, old, new))

    def _lower_reshape(self, op: Op, source: BufferView, items: list[Item]) -> None:
        """Lower a reshape whose operand has incompatible strides to a copy.

        A reshape with a target is a copy too: no operand has strides with which it is a view.
        """
        views = view_results(op, (source,))
        if views is not None:
            target = self.targets[op.result]
            self.mark_used(source, target)
            self.views[op.result] = target
            items.append(CopyItem(views[0], target, f"%{op.result.name} = reshape"))
            return
        destination = self.buffer(op.result)
        strides = reshape_strides(destination.shape, destination.strides, source.shape)
        assert strides is not None, "a contiguous buffer has strides for any shape"
        written = BufferView(destination.slot, 0, source.shape, strides, source.dtype)
        self.mark_used(source, destination)
        self.views[op.result] = destination
        items.append(CopyItem(source, written, f"%{op.result.name} = reshape"))

    def _lower_constant(self, op: Op) -> None:
        """Store a constant; a splat constant is a single element with strides of 0."""
        given, type = op.attrs["value"], op.result.type
        is_splat = not isinstance(given, Dense) and prod(type.shape) > 0
        stored_type = type.with_shape((1,)) if is_splat else type
        computed = (
            op.spec.reference(result=stored_type, **op.rule_arguments)
            if op.spec.reference
            else given
        )
        values = np.ascontiguousarray(computed)
        number = len(self.constants)
        self.constants.append(values)
        self.buffers.append(
            PlannedBuffer(BufferKind.CONSTANT, values.nbytes, number, op.result.name)
        )
        strides = (0,) * type.rank if is_splat else row_major_strides(type)
        view = BufferView(len(self.buffers) - 1, 0, type.shape, strides, type.dtype)
        self.views[op.result] = view

    def _result_view(
        self,
        op: Op,
        value: Value,
        operands: Sequence[BufferView],
        users: Mapping[Value, Sequence[Op]],
    ) -> BufferView:
        """Return the view of a result: its target, or a buffer of its own."""
        if value in self.targets:
            return self.targets[value]
        strides = row_major_strides(value.type, self._dimension_order(op, value, operands))
        return self.buffer(value, strides=self._preferred_strides(value, strides, users) or strides)

    def _dimension_order(
        self, op: Op, value: Value, operands: Sequence[BufferView]
    ) -> Sequence[int] | None:
        """Return the preferred dimension order of a result, outermost first.

        The default is the order of the largest operand. Data that is exchanged between processes is
        row-major, so that all processes agree.
        """
        if op.spec.collective:
            return range(value.type.rank)
        if op.name in self.orders:
            return self.orders[op.name](op, operands)
        candidates = [v for v in operands if v.shape == value.type.shape and 0 not in v.strides]
        return dimension_order(max(candidates, key=lambda v: v.nbytes)) if candidates else None

    def _preferred_strides(
        self, value: Value, strides: tuple[int, ...], users: Mapping[Value, Sequence[Op]]
    ) -> tuple[int, ...] | None:
        """Return strides with which a later reshape is a view instead of a copy.

        Also return row-major strides for a value that a collective sends without a copy. Return
        `None` if `strides` need no change.
        """
        for op in users.get(value, ()):
            if op.spec.collective:
                return row_major_strides(value.type)
            if op.spec is ops.transpose:
                user_strides = tuple(strides[d] for d in op.attrs["perm"])
            elif op.spec is ops.reshape:
                found = reshape_strides(value.type.shape, strides, op.result.type.shape)
                if found is None:
                    return reshape_strides(
                        op.result.type.shape, row_major_strides(op.result.type), value.type.shape
                    )
                user_strides = found
            else:
                continue
            user_preference = self._preferred_strides(op.result, user_strides, users)
            if user_preference is not None:
                input_strides = operand_strides(op, user_preference)
                if input_strides is not None:
                    return input_strides
        return None
