"""Collective counts in Alpa's tests of optimizers with sharded state, and of microbatches.

Alpa counts collectives after merging in XLA: one reduce-scatter and one all-gather for all weights.
!
"""

from typing import Any

import shardir as sd
import shardir.numpy as snp
from shardir.lax import scan, with_sharding_constraint
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.passes.alpa_models import (
    Shapes,
    bert_loss,
    bert_shapes,
    convolution_loss,
    convolution_shapes,
    count_collectives,
    mesh_of,
    perceptron_loss,
    perceptron_shapes,
    structs,
    train_step,
)
from tests.passes.ground_truth_models import compile_step

WEIGHTS = 12
ROWS = [((256, 32), P("data"), "float32")] * 2


def places(shapes: Shapes) -> dict[str, P]:
    return {name: spec for name, (_, spec) in shapes.items()}


def test_sharded_state_scatters_and_gathers() -> None:
    """ZeRO-2: Alpa has one of each, merged, and no all-reduce."""
    pieces = places(perceptron_shapes(32, piece="data"))
    module = train_step(perceptron_loss, (4, 1), perceptron_shapes(32), ROWS, pieces)
    assert count_collectives(module) == {"reduce-scatter": WEIGHTS, "all-gather": WEIGHTS}


def test_sharded_weights_are_gathered_once() -> None:
    """ZeRO-3: Alpa has two all-gathers and one reduce-scatter, merged; here both passes use the
    gathered weights.
    """
    module = train_step(perceptron_loss, (4, 1), perceptron_shapes(32, piece="data"), ROWS)
    assert count_collectives(module) == {"reduce-scatter": WEIGHTS, "all-gather": WEIGHTS}


def test_sharded_state_does_not_affect_activations() -> None:
    """On two mesh axes there are n - 1 all-reduces as in Alpa, which has two reduce-scatters and
    up to two all-gathers, merged.
    """
    pieces = places(perceptron_shapes(32, "model", "data"))
    module = train_step(perceptron_loss, (2, 2), perceptron_shapes(32, "model"), ROWS, pieces)
    assert count_collectives(module, ("model",)) == {"all-reduce": 5}
    assert count_collectives(module, ("data",)) == {
        "reduce-scatter": WEIGHTS,
        "all-gather": WEIGHTS,
    }


def test_attention_with_sharded_state_does_not_affect_activations() -> None:
    """There are 4L - 1 all-reduces as in Alpa, and the other counts are as for a perceptron.

    Alpa's batch is 8 x 8, for which moving activations sends less here than scattering weights; the
    batch of this test is 64 x 64.
    """
    shapes = bert_shapes(2, 128, 8, "model")
    pieces = places(shapes)
    for name, spec in pieces.items():
        match tuple(spec):
            case ():
                pieces[name] = P("data")
            case ("model",) if len(shapes[name][0]) == 1:
                pieces[name] = P(("model", "data"))
            case ("model", *_):
                pieces[name] = P("model", "data")
            case (None, "model") if name.endswith("_bias"):
                pieces[name] = P(None, ("model", "data"))
            case (None, *rest):
                pieces[name] = P("data", *rest)
    batch = [((64, 64, 128), P("data"), "float32")] * 2
    module = train_step(bert_loss, (2, 2), shapes, batch, pieces)
    assert count_collectives(module, ("model",)) == {"all-reduce": 7}
    assert count_collectives(module, ("data",)) == {"reduce-scatter": 24, "all-gather": 24}


def test_convolutions_with_sharded_state_reduce_statistics_only() -> None:
    """Alpa has two all-reduces per normalization, merged, some reduce-scatters and up to two
    all-gathers.
    """
    shapes = convolution_shapes(3, 4)
    pieces = {
        name: P(None, None, "data") if name.endswith("kernel") else P("data") for name in shapes
    }
    batch = [((16, 16, 16, 4), P("data"), "float32"), ((16, 2, 2, 4), P("data"), "float32")]
    module = train_step(convolution_loss, (4, 1), shapes, batch, pieces)
    assert count_collectives(module) == {"all-reduce": 12, "reduce-scatter": 9, "all-gather": 9}


def test_factored_state_reduces_columns() -> None:
    """Adafactor stores a row and a column of squares; Alpa has one reduce-scatter and up to two
    other collectives, merged. Columns are sums over shards, and rows are not.
    """
    mesh = mesh_of((4, 1))
    params = structs(mesh, perceptron_shapes(32))
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    vector = sd.ShapeDtypeStruct((32,), "float32", sharding=whole)
    piece = sd.ShapeDtypeStruct((32,), "float32", sharding=cut)
    state = {name: (piece, vector) if "weight" in name else (piece,) for name in params}

    def step(params: Any, state: Any, x: Any, target: Any) -> Any:
        gradients = sd.grad(perceptron_loss)(params, x, target)
        kept: dict[str, Any] = {}
        updated: dict[str, Any] = {}
        for name, gradient in gradients.items():
            gradient = with_sharding_constraint(gradient, cut)
            square = gradient * gradient
            if gradient.ndim == 1:
                kept[name] = (0.9 * state[name][0] + 0.1 * square,)
                scale = kept[name][0]
            else:
                rows = 0.9 * state[name][0] + 0.1 * snp.mean(square, axis=1)
                columns = 0.9 * state[name][1] + 0.1 * snp.mean(square, axis=0)
                kept[name] = (rows, columns)
                scale = rows[:, None] * columns / snp.mean(rows)
            updated[name] = params[name] - 0.01 * gradient / snp.sqrt(scale)
        return updated, kept

    rows = sd.ShapeDtypeStruct((256, 32), "float32", sharding=cut)
    results = sd.tree.map(lambda leaf: leaf.sharding, (params, state))
    module = compile_step(step, params, state, rows, rows, results=results)
    assert count_collectives(module) == {
        "all-reduce": WEIGHTS // 2,
        "reduce-scatter": WEIGHTS,
        "all-gather": WEIGHTS,
    }


def test_microbatches_reduce_after_the_last() -> None:
    """There is no collective while gradients are accumulated, then one each; Alpa counts one,
    merged.
    """
    mesh = mesh_of((4, 1))
    params = structs(mesh, perceptron_shapes(32))
    place = NamedSharding(mesh, P(None, "data"))
    rows = sd.ShapeDtypeStruct((4, 64, 32), "float32", sharding=place)

    def step(params: Any, x: Any, target: Any) -> Any:
        def added(total: Any, pair: Any) -> Any:
            gradients = sd.grad(perceptron_loss)(params, *pair)
            return sd.tree.map(lambda t, g: t + g, total, gradients), None

        zeros = sd.tree.map(snp.zeros_like, params)
        total, _ = scan(added, zeros, (x, target))
        return sd.tree.map(lambda p, g: p - 0.1 * g, params, total)

    results = sd.tree.map(lambda leaf: leaf.sharding, params)
    module = compile_step(step, params, rows, rows, results=results)
    assert count_collectives(module) == {"all-reduce": WEIGHTS}
