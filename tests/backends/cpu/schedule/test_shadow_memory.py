"""Whatever shares memory, operations read what was written for them.

Arrays of random programs are all of one size, so that they share as much memory as they can.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import lax, numpy as snp
from shardir.backends.cpu import BACKEND
from shardir.backends.cpu.schedule import arena
from shardir.ir.module import Function
from shardir.passes import Pipeline
from tests.backends.cpu.schedule import shadow_memory
from tests.backends.cpu.schedule.shadow_memory import Shadow, ShadowError

SIDE = 6
SIZE = SIDE * SIDE
STEPS = 8
DEPTH = 3

Values = list[Any]
Source = random.Random


def square(x: Any) -> Any:
    return x.reshape(SIDE, SIDE)


MAPS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * 3 - 1,
    lambda x, y: snp.where(x > y, x, 2),
]
MOVES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: snp.cumsum(x),
    lambda x, y: x[::-1],
    lambda x, y: snp.sort(x),
    lambda x, y: square(x).T.reshape(SIZE),
    lambda x, y: (square(x) @ square(y)).reshape(SIZE),
    lambda x, y: snp.concatenate([x[5:], y[:5]]),
    lambda x, y: snp.concatenate([snp.concatenate([x[:7], y[:9]]), x[16:]]),
    lambda x, y: x.at[snp.argsort(y)].get(mode="promise_in_bounds"),
]
PARTS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x.at[snp.argmax(y)].set(y[3]),
    lambda x, y: lax.dynamic_update_slice(x, y[2:6], (snp.argmin(y),)),
    lambda x, y: x.at[snp.argsort(y)[:3]].add(x[:3], mode="drop").at[4].set(1.0),
]


def program(source: Source, values: Values, steps: int, depth: int = 0) -> Values:
    """The values, and some more that are made of them."""
    values = list(values)

    def some() -> Any:
        return source.choice(values[-3:] if source.random() < 0.6 else values)

    for _ in range(steps):
        kinds = [MAPS, MOVES, PARTS] if depth == DEPTH else [MAPS, MOVES, PARTS, None]
        kind = source.choice(kinds)
        if kind is None:
            values += inside(source, some(), some(), values[0], depth + 1)
        else:
            values.append(source.choice(kind)(some(), some()))
    return values


def inside(source: Source, x: Any, y: Any, free: Any, depth: int) -> Any:
    """A branch or a loop, which may use what is `free` around it."""
    seed = source.getrandbits(32)

    def made(*values: Any, other: int = 0) -> tuple[Any, Any]:
        inner = Source(seed + other)
        found = program(inner, [free, *values], inner.randint(1, 4), depth)
        return inner.choice(found[-3:]), inner.choice(found[1:])

    kind = source.choice(["cond", "fori", "while", "scan", "rows"])
    if kind == "cond":
        return lax.cond(x[0] > 0, made, lambda *each: made(*each, other=1), x, y)
    if kind == "fori":
        return lax.fori_loop(0, 3, lambda _, each: made(*each), (x, y))
    if kind == "while":
        return lax.while_loop(lambda each: each[0][0] < 5, lambda each: made(*each), (x, y))
    if kind == "rows":
        return (lax.fori_loop(0, 4, lambda i, each: each.at[i].set(made(each, y)[0][1]), x),)

    def step(carried: Any, row: Any) -> Any:
        first, second = made(*carried, snp.tile(row, SIDE))
        return (first, second), (second, first[:SIDE])

    (x, y), (all_, rows) = lax.scan(step, (x, y), square(y), reverse=bool(seed % 2))
    return x, y, all_[1], rows.reshape(SIZE)


def whole(function: Callable[..., Any], count: int) -> Function:
    """What a function becomes before it is scheduled."""
    zeros = [np.zeros(SIZE, np.float32)] * count
    module = sd.jit(function).lower(*zeros).module
    return Pipeline.parse(f"dce,{BACKEND.pipeline}")(module).main


def drawn(seed: int) -> Function:
    """A random function before it is scheduled."""

    def function(*given: Any) -> Any:
        source = Source(seed)
        values = program(source, list(given), STEPS)
        return [value for value in values[2:] if source.random() < 0.4] + values[-1:]

    return whole(function, 2)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_read_what_was_written_for_them(seed: int) -> None:
    function = drawn(seed)
    must_read_its_own(function)


def must_read_its_own(function: Function) -> None:
    """Some runs of a function, which take one branch and another."""
    for seed in range(4):
        Shadow(function, seed).run()


def branches(x: Any) -> Any:
    made = lax.cond(x[0] > 0, lambda x: snp.cumsum(x) * 2, lambda x: snp.cumsum(x)[::-1], x)
    return snp.cumsum(made)


def test_bytes_of_which_a_branch_has_too_few_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that takes over what ends in one branch, where the other writes it, too."""

    def careless(
        pairs: Sequence[tuple[int, arena.PlannedBuffer, arena.PlannedBuffer]],
    ) -> list[Any]:
        for _, old, new in pairs:
            if old.kind is new.kind is arena.BufferKind.ARENA:
                new.reused_buffer = old
        return []

    function = whole(branches, 1)
    must_read_its_own(function)
    monkeypatch.setattr(shadow_memory, "reuse_operands", careless)
    with pytest.raises(ShadowError, match="writes over"):
        must_read_its_own(function)


def test_lives_that_are_too_short_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(buffers: Sequence[arena.PlannedBuffer]) -> int:
        for buffer in buffers:
            buffer.last = min(buffer.last, buffer.first)
        return arena.assign_offsets(buffers)

    function = whole(lambda x: snp.sort(x) + snp.cumsum(snp.sort(snp.cumsum(x))), 1)
    must_read_its_own(function)
    monkeypatch.setattr(shadow_memory, "assign_offsets", hasty)
    with pytest.raises(ShadowError):
        must_read_its_own(function)
