"""The part of an argument that a stage uses.

before: `%1 = slice(%w, starts=[2, 0, 0], strides=[1, 1, 1]) : f32[1, 8, 8]`, the only use of `%w`
after:  the stage takes `argument 0[2:3]`, which replaces `%1`
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.ir.builder import Builder, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.control_flow.pipeline_slots import Window
from shardir.ops.shape.slicing import slice_


def take_window(
    argument: Value, ops: Sequence[Op], returns: Sequence[Value]
) -> tuple[Window, Value, list[Op], list[Value]] | None:
    """Return the window of an argument that contains all elements that operations use, a value for
    this part, and the operations and returned values with that value.

    `None`: they use the argument as a whole, or all parts of it.
    """
    users = [op for op in ops if argument in op.uses()]
    if argument in returns or any(op.spec is not slice_ or not op.result.type.size for op in users):
        return None
    window = []
    for dim in range(argument.type.rank):
        starts: list[int] = [op.attrs["starts"][dim] for op in users]
        ends = [
            start + op.attrs["strides"][dim] * (op.result.type.shape[dim] - 1) + 1
            for start, op in zip(starts, users, strict=True)
        ]
        window.append(slice(min(starts), max(ends)))
    while window and window[-1] == slice(0, argument.type.shape[len(window) - 1]):
        window.pop()
    if not window:
        return None
    first = [part.start for part in window] + [0] * (argument.type.rank - len(window))
    shape = [part.stop - part.start for part in window]
    type = argument.type.with_shape((*shape, *argument.type.shape[len(window) :]))
    part = Value(type, argument.name)
    same: dict[Value, Value] = {}
    rest: list[Op] = []
    for op in ops:
        if argument in op.operands:
            moved = tuple(n - low for n, low in zip(op.attrs["starts"], first, strict=True))
            if op.result.type == type and op.result.sharding is None:
                same[op.result] = part
                continue
            op = replace(op, operands=(part,), attrs={**op.attrs, "starts": moved})
        rest.append(op)
    block = substitute(Block((part,), tuple(rest), tuple(returns)), same)
    return tuple(window), part, list(block.ops), list(block.returns)


def slice_window(b: Builder, value: Value, window: Window) -> Value:
    """Return the part of an argument that a window contains."""
    if not window:
        return value
    rest = value.type.rank - len(window)
    shape = [part.stop - part.start for part in window]
    made: Value = b.slice(
        value,
        result=value.type.with_shape((*shape, *value.type.shape[len(window) :])),
        starts=(*(part.start for part in window), *(0,) * rest),
        strides=(1,) * value.type.rank,
    )
    return made


def pad_window(b: Builder, part: Value, window: Window, type: TensorType) -> Value:
    """Return a value of a type with a part of it, and zeros outside of the window."""
    if not window:
        return part
    rest = (0,) * (type.rank - len(window))
    made: Value = b.pad(
        part,
        b.full(0, type.with_shape(())),
        low=(*(each.start for each in window), *rest),
        high=(*(n - each.stop for n, each in zip(type.shape, window, strict=False)), *rest),
        interior=(0,) * type.rank,
    )
    return made
