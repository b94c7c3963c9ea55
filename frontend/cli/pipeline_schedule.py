"""`shardir pipeline-schedule` prints, verifies and simulates schedules of pipeline parallelism."""

import math
from pathlib import Path

import typer

from shardir.errors import os_error_reason
from shardir.frontend.cli.options import CommandError
from shardir.passes.pipeline_parallelism.actions import PipelineScheduleError
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES, make_schedule
from shardir.passes.pipeline_parallelism.progress import SendMode, verify_schedule
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.search import search_schedule
from shardir.passes.pipeline_parallelism.simulation import (
    PassMemory,
    PassTimes,
    simulate_schedule,
)
from shardir.passes.pipeline_parallelism.transfers import add_transfers

SEARCH = "search"
"""The argument that requests a search."""


def print_schedule(
    schedule: str,
    *,
    ranks: int | None,
    microbatches: int | None,
    stages_per_rank: int | None,
    times: str,
    transfer: float,
    memory: str,
    memory_limit: float | None,
    has_transfers: bool,
    sends: str,
    output: Path | None,
) -> None:
    """Print the rows of a schedule and its simulation; write it to `output` as CSV."""
    if sends not in [*SendMode]:
        raise CommandError(f"--sends is {sends!r}; use {' or '.join(SendMode)}")
    forward, input_gradient, weight_gradient = _numbers("--times", times, 3)
    pass_times = PassTimes(forward, input_gradient, weight_gradient)
    pass_memory = PassMemory(*_numbers("--memory", memory, 2))
    _check_number("--transfer", transfer)
    if memory_limit is not None:
        _check_number("--memory-limit", memory_limit)
    _check_options(schedule, ranks, microbatches, stages_per_rank, memory_limit)
    if _is_file(schedule):
        chosen = _read_schedule(schedule)
    else:
        assert ranks is not None
        assert microbatches is not None
        if memory_limit is None:
            chosen = make_schedule(
                schedule, ranks=ranks, microbatches=microbatches, stages_per_rank=stages_per_rank
            )
        else:
            chosen = search_schedule(
                ranks=ranks,
                microbatches=microbatches,
                times=pass_times,
                transfer=transfer,
                memory=pass_memory,
                memory_limit=memory_limit,
            ).schedule
    if has_transfers:
        chosen = add_transfers(chosen)
    verify_schedule(chosen, SendMode(sends))
    simulation = simulate_schedule(chosen, pass_times, transfer=transfer, memory=pass_memory)
    typer.echo(chosen.to_grid() + "\n" + simulation.to_text(), nl=False)
    if output is not None:
        _write(output, chosen)


def _is_file(schedule: str) -> bool:
    return schedule != SEARCH and schedule not in NAMED_SCHEDULES


def _check_options(
    schedule: str,
    ranks: int | None,
    microbatches: int | None,
    stages_per_rank: int | None,
    memory_limit: float | None,
) -> None:
    """Raise `CommandError` for options that do not apply to a schedule, or that it lacks."""
    if _is_file(schedule):
        for option, value in (
            ("--ranks", ranks),
            ("--microbatches", microbatches),
            ("--stages-per-rank", stages_per_rank),
        ):
            if value is not None:
                raise CommandError(
                    f"{option} does not apply to the file {schedule!r}, which states all actions"
                )
    elif ranks is None or microbatches is None:
        raise CommandError(f"{schedule} needs --ranks and --microbatches")
    if (schedule == SEARCH) != (memory_limit is not None):
        raise CommandError(
            "search needs --memory-limit, the most activations of a rank"
            if schedule == SEARCH
            else "--memory-limit applies to `search` only"
        )
    if schedule == SEARCH and stages_per_rank not in (None, 1):
        raise CommandError("search finds schedules with one stage on each rank")


def _read_schedule(file: str) -> PipelineSchedule:
    text = _read(file)
    try:
        return PipelineSchedule.parse(text)
    except PipelineScheduleError as error:
        raise CommandError(f"{file}: {error}") from None


def _write(file: Path, schedule: PipelineSchedule) -> None:
    try:
        file.write_text(schedule.to_csv(), encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = os_error_reason(error)
        raise CommandError(f"cannot write {str(file)!r}: {reason}") from None


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except FileNotFoundError:
        raise CommandError(
            f"{file!r} is neither a file nor a schedule; the schedules are "
            f"{', '.join(NAMED_SCHEDULES)} and {SEARCH}"
        ) from None
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot read {file!r}: {os_error_reason(error)}") from None


def _numbers(option: str, text: str, count: int) -> list[float]:
    parts = text.split(",")
    if len(parts) != count:
        raise CommandError(f"{option} is {text!r}; it must be {count} numbers with commas")
    numbers = []
    for part in parts:
        try:
            numbers.append(float(part))
        except ValueError:
            raise CommandError(f"{option} is {text!r}; {part!r} is not a number") from None
        _check_number(option, numbers[-1])
    return numbers


def _check_number(option: str, number: float) -> None:
    if not 0 <= number < math.inf:
        raise CommandError(f"{option} is {number}; it must be a number that is not negative")
