"""Collective counts in Alpa's tests of multilayer perceptrons, with the given shardings."""

from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.cost.communication import list_collectives
from shardir.frontend.shardings.devices import virtual_devices
from shardir.ir.module import Module
from shardir.nn import relu
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.passes.ground_truth_models import count_collectives

LAYERS = 6


def train_step(shape: tuple[int, int], batch: int, hidden: int, tensor: bool, data: bool) -> Module:
    """Return a step of gradient descent; even layers are sharded by columns, odd ones by rows."""
    devices = virtual_devices(shape[0] * shape[1])
    mesh = sd.make_mesh(shape, ("data", "model"), devices=devices)

    def struct(size: tuple[int, ...], *axes: Any) -> Any:
        return sd.ShapeDtypeStruct(size, "float32", sharding=NamedSharding(mesh, P(*axes)))

    cut = "model" if tensor else None
    places = [((None, cut), (cut,)) if i % 2 == 0 else ((cut, None), ()) for i in range(LAYERS)]
    weights = [(struct((hidden, hidden), *w), struct((hidden,), *b)) for w, b in places]
    kept = [tuple(NamedSharding(mesh, P(*axes)) for axes in pair) for pair in places]
    rows = struct((batch, hidden), "data" if data else None)

    def loss(weights: Any, x: Any, y: Any) -> Any:
        for i, (w, b) in enumerate(weights):
            x = x @ w + b
            x = relu(x) if i < LAYERS - 1 else x
        return snp.mean((x - y) ** 2)

    def step(weights: Any, x: Any, y: Any) -> Any:
        gradients = sd.grad(loss)(weights, x, y)
        return sd.tree.map(lambda p, g: p - 0.1 * g, weights, gradients)

    lowered = sd.jit(step, out_shardings=kept).lower(weights, rows, rows)
    module: Module = lowered.after("dce")
    return module


@pytest.mark.parametrize("shape", [(4, 1), (2, 2)])
def test_data_parallel_steps_reduce_each_gradient(shape: tuple[int, int]) -> None:
    """Alpa counts one all-reduce, because XLA merges them."""
    module = train_step(shape, 256, 32, tensor=False, data=True)
    assert count_collectives(module) == {"all-reduce": 2 * LAYERS}


def test_tensor_parallel_steps_reduce_activations() -> None:
    """There are n - 1 all-reduces for n layers, of batch x hidden elements each."""
    module = train_step((1, 4), 32, 256, tensor=True, data=False)
    assert count_collectives(module) == {"all-reduce": LAYERS - 1}
    assert {found.nbytes for found in list_collectives(module)} == {32 * 256 * 4}


def test_steps_on_two_mesh_axes_reduce_gradients_and_activations() -> None:
    """Gradients are reduced over one axis and activations over the other; Alpa counts n, with
    merged gradients.
    """
    module = train_step((2, 2), 256, 32, tensor=True, data=True)
    found = list_collectives(module)
    along = [each.axes for each in found]
    assert along.count(("model",)) == LAYERS - 1
    assert along.count(("data",)) == 2 * LAYERS
    assert len(found) == 3 * LAYERS - 1
