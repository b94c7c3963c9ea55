"""Errors of pipelines name the line of the program and what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.frontend.errors import ArgumentError, PipelineCostError
from shardir.passes.pipeline_parallelism.actions import PipelineScheduleError
from shardir.passes.pipeline_parallelism.schedule import PipelineSchedule
from shardir.passes.pipeline_parallelism.stage_assignment import PipelineStageError
from tests.error_assertions import error_line, raw
from tests.frontend.pipelines.models import mlp_arguments, mlp_loss, place


def step(
    loss: Any,
    stages: int = 2,
    shape: tuple[int, int] = (2, 2),
    divided: int | None = None,
    **options: Any,
) -> Any:
    """Run a step of a pipeline on a mesh pipe x data.

    The loss has `stages` weights; `divided` is the option `stages` of `pipeline`.
    """
    mesh = sd.make_mesh(shape, ("pipe", "data"))
    options = {"microbatches": 2, "stages": divided, **options}
    run = sd.jit(sd.value_and_grad(sd.pipeline(loss, **options)))
    return run(*place(mesh, *mlp_arguments(stages)))


def test_a_stage_that_feeds_an_earlier_stage() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        with sd.stage(1):
            h = jnp.tanh(x @ params[0])
        with sd.stage(0):
            return jnp.mean((h @ params[1] - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss)) == (
        "stage 0 uses %h, which stage 1 computes; a stage uses values of earlier stages only"
    )


def test_a_loss_without_stages() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ params[0] - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss)) == (
        "the pipeline has no stages; mark them with sd.stage(0)(f), sd.stage(1)(g), ..."
    )


def test_a_stage_that_the_loss_does_not_use() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        with sd.stage(0):
            h = jnp.tanh(x @ params[0])
        with sd.stage(2):
            return jnp.mean((h @ params[1] - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss)) == (
        "the pipeline has stage 2 and no stage 1; number the stages from 0 without gaps, and let "
        "the loss use each of them"
    )


def test_a_stage_inside_of_a_loop() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        def body(h: Any, _: None) -> Any:
            with sd.stage(1):
                return jnp.tanh(h @ params[0]), None

        with sd.stage(0):
            x = x @ params[0]
        h, _ = sd.lax.scan(body, x, None, length=2)
        return jnp.mean((h - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss)) == (
        "stage 1 is marked inside of scan; mark stages outside of loops and branches"
    )


def test_a_pipeline_inside_of_a_loop() -> None:
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    params, x, y = place(mesh, *mlp_arguments(2))

    @sd.jit
    def train(params: Any) -> Any:
        def body(params: Any, _: None) -> Any:
            return params, sd.pipeline(mlp_loss, microbatches=2)(params, x, y)

        return sd.lax.scan(body, params, None, length=2)

    assert error_line(PipelineStageError, lambda: train(params)) == (
        "a pipeline inside of scan cannot run; call it outside of loops, branches and other "
        "pipelines"
    )


def test_a_value_that_is_sharded_over_the_axis_of_the_pipeline() -> None:
    sharding = sd.NamedSharding(sd.make_mesh((2, 2), ("pipe", "data")), sd.P("pipe"))

    def loss(params: Any, x: Any, y: Any) -> Any:
        with sd.stage(0):
            h = sd.lax.with_sharding_constraint(x @ params[0], sharding)
        with sd.stage(1):
            return jnp.mean((h @ params[1] - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss)) == (
        "%h is sharded over 'pipe', along which the stages of the pipeline run; shard it over "
        "other axes of the mesh"
    )


def test_a_mesh_without_the_axis() -> None:
    assert error_line(PipelineStageError, lambda: step(mlp_loss, axis="stages")) == (
        "the pipeline runs along the mesh axis 'stages', and the mesh has the axes pipe=2, data=2; "
        "place the arguments on a mesh with an axis 'stages', one index for each row of devices, "
        "or call the pipeline inside `with mesh:` of such a mesh"
    )


def test_arguments_without_a_mesh() -> None:
    run = sd.jit(sd.pipeline(mlp_loss, microbatches=2))

    def run_in_other_mesh() -> object:
        with sd.make_mesh((2, 2), ("data", "model")):
            return run(*mlp_arguments(2))

    for call in (lambda: run(*mlp_arguments(2)), run_in_other_mesh):
        assert error_line(PipelineStageError, call) == (
            "the pipeline runs along the mesh axis 'pipe', and no value of the program is on a "
            "mesh of several devices; place the arguments on a mesh with an axis 'pipe', one index "
            "for each row of devices, or call the pipeline inside `with mesh:` of such a mesh"
        )


def test_microbatches_that_do_not_divide_the_batch() -> None:
    assert error_line(ArgumentError, lambda: step(mlp_loss, microbatches=3)) == (
        "x of pipeline is f32[16, 8], which does not divide into 3 microbatches; the first "
        "dimension must be a multiple of 3"
    )


def test_a_schedule_for_another_number_of_stages() -> None:
    assert error_line(PipelineStageError, lambda: step(mlp_loss, stages=4)) == (
        "the schedule has 2 stages, and the program marks 4; mark as many stages as the schedule "
        "has"
    )


def test_a_schedule_for_another_number_of_divided_stages() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        for w in params:
            x = jnp.tanh(x @ w)
        return jnp.mean((x - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss, stages=3, divided=3)) == (
        "the schedule has 2 stages, and stages=3 divides the program into 3; state stages=2, or "
        "another schedule"
    )


def test_a_schedule_for_another_number_of_rows() -> None:
    schedule = PipelineSchedule.parse("0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n")
    run = lambda: step(mlp_loss, shape=(4, 2), schedule=schedule)  # noqa: E731
    assert error_line(PipelineStageError, run) == (
        "the schedule has 2 rows, and the mesh axis 'pipe' has 4 rows of devices"
    )


def test_a_schedule_for_another_number_of_microbatches() -> None:
    schedule = PipelineSchedule.parse("0F0,0B0\n1F0,1B0\n")
    assert error_line(PipelineStageError, lambda: step(mlp_loss, schedule=schedule)) == (
        "the schedule has 1 microbatch, and the pipeline divides the batch into 2"
    )


def test_a_schedule_without_gradients() -> None:
    schedule = PipelineSchedule.parse("0F0,0F1\n1F0,1F1\n")
    assert error_line(PipelineStageError, lambda: step(mlp_loss, schedule=schedule)) == (
        "the schedule has forward passes only, and the gradient of the pipeline is needed; add "
        "backward passes B, or I and W"
    )


def test_a_schedule_that_never_ends(tmp_path: Path) -> None:
    path = tmp_path / "cycle.csv"
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "utf-8")
    assert error_line(PipelineStageError, lambda: step(mlp_loss, schedule=path)) == (
        f"{path}: the schedule never ends, because of a cyclic wait: rank 0 stops at 0B0, which "
        "needs 1B0 of rank 1; rank 1 stops at 1F1, which needs 0F1 of rank 0"
    )


def test_a_malformed_schedule_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text("0F0,0X0\n", "utf-8")
    assert error_line(PipelineScheduleError, lambda: step(mlp_loss, schedule=path)) == (
        f"{path}: row 1, column 2: '0X0' is not an action; write the stage, one of F, I, W, B, "
        "SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, REDUCE_GRAD, and the microbatch, such "
        "as 2F0"
    )


def test_an_unknown_schedule() -> None:
    assert error_line(ArgumentError, lambda: step(mlp_loss, schedule="2f2b")) == (
        "schedule of pipeline is '2f2b'; use one of gpipe, 1f1b, interleaved-1f1b, looped-bfs, "
        "interleaved-zero-bubble, zb-h1, zb-h2, zbv, dualpipev, search, or the path of a .csv file"
    )


def test_a_loss_that_is_no_scalar() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        return sd.stage(0)(lambda: x @ params[0])()

    assert error_line(ArgumentError, lambda: step(loss)) == (
        "loss returns (f32[8, 8]), and pipeline takes a scalar loss"
    )


def test_the_gradient_of_a_batch() -> None:
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    run = sd.jit(sd.grad(sd.pipeline(mlp_loss, microbatches=2), argnums=1))
    with pytest.raises(sd.errors.DifferentiateError) as caught:
        run(*place(mesh, *mlp_arguments(2)))
    assert str(caught.value).splitlines()[0] == (
        "%0 = pipeline has no gradient with respect to %x, which is divided into microbatches; "
        "differentiate with respect to the arguments that all microbatches share"
    )


def test_marks_and_a_number_of_stages() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        with sd.stage(0):
            return jnp.mean((x @ params[0] - y) ** 2)

    assert error_line(PipelineStageError, lambda: step(loss, divided=2)) == (
        "stage 0 is marked, and stages=2 divides the loss without marks; leave one of them out"
    )


def test_too_few_operations_for_the_stages() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        return jnp.sum(x * params[0][0, 0])

    assert error_line(PipelineStageError, lambda: step(loss, divided=4, shape=(4, 2))) == (
        "the loss has too few operations for 4 stages; state at most 2"
    )


def test_wrong_options() -> None:
    assert error_line(ArgumentError, lambda: sd.stage(-1)) == (
        "the number of a stage is at least 0, got -1"
    )
    assert error_line(ArgumentError, lambda: sd.pipeline(mlp_loss, microbatches=0)) == (
        "microbatches of pipeline is at least 1, got 0"
    )
    assert (
        error_line(
            ArgumentError,
            lambda: sd.pipeline(mlp_loss, microbatches=2, batch_argnums=(1, 5))(*mlp_arguments(2)),
        )
        == "batch_argnums of pipeline contains 5, and mlp_loss is called with 3 arguments"
    )
    assert (
        error_line(ArgumentError, lambda: sd.pipeline(mlp_loss, microbatches=2)(params=1, x=2))
        == "pipeline of mlp_loss has batch_argnums, which are for positional arguments, and was "
        "called with params, x by name; pass all arguments by position"
    )
    wrong = raw("max")
    assert (
        error_line(ArgumentError, lambda: sd.pipeline(mlp_loss, microbatches=2, reduction=wrong))
        == "reduction of pipeline is one of mean, sum, got 'max'"
    )


def test_marks_have_no_effect_outside_of_a_pipeline() -> None:
    params, x, y = mlp_arguments(2)
    marked = sd.jit(mlp_loss)(params, x, y)
    assert np.asarray(marked).tobytes() == np.asarray(mlp_loss(params, x, y)).tobytes()


def test_auxiliary_results() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        value = mlp_loss(params, x, y)
        return value, value

    assert error_line(ArgumentError, lambda: step(loss)) == (
        "loss returns (f32[], f32[]), and pipeline takes a scalar loss; return (value, aux) with "
        "has_aux=True"
    )
    assert error_line(ArgumentError, lambda: step(mlp_loss, has_aux=True)) == (
        "mlp_loss has has_aux=True, so it must return (value, aux); it returned f32[]"
    )
    assert error_line(sd.errors.DifferentiateError, lambda: differentiate_aux(loss)) == (
        "%0 = pipeline has no gradient of its auxiliary results; add what is to be differentiated "
        "to the loss, or pass has_aux=True to value_and_grad"
    )


def differentiate_aux(loss: Any) -> Any:
    """Differentiate the auxiliary result of a pipeline."""
    params, x, y = place(sd.make_mesh((2, 2), ("pipe", "data")), *mlp_arguments(2))
    pipelined = sd.pipeline(loss, microbatches=2, has_aux=True)
    return sd.grad(lambda params: jnp.sum(pipelined(params, x, y)[1]))(params)


def test_transformations_of_a_pipeline() -> None:
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    params, x, y = place(mesh, *mlp_arguments(2))
    loss = sd.pipeline(mlp_loss, microbatches=2)
    mapped = sd.vmap(loss, in_axes=(None, 0, 0))
    batches = [np.stack([each, each]) for each in (x, y)]
    shared = sd.jit(sd.grad(lambda w: jnp.sum(mapped(w, *batches))))
    assert error_line(sd.errors.DifferentiateError, lambda: shared(params)) == (
        "%0 = pipeline has no gradient with respect to %w.0, which all elements of a vmap share; "
        "call vmap of the gradient and add the results, or call vmap inside of the loss"
    )
    tangents = lambda: sd.jvp(lambda w: loss(w, x, y), (params,), (params,))  # noqa: E731
    assert error_line(sd.errors.DifferentiateError, tangents) == (
        "%0 = pipeline has no forward-mode derivative; use grad or vjp, or differentiate the loss "
        "without sd.pipeline"
    )


def test_a_lower_bound_is_refused() -> None:
    mesh = sd.make_mesh((2, 2), ("pipe", "data"))
    run = sd.jit(sd.value_and_grad(sd.pipeline(mlp_loss, microbatches=2)))
    plan = sd.plan(run, mlp_arguments(2), mesh, evaluations=1)
    assert error_line(PipelineCostError, lambda: plan.lower_bound()) == (
        "lower_bound does not include the pipeline in mlp_loss; plan one stage as a function of "
        "its own, on a mesh without the axis of the pipeline, for a bound of its cost"
    )
