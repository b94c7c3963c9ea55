"""Costs and simulations of programs with pipelines."""

from functools import cache

import numpy as np
import pytest

import shardir as sd
from shardir import testing
from shardir.frontend.pipelines.costs import PipelineCosts, costs_of_pipelines
from shardir.frontend.pipelines.recording import record_pipelines
from shardir.frontend.report.simulated_schedule import simulation_record
from shardir.machine import load_machine
from shardir.passes.simulation.argument_kinds import MemoryKind
from shardir.sharding import AbstractMesh
from tests.frontend.pipelines.models import mlp_arguments, mlp_loss, place

ROWS, MICROBATCHES, WIDTH = 2, 4, 8
ACTIVATION = 16 // MICROBATCHES // 2 * WIDTH * 4
"""The bytes of the activations of one microbatch on each of the two devices of a row."""


@cache
def lowered(schedule: str = "1f1b", mesh: AbstractMesh | None = None) -> sd.Lowered:
    loss = sd.pipeline(mlp_loss, microbatches=MICROBATCHES, schedule=schedule)
    args = place(sd.make_mesh((ROWS, 2), ("pipe", "data")), *mlp_arguments(ROWS))
    if mesh is not None:
        args = sd.tree.map(
            lambda x: sd.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=sd.NamedSharding(mesh, x.sharding.spec)
            ),
            args,
        )
    return sd.jit(sd.value_and_grad(loss)).lower(*args)


@cache
def compiled(schedule: str = "1f1b") -> sd.Compiled:
    return lowered(schedule).compile()


def costs_of(schedule: str = "1f1b") -> PipelineCosts:
    (costs,) = costs_of_pipelines(compiled(schedule).module)
    return costs


def test_collectives_are_those_of_all_stages() -> None:
    program = compiled()
    testing.assert_collectives(
        program,
        # The microbatches of x and y.
        all_to_all=2,
        # The gradients of weights that all rows hold.
        all_gather=1,
        # The gradient of each stage, and the loss of each microbatch and that of all rows.
        all_reduce=3 * MICROBATCHES + 1,
        send=2 * (ROWS - 1) * MICROBATCHES,
    )
    rows = {row.why: row for row in program.collectives()}
    forward = rows["stage 0 sends %x.2 to stage 1"]
    backward = rows["stage 1 sends the cotangent of %x.2 to stage 0"]
    for send in (forward, backward):
        assert (send.kind, send.axes, send.nbytes, send.executions) == (
            "send",
            ("pipe",),
            ACTIVATION,
            MICROBATCHES,
        )
    assert rows["the pipeline divides each microbatch of %x over a row of devices"].value == (
        "x.microbatches"
    )
    assert "sum over 'b' of %v7 = dot, in the backward pass of stage 0" in rows
    assert dict(program.communication().by_kind)["send"].sent == 2 * MICROBATCHES * ACTIVATION


def test_every_collective_has_a_cause() -> None:
    rows = compiled().collectives()
    causes = [compiled().explain(row) for row in rows]
    assert [(each.collective.kind, each.collective.value) for each in causes] == [
        (row.kind, row.value) for row in rows
    ]
    gathered = causes[0]
    assert gathered.move
    assert {each.name for each in gathered.annotations} >= {"%x", "%x.microbatches"}
    assert all(each.collective.why for each in causes)
    names = [row.value for row in rows]
    repeated = next(name for name in names if names.count(name) > 1)
    with pytest.raises(sd.ShardirError) as caught:
        compiled().explain(f"%{repeated}")
    assert str(caught.value) == (
        f"{names.count(repeated)} collectives of pipelines make %{repeated}; pass one of "
        "collectives() instead of its name"
    )


def test_sends_equal_those_of_a_run() -> None:
    mesh = sd.make_mesh((ROWS, 2), ("pipe", "data"))
    args = place(mesh, *mlp_arguments(ROWS))
    step = sd.jit(sd.value_and_grad(sd.pipeline(mlp_loss, microbatches=MICROBATCHES)))
    with record_pipelines() as record:
        step(*args)
    sends = [row for row in step.lower(*args).compile().collectives() if row.kind == "send"]
    # A run sends the parts of both devices of a row together.
    sent = 2 * sum(row.sent * row.counted_executions for row in sends)
    assert sent == sum(event.nbytes for event in record.sends)


def test_costs_are_those_of_the_busiest_row() -> None:
    costs, cost = costs_of(), compiled().cost_analysis()
    # The last row computes the loss too.
    assert costs.largest_rank == ROWS - 1
    assert costs.cost_of(1).flops > costs.cost_of(0).flops
    product = 2 * 16 // 2 * WIDTH * WIDTH
    assert 3 * product < costs.cost_of(1).flops <= cost["flops"] < 5 * product
    assert cost["bytes sent by kind"]["send"] == MICROBATCHES * ACTIVATION


@pytest.mark.parametrize(("schedule", "in_flight"), [("1f1b", 2), ("gpipe", MICROBATCHES)])
def test_memory_of_rows(schedule: str, in_flight: int) -> None:
    costs = costs_of(schedule)
    # The first stage keeps its result for each microbatch in flight, and receives a cotangent.
    assert costs.memory_of(0)[MemoryKind.ACTIVATIONS] == (in_flight + 1) * ACTIVATION
    memory = compiled(schedule).memory_analysis()
    inside = sum(costs.largest_memory.values())
    arguments = sum(np.asarray(w).nbytes for w in mlp_arguments(ROWS)[0]) + 16 * WIDTH * 4
    assert memory.argument_size_in_bytes == arguments
    exchanged = 2 * 16 // 2 * WIDTH * 4
    # The gradient of the result is the constant 1.
    assert memory.peak_memory_in_bytes == (
        arguments + exchanged + inside + memory.output_size_in_bytes + 4
    )


def test_the_step_takes_the_time_of_the_schedule_and_the_rest() -> None:
    program = lowered("zb-h1")
    machine = load_machine("a100x8", axes={"pipe": ROWS, "data": 2})
    simulation = program.simulate(machine)
    (pipeline,) = program.pipelines()
    makespan = float(pipeline.simulate(machine).makespan)
    rows = compiled("zb-h1").collectives()
    rest = [row for row in rows if row.kind.startswith("all-") and row.counted_executions == 1]
    seconds = sum(machine.collective_seconds(row.kind, row.nbytes, row.axes) for row in rest)
    # The program divides and multiplies the gradients by 1.
    assert makespan + seconds < simulation.step_seconds < 1.1 * (makespan + seconds)
    parts = simulation.breakdown
    assert parts.duration == sum(parts.compute.values()) + parts.exposed_total + parts.bubbles
    assert parts.bubbles > 0
    assert str(simulation) == str(compiled("zb-h1").simulate("a100x8"))
    (note,) = simulation.notes
    assert note.startswith(
        "the pipeline along pipe has 2 rows of devices; the parts of its time are those of row 1"
    )
    (lanes,) = simulation.lanes
    assert [line.split(":")[0] for line in lanes.splitlines()] == ["rank 0", "rank 1"]
    assert lanes in str(simulation) + "\n"
    assert simulation_record(simulation).lanes == (lanes,)


@pytest.mark.parametrize("schedule", ["interleaved-1f1b", "zbv", "dualpipev"])
def test_parts_of_the_time_with_several_stages_on_a_row(schedule: str) -> None:
    mesh = sd.make_mesh((ROWS, 2), ("pipe", "data"))
    loss = sd.pipeline(mlp_loss, microbatches=MICROBATCHES, schedule=schedule)
    args = place(mesh, *mlp_arguments(2 * ROWS))
    program = sd.jit(sd.value_and_grad(loss)).lower(*args)
    parts = program.simulate("a100x8").breakdown
    assert parts.duration == sum(parts.compute.values()) + parts.exposed_total + parts.bubbles
    assert parts.bubbles >= 0
    # DualPipeV computes the gradients of a stage in one pass for some microbatches.
    reduced = [row for row in program.compile().collectives() if row.nbytes == WIDTH * WIDTH * 4]
    sums = [row for row in reduced if row.kind == "all-reduce"]
    assert sum(row.counted_executions for row in sums) == 2 * ROWS * MICROBATCHES


def test_a_pipeline_on_abstract_devices() -> None:
    mesh = AbstractMesh((ROWS, 2), ("pipe", "data"))
    program = lowered(mesh=mesh)
    assert program.simulate("a100x8").breakdown == lowered().simulate("a100x8").breakdown
    assert program.compile().cost_analysis() == compiled().cost_analysis()


def test_utilization_counts_the_products_of_all_stages() -> None:
    machine = load_machine("a100x8", axes={"pipe": ROWS, "data": 2})
    simulation = lowered().simulate(machine)
    # One product in the forward pass and one or two in the backward pass of each stage.
    products = 2 + 1 + 2
    flops = products * 2 * 16 * WIDTH * WIDTH
    expected = flops / machine.peak_flops("f32") / (4 * simulation.step_seconds)
    assert simulation.mfu == pytest.approx(expected)
    assert simulation.hfu == pytest.approx(expected)
