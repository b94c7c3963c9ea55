"""Pipelines in one process: loss, gradients, transfers, and the bits of all schedules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.export import export
from shardir.frontend.pipelines.recording import PipelineRecord, record_pipelines
from shardir.frontend.pipelines.runtime import PipelineRuntime
from shardir.interpret.interpreter import run as run_module
from shardir.passes.pipeline_parallelism.named_schedules import NAMED_SCHEDULES, make_schedule
from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from shardir.passes.pipeline_parallelism.transfers import add_transfers
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
    loss: Callable[..., Any], arguments: tuple[Any, ...], schedule: Any, **options: Any
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
        made, record = run(mlp_loss, arguments, name)
        ranks = make_schedule(name, ranks=RANKS, microbatches=MICROBATCHES).rank_of_stage
        transfers = sum(ranks[stage] != ranks[stage + 1] for stage in range(stages - 1))
        assert len(record.sends) == 2 * transfers * MICROBATCHES
        if stages not in results:
            assert_near(made, sd.jit(sd.value_and_grad(mlp_loss))(*arguments))
            results[stages] = [x.tobytes() for x in arrays(made)]
        assert [x.tobytes() for x in arrays(made)] == results[stages], name


def test_loss_without_gradients(mesh: sd.Mesh) -> None:
    arguments = place(mesh, *mlp_arguments(RANKS))
    run_loss = sd.jit(sd.pipeline(mlp_loss, microbatches=MICROBATCHES))
    with record_pipelines() as record:
        made = run_loss(*arguments)
    assert_near(made, sd.jit(mlp_loss)(*arguments))
    assert len(record.sends) == (RANKS - 1) * MICROBATCHES


def test_auxiliary_results(mesh: sd.Mesh) -> None:
    """Each microbatch returns values of several stages, of an argument, and of no stage."""

    def loss(params: list[Any], x: Any, y: Any) -> Any:
        means = []
        for i, w in enumerate(params):
            with sd.stage(i):
                x = jnp.tanh(x @ w)
                means.append(jnp.mean(x))
        with sd.stage(RANKS - 1):
            value = jnp.mean((x - y) ** 2)
            return value, {"means": means, "loss": value, "out": x, "y": y, "n": jnp.arange(3)}

    arguments = place(mesh, *mlp_arguments(RANKS))
    params, x, y = mlp_arguments(RANKS)
    parts = zip(np.split(x, MICROBATCHES), np.split(y, MICROBATCHES), strict=True)
    expected = [loss(params, *part)[1] for part in parts]
    stacked = sd.tree.map(lambda *rows: np.stack([np.asarray(r) for r in rows]), *expected)
    for schedule in ("1f1b", "zb-h1"):
        pipelined = sd.pipeline(loss, microbatches=MICROBATCHES, schedule=schedule, has_aux=True)
        step = sd.jit(sd.value_and_grad(pipelined, has_aux=True))
        (value, auxiliary), gradients = step(*arguments)
        assert_near(auxiliary, stacked)
        assert_near((value, gradients), run(mlp_loss, arguments, "1f1b")[0])
    # The interpreter runs the operations of all microbatches without stages.
    traced = sd.jit(pipelined).lower(*arguments).module
    assert_near(run_module(traced, arrays(arguments)), (value, stacked))


def test_sum_of_losses(mesh: sd.Mesh) -> None:
    arguments = place(mesh, *mlp_arguments(RANKS))
    made, _ = run(mlp_loss, arguments, "gpipe", reduction="sum")
    mean, _ = run(mlp_loss, arguments, "gpipe")
    scaled = sd.tree.map(lambda x: x * MICROBATCHES, mean)
    assert_near(made, scaled)


def test_an_edited_schedule_file(mesh: sd.Mesh, tmp_path: Path) -> None:
    arguments = place(mesh, *mlp_arguments(RANKS))
    path = tmp_path / "edited.csv"
    path.write_text(make_schedule("1f1b", ranks=RANKS, microbatches=MICROBATCHES).to_csv(), "utf-8")
    # Stage 0 computes its last weight gradients at the end, apart from the input gradients.
    text = path.read_text("utf-8").replace("0B6,0B7", "0I6,0I7,0W6,0W7")
    path.write_text(text, "utf-8")
    made, record = run(mlp_loss, arguments, path)
    expected, _ = run(mlp_loss, arguments, "1f1b")
    assert [x.tobytes() for x in arrays(made)] == [x.tobytes() for x in arrays(expected)]
    first = [str(event.action) for event in record.events if event.rank == 0]
    # The input of stage 0 has no gradient: only the weight gradients wait for the messages.
    assert first[-6:] == ["0I6", "0I7", "0RECV_B6", "0W6", "0RECV_B7", "0W7"]


def test_actions_run_while_a_message_is_on_its_way(mesh: sd.Mesh) -> None:
    """The last rank starts to receive the second microbatch before it computes the first one, and
    waits for each message at the first action that needs it."""
    schedule = make_schedule("1f1b", ranks=RANKS, microbatches=MICROBATCHES)
    row = [str(action) for action in add_transfers(schedule).actions(RANKS - 1)]
    assert row[:6] == ["3RECV_F0", "3RECV_F1", "3F0", "3B0", "3SEND_B0", "3F1"]
    _, record = run(mlp_loss, place(mesh, *mlp_arguments(RANKS)), "1f1b")
    last = [str(event.action) for event in record.events if event.rank == RANKS - 1]
    assert last == [
        text
        for k in range(MICROBATCHES)
        for text in (f"3RECV_F{k}", f"3F{k}", f"3B{k}", f"3SEND_B{k}")
    ]


def test_values_that_skip_stages_and_captured_values(mesh: sd.Mesh) -> None:
    """A residual connection over all stages is sent through them; a captured array is shared."""
    params, x, y = place(mesh, *mlp_arguments(RANKS))

    def loss(params: list[Any], scale: Any, x: Any, y: Any) -> Any:
        with sd.stage(0):
            start = jnp.sin(x @ params[0])
        h = sd.stage(1)(lambda h: jnp.tanh(h @ params[1]) * scale)(start)
        # A checkpoint inside of a stage recomputes in the backward pass.
        h = sd.stage(2)(sd.checkpoint(lambda h: jnp.tanh(h @ params[2])))(h)
        with sd.stage(3):
            return jnp.mean((h @ params[3] + start - y) ** 2)

    def make(pipelined: bool) -> Any:
        def outer(params: list[Any], scale: Any, x: Any, y: Any) -> Any:
            doubled = 2 * scale

            def inner(params: list[Any], x: Any, y: Any) -> Any:
                return loss(params, doubled, x, y)

            made = sd.pipeline(inner, microbatches=MICROBATCHES) if pipelined else inner
            return made(params, x, y)

        return sd.jit(sd.value_and_grad(outer, argnums=(0, 1)))

    with record_pipelines() as record:
        made = make(True)(params, np.float32(0.7), x, y)
    assert_near(made, make(False)(params, np.float32(0.7), x, y))
    rows = 16 // MICROBATCHES
    assert [send.nbytes for send in record.sends if str(send.action) == "1SEND_F0"] == [
        2 * rows * 8 * 4
    ]


def test_tensor_parallelism_inside_of_a_stage() -> None:
    """The constraint of a stage shards its weights over the other mesh axes."""
    mesh = sd.make_mesh((2, 2, 2), ("pipe", "data", "model"))
    params, x, y = place(mesh, *mlp_arguments(4))
    params = [
        sd.device_put(w, sd.NamedSharding(mesh, sd.P(*spec)))
        for w, spec in zip(params, [(None, "model"), ("model", None)] * 2, strict=True)
    ]

    def loss(params: list[Any], x: Any, y: Any) -> Any:
        for i in range(2):
            x = sd.stage(i)(lambda v, w, x: jnp.tanh(x @ v) @ w)(*params[2 * i : 2 * i + 2], x)
        return jnp.mean((x - y) ** 2)

    made, record = run(loss, (params, x, y), "1f1b")
    assert_near(made, sd.jit(sd.value_and_grad(loss))(params, x, y))
    assert len(record.sends) == 2 * MICROBATCHES


def test_a_training_step_with_an_update(mesh: sd.Mesh) -> None:
    arguments = place(mesh, *mlp_arguments(RANKS))

    def train(loss: Any) -> Any:
        @sd.jit
        def step(params: Any, x: Any, y: Any) -> Any:
            value, gradients = sd.value_and_grad(loss)(params, x, y)
            return value, sd.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

        params, x, y = arguments
        for _ in range(3):
            value, params = step(params, x, y)
        return value, params

    assert_near(train(sd.pipeline(mlp_loss, microbatches=MICROBATCHES)), train(mlp_loss))


def test_stages_without_marks(mesh: sd.Mesh) -> None:
    """A loss without marks is divided between the layers, which have equal costs."""

    def loss(params: list[Any], x: Any, y: Any) -> Any:
        for w in params:
            x = jnp.tanh(jnp.tile(x, 4) @ jnp.tile(w, (4, 1)))
        return jnp.mean((x - y) ** 2)

    arguments = place(mesh, *mlp_arguments(8))
    made, record = run(loss, arguments, "1f1b", stages=RANKS)
    assert_near(made, sd.jit(sd.value_and_grad(loss))(*arguments))
    assert {send.nbytes for send in record.sends} == {16 // MICROBATCHES * 8 * 4}
    assert len(record.sends) == 2 * (RANKS - 1) * MICROBATCHES


def test_shardings_in_types_and_weights_that_are_sharded_over_the_axis() -> None:
    kinds = (sd.sharding.AxisType.Explicit,) * 2
    typed = sd.make_mesh((2, 2), ("pipe", "data"), axis_types=kinds)
    made, _ = run(mlp_loss, place(typed, *mlp_arguments(2)), "1f1b")
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    params, x, y = place(mesh, *mlp_arguments(2))
    params = sd.device_put(params, sd.NamedSharding(mesh, sd.P("pipe")))
    again, _ = run(mlp_loss, (params, x, y), "1f1b")
    assert [a.tobytes() for a in arrays(made)] == [a.tobytes() for a in arrays(again)]


@sd.custom_vjp
def scaled_sine(x: Any) -> Any:
    return jnp.sin(x)


scaled_sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (5 * g * x,))


@sd.custom_jvp
def tripled_sine(x: Any) -> Any:
    return jnp.sin(x)


tripled_sine.defjvp(lambda x, t: (jnp.sin(x[0]), 3 * t[0]))


def through_vmap(w: Any, x: Any) -> Any:
    return sd.vmap(lambda row: jnp.tanh(row @ w))(x)


def through_grad(w: Any, x: Any) -> Any:
    h = jnp.tanh(x @ w)
    return sd.grad(lambda z: jnp.sum(jnp.sin(z) * h))(x)


def through_scan(w: Any, x: Any) -> Any:
    return sd.lax.scan(lambda h, _: (scaled_sine(h @ w), None), x, None, length=2)[0]


@pytest.mark.parametrize(
    "layer",
    [
        lambda w, x: scaled_sine(x @ w),
        lambda w, x: tripled_sine(x @ w),
        lambda w, x: sd.checkpoint(lambda h: jnp.sin(h @ w))(x),
        lambda w, x: sd.checkpoint(lambda h: scaled_sine(h @ w))(x),
        through_vmap,
        through_grad,
        through_scan,
    ],
    ids=["custom_vjp", "custom_jvp", "checkpoint", "nested rule", "vmap", "grad", "scan"],
)
def test_transformations_inside_of_stages(layer: Callable[..., Any]) -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        with sd.stage(0):
            x = layer(params[0], x)
        with sd.stage(1):
            return jnp.mean((layer(params[1], x) - y) ** 2)

    def both(params: Any, x: Any, y: Any) -> Any:
        return sum(loss(params, x[i : i + 4], y[i : i + 4]) for i in (0, 4)) / 2

    params, x, y = mlp_arguments(2)
    placed = place(sd.make_mesh((2, 1), ("pipe", "data")), params, x[:8], y[:8])
    pipelined = sd.pipeline(loss, microbatches=2)
    assert_near(sd.jit(pipelined)(*placed), sd.jit(both)(params, x[:8], y[:8]))
    made = sd.jit(sd.value_and_grad(pipelined))(*placed)
    assert_near(made, sd.jit(sd.value_and_grad(both))(params, x[:8], y[:8]))


def shard_map_loss(mesh: sd.Mesh, body: Callable[[Any], Any]) -> Callable[..., Any]:
    def loss(params: Any, x: Any, y: Any) -> Any:
        mapped = sd.shard_map(body, mesh=mesh, in_specs=sd.P("data"), out_specs=sd.P("data"))
        with sd.stage(0):
            x = mapped(x @ params[0])
        with sd.stage(1):
            return jnp.mean((x @ params[1] - y) ** 2)

    return loss


def test_shard_map_inside_of_a_stage() -> None:
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    arguments = place(mesh, *mlp_arguments(2))
    loss = shard_map_loss(mesh, jnp.tanh)
    made, _ = run(loss, arguments, "1f1b")
    assert_near(made, sd.jit(sd.value_and_grad(loss))(*arguments))


def test_shard_map_along_the_axis_of_the_pipeline() -> None:
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    loss = shard_map_loss(mesh, lambda x: sd.lax.pmean(jnp.tanh(x), "pipe"))
    with pytest.raises(PipelineStageError) as caught:
        run(loss, place(mesh, *mlp_arguments(2)), "1f1b")
    assert str(caught.value).splitlines()[0] == (
        "a shard_map in a stage uses 'pipe', along which the stages of the pipeline run; use other "
        "axes of the mesh"
    )


def test_a_program_with_a_pipeline_is_exported_without_stages() -> None:
    arguments = place(sd.make_mesh((2, 1), ("pipe", "data")), *mlp_arguments(2))
    pipelined = sd.jit(sd.pipeline(mlp_loss, microbatches=2))
    assert "stablehlo.tanh" in export(pipelined)(*arguments).mlir_module()


def test_operands_of_a_pipeline_are_not_copied(
    mesh: sd.Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []
    call = PipelineRuntime.__call__

    def record(runtime: PipelineRuntime, *operands: Any) -> Any:
        taken.extend(operands)
        return call(runtime, *operands)

    monkeypatch.setattr(PipelineRuntime, "__call__", record)
    arguments = place(mesh, *mlp_arguments(RANKS))
    run(mlp_loss, arguments, "1f1b")
    for given in arrays(arguments[0]):
        assert any(np.shares_memory(given, operand) for operand in taken)
