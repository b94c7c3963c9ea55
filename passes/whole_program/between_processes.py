"""Collectives between processes remain collectives, on the values of all devices of a process.

before: `%g = all-reduce(%p, axes=[data:(1)2], op=add) : f32[10]`, where `%p` differs along `model`,
        inside of processes
after:  `%g = all-reduce(%p, axes=[data], op=add) : f32[4, 10]` on the mesh of processes

They are along axes of one level, as `hierarchical-collectives` leaves them. Only permutes mix both
levels: rows that stay in a process are reordered, and rows that are sent to the same row of other
processes are permuted separately.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from shardir import ops
from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS, Dense
from shardir.ir.process_levels import ProcessLevels
from shardir.ir.sharding import Axes
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import shift_attributes
from shardir.ops.communication.async_collectives import is_started, synchronous_spec
from shardir.ops.type_checks import Ints
from shardir.passes.whole_program.collective_rules import record_collective
from shardir.passes.whole_program.dim_arrangement import (
    arrange_dims,
    concatenate_rows,
    reshape_if_needed,
    slice_rows,
)
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule, merge_error
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes
from shardir.passes.whole_program.permutes import permute_rows

Pairs = list[tuple[int, int]]


def add_process_rules(rules: Mapping[str, MergeRule]) -> dict[str, MergeRule]:
    """Return the rules for devices of one process, extended by those for collectives between
    processes."""
    exchanges = {name for name, spec in OPS.items() if spec.exchange is not None}
    return {
        **{name: _dispatch_by_level(rules.get(name)) for name in exchanges},
        **_others(rules, exchanges),
    }


def _others(rules: Mapping[str, MergeRule], exchanges: set[str]) -> dict[str, MergeRule]:
    return {name: rule for name, rule in rules.items() if name not in exchanges} | {"done": _done}


def _dispatch_by_level(near: MergeRule | None) -> MergeRule:
    def rule(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
        axes = crossed_axes(op.attrs)
        far = merger.sub_axes.levels.far_parts(axes)
        if not far:
            if near is None:
                raise merge_error(op, "has no meaning outside of devices")
            return near(merger, op)
        if not merger.sub_axes.levels.near_parts(axes):
            return [_append_between_processes(merger, op)]
        if synchronous_spec(op) is not ops.collective_permute:
            raise merge_error(
                op,
                "has axes inside of processes and between them",
                "run hierarchical-collectives before",
            )
        return [_append_mixed_permute(merger, op)]

    return rule


def _append_between_processes(merger: DeviceMerger, op: Op) -> BatchedValue:
    """Append the collective on the values of all devices of a process, whose dimensions come
    later."""
    if not op.operands:
        return BatchedValue(merger.b.emit(op.spec, result=op.result.type, **op.attrs), ())
    value, own = merger.get(op.operands[0])
    attrs = shift_attributes(synchronous_spec(op), op.attrs, len(own))
    return BatchedValue(merger.b.emit(op.spec, value, result=None, **attrs), own)


def _done(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Append a wait if the awaited operation is still a collective."""
    value, own = merger.get(op.operands[0])
    started = any(each.results == (value,) and is_started(each) for each in reversed(merger.b.ops))
    return [BatchedValue(merger.b.done(value) if started else value, own)]


def _append_mixed_permute(merger: DeviceMerger, op: Op) -> BatchedValue:
    """Append a permute along axes of both levels, row by row."""
    record_collective(merger, op)
    b, levels = merger.b, merger.sub_axes.levels
    axes: Axes = op.attrs["axes"]
    far, near = levels.far_parts(axes), merger.sub_axes.of(axes)
    batched = merger.get(op.operands[0])
    own = merger.sub_axes.union(batched.sub_axes, near)
    value = merger.widen(batched, own)
    rest = [sub_axis for sub_axis in own if sub_axis not in near]
    places = (*map(own.index, near), *map(own.index, rest), *range(len(own), value.type.rank))
    order: list[Ints] = [places[: len(near)], *((position,) for position in places[len(near) :])]
    counted = arrange_dims(b, value, [(n,) for n in value.type.shape], order)
    moves = _row_moves(op, levels)
    sources = Counter(to for _, to in moves)
    process_count = prod(axis_sizes(far))
    stays = {to: of for (of, to), pairs in moves.items() if _is_whole(pairs, process_count)}
    count = prod(axis_sizes(near))
    if len(op.attrs["pairs"]) == count * process_count:
        result = permute_rows(b, counted, [stays.get(i, i) for i in range(count)])
    elif op.result.type.dtype in KEYS:
        raise merge_error(op, "leaves some devices without a random key")
    else:
        result = permute_rows(b, counted, [stays.get(i) for i in range(count)])
    for leaving, routes in _group_rows_by_processes(moves).items():
        sent = b.emit(
            OPS["collective-permute"],
            concatenate_rows(b, [slice_rows(b, counted, 0, of, 1) for of, _ in routes]),
            axes=far,
            pairs=leaving,
            name=f"{op.result.name}.between_processes",
        )
        for i, (_, to) in enumerate(routes):
            # A device without sender receives zeros, which it holds already unless a row comes from
            # elsewhere.
            receivers = [c for _, c in leaving]
            here = None if sources[to] == 1 else _is_one_of_processes(merger, far, receivers)
            result = _replace_row(b, result, slice_rows(b, sent, 0, i, 1), to, here)
    for (of, to), pairs in moves.items():
        staying = [a for a, c in pairs if a == c]
        if staying and stays.get(to) != of:
            result = _replace_row(
                b,
                result,
                slice_rows(b, counted, 0, of, 1),
                to,
                _is_one_of_processes(merger, far, staying),
            )
    split_shape = [axis_sizes(near), *((n,) for n in result.type.shape[1:])]
    back: list[Ints] = [(places.index(d),) for d in range(len(places))]
    return BatchedValue(arrange_dims(b, result, split_shape, back), own)


def _row_moves(op: Op, levels: ProcessLevels) -> dict[tuple[int, int], Pairs]:
    """Return for each pair of source and target row the pairs of processes."""
    axes = levels.split(op.attrs["axes"])
    shape = axis_sizes(axes)
    is_far = [levels.is_far(axis) for axis in axes]

    def split_position(position: int) -> tuple[int, int]:
        there = here = 0
        for axis, distant, i in zip(axes, is_far, np.unravel_index(position, shape), strict=True):
            if distant:
                there = there * axis.size + int(i)
            else:
                here = here * axis.size + int(i)
        return there, here

    moves: dict[tuple[int, int], Pairs] = {}
    for source, target in op.attrs["pairs"]:
        (a, of), (c, to) = split_position(source), split_position(target)
        moves.setdefault((of, to), []).append((a, c))
    return moves


def _is_whole(pairs: Pairs, process_count: int) -> bool:
    """Return whether a row stays in its process, in all processes."""
    return len(pairs) == process_count and all(a == c for a, c in pairs)


def _group_rows_by_processes(
    moves: Mapping[tuple[int, int], Pairs],
) -> dict[tuple[Ints, ...], list[tuple[int, int]]]:
    """Return the row pairs that are sent between the same pairs of processes."""
    result: dict[tuple[Ints, ...], list[tuple[int, int]]] = {}
    for (of, to), pairs in moves.items():
        leaving = tuple(sorted(pair for pair in pairs if pair[0] != pair[1]))
        if leaving:
            result.setdefault(leaving, []).append((of, to))
    return result


def _replace_row(b: Builder, value: Value, row: Value, to: int, here: Value | None) -> Value:
    """Return `value` with another row at `to`, in processes where `here` is true if given."""
    if here is not None:
        flags = b.broadcast(here, dims=(), result=row.type.with_dtype("bool"))
        row = b.select(flags, row, slice_rows(b, value, 0, to, 1))
    count = value.type.shape[0]
    before = [slice_rows(b, value, 0, 0, to)] if to else []
    behind = [slice_rows(b, value, 0, to + 1, count - to - 1)] if to + 1 < count else []
    return concatenate_rows(b, [*before, row, *behind])


def _is_one_of_processes(merger: DeviceMerger, far: Axes, processes: Sequence[int]) -> Value:
    """Return whether this process is one of `processes`, numbered along the axes between
    processes."""
    b, levels, flag = merger.b, merger.sub_axes.levels, TensorType((), "bool")
    if levels.position_of_process is not None:
        result: Value = b.full(levels.position(far) in processes, flag)
        return result
    table: NumpyArray = np.zeros(prod(axis_sizes(far)), bool)
    table[list(processes)] = True
    flags = b.constant(value=Dense(table), result=flag.with_shape(table.shape))
    return reshape_if_needed(b, b.all_slice(flags, dim=0, axes=far), ())
