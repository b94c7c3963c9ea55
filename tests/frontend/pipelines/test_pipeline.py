"""Pipelines in one process: loss, gradients, transfers, and the bits of all schedules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.frontend.pipelines.recording import PipelineRecord, record_pipelines
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES
from tests.frontend.pipelines.models import (
    BATCH,
    LENGTH,
    WIDTH,
    mlp_arguments,
    mlp_loss,
    place,
    transformer_arguments,
    transformer_loss,
)

RANKS, MICROBATCHES = 4, 8


def run(
    loss: Callable[..., Any], arguments: tuple[Any, ...], schedule: str, **options: Any
) -> tuple[Any, PipelineRecord]:
    """Return loss and gradients of a pipeline, and the record of its actions."""
    step = sd.value_and_grad(
        sd.pipeline(loss, microbatches=MICROBATCHES, schedule=schedule, **options)
    )
    with record_pipelines() as record:
        made = sd.jit(step)(*arguments)
    return made, record


def arrays(values: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(leaf) for leaf in sd.tree.leaves(values)]


def assert_near(made: Any, expected: Any) -> None:
    """Check that arrays are equal within 1e-6 of the largest element."""
    for x, y in zip(arrays(made), arrays(expected), strict=True):
        assert np.abs(x - y).max() <= 1e-6 * max(1.0, np.abs(y).max())


@pytest.fixture(scope="module")
def mesh() -> sd.Mesh:
    return sd.make_mesh((RANKS, 2), ("pipe", "data"))


def test_transformer_equals_the_step_without_a_pipeline(mesh: sd.Mesh) -> None:
    arguments = place(mesh, *transformer_arguments(RANKS))
    made, record = run(transformer_loss, arguments, "1f1b")
    assert_near(made, sd.jit(sd.value_and_grad(transformer_loss))(*arguments))
    assert len(record.sends) == 2 * (RANKS - 1) * MICROBATCHES
    activations = BATCH // MICROBATCHES * LENGTH * WIDTH * 4
    assert {send.nbytes for send in record.sends} == {activations}


def test_schedules_give_the_same_bits(mesh: sd.Mesh) -> None:
    results: dict[int, list[bytes]] = {}
    for name, kind in NAMED_SCHEDULES.items():
        stages = RANKS * (kind.stages_per_rank or 2)
        arguments = place(mesh, *mlp_arguments(stages))
        made, _ = run(mlp_loss, arguments, name)
        if stages not in results:
            assert_near(made, sd.jit(sd.value_and_grad(mlp_loss))(*arguments))
            results[stages] = [x.tobytes() for x in arrays(made)]
        assert [x.tobytes() for x in arrays(made)] == results[stages], name
