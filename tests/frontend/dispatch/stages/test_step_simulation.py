"""`Compiled.simulate` and `Lowered.simulate`."""

from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir import nn
from shardir.errors import MachineError
from shardir.frontend.errors import ArgumentError
from shardir.ir.module import Module
from shardir.machine import load_machine
from shardir.passes.pipeline import PassObserver, Pipeline
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.error_assertions import first_line

MESH = shardir.sharding.AbstractMesh((4, 2), ("data", "model"))


def struct(shape: tuple[int, ...], *axes: str | None) -> shardir.ShapeDtypeStruct:
    return shardir.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*axes)))


def loss(w: shardir.Array, x: shardir.Array) -> shardir.Array:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def step(w: shardir.Array, m: shardir.Array, x: shardir.Array) -> tuple[shardir.Array, ...]:
    value, gradient = shardir.value_and_grad(loss)(w, x)
    m = 0.9 * m + gradient
    return w - 0.1 * m, m, value


ARGUMENTS = (
    struct((256, 256), None, "model"),
    struct((256, 256), None, "model"),
    struct((64, 256), "data"),
)


def test_lowered_and_compiled_functions_have_the_same_simulation() -> None:
    lowered = shardir.jit(step, donate_argnums=(0, 1)).lower(*ARGUMENTS)
    simulation = lowered.simulate("a100x8", memory="80GiB")
    assert simulation == lowered.compile().simulate("a100x8", memory=80 * 2**30)
    machine = load_machine("a100x8", axes={"data": 4, "model": 2})
    assert simulation == lowered.simulate(machine, memory=80 * 2**30)
    shard = 256 * 128 * 4
    kinds = {kind.value: nbytes for kind, nbytes in simulation.memory.by_kind.items()}
    assert (kinds["parameters"], kinds["optimizer state"]) == (shard, shard)
    assert kinds["arguments"] == 16 * 256 * 4
    assert simulation.fits
    assert simulation.devices == 8


class _Model:
    """A machine model of the user, which has the costs of a machine without its description."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def __getattr__(self, name: str) -> Any:
        if name in ("description", "axes"):
            raise AttributeError(name)
        return getattr(self.machine, name)


def test_a_machine_model_of_the_user_needs_no_description() -> None:
    lowered = shardir.jit(step).lower(*ARGUMENTS)
    machine = load_machine("a100x8", axes={"data": 4, "model": 2})
    assert lowered.simulate(_Model(machine)).breakdown == lowered.simulate(machine).breakdown


def test_donated_arguments_are_reused() -> None:
    donated = shardir.jit(step, donate_argnums=(0, 1)).lower(*ARGUMENTS).simulate("a100x8")
    kept = shardir.jit(step).lower(*ARGUMENTS).simulate("a100x8")
    assert kept.memory.peak > donated.memory.peak
    assert kept.fits is None


def test_started_collectives_are_hidden() -> None:
    lowered = shardir.jit(step).lower(*ARGUMENTS)
    plain = lowered.simulate("a100x8").breakdown
    overlapped = lowered.with_passes("default,overlap").simulate("a100x8").breakdown
    assert not any(plain.hidden.values())
    assert overlapped.exposed_total <= plain.exposed_total


def test_a_machine_of_another_mesh_is_refused() -> None:
    lowered = shardir.jit(step).lower(*ARGUMENTS)
    with pytest.raises(MachineError) as raised:
        lowered.simulate(load_machine("a100x8", axes={"data": 8}))
    assert str(raised.value) == (
        "machine 'a100x8' was loaded for the axes {'data': 8}, and the program's mesh has data=4; "
        "load it with axes={'data': 4, 'model': 2}"
    )


def test_what_is_no_machine_is_refused() -> None:
    lowered = shardir.jit(step).lower(*ARGUMENTS)
    with pytest.raises(ArgumentError) as raised:
        lowered.simulate(3)  # type: ignore[arg-type]
    assert first_line(raised) == (
        "the machine of simulate is a name, a path, or a result of shardir.machine.load_machine, "
        "not 3"
    )
    with pytest.raises(ArgumentError) as raised:
        lowered.simulate(load_machine("a100x8", axes={"data": 4, "model": 2}), links={"data": "x"})
    assert first_line(raised) == "links of simulate are for a machine given by its name or path"


def test_simulations_of_a_lowered_function_partition_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Pipeline] = []
    run = Pipeline.__call__
    lowered = shardir.jit(step).lower(*ARGUMENTS)
    full = lowered.pipeline

    def count(self: Pipeline, module: Module, watch: PassObserver | None = None) -> Module:
        if str(self) == full:
            runs.append(self)
        return run(self, module, watch)

    monkeypatch.setattr(Pipeline, "__call__", count)
    assert lowered.simulate("a100x8") == lowered.simulate("a100x8")
    assert len(runs) == 1


def test_products_in_a_kernel_take_the_time_of_their_own_dtypes() -> None:
    """The gradient of attention multiplies f32 probabilities in a kernel with bf16 operands."""

    def attention_loss(q: shardir.Array, k: shardir.Array, v: shardir.Array) -> shardir.Array:
        return jnp.sum(nn.dot_product_attention(q, k, v).astype(np.float32))

    x = shardir.ShapeDtypeStruct((2, 2048, 16, 64), jnp.bfloat16)
    compiled = shardir.jit(shardir.grad(attention_loss, argnums=(0, 1, 2))).lower(x, x, x).compile()
    simulation = compiled.simulate("a100x8", target="gpu")
    assert simulation.hfu is not None
    assert 0.5 < simulation.hfu < 1
