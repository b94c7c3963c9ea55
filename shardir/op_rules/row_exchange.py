"""Row exchange: collective permutes that bring each device the rows of a dimension that it needs.

A dimension is sharded along some axes, so that the device at each position owns some of its rows
(`owned_rows`). For its part of a result it needs other rows (`needed_rows`, as `RowRun`s), which
may be owned by adjacent devices, by distant devices, or by no device. `exchange_rows` fetches them.
Rows with the same offset between source and target move together in one collective-permute;
otherwise each permute carries one run per device. If the permutes would move more bytes than an
all-gather of the dimension, the dimension is gathered. Plans depend only on the positions along the
axes that shard the dimension, so planning time is independent of the mesh size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.operation import Dense, Value
from shardir.ir.sharding import Axes, count_positions
from shardir.ir.types import TensorType
from shardir.op_rules.exchange_plan import (
    ExchangeRound,
    RowRun,
    RowRuns,
    are_disjoint,
    block_runs,
    is_zero_elsewhere,
    merge_local,
    plan_rounds,
    plan_transfers,
)
from shardir.op_rules.partitioning import LocalOp


def exchange_rows(
    b: Builder,
    x: Value,
    dim: int,
    axes: Axes,
    owned_rows: RowRuns,
    needed_rows: RowRuns,
    size: int,
    fill: complex | Value | None = None,
) -> Value:
    """Return `size` rows of dimension `dim` on every device: the rows that the device needs.

    `owned_rows[i]` and `needed_rows[i]` are the rows that the device at position i along `axes`
    has in `x` and needs in the result. Needed rows that no device owns are `fill`, a number or a
    scalar value; without `fill` they are unspecified, like the rows that are not needed.
    """
    fetch = _RowExchange(b, x, dim, axes, size, fill)
    return fetch.run(owned_rows, needed_rows)


@dataclass
class _RowExchange:
    b: Builder
    x: Value
    dim: int
    axes: Axes
    size: int
    fill: complex | Value | None

    def run(self, owned_rows: RowRuns, needed_rows: RowRuns) -> Value:
        rows = self.x.type.shape[self.dim]
        edges = list(plan_transfers(owned_rows, needed_rows))
        local = plan_rounds([e for e in edges if e.sender == e.receiver], rows)
        remote = plan_rounds([e for e in edges if e.sender != e.receiver], rows)
        if sum(step.length for step in remote) > rows * len(owned_rows):
            return self.gather_and_select(owned_rows, needed_rows, rows)
        return self.assemble(merge_local(local, remote), owned_rows, needed_rows)

    # Assembly of the received rows

    def concatenate_rows(self, steps: Sequence[ExchangeRound]) -> Value:
        """Concatenate the received rows, which have the same positions on all devices."""
        parts, at = [], 0
        for step in steps:
            start = step.targets[0]
            if start > at:
                parts.append(self.filler(start - at))
            parts.append(self.receive_round(step))
            at = start + step.length
        if at < self.size:
            parts.append(self.filler(self.size - at))
        return parts[0] if len(parts) == 1 else self.b.concatenate(*parts, dim=self.dim)

    def scatter_rows(self, steps: Sequence[ExchangeRound]) -> Value:
        """Write the received rows at device-dependent positions."""
        b, rows = self.b, self.filler(self.size)
        for step in steps:
            low = max(0, -min(step.targets))
            high = max(0, max(step.targets) + step.length - self.size)
            room = rows if not low + high else self.filler(low + self.size + high)
            targets = {
                e.receiver: t + low for e, t in zip(step.transfers, step.targets, strict=True)
            }
            room = self.update(room, self.receive_round(step), self.pick_by_position(targets))
            if low or high:
                room = self.slice_static(room, low, self.size)
            first = {e.receiver: e.target for e in step.transfers}
            last = {e.receiver: e.target + e.length for e in step.transfers}
            index = self.row_index(rows)
            start = self.broadcast_scalar(self.pick_by_position(first, self.size), index)
            stop = self.broadcast_scalar(self.pick_by_position(last, 0), index)
            rows = b.select(b.and_(b.ge(index, start), b.lt(index, stop)), room, rows)
        return rows

    def fill_missing(self, rows: Value, owned_rows: RowRuns, needed_rows: RowRuns) -> Value:
        """Write `fill` into needed rows before the first or after the last owned row."""
        if self.fill is None:
            return rows
        begin = min((run.start for runs in owned_rows for run in runs), default=0)
        end = max((run.start + run.length for runs in owned_rows for run in runs), default=0)
        low, high, needs_low, needs_high = {}, {}, False, False
        for i, runs in enumerate(needed_rows):
            for run in runs:
                low[i], high[i] = (edge - run.start + run.offset for edge in (begin, end))
                needs_low |= run.start < begin and run.length > 0
                needs_high |= run.start + run.length > end and run.length > 0
        b, index, here = self.b, self.row_index(rows), None
        if needs_low:
            here = b.ge(index, self.broadcast_scalar(self.pick_by_position(low), index))
        if needs_high:
            below = b.lt(index, self.broadcast_scalar(self.pick_by_position(high), index))
            here = below if here is None else b.and_(here, below)
        return rows if here is None else b.select(here, rows, self.filler(self.size))

    def receive_round(self, step: ExchangeRound) -> Value:
        """Return the rows that one round delivers."""
        sources = {e.sender: s for e, s in zip(step.transfers, step.sources, strict=True)}
        part = self.slice_at(self.x, self.pick_by_position(sources), step.length)
        if step.is_local:
            return part
        pairs = tuple(sorted((e.sender, e.receiver) for e in step.transfers))
        return self.b.collective_permute(
            part, axes=self.axes, pairs=pairs, name=f"{self.x.name}.halo"
        )

    def gather_and_select(self, owned_rows: RowRuns, needed_rows: RowRuns, rows: int) -> Value:
        """All-gather the dimension, then select the needed rows on each device."""
        gathered = self.b.all_gather(self.x, dim=self.dim, axes=self.axes)
        everything: list[RowRun] = []
        for j, runs in enumerate(owned_rows):
            for run in runs:
                offset = run.offset + j * rows
                if everything and everything[-1].is_continued_by(offset, run.start):
                    last = everything.pop()
                    run = RowRun(last.offset, last.start, last.length + run.length)
                else:
                    run = run._replace(offset=offset)
                everything.append(run)
        copies = [everything] * len(owned_rows)
        edges = list(plan_transfers([everything], needed_rows, local=True))
        return replace(self, x=gathered).assemble(
            plan_rounds(edges, rows * len(owned_rows)), copies, needed_rows
        )

    def assemble(
        self, steps: Sequence[ExchangeRound], owned_rows: RowRuns, needed_rows: RowRuns
    ) -> Value:
        steps = sorted(steps, key=lambda step: min(step.targets))
        if not all(step.is_static for step in steps) or not are_disjoint(steps, self.size):
            return self.scatter_rows(steps)
        result = self.concatenate_rows(steps)
        if self.is_zero() and is_zero_elsewhere(steps, needed_rows):
            return result
        return self.fill_missing(result, owned_rows, needed_rows)

    # Helpers

    @property
    def num_positions(self) -> int:
        return count_positions(self.axes)

    def is_zero(self) -> bool:
        return isinstance(self.fill, int | float | complex) and self.fill == 0

    def filler(self, rows: int) -> Value:
        """Return rows that consist of `fill`."""
        shape = self.x.type.shape
        type = self.x.type.with_shape((*shape[: self.dim], rows, *shape[self.dim + 1 :]))
        if self.fill is None or isinstance(self.fill, int | float | complex):
            return self.b.full(self.fill or 0, type)
        return self.b.broadcast(self.fill, dims=(), result=type)

    def pick_by_position(self, table: dict[int, int], other: int | None = None) -> int | Value:
        """Return the entry of `table` for the device's position; `other` where there is none.

        The result is an `int` if it is equal on all devices, else a scalar i32. With `other=None`
        the result is unspecified at positions without an entry.
        """
        entries = sorted(table.items())
        if other is None:
            (i, n), (j, m) = entries[0], entries[-1]
            step = (m - n) // (j - i) if j > i else 0
            numbers = [n + (k - i) * step for k in range(self.num_positions)]
            if any(numbers[k] != number for k, number in entries):
                numbers = [table.get(k, n) for k in range(self.num_positions)]
        else:
            numbers = [table.get(k, other) for k in range(self.num_positions)]
        return select_by_position(self.b, self.axes, numbers)

    def slice_at(self, value: Value, start: int | Value, length: int) -> Value:
        """Return `length` rows from `start` on."""
        if isinstance(start, int):
            return self.slice_static(value, start, length)
        shape = value.type.shape
        to = value.type.with_shape((*shape[: self.dim], length, *shape[self.dim + 1 :]))
        return self.b.dynamic_slice(value, *self.starts(value, start), result=to)

    def slice_static(self, value: Value, start: int, length: int) -> Value:
        return slice_rows(self.b, value, self.dim, start, length)

    def update(self, room: Value, piece: Value, start: int | Value) -> Value:
        if isinstance(start, int):
            start = self.b.full(start, TensorType((), "i32"))
        return self.b.dynamic_update_slice(room, piece, *self.starts(room, start))

    def starts(self, value: Value, start: Value) -> Iterator[Value]:
        zero = self.b.full(0, start.type)
        return (start if d == self.dim else zero for d in range(value.type.rank))

    def row_index(self, value: Value) -> Value:
        """Return the row index of each element."""
        return self.b.iota(dim=self.dim, result=value.type.with_dtype("i32"))

    def broadcast_scalar(self, number: int | Value, like: Value) -> Value:
        if isinstance(number, int):
            return self.b.full(number, like.type)
        return self.b.broadcast(number, dims=(), result=like.type)


def select_by_position(b: Builder, axes: Axes, numbers: Sequence[int]) -> int | Value:
    """Return the element of `numbers` for the device's position along `axes`.

    The result is an `int` if all elements are equal, else a scalar i32.
    """
    if len(set(numbers)) == 1:
        return numbers[0]
    position = b.axis_index(axes=axes)
    first, step = numbers[0], numbers[1] - numbers[0]
    if all(n == first + i * step for i, n in enumerate(numbers)):
        scaled = position if step == 1 else b.mul(position, b.full(step, position.type))
        return b.add(scaled, b.full(first, position.type)) if first else scaled
    every = b.constant(
        value=Dense(np.array(numbers, np.int32)), result=TensorType((len(numbers),), "i32")
    )
    element = b.dynamic_slice(every, position, result=TensorType((1,), "i32"))
    return b.reshape(element, result=position.type)


def slice_rows(b: Builder, value: Value, dim: int, start: int, length: int) -> Value:
    """Return `length` rows of dimension `dim` from `start` on, or the value if these are all."""
    shape = value.type.shape
    if (start, length) == (0, shape[dim]):
        return value
    starts = tuple(start if d == dim else 0 for d in range(len(shape)))
    to = value.type.with_shape((*shape[:dim], length, *shape[dim + 1 :]))
    return b.slice(value, starts=starts, strides=(1,) * len(shape), result=to)


def fetch_rows(
    b: Builder,
    local: LocalOp,
    piece: Value,
    value: Value,
    dim: int,
    needed_rows: RowRuns,
    size: int,
    fill: complex | Value | None = None,
) -> Value:
    """Exchange rows of a device's shard `piece` of `value`, which is sharded along `dim`."""
    axes = local.sharding_axes(value, dim)
    owned_rows = block_runs(value.type.shape[dim], piece.type.shape[dim], len(needed_rows))
    return exchange_rows(b, piece, dim, axes, owned_rows, needed_rows, size, fill)


def block_extents(size: int, block: int, count: int) -> list[tuple[int, int]]:
    """Return the start of each device's block of `size` rows, and its number of rows."""
    return [(i * block, min(max(size - i * block, 0), block)) for i in range(count)]
