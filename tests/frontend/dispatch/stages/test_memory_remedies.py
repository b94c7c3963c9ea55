"""The remedies in simulations of programs that do not fit into the memory."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir.errors import MachineError
from shardir.frontend.dispatch.stages.memory_remedies import (
    FoundRemedies,
    RemedySearch,
    _Change,
)
from shardir.passes.simulation import Simulation
from shardir.passes.simulation.simulation import Remedy
from shardir.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    PositionalSharding,
    Sharding,
)

MACHINE = """\
description = "a machine with round numbers"
[memory]
capacity = 1e6
bandwidth = 1e9
efficiency = 1.0
source = "an example"
[launch]
seconds = 0.0
source = "an example"
[matmul.f32]
flops_per_second = 1e12
efficiency = 1.0
source = "an example"
[pointwise.f32]
flops_per_second = 1e12
efficiency = 1.0
source = "an example"
[links.network]
topology = "switch"
group_size = 1024
bandwidth = 1e9
efficiency = 1.0
latency = 1e-6
hop_latency = 0.0
source = "an example"
"""
HOST = """\
[host]
bandwidth = 1e9
efficiency = 1.0
latency = 0.0
source = "an example"
"""
MESH = AbstractMesh((4, 2), ("data", "model"))

FITTING = """\
remedies, of 10 simulated changes  time  peak  fits
  w: P('data', 'model'), m: P('data', 'model')  409.5 us  176.0 KiB  yes
  w: P('data', 'model')  475.1 us  304.0 KiB  yes
  m: P('data', 'model')  523.2 us  304.0 KiB  yes
  donate_argnums=(1, 2)  1.182 ms  528.0 KiB  no
  x: P('data', 'model')  1.191 ms  648.0 KiB  no\
"""
COMBINED = """\
remedies, of 14 simulated changes  time  peak  fits
  donate_argnums=(1, 2), w: P('data', 'model'), m: P('data', 'model')  409.5 us  160.0 KiB  no
  w: P('data', 'model'), m: P('data', 'model')  409.5 us  176.0 KiB  no
  optimizer state in host memory: 128.0 KiB of 1 argument, w: P('data', 'model')  \
506.8 us  240.0 KiB  no
  donate_argnums=(1, 2), w: P('data', 'model')  475.1 us  272.0 KiB  no
  w: P('data', 'model')  475.1 us  304.0 KiB  no
  m: P('data', 'model')  523.2 us  304.0 KiB  no
  donate_argnums=(1, 2)  1.182 ms  528.0 KiB  no
  x: P('data', 'model')  1.191 ms  648.0 KiB  no\
"""


@pytest.fixture
def machine(tmp_path: Path) -> str:
    path = tmp_path / "round.toml"
    path.write_text(MACHINE + HOST, "utf-8")
    return str(path)


def struct(shape: tuple[int, ...], spec: P, mesh: AbstractMesh = MESH) -> shardir.ShapeDtypeStruct:
    return shardir.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))


def loss(w: shardir.Array, x: shardir.Array) -> shardir.Array:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def step(
    name: str, w: shardir.Array, m: shardir.Array, x: shardir.Array
) -> tuple[shardir.Array, ...]:
    value, gradient = shardir.value_and_grad(loss)(w, x)
    m = 0.9 * m + gradient
    return w - 0.1 * m, m, value


def arguments(w: P, m: P, mesh: AbstractMesh = MESH) -> tuple[object, ...]:
    return (
        "step",
        struct((256, 256), w, mesh),
        struct((256, 256), m, mesh),
        struct((64, 256), P("data"), mesh),
    )


SHARDED = arguments(P(None, "model"), P(None, "model"))


def table(simulation: Simulation) -> str:
    """Return the last table of a simulation, with short specs and two spaces between columns."""
    text = str(simulation).rpartition("\n\n")[2].replace("PartitionSpec", "P")
    return re.sub(r"(?<=\S)  +", "  ", text)


def test_remedies_that_fit_are_sorted_by_time_before_those_of_the_least_peak(machine: str) -> None:
    lowered = shardir.jit(step, static_argnums=0).lower(*SHARDED)
    simulation = lowered.simulate(machine, memory="400KiB")
    assert table(simulation) == FITTING
    assert simulation == lowered.compile().simulate(machine, memory="400KiB")


def test_donation_and_host_memory_are_combined_with_others_if_nothing_else_fits(
    machine: str,
) -> None:
    lowered = shardir.jit(step, static_argnums=0).lower(*SHARDED)
    assert table(lowered.simulate(machine, memory="1KiB")) == COMBINED


def test_a_remedy_predicts_the_changed_program(machine: str) -> None:
    before = shardir.jit(step, static_argnums=0).lower(*SHARDED).simulate(machine, memory=1024)
    found = {remedy.changes: remedy for remedy in before.remedies}
    spec = P("data", "model")
    text = f"{spec!r}"
    for changes, changed, donated in (
        ((f"m: {text}",), arguments(P(None, "model"), spec), ()),
        ((f"w: {text}", f"m: {text}"), arguments(spec, spec), ()),
        (("donate_argnums=(1, 2)",), SHARDED, (1, 2)),
    ):
        function = shardir.jit(step, static_argnums=0, donate_argnums=donated)
        after = function.lower(*changed).simulate(machine)
        remedy = found[changes]
        assert (remedy.step_seconds, remedy.peak) == (after.step_seconds, after.memory.peak)


def test_results_that_are_stated_to_be_sharded_like_an_argument_change_with_it(
    machine: str,
) -> None:
    home = NamedSharding(MESH, P(None, "model"))
    function = shardir.jit(step, static_argnums=0, out_shardings=(home, home, None))
    simulation = function.lower(*SHARDED).simulate(machine, memory="1KiB")
    spec = "P('data', 'model')"
    assert (f"w and result 0: {spec}", f"m and result 1: {spec}") in {
        remedy.changes for remedy in simulation.remedies
    }


def test_arguments_on_explicit_axes_are_not_sharded_further(machine: str) -> None:
    mesh = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    function = shardir.jit(lambda x: x + 1.0)
    simulation = function.lower(struct((64, 64), P("data"), mesh)).simulate(machine, memory=1)
    assert [remedy.changes for remedy in simulation.remedies] == [("donate_argnums=(0,)",)]


def test_donation_completes_that_of_the_user(machine: str) -> None:
    x = struct((64, 64), P("data", "model"))
    for donated in (0, 1):
        function = shardir.jit(lambda x, y: (x * 2, x * y), donate_argnums=donated)
        simulation = function.lower(x, x).simulate(machine, memory="1KiB")
        assert [each.changes for each in simulation.remedies] == [("donate_argnums=(0, 1)",)]


def test_shardings_are_changed_if_all_arguments_are_donated(machine: str) -> None:
    function = shardir.jit(step, static_argnums=0, donate_argnums=(1, 2))
    simulation = function.lower(*SHARDED).simulate(machine, memory="1KiB")
    w, m = ("w: P('data', 'model')", "m: P('data', 'model')")
    found = [each.changes for each in simulation.remedies]
    assert [each for each in found if {*each} <= {w, m}] == [(w, m), (w,), (m,)]


def test_a_program_without_changes_to_simulate_has_no_table(machine: str) -> None:
    function = shardir.jit(lambda x: jnp.sum(x), donate_argnums=0)
    lowered = function.lower(struct((4, 2), P("data", "model")))
    simulation = lowered.simulate(machine, memory=1)
    assert (simulation.fits, simulation.remedies, simulation.evaluated_changes) == (False, (), 0)
    assert "remedies, of" not in str(simulation)


def layers(ws: list[shardir.Array], x: shardir.Array) -> shardir.Array:
    for w in ws:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def test_values_are_computed_again_if_activations_need_the_memory(machine: str) -> None:
    function = shardir.jit(shardir.grad(layers))
    args = [struct((16, 16), P())] * 8, struct((512, 16), P("data"))
    before = function.lower(*args).simulate(machine)
    memory = before.memory.peak * 3 // 4
    simulation = function.lower(*args).simulate(machine, memory=memory)
    passes = f"default,remat{{budget={memory}}}"
    found = {remedy.changes: remedy for remedy in simulation.remedies}
    remedy = found[f'passes="{passes}"',]
    after = shardir.jit(shardir.grad(layers), passes=passes).lower(*args).simulate(machine)
    assert (remedy.step_seconds, remedy.peak) == (after.step_seconds, after.memory.peak)
    assert remedy.fits
    assert remedy.step_seconds > before.step_seconds


def residual_layers(ws: list[shardir.Array], x: shardir.Array) -> shardir.Array:
    for w in ws:
        x = x + jnp.tanh(jnp.tanh(jnp.tanh(x @ w) @ w) @ w)
    return jnp.mean(x**2)


def layered_step(
    ws: list[shardir.Array], ms: list[shardir.Array], x: shardir.Array
) -> tuple[list[shardir.Array], ...]:
    gradients = shardir.grad(residual_layers)(ws, x)
    ms = [0.9 * m + g for m, g in zip(ms, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(ws, ms, strict=True)], ms


LAYERED = [struct((64, 64), P())] * 8, [struct((64, 64), P())] * 8, struct((2048, 64), P("data"))


def test_remedies_of_each_kind_predict_the_changed_program(machine: str) -> None:
    before = shardir.jit(layered_step).lower(*LAYERED).simulate(machine)
    simulation = (
        shardir.jit(layered_step)
        .lower(*LAYERED)
        .simulate(machine, memory=before.memory.peak * 3 // 4)
    )
    found = {remedy.changes: remedy for remedy in simulation.remedies}
    for passes in (
        "split-batch,default,accumulate-microbatches",
        "default,remat-layers",
        "default,remat-layers{save=dots}",
        "default,remat-layers{count=4}",
    ):
        remedy = found[f'passes="{passes}"',]
        after = shardir.jit(layered_step, passes=passes).lower(*LAYERED).simulate(machine)
        assert (remedy.step_seconds, remedy.peak) == (after.step_seconds, after.memory.peak)
        assert remedy.peak < before.memory.peak
        assert remedy.fits == (remedy.peak <= before.memory.peak * 3 // 4)
    host = found["optimizer state in host memory: 128.0 KiB of 8 arguments",]
    # Transfers of 128 KiB at 1 GB/s in both directions overlap with each other, not all of them
    # with the gradient; the device holds the states of four layers of eight.
    assert before.memory.peak - 10 * 2**14 < host.peak < before.memory.peak - 2 * 2**14
    assert before.step_seconds < host.step_seconds < before.step_seconds + 2 * 2**17 / 1e9


def test_a_machine_without_a_link_to_the_host_is_named(machine: str) -> None:
    Path(machine).write_text(MACHINE, "utf-8")
    simulation = shardir.jit(layered_step).lower(*LAYERED).simulate(machine, memory="1KiB")
    (note,) = simulation.notes
    assert note == (
        "a change was not simulated (optimizer state in host memory: 128.0 KiB of 8 arguments): "
        f"machine 'round' has no host.bandwidth; add it to {machine} with its source:\n[host]\n"
        "bandwidth = 32e9  # bytes per second in one direction\nefficiency = 0.8\n"
        'latency = 1e-5\nsource = "..."'
    )


def test_a_program_that_fits_has_no_remedies(machine: str) -> None:
    lowered = shardir.jit(step, static_argnums=0).lower(*SHARDED)
    assert not lowered.simulate(machine, memory="10MiB").evaluated_changes


def changes(simulation: Simulation) -> list[tuple[str, ...]]:
    return [remedy.changes for remedy in simulation.remedies]


def test_the_least_number_of_microbatches_that_fits_is_the_last_change_of_its_kind(
    machine: str,
) -> None:
    lowered = shardir.jit(layered_step).lower(*LAYERED)
    peak = lowered.simulate(machine).memory.peak
    for memory, counts in ((peak * 3 // 4, (2,)), (peak // 2, (4, 2)), (peak // 4, (8, 4, 2))):
        simulation = lowered.simulate(machine, memory=memory)
        texts = [f"split-batch{{microbatches={n}}}" if n > 2 else "split-batch" for n in counts]
        expected = [(f'passes="{text},default,accumulate-microbatches"',) for text in texts]
        assert [each for each in changes(simulation) if "split-batch" in each[0]] == expected


@pytest.mark.parametrize(
    ("shape", "spec", "mesh"),
    [
        ((63, 65), P(), MESH),
        ((63, 0), P(), MESH),
        ((63, 63), P(), AbstractMesh((4, 1), ("data", "one"))),
        ((8, 63), P(("data", "model")), MESH),
    ],
)
def test_only_axes_with_several_positions_that_divide_a_dimension_shard_it_further(
    shape: tuple[int, ...], spec: P, mesh: AbstractMesh, machine: str
) -> None:
    lowered = shardir.jit(lambda x: jnp.sum(x[:0])).lower(struct(shape, spec, mesh))
    simulation = lowered.simulate(machine, memory=1)
    assert (simulation.fits, simulation.evaluated_changes) == (False, 0)


def test_a_program_without_a_mesh_is_not_sharded(machine: str) -> None:
    x = shardir.ShapeDtypeStruct((63, 64), np.float32)
    simulation = shardir.jit(lambda x: x + 1.0).lower(x).simulate(machine, memory=1)
    assert changes(simulation) == [("donate_argnums=(0,)",)]


def test_arguments_are_only_sharded_with_specs_on_meshes_of_the_user(machine: str) -> None:
    devices = np.array(shardir.devices()[:4])
    columns = PositionalSharding(devices).reshape(1, 4)
    halves = PositionalSharding(devices).reshape(2, 2).replicate(0)
    named = NamedSharding(Mesh(devices.reshape(2, 2), ("a", "b")), P("a"))
    line = NamedSharding(Mesh(devices, ("c",)), P())
    expected: dict[tuple[Sharding, Sharding], set[str]] = {
        (columns, columns): set(),
        (columns, halves): set(),
        (halves, halves): set(),
        (halves, line): set(),
        (columns, named): {"y: P('a', 'b')"},
        (line, named): {"x: P(None, 'a')", "x: P(None, 'b')", "y: P('a', 'b')"},
    }
    for shardings, found in expected.items():
        args = [shardir.ShapeDtypeStruct((63, 64), np.float32, sharding=shardings[0])]
        args += [shardir.ShapeDtypeStruct((64, 64), np.float32, sharding=shardings[1])]
        lowered = shardir.jit(lambda x, y: jnp.sum(x @ y)).lower(*args)
        simulation = lowered.simulate(machine, memory=1)
        texts = {
            text.replace("PartitionSpec", "P") for each in changes(simulation) for text in each
        }
        assert {text for text in texts if "P(" in text} == found


def test_a_result_that_is_stated_to_be_sharded_otherwise_does_not_change(machine: str) -> None:
    rows, columns = (NamedSharding(MESH, spec) for spec in (P("data"), P(None, "model")))
    function = shardir.jit(step, static_argnums=0, out_shardings=(rows, columns, None))
    found = changes(function.lower(*SHARDED).simulate(machine, memory="1KiB"))
    spec = "P('data', 'model')"
    assert (f"w: {spec}",) in found
    assert (f"m and result 1: {spec}",) in found


def test_arguments_without_arrays_are_not_donated(machine: str) -> None:
    x = struct((63, 64), P(None, ("data", "model")))
    for donated in ((), (1,)):
        function = shardir.jit(lambda e, x, y: (x * 2, x * y), donate_argnums=donated)
        simulation = function.lower({}, x, x).simulate(machine, memory=1)
        assert changes(simulation) == [("donate_argnums=(1, 2)",)]


def test_the_recomputation_of_values_states_the_passes_and_the_donation_of_the_user(
    machine: str,
) -> None:
    args = [struct((16, 16), P())] * 8, struct((512, 16), P("data"))
    memory = shardir.jit(shardir.grad(layers)).lower(*args).simulate(machine).memory.peak * 3 // 4
    remat = f"remat{{budget={memory}"
    for options, passes in (
        ({"passes": "default,cse"}, f"default,cse,{remat}}}"),
        ({"donate_argnums": 0}, f"default,{remat},donated=true}}"),
    ):
        function = shardir.jit(shardir.grad(layers), **options)
        simulation = function.lower(*args).simulate(machine, memory=memory)
        assert (f'passes="{passes}"',) in changes(simulation)


def test_a_combination_that_cannot_be_simulated_is_noted(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = RemedySearch._evaluate

    def refuse_combinations(search: RemedySearch, change: Any) -> Remedy:
        if change.donated and change.shardings:
            raise MachineError("an example")
        return evaluate(search, change)

    monkeypatch.setattr(RemedySearch, "_evaluate", refuse_combinations)
    lowered = shardir.jit(step, static_argnums=0).lower(*SHARDED)
    simulation = lowered.simulate(machine, memory="1KiB")
    spec = "w: P('data', 'model')"
    note = f"a change was not simulated (donate_argnums=(1, 2), {spec}): an example"
    assert note in simulation.notes
    found = changes(simulation)
    assert ("donate_argnums=(1, 2)",) in found
    assert (spec,) in found
    assert not any("donate_argnums=(1, 2)" in each and len(each) > 1 for each in found)


@pytest.mark.parametrize(
    ("donated", "changed", "option"),
    [((), (), ""), ((), (1, 2), ",donated=true"), ((1, 2), (), ",donated=true")],
)
def test_the_recomputation_counts_on_the_memory_of_donated_arguments(
    donated: tuple[int, ...],
    changed: tuple[int, ...],
    option: str,
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[RemedySearch] = []

    def record(search: RemedySearch, before: Simulation) -> FoundRemedies:
        searches.append(search)
        return FoundRemedies((), 0, ())

    monkeypatch.setattr(RemedySearch, "find", record)
    function = shardir.jit(step, static_argnums=0, donate_argnums=donated)
    function.lower(*SHARDED).simulate(machine, memory=1024)
    (search,) = searches
    texts = list(search._texts(_Change(donated=changed, has_budget=True)))
    assert texts[-1] == f'passes="default,remat{{budget=1024{option}}}"'
