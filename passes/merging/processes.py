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
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.ir import Op, Value
from shardir.levels import Levels
from shardir.ops.check import Ints
from shardir.ops.overlap import is_started, kind_of
from shardir.opset import OPS, Dense
from shardir.passes.merging.arrange import arranged, joined, reshaped, rows
from shardir.passes.merging.atoms import sizes
from shardir.passes.merging.collectives import told
from shardir.passes.merging.merger import Merger, Rule, Spread, refusal
from shardir.passes.merging.permute import received
from shardir.placement import Axes
from shardir.types import TensorType

Pairs = list[tuple[int, int]]


def beside(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules for devices of one process, extended by those for collectives between
    processes."""
    exchanges = {name for name, spec in OPS.items() if spec.exchange is not None}
    return {**{name: _either(rules.get(name)) for name in exchanges}, **_others(rules, exchanges)}


def _others(rules: Mapping[str, Rule], exchanges: set[str]) -> dict[str, Rule]:
    return {name: rule for name, rule in rules.items() if name not in exchanges} | {"done": _done}


def _either(near: Rule | None) -> Rule:
    def rule(merger: Merger, op: Op) -> Sequence[Spread]:
        axes = axes_of(op)
        far = merger.atoms.levels.far(axes)
        if not far:
            if near is None:
                raise refusal(op, "has no meaning outside of devices")
            return near(merger, op)
        if not merger.atoms.levels.near(axes):
            return [_between(merger, op)]
        if kind_of(op) != "collective-permute":
            raise refusal(op, "goes through two levels; run hierarchical-collectives before")
        return [_mixed(merger, op)]

    return rule


def axes_of(op: Op) -> Axes:
    """Return the axes of a collective operation."""
    return tuple(axis for name in ("axes", "source", "target") for axis in op.attrs.get(name, ()))


def _between(merger: Merger, op: Op) -> Spread:
    """Append the collective on the values of all devices of a process, whose dimensions come
    later."""
    if not op.operands:
        return Spread(merger.b.emit(op.spec, result=op.result.type, **op.attrs), ())
    value, own = merger.get(op.operands[0])
    attrs = dict(op.attrs)
    for name in ("dim", "split", "concat"):
        if name in attrs:
            attrs[name] += len(own)
    return Spread(merger.b.emit(op.spec, value, result=None, **attrs), own)


def _done(merger: Merger, op: Op) -> Sequence[Spread]:
    """Append a wait if the awaited operation is still a collective."""
    value, own = merger.get(op.operands[0])
    started = any(each.results == (value,) and is_started(each) for each in reversed(merger.b.ops))
    return [Spread(merger.b.done(value) if started else value, own)]


def _mixed(merger: Merger, op: Op) -> Spread:
    """Append a permute along axes of both levels, row by row."""
    told(merger, op)
    b, levels = merger.b, merger.atoms.levels
    axes: Axes = op.attrs["axes"]
    far, near = levels.far(axes), merger.atoms.of(axes)
    spread = merger.get(op.operands[0])
    own = merger.atoms.union(spread.atoms, near)
    value = merger.widened(spread, own)
    rest = [atom for atom in own if atom not in near]
    places = (*map(own.index, near), *map(own.index, rest), *range(len(own), value.type.rank))
    order: list[Ints] = [places[: len(near)], *((place,) for place in places[len(near) :])]
    counted = arranged(b, value, [(n,) for n in value.type.shape], order)
    moves = _moves(op, levels)
    sources = Counter(to for _, to in moves)
    process_count = prod(sizes(far))
    stays = {to: of for (of, to), pairs in moves.items() if _is_whole(pairs, process_count)}
    count = prod(sizes(near))
    if len(op.attrs["pairs"]) == count * process_count:
        made = received(b, counted, [stays.get(i, i) for i in range(count)])
    elif op.result.type.dtype == "key":
        raise refusal(op, "leaves devices without a key")
    else:
        made = received(b, counted, [stays.get(i) for i in range(count)])
    for leaving, routes in _together(moves, stays).items():
        sent = b.emit(
            OPS["collective-permute"],
            joined(b, [rows(b, counted, 0, of, 1) for of, _ in routes]),
            axes=far,
            pairs=leaving,
            name=f"{op.result.name}.far",
        )
        for i, (of, to) in enumerate(routes):
            # A device without sender receives zeros, which it holds already unless a row comes from
            # elsewhere.
            alone = sources[to] == 1 and len(moves[of, to]) == len(leaving)
            here = None if alone else _here(merger, far, [c for _, c in leaving])
            made = _placed(b, made, rows(b, sent, 0, i, 1), to, here)
    for (of, to), pairs in moves.items():
        staying = [a for a, c in pairs if a == c]
        if staying and stays.get(to) != of:
            made = _placed(b, made, rows(b, counted, 0, of, 1), to, _here(merger, far, staying))
    apart = [sizes(near), *((n,) for n in made.type.shape[1:])]
    back: list[Ints] = [(places.index(d),) for d in range(len(places))]
    return Spread(arranged(b, made, apart, back), own)


def _moves(op: Op, levels: Levels) -> dict[tuple[int, int], Pairs]:
    """Return for each pair of source and target row the pairs of processes."""
    axes = levels.split(op.attrs["axes"])
    shape = sizes(axes)
    is_far = [levels.is_far(axis) for axis in axes]

    def apart(position: int) -> tuple[int, int]:
        there = here = 0
        for axis, distant, i in zip(axes, is_far, np.unravel_index(position, shape), strict=True):
            if distant:
                there = there * axis.size + int(i)
            else:
                here = here * axis.size + int(i)
        return there, here

    moves: dict[tuple[int, int], Pairs] = {}
    for source, target in op.attrs["pairs"]:
        (a, of), (c, to) = apart(source), apart(target)
        moves.setdefault((of, to), []).append((a, c))
    return moves


def _is_whole(pairs: Pairs, process_count: int) -> bool:
    """Return whether a row stays in its process, in all processes."""
    return len(pairs) == process_count and all(a == c for a, c in pairs)


def _together(
    moves: Mapping[tuple[int, int], Pairs], stays: Mapping[int, int]
) -> dict[tuple[Ints, ...], list[tuple[int, int]]]:
    """Return the row pairs that are sent between the same pairs of processes."""
    found: dict[tuple[Ints, ...], list[tuple[int, int]]] = {}
    for (of, to), pairs in moves.items():
        leaving = tuple(sorted(pair for pair in pairs if pair[0] != pair[1]))
        if leaving and stays.get(to) != of:
            found.setdefault(leaving, []).append((of, to))
    return found


def _placed(b: Any, made: Value, row: Value, to: int, here: Value | None) -> Value:
    """Return `made` with another row at `to`, in processes where `here` is true if given."""
    if here is not None:
        flags = b.broadcast(here, dims=(), result=row.type.with_dtype("bool"))
        row = b.select(flags, row, rows(b, made, 0, to, 1))
    count = made.type.shape[0]
    before = [rows(b, made, 0, 0, to)] if to else []
    behind = [rows(b, made, 0, to + 1, count - to - 1)] if to + 1 < count else []
    return joined(b, [*before, row, *behind])


def _here(merger: Merger, far: Axes, processes: Sequence[int]) -> Value:
    """Return whether this process is one of `processes`, numbered along the axes between
    processes."""
    b, levels, flag = merger.b, merger.atoms.levels, TensorType((), "bool")
    if levels.place is not None:
        made: Value = b.full(levels.position(far) in processes, flag)
        return made
    table: npt.NDArray[Any] = np.zeros(prod(sizes(far)), bool)
    table[list(processes)] = True
    known = b.constant(value=Dense(table), result=flag.with_shape(table.shape))
    return reshaped(b, b.all_slice(known, dim=0, axes=far), ())
