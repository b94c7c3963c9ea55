"""`AUTO` in `in_shardings` plans the shardings of arguments when `jit` compiles a program."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import MachineError
from shardir.frontend.errors import ArgumentError, NoMeshError, ShardingError
from shardir.nn import relu
from shardir.passes.planning.problem import PlanningError
from shardir.passes.planning.programs import plan_program
from shardir.sharding import AxisType, NamedSharding, PartitionSpec as P


def step(w: Any, v: Any, x: Any) -> Any:
    gradients = sd.grad(lambda p: (relu(x @ p[0]) @ p[1]).sum())((w, v))
    return w - 0.1 * gradients[0], v - 0.1 * gradients[1]


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype("f") for shape in ((64, 128), (128, 32), (16, 64))]


def mesh_of(*shape: int, **options: Any) -> Any:
    devices = sd.devices("cpu")[: int(np.prod(shape))]
    return sd.make_mesh(shape, ("data", "model")[: len(shape)], devices=devices, **options)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the searches of a test."""
    found: list[Any] = []
    search = plan_program._search

    def count(*args: Any) -> Any:
        found.append(args[0].request)
        return search(*args)

    monkeypatch.setattr(plan_program, "_search", count)
    return found


def specs(results: Any) -> list[Any]:
    return [each.sharding.spec for each in sd.tree.leaves(results)]


def test_the_shardings_are_those_of_a_plan() -> None:
    mesh, args = mesh_of(4), arguments()
    plan = sd.plan(step, args, mesh)
    planned = sd.jit(step, in_shardings=sd.AUTO(mesh))
    lowered = planned.lower(*args)
    compiled = lowered.compile()
    assert compiled.collectives() == plan.collectives()
    assert str(lowered.plan()) == str(plan)
    found = planned(*args)
    assert specs(found) == list(plan.out_specs)
    for mine, expected in zip(found, sd.jit(step)(*args), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_a_report_shows_the_plan() -> None:
    mesh, args = mesh_of(4), arguments()
    plan = sd.plan(step, args, mesh)
    shown = plan.report().data.planning
    assert shown is not None
    assert shown.title.startswith("plan of @step for data=4, the best of ")
    for planned in (sd.jit(step, in_shardings=sd.AUTO(mesh)), plan.jit()):
        lowered = planned.lower(*args)
        assert lowered.report().data.planning == shown
        assert lowered.compile().report().data.planning == shown
    stated = sd.jit(step, in_shardings=plan.in_shardings).lower(*args)
    assert stated.plan() is None
    assert stated.report().data.planning is None
    one = sd.jit(step, in_shardings=sd.AUTO(mesh_of(1))).lower(*args)
    assert one.plan() is None


def test_a_training_loop_plans_once(searches: list[Any]) -> None:
    w, v, x = arguments()
    planned = sd.jit(step, in_shardings=sd.AUTO, donate_argnums=(0, 1))
    with mesh_of(4):
        for _ in range(3):
            w, v = planned(w, v, x)
    assert len(searches) == 1
    assert planned.cache_info().currsize == 2


def test_a_plan_depends_on_mesh_types_static_arguments_and_machine(searches: list[Any]) -> None:
    def scale(x: Any, power: int) -> Any:
        return x**power

    planned = sd.jit(scale, in_shardings=sd.AUTO, static_argnums=1)
    x = np.ones((8, 8), "f")
    with mesh_of(4):
        planned(x, 2)
        planned(x, 2)
        planned(x, 3)
        planned(x[:4], 2)
        with sd.config(machine="a100x8"):
            planned(x, 2)
    with mesh_of(2, 2):
        planned(x, 2)
    assert len(searches) == 5
    assert [each.machine is None for each in searches] == [True, True, True, False, True]


def test_other_entries_are_kept() -> None:
    mesh, args = mesh_of(2, 2), arguments()
    rows = NamedSharding(mesh, P("data"))
    planned = sd.jit(step, in_shardings=(sd.AUTO, sd.AUTO, rows))
    assert planned.lower(*args).compile().input_shardings[0][2] == rows
    assert any(spec != P() for spec in specs(planned(*args)))


def test_arrays_on_the_mesh_keep_their_shardings() -> None:
    mesh, (w, v, x) = mesh_of(4), arguments()
    placed = sd.device_put(w, NamedSharding(mesh, P("data")))
    found = sd.jit(step, in_shardings=sd.AUTO)(placed, v, x)
    assert found[0].sharding.spec == P("data")


def test_requested_results_constrain_the_plan() -> None:
    mesh, args = mesh_of(4), arguments()
    rows = NamedSharding(mesh, P("data"))
    planned = sd.jit(step, in_shardings=sd.AUTO, out_shardings=(rows, sd.AUTO))
    compiled = planned.lower(*args).compile()
    assert compiled.output_shardings[0] == rows
    assert planned(*args)[0].sharding == rows


def test_one_device_has_nothing_to_plan(searches: list[Any]) -> None:
    args = arguments()
    found = sd.jit(step, in_shardings=sd.AUTO(mesh_of(1)))(*args)
    assert specs(found) == [P(), P()]
    assert searches == []


def test_text() -> None:
    assert repr(sd.AUTO) == "AUTO"
    request = sd.AUTO(mesh_of(2), "a100x8", "40GiB")
    assert repr(request) == "AUTO(Mesh('data': 2), machine='a100x8', memory='40GiB')"


def fails(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).split("\n")[0] == message


def test_a_call_without_a_mesh_is_an_error() -> None:
    planned = sd.jit(step, in_shardings=sd.AUTO)
    fails(
        NoMeshError,
        "in_shardings of step has AUTO, and no mesh is known; write AUTO(mesh), or call step "
        "inside `with mesh:`",
        lambda: planned(*arguments()),
    )


def test_different_requests_are_an_error() -> None:
    mesh = mesh_of(2)
    planned = sd.jit(step, in_shardings=(sd.AUTO(mesh), sd.AUTO, sd.AUTO))
    fails(
        ArgumentError,
        "in_shardings of step has AUTO(Mesh('data': 2)) and AUTO; one plan shards all arguments, "
        "so use the same entry for all of them",
        lambda: planned(*arguments()),
    )


def test_a_call_within_a_trace_is_an_error() -> None:
    planned = sd.jit(step, in_shardings=sd.AUTO(mesh_of(2)))
    fails(
        ArgumentError,
        "in_shardings of step has AUTO, and step is called while another function is traced, whose "
        "program determines the shardings; use AUTO in the outermost jit",
        lambda: sd.jit(lambda *args: planned(*args))(*arguments()),
    )


def test_a_mesh_with_explicit_axes_is_an_error() -> None:
    mesh = mesh_of(2, axis_types=(AxisType.Explicit,))
    fails(
        ArgumentError,
        "in_shardings of step has AUTO, and the mesh has axes of AxisType.Explicit, whose "
        "shardings are part of types; use a mesh of AxisType.Auto",
        lambda: sd.jit(step, in_shardings=sd.AUTO(mesh))(*arguments()),
    )


def test_a_request_of_one_device_beside_auto_is_an_error() -> None:
    device = sd.devices("cpu")[0]
    planned = sd.jit(step, in_shardings=(sd.AUTO, sd.AUTO, device))
    with mesh_of(2):
        fails(
            ArgumentError,
            f"in_shardings of step has AUTO and {sd.sharding.SingleDeviceSharding(device)!r}; use "
            "a NamedSharding beside AUTO",
            lambda: planned(*arguments()),
        )


def test_an_array_elsewhere_is_an_error() -> None:
    w, v, x = arguments()
    placed = sd.device_put(w, sd.devices("cpu")[0])
    with mesh_of(4), pytest.raises(ShardingError) as caught:
        sd.jit(step, in_shardings=sd.AUTO)(placed, v, x)
    assert str(caught.value).startswith("argument w of step is placed as SingleDeviceSharding(")
    assert "move it there with device_put" in str(caught.value)


def test_a_limit_that_no_plan_satisfies_is_an_error() -> None:
    planned = sd.jit(step, in_shardings=sd.AUTO(mesh_of(2), memory="1KiB"))
    with pytest.raises(PlanningError) as caught:
        planned(*arguments())
    assert str(caught.value).startswith("no plan fits into 1.0 KiB on each device")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": 4}, "the mesh of AUTO is 4, which is not a mesh"),
        (
            {"machine": 4},
            "the machine of AUTO is a name, a path, or a result of shardir.machine.load_machine, "
            "not 4",
        ),
    ],
)
def test_invalid_options_are_errors_before_a_call(options: dict[str, Any], message: str) -> None:
    fails(ArgumentError, message, lambda: sd.AUTO(**options))


def test_the_name_of_a_machine_is_checked_before_a_call() -> None:
    with pytest.raises(MachineError) as caught:
        sd.AUTO(machine="a100x9")
    assert str(caught.value).startswith("there is no machine 'a100x9'; did you mean 'a100x8'?")


def test_auto_is_no_sharding_elsewhere() -> None:
    fails(
        ArgumentError,
        "the device of device_put has AUTO of type AutoSharding, which is not a sharding; "
        "write NamedSharding(mesh, PartitionSpec(...))",
        partial(sd.device_put, np.ones(4), sd.AUTO),
    )
