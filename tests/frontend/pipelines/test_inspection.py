"""The stages of a lowered program: text, predicted times and memory, and other backends."""

import json
from pathlib import Path

import numpy as np

import shardir as sd
from shardir.frontend.pipelines.recording import record_pipelines
from shardir.passes.pipeline_parallelism.simulation import PassMemory
from tests.frontend.pipelines.models import mlp_arguments, mlp_loss, place

ROWS, MICROBATCHES = 2, 4
ACTIVATION = 16 // MICROBATCHES * 8 * 4
"""The bytes of the activations of one microbatch."""


def lowered(schedule: str) -> sd.Lowered:
    mesh = sd.make_mesh((ROWS, 2), ("pipe", "data"))
    loss = sd.pipeline(mlp_loss, microbatches=MICROBATCHES, schedule=schedule)
    return sd.jit(sd.value_and_grad(loss)).lower(*place(mesh, *mlp_arguments(ROWS)))


def test_memory_of_stages() -> None:
    """A stage keeps its result, and its input for the gradient of the weights."""
    (pipeline,) = lowered("1f1b").pipelines()
    # The first stage has its input as an argument. The last one keeps the error too.
    assert pipeline.memory == (PassMemory(ACTIVATION, 0), PassMemory(3 * ACTIVATION, 0))
    simulation = pipeline.simulate()
    assert simulation.peaks == (ROWS * ACTIVATION, 3 * ACTIVATION)


def test_memory_of_weight_gradients() -> None:
    (pipeline,) = lowered("zb-h1").pipelines()
    # The last stage keeps its input and the cotangent of the product for the weights.
    assert pipeline.memory[1] == PassMemory(3 * ACTIVATION, 2 * ACTIVATION)


def test_times_on_a_machine() -> None:
    (pipeline,) = lowered("zb-h1").pipelines()
    times = pipeline.times("ethernet-cpu")
    assert all(time.forward > 0 and time.total > time.forward for time in times)
    simulation = pipeline.simulate("ethernet-cpu")
    assert simulation.cost > 0.999 * MICROBATCHES * max(time.total for time in times)


def test_recorded_times() -> None:
    mesh = sd.make_mesh((ROWS, 2), ("pipe", "data"))
    loss = sd.pipeline(mlp_loss, microbatches=MICROBATCHES)
    step = sd.jit(sd.value_and_grad(loss))
    arguments = place(mesh, *mlp_arguments(ROWS))
    with record_pipelines() as record:
        step(*arguments)
    (pipeline,) = step.lower(*arguments).pipelines()
    simulation = pipeline.simulate(times=record.pass_times())
    computed = sum(event.end - event.start for event in record.events if not event.nbytes)
    assert 0 < sum(map(float, simulation.busy)) <= computed * (1 + 1e-9)


def test_text_of_passes() -> None:
    program = lowered("1f1b")
    assert 'fragments=["0F", "0B", "1F", "1B"]' in program.as_text("schedule-pipelines")
    # Other passes and reports see the operations of all microbatches.
    assert "staged-pipeline" not in program.as_text("partition")
    assert program.as_text("propagate").count(" = tanh(") == ROWS * MICROBATCHES


def test_a_program_without_pipelines() -> None:
    assert sd.jit(lambda x: x + 1).lower(np.ones(3)).pipelines() == []


def test_lanes_in_the_report(tmp_path: Path) -> None:
    program = lowered("1f1b")
    path = tmp_path / "report.json"
    report = program.report(path)
    assert report.data.notes == (
        "after the pass inline-pipelines, every device computes all operations of a pipeline; "
        "all numbers are those of that program",
    )
    text = program.pipelines()[0].to_text()
    assert text == (
        "pipeline of 2 stages and 4 microbatches along pipe\n"
        "bubble rate with equal times 20.00%\n\n"
        "rank 0:  F0--F1--........B0------F2--B1------F3--B2------....B3------\n"
        "rank 1:  ....F0--B0------F1--B1------F2--B2------F3--B3------\n\n"
        f"rank 0 keeps at most {2 * ACTIVATION} bytes of activations\n"
        f"rank 1 keeps at most {3 * ACTIVATION} bytes of activations\n"
        "stage 0 sends x.2\n"
    )
    assert all(json.dumps(line)[1:-1] in path.read_text("utf-8") for line in text.splitlines())
