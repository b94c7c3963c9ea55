"""Rows that devices hold of a dimension, and rows that they need: the permutes in between.

A dimension is cut along some axes, so that the device at each position holds some of its rows
(`blocks`), and for its part of a result it needs others (`Run`s), which may lie with neighbours,
with devices far away, or nowhere. `exchange` fetches them. Rows that are as far from each other
in what is held and in what is needed move together in one collective-permute; where rows do not
line up like that, each permute carries one run for every device. If all of that moves more bytes
than gathering the dimension would, it is gathered. Devices are told apart by their position along
the axes that cut the dimension and by nothing else, so the time does not depend on the mesh.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardir.opset import Dense
from shardir.partitioning import Local
from shardir.placement import Axes, size_of
from shardir.rounds import (
    Round,
    Run,
    Runs,
    apart,
    blocks,
    edges_between,
    joined,
    rounds_of,
    zero_elsewhere,
)
from shardir.types import TensorType


def exchange(
    b: Any,
    x: Any,
    dim: int,
    axes: Axes,
    held: Runs,
    wanted: Runs,
    size: int,
    fill: Any = None,
) -> Any:
    """`size` rows of dimension `dim` on every device: those it wants.

    `held[i]` and `wanted[i]` are what the device at position i along `axes` has in `x` and is to
    have in the result. Wanted rows that nobody holds are `fill`, a number or a value of rank 0;
    without it they are anything, as are the rows that are not wanted.
    """
    fetch = _Exchange(b, x, dim, axes, size, fill)
    return fetch.run(held, wanted)


@dataclass
class _Exchange:
    b: Any
    x: Any
    dim: int
    axes: Axes
    size: int
    fill: Any

    def run(self, held: Runs, wanted: Runs) -> Any:
        rows = self.x.type.shape[self.dim]
        edges = list(edges_between(held, wanted))
        local = rounds_of([e for e in edges if e.sender == e.receiver], rows)
        remote = rounds_of([e for e in edges if e.sender != e.receiver], rows)
        if sum(step.length for step in remote) > rows * len(held):
            return self.gathered(held, wanted, rows)
        return self.assembled(joined(local, remote), held, wanted)

    # Putting pieces together

    def tiled(self, steps: Sequence[Round]) -> Any:
        """The pieces side by side: they are in the same places on all devices."""
        parts, at = [], 0
        for step in steps:
            start = step.targets[0]
            if start > at:
                parts.append(self.filler(start - at))
            parts.append(self.piece(step))
            at = start + step.length
        if at < self.size:
            parts.append(self.filler(self.size - at))
        return parts[0] if len(parts) == 1 else self.b.concatenate(*parts, dim=self.dim)

    def placed(self, steps: Sequence[Round]) -> Any:
        """Every piece written where the device needs it."""
        b, made = self.b, self.filler(self.size)
        for step in steps:
            low = max(0, -min(step.targets))
            high = max(0, max(step.targets) + step.length - self.size)
            room = made if not low + high else self.filler(low + self.size + high)
            targets = {e.receiver: t + low for e, t in zip(step.edges, step.targets, strict=True)}
            room = self.update(room, self.piece(step), self.pick(targets))
            if low or high:
                room = self.cut(room, low, self.size)
            first = {e.receiver: e.target for e in step.edges}
            last = {e.receiver: e.target + e.length for e in step.edges}
            index = self.index(made)
            start = self.spread(self.pick(first, self.size), index)
            stop = self.spread(self.pick(last, 0), index)
            made = b.select(b.and_(b.ge(index, start), b.lt(index, stop)), room, made)
        return made

    def masked(self, made: Any, held: Runs, wanted: Runs) -> Any:
        """`fill` wherever rows are wanted that nobody holds: before the first or after the last."""
        if self.fill is None:
            return made
        begin = min((run.start for runs in held for run in runs), default=0)
        end = max((run.start + run.length for runs in held for run in runs), default=0)
        low, high, needs_low, needs_high = {}, {}, False, False
        for i, runs in enumerate(wanted):
            for run in runs:
                low[i], high[i] = (edge - run.start + run.offset for edge in (begin, end))
                needs_low |= run.start < begin and run.length > 0
                needs_high |= run.start + run.length > end and run.length > 0
        b, index, here = self.b, self.index(made), None
        if needs_low:
            here = b.ge(index, self.spread(self.pick(low), index))
        if needs_high:
            below = b.lt(index, self.spread(self.pick(high), index))
            here = below if here is None else b.and_(here, below)
        return made if here is None else b.select(here, made, self.filler(self.size))

    def piece(self, step: Round) -> Any:
        """What a round brings."""
        sources = {e.sender: s for e, s in zip(step.edges, step.sources, strict=True)}
        part = self.part(self.x, self.pick(sources), step.length)
        if step.is_local:
            return part
        pairs = tuple(sorted((e.sender, e.receiver) for e in step.edges))
        return self.b.collective_permute(
            part, axes=self.axes, pairs=pairs, name=f"{self.x.name}.halo"
        )

    def gathered(self, held: Runs, wanted: Runs, rows: int) -> Any:
        """Everything everywhere, from which each device takes what it wants."""
        whole = self.b.all_gather(self.x, dim=self.dim, axes=self.axes)
        everything: list[Run] = []
        for j, runs in enumerate(held):
            for run in runs:
                offset = run.offset + j * rows
                if everything and everything[-1].follows(offset, run.start):
                    last = everything.pop()
                    run = Run(last.offset, last.start, last.length + run.length)
                else:
                    run = run._replace(offset=offset)
                everything.append(run)
        copies = [everything] * len(held)
        edges = list(edges_between([everything], wanted, local=True))
        return replace(self, x=whole).assembled(rounds_of(edges, rows * len(held)), copies, wanted)

    def assembled(self, steps: Sequence[Round], held: Runs, wanted: Runs) -> Any:
        steps = sorted(steps, key=lambda step: min(step.targets))
        if not all(step.is_static for step in steps) or not apart(steps, self.size):
            return self.placed(steps)
        made = self.tiled(steps)
        if self.is_zero() and zero_elsewhere(steps, wanted):
            return made
        return self.masked(made, held, wanted)

    # Small things

    @property
    def count(self) -> int:
        return size_of(self.axes)

    def is_zero(self) -> bool:
        return isinstance(self.fill, int | float | complex) and self.fill == 0

    def filler(self, rows: int) -> Any:
        """Rows of `fill`."""
        shape = self.x.type.shape
        type = self.x.type.with_shape((*shape[: self.dim], rows, *shape[self.dim + 1 :]))
        if self.fill is None or isinstance(self.fill, int | float | complex):
            return self.b.full(self.fill or 0, type)
        return self.b.broadcast(self.fill, dims=(), result=type)

    def pick(self, table: dict[int, int], other: int | None = None) -> "int | Any":
        """A number for each position along the axes; `other` where the table has none.

        An `int` if it is one number, else an i32 of rank 0. With `other=None` the positions that
        are not in the table may get anything.
        """
        known = sorted(table.items())
        if other is None:
            (i, n), (j, m) = known[0], known[-1]
            step = (m - n) // (j - i) if j > i else 0
            numbers = [n + (k - i) * step for k in range(self.count)]
            if any(numbers[k] != number for k, number in known):
                numbers = [table.get(k, n) for k in range(self.count)]
        else:
            numbers = [table.get(k, other) for k in range(self.count)]
        return choice(self.b, self.axes, numbers)

    def part(self, value: Any, start: "int | Any", length: int) -> Any:
        """`length` rows from `start` on."""
        if isinstance(start, int):
            return self.cut(value, start, length)
        shape = value.type.shape
        to = value.type.with_shape((*shape[: self.dim], length, *shape[self.dim + 1 :]))
        return self.b.dynamic_slice(value, *self.starts(value, start), result=to)

    def cut(self, value: Any, start: int, length: int) -> Any:
        return part(self.b, value, self.dim, start, length)

    def update(self, room: Any, piece: Any, start: "int | Any") -> Any:
        if isinstance(start, int):
            start = self.b.full(start, TensorType((), "i32"))
        return self.b.dynamic_update_slice(room, piece, *self.starts(room, start))

    def starts(self, value: Any, start: Any) -> Iterator[Any]:
        zero = self.b.full(0, start.type)
        return (start if d == self.dim else zero for d in range(value.type.rank))

    def index(self, value: Any) -> Any:
        """Which row each element is in."""
        return self.b.iota(dim=self.dim, result=value.type.with_dtype("i32"))

    def spread(self, number: "int | Any", like: Any) -> Any:
        if isinstance(number, int):
            return self.b.full(number, like.type)
        return self.b.broadcast(number, dims=(), result=like.type)


def choice(b: Any, axes: Axes, numbers: Sequence[int]) -> "int | Any":
    """The number of the device's position along `axes`.

    An `int` if it is the same everywhere, else an i32 of rank 0.
    """
    if len(set(numbers)) == 1:
        return numbers[0]
    place = b.axis_index(axes=axes)
    first, step = numbers[0], numbers[1] - numbers[0]
    if all(n == first + i * step for i, n in enumerate(numbers)):
        scaled = place if step == 1 else b.mul(place, b.full(step, place.type))
        return b.add(scaled, b.full(first, place.type)) if first else scaled
    every = b.constant(
        value=Dense(np.array(numbers, np.int32)), result=TensorType((len(numbers),), "i32")
    )
    found = b.dynamic_slice(every, place, result=TensorType((1,), "i32"))
    return b.reshape(found, result=place.type)


def part(b: Any, value: Any, dim: int, start: int, length: int) -> Any:
    """`length` rows of dimension `dim` from `start` on; the value itself, if these are all."""
    shape = value.type.shape
    if (start, length) == (0, shape[dim]):
        return value
    starts = tuple(start if d == dim else 0 for d in range(len(shape)))
    to = value.type.with_shape((*shape[:dim], length, *shape[dim + 1 :]))
    return b.slice(value, starts=starts, strides=(1,) * len(shape), result=to)


def fetch(
    b: Any,
    local: Local,
    piece: Any,
    value: Any,
    dim: int,
    wanted: Runs,
    size: int,
    fill: Any = None,
) -> Any:
    """`exchange` for a device's `piece` of `value`, an operand that is cut along `dim`."""
    axes = local.axes(value, dim)
    held = blocks(value.type.shape[dim], piece.type.shape[dim], len(wanted))
    return exchange(b, piece, dim, axes, held, wanted, size, fill)


def shares(size: int, block: int, count: int) -> list[tuple[int, int]]:
    """Where each device's block of `size` rows begins, and how many rows of it there are."""
    return [(i * block, min(max(size - i * block, 0), block)) for i in range(count)]
