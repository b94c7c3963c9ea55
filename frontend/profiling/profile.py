"""`profile`: the time of each operation of a function, relative to the limits of the machine."""

import time
from collections.abc import Callable, Sequence
from ctypes import memmove
from dataclasses import replace
from os import PathLike
from pathlib import Path
from statistics import median
from types import NoneType

import numpy as np

from shardir.backends.cpu.threads.memory import allocate
from shardir.backends.numpy.profiling import (
    PYTHON_THREAD,
    Activity,
    Span,
    machine_limits,
    record_activities,
)
from shardir.backends.storage import Storage
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.device_transfer import block_until_ready
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.dispatch.stages.stages import Compiled
from shardir.frontend.errors import ArgumentError, NumberRangeError
from shardir.frontend.profiling.profile_data import (
    OperationProfile,
    Profile as Profile,
    ProfiledRun,
    activity_name,
    covered_nanoseconds,
    format_locations,
)
from shardir.frontend.pytree import tree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary

DEFAULT_RUNS = 5


@traceback_boundary
def profile(
    fun: Callable[..., object],
    *args: ArrayLike,
    runs: int = DEFAULT_RUNS,
    trace: str | Path | None = None,
) -> Profile:
    """Call `fun(*args)` several times and return the time of each operation.

    `fun` is compiled with `jit` if it is not compiled yet. Each run gets fresh copies of the
    arrays, so that a function may donate its arguments. Print the result for a table of the
    operations, the slowest first. `trace` is a file for the last run, which Perfetto
    (ui.perfetto.dev) and chrome://tracing show: the operations, and the tasks of every worker with
    source lines.

    Programs that other threads run in the meantime are included. Raises `NumberRangeError` unless
    `runs` is at least 1, `ArgumentError` if `trace` is no path or `fun` no function, and any error
    of `fun`.
    """
    if not callable(fun):
        raise ArgumentError(with_location(f"profile takes a function, got {brief(fun)}"))
    if not isinstance(runs, (int, np.integer)) or runs < 1:
        raise NumberRangeError(with_location(f"profile makes {runs!r} runs; pass at least 1"))
    if not isinstance(trace, (str, PathLike, NoneType)):
        raise ArgumentError(with_location(f"the trace of profile is a file's path, not {trace!r}"))
    compiled = fun if isinstance(fun, Compiled) or hasattr(fun, "lower") else jit(fun)
    found = machine_limits()
    begin = time.monotonic_ns()
    block_until_ready(compiled(*_copy_arguments(args)))
    first = (time.monotonic_ns() - begin) / 1e9
    made = []
    with record_activities() as watch:
        # The first recorded run is discarded, because it touches the memory of the records first.
        for number in range(runs + 1):
            given = _copy_arguments(args)
            watch.take()
            begin = time.monotonic_ns()
            block_until_ready(compiled(*given))
            end = time.monotonic_ns()
            spans = [span for span in watch.take() if begin <= span.begin and span.end <= end]
            if number:
                made.append(ProfiledRun(begin, end, tuple(spans), watch.dropped_tasks))
    workers, machine = found if found is not None else (None, None)
    result = Profile(
        fun.module.main.name
        if isinstance(fun, Compiled)
        else getattr(fun, "__name__", type(fun).__name__),
        first,
        tuple(made),
        workers,
        None if machine is None else machine.bandwidth,
        None if machine is None else machine.flops,
    )
    result = replace(result, rows=_operation_profiles(result))
    if trace is not None:
        result.save(trace)
    return result


def _copy_arguments(args: Sequence[object]) -> list[object]:
    """Return the arguments with separate memory, which may be donated."""
    return [
        tree.map(lambda leaf: _copy_array(leaf) if isinstance(leaf, Array) else leaf, arg)
        for arg in args
    ]


def _copy_array(array: Array) -> Array:
    held = array.checked_storage()
    if isinstance(held, Storage):
        nbytes = held.array.nbytes
        block = allocate(nbytes)
        memmove(block.address, held.address, nbytes)
        held = Storage(block.address, block, held.shape, held.dtype)
    return Array(array.signature, array.sharding, held)


def _operation_profiles(profile: Profile) -> tuple[OperationProfile, ...]:
    activities: dict[int, Activity] = {}
    times: dict[int, list[float]] = {}
    for run in profile.runs:
        spans: dict[int, list[Span]] = {}
        for span in run.spans:
            activities.setdefault(span.activity.key, span.activity)
            spans.setdefault(span.activity.key, []).append(span)
        for key, mine in spans.items():
            times.setdefault(key, []).append(covered_nanoseconds(mine) / 1e9)
    rows = []
    last: dict[int, list[Span]] = {}
    for span in profile.runs[-1].spans:
        last.setdefault(span.activity.key, []).append(span)
    for key, activity in activities.items():
        mine = last.get(key, [])
        if not mine:
            continue
        seconds = max(median(times[key]), 1e-9)
        executions = max(1, sum(span.starts_activity for span in mine))
        memory, flops = activity.memory * executions, activity.flops * executions
        worked = sum(span.end - span.begin for span in mine)
        threads = 1 if mine[0].thread == PYTHON_THREAD else profile.workers or 1
        rows.append(
            OperationProfile(
                activity_name(activity),
                format_locations(activity.op),
                seconds,
                executions,
                memory,
                flops,
                worked / max(covered_nanoseconds(mine), 1) / threads,
                _roofline_fraction(profile, memory, flops, seconds),
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _roofline_fraction(profile: Profile, memory: int, flops: int, seconds: float) -> float | None:
    if not profile.bandwidth or not profile.flops or not (memory or flops):
        return None
    return max(memory / profile.bandwidth, flops / profile.flops) / seconds
