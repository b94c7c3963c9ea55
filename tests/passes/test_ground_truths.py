"""Known counts of collectives: Megatron, data parallelism, sequence parallelism, ZeRO."""

from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.cost.communication import list_collectives
from shardir.lax import with_sharding_constraint
from shardir.sharding import PartitionSpec as P
from tests.passes.ground_truth_models import (
    BATCH,
    MEGATRON,
    SEQUENCE,
    WIDTH,
    ZERO,
    ActivationSpecs,
    body,
    compile_step,
    constrain_both,
    count_collectives,
    forward,
    loss,
    parameters,
    places,
    sharding,
    struct,
    tokens,
    train,
)

pytestmark = pytest.mark.sample(2)

LAYERS = pytest.mark.parametrize("layers", [1, 2, 4])


@LAYERS
def test_megatron_reduces_twice_per_layer_forward(layers: int) -> None:
    """Narayanan et al. 2021: two all-reduces per layer in the forward pass."""
    module = compile_step(forward, parameters(layers, MEGATRON), tokens())
    assert count_collectives(module) == {"all-reduce": 2 * layers}
    for found in list_collectives(module):
        assert found.axes == ("y",)
        assert found.nbytes == BATCH * SEQUENCE * WIDTH * 4


@LAYERS
def test_megatron_reduces_four_times_per_layer_in_training(layers: int) -> None:
    """There are two all-reduces in the forward pass and two in the backward pass."""
    module = compile_step(train, parameters(layers, MEGATRON), tokens(), tokens())
    assert count_collectives(module) == {"all-reduce": 4 * layers}


@LAYERS
def test_data_parallelism_reduces_each_gradient_and_the_loss(layers: int) -> None:
    """There are nine gradients per layer, one of the embedding, which is used twice, and the
    loss.
    """
    batch = tokens(P("x"))
    module = compile_step(train, parameters(layers, {}), batch, batch)
    assert count_collectives(module) == {"all-reduce": 9 * layers + 2}


@LAYERS
def test_data_and_tensor_parallelism_have_the_sum_of_collectives(layers: int) -> None:
    batch = tokens(P("x"))
    module = compile_step(train, parameters(layers, MEGATRON), batch, batch)
    assert count_collectives(module) == {"all-reduce": 13 * layers + 2}


@LAYERS
def test_sequence_parallelism_gathers_and_scatters(layers: int) -> None:
    """Korthikanti et al. 2022: each all-reduce becomes an all-gather and a reduce-scatter.

    There are four of each per layer, forward and backward. No activation is all-reduced, only the
    gradients of the layer norms' scales, each of a part of the sequence, and the loss.
    """
    at = ActivationSpecs(
        between=constrain_both(None, "y", None),
        entering=constrain_both(None, None, None),
        heads=constrain_both(None, None, "y", None),
        hidden=constrain_both(None, None, "y"),
    )

    def step(params: Any, x: Any) -> Any:
        def error(params: Any, x: Any) -> Any:
            return snp.sum(body(params, x, at) ** 2)

        return sd.value_and_grad(error, argnums=(0, 1))(params, x)

    # Activations are as large as the weights of the attention's output, as in large models. With
    # activations of eight times their size, it sends less to gather these weights instead.
    for batch, gathers_activations in ((BATCH // 8, True), (BATCH, False)):
        x = struct((batch, SEQUENCE, WIDTH), P(None, "y"))
        module = compile_step(step, parameters(layers, MEGATRON), x)
        found = list_collectives(module)
        activation = batch * SEQUENCE * WIDTH * 4
        count = count_collectives(module)
        scattered = 8 * layers * (activation - activation // 4)
        reduced = [c.nbytes for c in found if c.kind == "all-reduce"]
        assert sorted(reduced) == [4, *[WIDTH * 4] * (2 * layers)]
        sent = sum(c.sent for c in found if c.kind != "all-reduce")
        if gathers_activations:
            assert (count["all-gather"], count["reduce-scatter"]) == (4 * layers, 4 * layers)
            assert all(c.nbytes == activation for c in found if c.kind == "all-gather")
            assert sent == scattered
        else:
            assert sent < 0.9 * scattered


@LAYERS
def test_zero_2_scatters_gradients(layers: int) -> None:
    """Weights are replicated and their momentum is sharded: gradients are scattered and weights
    gathered.
    """
    params = parameters(layers, {})
    momentum = parameters(layers, ZERO, P("x"))
    batch = tokens(P("x"))

    def step(params: Any, momentum: Any, words: Any, targets: Any) -> Any:
        value, gradients = sd.value_and_grad(loss)(params, words, targets)
        momentum = sd.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        momentum = sd.tree.map(with_sharding_constraint, momentum, pieces)
        params = sd.tree.map(lambda p, m: p - 0.01 * m, params, momentum)
        return value, params, momentum

    pieces = places(momentum)
    results = (sharding(), places(params), pieces)
    module = compile_step(step, params, momentum, batch, batch, results=results)
    weights = 9 * layers + 1
    assert count_collectives(module) == {
        "all-reduce": 1,
        "reduce-scatter": weights,
        "all-gather": weights,
    }


@LAYERS
def test_zero_3_gathers_each_weight_once(layers: int) -> None:
    """Weights are sharded: gathered once for both passes, and gradients are scattered."""
    params = parameters(layers, ZERO, P("x"))
    batch = tokens(P("x"))
    results = (sharding(), places(params))
    module = compile_step(train, params, batch, batch, results=results)
    weights = 9 * layers + 1
    assert count_collectives(module) == {
        "all-reduce": 1,
        "reduce-scatter": weights,
        "all-gather": weights,
    }
