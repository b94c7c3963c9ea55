"""Searched schedules, and schedule files with wrong edits."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.errors import ArgumentError
from shardir.passes.pipeline_parallelism.actions import PipelineScheduleError
from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from tests.error_assertions import first_line
from tests.frontend.pipelines.models import mlp_arguments, mlp_loss, place

ROWS, MICROBATCHES = 2, 4
ACTIVATION = 16 // MICROBATCHES * 8 * 4
"""The bytes of the activations of one microbatch."""


def step(**options: Any) -> tuple[Any, tuple[Any, ...]]:
    mesh = sd.make_mesh((ROWS, 1), ("pipe", "data"))
    pipelined = sd.pipeline(mlp_loss, microbatches=MICROBATCHES, **options)
    return sd.jit(sd.value_and_grad(pipelined)), place(mesh, *mlp_arguments(ROWS))


def result_of(**options: Any) -> list[bytes]:
    function, args = step(**options)
    return [np.asarray(leaf).tobytes() for leaf in sd.tree.leaves(function(*args))]


@cache
def expected() -> list[bytes]:
    return result_of(schedule="1f1b")


# The second stage keeps three activations of a microbatch.
@pytest.mark.parametrize("memory", [3 * ACTIVATION, 6 * ACTIVATION, "64 KiB"])
def test_a_searched_schedule_keeps_the_memory_limit(memory: int | str) -> None:
    function, args = step(schedule="search", memory=memory)
    (pipeline,) = function.lower(*args).pipelines()
    limit = 64 * 1024 if isinstance(memory, str) else memory
    assert all(peak <= limit for peak in pipeline.simulate().peaks)
    assert result_of(schedule="search", memory=memory) == expected()


def test_more_memory_makes_a_shorter_schedule() -> None:
    costs = []
    for limit in (3 * ACTIVATION, 12 * ACTIVATION):
        function, args = step(schedule="search", memory=limit)
        (pipeline,) = function.lower(*args).pipelines()
        costs.append(pipeline.simulate().cost)
    assert costs[1] < costs[0]


def test_the_forward_pass_of_a_searched_schedule() -> None:
    mesh = sd.make_mesh((ROWS, 1), ("pipe", "data"))
    params, x, y = place(mesh, *mlp_arguments(ROWS))
    loss = sd.pipeline(mlp_loss, microbatches=MICROBATCHES, schedule="search", memory=1)
    assert np.asarray(sd.jit(loss)(params, x, y)).tobytes() == expected()[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"schedule": "search"},
            ArgumentError,
            "schedule='search' of pipeline needs memory=, the bytes of activations that a row of "
            "devices may keep",
        ),
        (
            {"memory": 100},
            ArgumentError,
            "memory of pipeline limits a schedule that is searched; add schedule='search'",
        ),
        (
            {"schedule": "search", "memory": 3 * ACTIVATION - 1},
            PipelineStageError,
            "the schedule is searched for 383 B of activations, and one microbatch in stage 1 "
            "keeps 384 B; raise memory, or divide the batch into more microbatches",
        ),
    ],
)
def test_refused_searches(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        result_of(**options)
    assert str(caught.value).splitlines()[0] == message


def test_a_search_is_for_one_stage_on_each_row() -> None:
    mesh = sd.make_mesh((ROWS, 1), ("pipe", "data"))
    loss = sd.pipeline(mlp_loss, microbatches=4, schedule="search", memory="1MiB")
    with pytest.raises(PipelineStageError) as caught:
        sd.jit(sd.value_and_grad(loss))(*place(mesh, *mlp_arguments(4)))
    assert str(caught.value).splitlines()[0] == (
        "the search is for one stage on each row of devices, and the pipeline has 4 stages and 2 "
        "rows; use a named schedule"
    )


def edit(rows: list[list[str]], rng: random.Random) -> None:
    """Make one random edit of a schedule, as a person could."""
    row = rng.choice(rows)
    if not row:
        return
    i, j = rng.randrange(len(row)), rng.randrange(len(row))
    match rng.randrange(10):
        case 0:
            row[i], row[j] = row[j], row[i]
        case 1:
            del row[i]
        case 2:
            row.insert(j, row[i])
        case 3:
            rng.choice(rows).insert(0, row.pop(i))
        case 4:
            kinds = ("SEND_F", "RECV_F", "SEND_B", "RECV_B", "F", "I", "W", "B", "UNSHARD", "X")
            row[i] = f"{rng.randrange(3)}{rng.choice(kinds)}{rng.randrange(5)}"
        case 5:
            row[i] = f"({row[i]};{row[j]})OVERLAP_F_B"
        case 6:
            row[i] = rng.choice(("", " ", "0", "-1F0", "F", row[i] * 2, row[i].lower()))
        case 7:
            rng.shuffle(rows)
        case 8:
            rows.remove(row)
        case 9:
            rows.append([*row] if rng.random() < 0.5 else [])


# The number of edits is small, so that several files are valid; all passes are those of one step.
@pytest.mark.sample(12)
@pytest.mark.parametrize("seed", range(200))
def test_an_edited_schedule_runs_or_is_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    function, args = step(schedule=rng.choice(("1f1b", "zb-h1", "gpipe")))
    (pipeline,) = function.lower(*args).pipelines()
    rows = [line.split(",") for line in pipeline.schedule.to_csv().splitlines()]
    for _ in range(rng.randint(1, 2)):
        edit(rows, rng)
    path = tmp_path / "edited.csv"
    text = "".join(",".join(row) + "\n" for row in rows)
    if rng.random() < 0.1:
        text = text[: rng.randrange(len(text))]
    path.write_text(text, rng.choice(["utf-8"] * 20 + ["utf-8-sig", "utf-16", "utf-16-le"]))
    try:
        made = result_of(schedule=path)
    except (PipelineScheduleError, PipelineStageError, ArgumentError):
        return
    assert made == expected()


def test_an_unreadable_schedule_file_is_an_error(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe")
    for path, reason in (
        (tmp_path / "missing.csv", "No such file or directory"),
        (binary, "it is not UTF-8 text"),
    ):
        with pytest.raises(ArgumentError) as caught:
            sd.pipeline(mlp_loss, microbatches=2, schedule=path)
        text = first_line(caught)
        assert text.startswith("schedule of pipeline is ")
        assert text.endswith(f", which cannot be read: {reason}")
