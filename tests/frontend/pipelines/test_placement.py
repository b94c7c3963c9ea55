"""The devices that hold the weights and the gradients of a pipeline."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir import lax, testing
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.frontend.pipelines.models import (
    listed_loss,
    mlp_arguments,
    mlp_loss,
    place,
    place_arguments,
    place_stacked,
    stacked_arguments,
    stacked_loss,
)

ROWS, MICROBATCHES = 2, 4


@pytest.fixture(scope="module")
def mesh() -> sd.Mesh:
    return sd.make_mesh((ROWS, 2), ("pipe", "data"))


def update(loss: Any, **options: Any) -> Any:
    """Return a step that updates the weights with the gradients of a pipeline, or of a loss."""
    chosen = sd.pipeline(loss, microbatches=MICROBATCHES, **options) if options else loss

    @sd.jit
    def step(params: Any, *batch: Any) -> Any:
        value, gradients = sd.value_and_grad(chosen)(params, *batch)
        return value, sd.tree.map(lambda w, g: w - 0.1 * g, params, gradients)

    return step


def assert_near(made: Any, expected: Any) -> None:
    for x, y in zip(sd.tree.leaves(made), sd.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-6)


def test_stacked_weights_stay_on_the_rows_of_their_stages(mesh: sd.Mesh) -> None:
    arguments = place_stacked(mesh, *stacked_arguments(ROWS))
    step = update(stacked_loss, schedule="1f1b")
    compiled = step.lower(*arguments).compile()
    testing.assert_collectives(
        compiled,
        # The microbatches of x and y.
        all_to_all=2,
        # The gradient of the scale; those of the layers stay on their rows.
        all_gather=1,
        # Two gradients in each stage, the loss of each microbatch, and the loss of all rows.
        all_reduce=2 * ROWS * MICROBATCHES + MICROBATCHES + 1,
        send=2 * (ROWS - 1) * MICROBATCHES,
    )
    (gathered,) = [row for row in compiled.collectives() if row.kind == "all-gather"]
    assert (gathered.axes, gathered.nbytes) == (("pipe",), 8 * 4)
    # One layer, the scale, and the shards of x and y.
    assert compiled.memory_analysis().argument_size_in_bytes == 4 * (8 * 8 + 8 + 2 * 16 // 2 * 8)
    value, params = step(*arguments)
    assert params["layers"].sharding.spec == sd.P("pipe")
    assert_near((value, params), update(stacked_loss)(*arguments))
    # No microbatch keeps a copy of the weights: the input, the result, and what tanh saved.
    (pipeline,) = step.lower(*arguments).pipelines()
    activation = 16 // MICROBATCHES * 8 * 4
    assert pipeline.memory[0].input_gradient == 2 * activation


def test_two_stages_on_each_row(mesh: sd.Mesh) -> None:
    """Weights of shape [rows, stages of a row, ...], for schedules that alternate between rows."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        for i in range(2 * ROWS):
            x = sd.stage(i)(lambda w, x: jnp.tanh(x @ w))(w[i % ROWS, i // ROWS], x)
        with sd.stage(2 * ROWS - 1):
            return jnp.mean((x - y) ** 2)

    params, x, y = mlp_arguments(2 * ROWS)
    weights = np.stack(params).reshape(ROWS, 2, 8, 8)
    _, x, y = place(mesh, (), x, y)
    weights = sd.device_put(weights, sd.NamedSharding(mesh, sd.P("pipe")))
    step = update(loss, schedule="interleaved-1f1b")
    kinds = {row.kind for row in step.lower(weights, x, y).compile().collectives()}
    assert kinds == {"all-to-all", "all-reduce", "send"}
    assert_near(step(weights, x, y), update(loss)(weights, x, y))


@pytest.mark.parametrize("schedule", ["1f1b", pytest.param("zb-h1", marks=pytest.mark.long)])
def test_weights_in_lists_move_to_the_rows_of_their_stages(mesh: sd.Mesh, schedule: str) -> None:
    arguments = place_arguments("listed", mesh, ROWS)
    step = update(listed_loss, schedule=schedule)
    compiled = step.lower(*arguments).compile()
    layers = 2 * ROWS
    testing.assert_collectives(
        compiled,
        # The microbatches of x and y; stacks of the first and of the second layers of all stages,
        # two of their biases, and the gradients of the four stacks.
        all_to_all=2 + 2 * 4,
        # The gradient of the scale, which all rows hold.
        all_gather=1,
        all_reduce=(2 * layers + ROWS) * MICROBATCHES + MICROBATCHES + 1,
        send=2 * (ROWS - 1) * MICROBATCHES,
    )
    # A row has the memory of its layers, the scale, and its shards of the batch.
    layer = 4 * (8 * 8 + 8)
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == layers * layer // ROWS + 4 * (8 + 2 * 16 // 2 * 8)
    assert memory.output_size_in_bytes == layers * layer // ROWS + 4 * (8 + 1)
    value, params = step(*arguments)
    assert params[0][0]["w"].sharding.spec == P("pipe")
    assert_near((value, params), update(listed_loss)(*arguments))


def test_operands_that_are_computed_are_sharded_as_arguments(mesh: sd.Mesh) -> None:
    """A row computes with shards of the batch, and of the weights, that other operations return."""
    params, x, y = place_arguments("listed", mesh, ROWS)
    run = sd.value_and_grad(sd.pipeline(listed_loss, microbatches=MICROBATCHES))

    def kinds(function: Any) -> list[tuple[str, int | None]]:
        compiled = sd.jit(function).lower(params, x, y).compile()
        return sorted(((row.kind, row.executions) for row in compiled.collectives()), key=str)

    def computed(params: Any, x: Any, y: Any) -> Any:
        return run(sd.tree.map(lambda w: w * 2, params), x + 1, jnp.tanh(y))

    assert kinds(computed) == kinds(run)


def test_weights_in_lists_of_an_interleaved_schedule() -> None:
    """A row has the stages r and r + 2, and the axis of the model shards the weights too."""
    wide = sd.make_mesh((ROWS, 1, 2), ("pipe", "data", "model"))
    params, x, y = place_arguments("mlp", wide, 2 * ROWS)
    spec = NamedSharding(wide, P("model", "pipe"))
    params = [sd.device_put(w, spec) for w in params]
    step = update(mlp_loss, schedule="interleaved-1f1b")
    compiled = step.lower(params, x, y).compile()
    assert not [row for row in compiled.collectives() if row.kind == "all-gather"
                and any("pipe" in axis for axis in row.axes)]  # fmt: skip
    made = step(params, x, y)
    assert made[1][3].sharding.spec == P("model", "pipe")
    assert_near(made, update(mlp_loss)(params, x, y))


@pytest.mark.parametrize("spec", [(), (None, "pipe"), ("pipe", None, "data")], ids=str)
def test_other_shardings_of_stacked_weights(mesh: sd.Mesh, spec: tuple[Any, ...]) -> None:
    params, x, y = place_stacked(mesh, *stacked_arguments(ROWS))
    params["layers"] = sd.device_put(params["layers"], sd.NamedSharding(mesh, sd.P(*spec)))
    step = update(stacked_loss, schedule="1f1b")
    assert_near(step(params, x, y), update(stacked_loss)(params, x, y))


def test_weights_that_rows_share_are_on_all_rows(mesh: sd.Mesh) -> None:
    """Each stage uses its layer and the next one, so that blocks of one layer are not enough."""

    def loss(w: Any, x: Any, y: Any) -> Any:
        for i in range(ROWS):
            x = sd.stage(i)(lambda w, x: jnp.tanh(x @ w[0] @ w[1]))(w[i : i + 2], x)
        with sd.stage(ROWS - 1):
            return jnp.mean((x - y) ** 2)

    params, x, y = mlp_arguments(2 * ROWS)
    weights, x, y = place(mesh, np.stack(params), x, y)
    step = update(loss, schedule="zb-h1")
    (gathered,) = [
        row for row in step.lower(weights, x, y).compile().collectives() if row.kind == "all-gather"
    ]
    assert gathered.nbytes == 2 * ROWS * 8 * 8 * 4
    assert_near(step(weights, x, y), update(loss)(weights, x, y))


def test_devices_that_run_one_after_another(mesh: sd.Mesh) -> None:
    arguments = place_stacked(mesh, *stacked_arguments(ROWS))
    expected = update(stacked_loss, schedule="1f1b")(*arguments)
    with sd.config(isolated=True):
        assert_near(update(stacked_loss, schedule="1f1b")(*arguments), expected)


def test_an_entered_mesh(mesh: sd.Mesh) -> None:
    arguments = stacked_arguments(ROWS)
    step = update(stacked_loss, schedule="1f1b")
    with mesh:
        made = step(*arguments)
    assert made[1]["layers"].sharding.mesh == mesh
    assert_near(made, update(stacked_loss)(*arguments))


def test_gradients_of_stages_are_sharded_as_their_operands() -> None:
    # The gradient of the embedding does not use the embedding, and the positions of the words are
    # sharded, so that only the operand determines which words a device holds.
    mesh = sd.make_mesh((2, 2), ("pipe", "model"))
    words, width = 64, 8

    def loss(w: Any, x: Any) -> Any:
        with sd.stage(0):
            h = w["embedding"][x]
            h = lax.with_sharding_constraint(h, NamedSharding(mesh, P(None, "model")))
            h = jnp.tanh(h)
        with sd.stage(1):
            return jnp.mean((h @ w["out"]) ** 2)

    w = {
        "embedding": np.arange(words * width, dtype=np.float32).reshape(words, width) / 99,
        "out": np.ones((width, width), np.float32),
    }
    specs = {"embedding": P("model", None), "out": P()}
    args = (
        sd.tree.map(lambda x, spec: sd.device_put(x, NamedSharding(mesh, spec)), w, specs),
        np.arange(16, dtype=np.int32).reshape(4, 4),
    )
    step = sd.jit(sd.value_and_grad(sd.pipeline(loss, microbatches=2)))
    value, gradient = step(*args)
    expected_value, expected = sd.value_and_grad(loss)(w, args[1])
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    np.testing.assert_allclose(gradient["embedding"], expected["embedding"], rtol=1e-5)
    assert gradient["embedding"].sharding.spec == P("model", None)
    kinds = {
        row.kind
        for row in step.lower(*args).compile().collectives()
        if "stage 0" in row.why and "backward" in row.why
    }
    assert kinds == {"all-gather"}
