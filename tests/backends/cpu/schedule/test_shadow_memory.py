"""Operations read the values that were written for them, however buffers share memory.

All arrays of a random program have equal sizes, so that they share as much memory as possible.
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
from tests.backends.cpu.schedule.shadow_memory import ShadowError, ShadowExecution

pytestmark = pytest.mark.sample(3)

ROW_LENGTH = 6
ARRAY_LENGTH = ROW_LENGTH * ROW_LENGTH
STEP_COUNT = 8
MAX_DEPTH = 3

Values = list[Any]
Source = random.Random


def square(x: Any) -> Any:
    return x.reshape(ROW_LENGTH, ROW_LENGTH)


ELEMENTWISE: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * 3 - 1,
    lambda x, y: snp.where(x > y, x, 2),
]
DATA_MOVEMENT: list[Callable[[Any, Any], Any]] = [
    lambda x, y: snp.cumsum(x),
    lambda x, y: x[::-1],
    lambda x, y: snp.sort(x),
    lambda x, y: square(x).T.reshape(ARRAY_LENGTH),
    lambda x, y: (square(x) @ square(y)).reshape(ARRAY_LENGTH),
    lambda x, y: snp.concatenate([x[5:], y[:5]]),
    lambda x, y: snp.concatenate([snp.concatenate([x[:7], y[:9]]), x[16:]]),
    lambda x, y: x.at[snp.argsort(y)].get(mode="promise_in_bounds"),
]
UPDATES: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x.at[snp.argmax(y)].set(y[3]),
    lambda x, y: lax.dynamic_update_slice(x, y[2:6], (snp.argmin(y),)),
    lambda x, y: x.at[snp.argsort(y)[:3]].add(x[:3], mode="drop").at[4].set(1.0),
]


def random_values(source: Source, values: Values, steps: int, depth: int = 0) -> Values:
    """Return the values and further values computed from them."""
    values = list(values)

    def random_operand() -> Any:
        return source.choice(values[-3:] if source.random() < 0.6 else values)

    for _ in range(steps):
        kinds = (
            [ELEMENTWISE, DATA_MOVEMENT, UPDATES]
            if depth == MAX_DEPTH
            else [ELEMENTWISE, DATA_MOVEMENT, UPDATES, None]
        )
        kind = source.choice(kinds)
        if kind is None:
            values += random_region(
                source, random_operand(), random_operand(), values[0], depth + 1
            )
        else:
            values.append(source.choice(kind)(random_operand(), random_operand()))
    return values


def random_region(source: Source, x: Any, y: Any, free: Any, depth: int) -> Any:
    """Return a branch or loop, which may capture `free`."""
    seed = source.getrandbits(32)

    def random_results(*values: Any, other: int = 0) -> tuple[Any, Any]:
        inner = Source(seed + other)
        found = random_values(inner, [free, *values], inner.randint(1, 4), depth)
        return inner.choice(found[-3:]), inner.choice(found[1:])

    kind = source.choice(["cond", "fori", "while", "scan", "rows"])
    if kind == "cond":
        return lax.cond(
            x[0] > 0, random_results, lambda *each: random_results(*each, other=1), x, y
        )
    if kind == "fori":
        return lax.fori_loop(0, 3, lambda _, each: random_results(*each), (x, y))
    if kind == "while":
        return lax.while_loop(
            lambda each: each[0][0] < 5, lambda each: random_results(*each), (x, y)
        )
    if kind == "rows":
        return (
            lax.fori_loop(0, 4, lambda i, each: each.at[i].set(random_results(each, y)[0][1]), x),
        )

    def step(carried: Any, row: Any) -> Any:
        first, second = random_results(*carried, snp.tile(row, ROW_LENGTH))
        return (first, second), (second, first[:ROW_LENGTH])

    (x, y), (all_, rows) = lax.scan(step, (x, y), square(y), reverse=bool(seed % 2))
    return x, y, all_[1], rows.reshape(ARRAY_LENGTH)


def prepare_for_scheduling(function: Callable[..., Any], count: int) -> Function:
    """Return a function after the passes that precede scheduling."""
    zeros = [np.zeros(ARRAY_LENGTH, np.float32)] * count
    module = sd.jit(function).lower(*zeros).module
    return Pipeline.parse(f"dce,{BACKEND.pipeline}")(module).main


def random_function(seed: int) -> Function:
    """Return a random function after the passes that precede scheduling."""

    def function(*given: Any) -> Any:
        source = Source(seed)
        values = random_values(source, list(given), STEP_COUNT)
        return [value for value in values[2:] if source.random() < 0.4] + values[-1:]

    return prepare_for_scheduling(function, 2)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_read_the_written_values(seed: int) -> None:
    function = random_function(seed)
    check_reads(function)


def check_reads(function: Function) -> None:
    """Run a function with several seeds, which take different branches."""
    for seed in range(4):
        ShadowExecution(function, seed).run()


def branches(x: Any) -> Any:
    random_results = lax.cond(
        x[0] > 0, lambda x: snp.cumsum(x) * 2, lambda x: snp.cumsum(x)[::-1], x
    )
    return snp.cumsum(random_results)


def test_invalid_reuse_in_branches_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result reuses a buffer that dies in one branch, while the other branch writes it too."""

    def reuse_unconditionally(
        pairs: Sequence[tuple[int, arena.PlannedBuffer, arena.PlannedBuffer]],
    ) -> list[Any]:
        for _, old, new in pairs:
            if old.kind is new.kind is arena.BufferKind.ARENA:
                new.reused_buffer = old
        return []

    function = prepare_for_scheduling(branches, 1)
    check_reads(function)
    monkeypatch.setattr(shadow_memory, "reuse_operands", reuse_unconditionally)
    with pytest.raises(ShadowError, match="writes over"):
        check_reads(function)


def test_too_short_live_ranges_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorten_live_ranges(buffers: Sequence[arena.PlannedBuffer]) -> int:
        for buffer in buffers:
            buffer.last = min(buffer.last, buffer.first)
        return arena.assign_offsets(buffers)

    function = prepare_for_scheduling(
        lambda x: snp.sort(x) + snp.cumsum(snp.sort(snp.cumsum(x))), 1
    )
    check_reads(function)
    monkeypatch.setattr(shadow_memory, "assign_offsets", shorten_live_ranges)
    with pytest.raises(ShadowError):
        check_reads(function)
