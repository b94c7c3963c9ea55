"""Collective counts in Alpa's tests of attention, embeddings, convolutions and experts.

Alpa searches for shardings; these tests state those that it finds. Alpa counts collectives after
merging in XLA: one all-reduce for all gradients, where here each gradient has its own.
"""

from typing import Any

from shardir.cost.communication import list_collectives
from shardir.nn import relu
from shardir.sharding import PartitionSpec as P
from tests.passes.alpa_models import (
    Shapes,
    attention_shapes,
    batch_normalized,
    bert_layer,
    bert_loss,
    bert_shapes,
    convolution_loss,
    convolution_shapes,
    convolved,
    count_collectives,
    dense_shapes,
    error,
    expert_layer,
    expert_shapes,
    masked_loss,
    masked_shapes,
    mesh_of,
    surprise,
    train_step,
)

LAYERS = 2
Batch = list[tuple[tuple[int, ...], P, str]]


def pair(shape: tuple[int, ...], spec: P, dtype: str = "float32") -> Batch:
    """Return the input and the target, which have the same type."""
    return [(shape, spec, dtype)] * 2


def test_data_parallel_attention_reduces_each_gradient() -> None:
    """There are twelve weights per layer; Alpa counts one merged all-reduce."""
    batch = pair((64, 64, 32), P("data"))
    module = train_step(bert_loss, (4, 1), bert_shapes(LAYERS, 32, 8), batch)
    assert count_collectives(module) == {"all-reduce": 12 * LAYERS}


def test_tensor_parallel_attention_reduces_activations() -> None:
    """There are 4L - 1 all-reduces for L layers, because the input of the first layer has no
    gradient. Alpa has the same count.
    """
    batch = pair((8, 8, 128), P())
    module = train_step(bert_loss, (1, 4), bert_shapes(LAYERS, 128, 8, "model"), batch)
    assert count_collectives(module) == {"all-reduce": 4 * LAYERS - 1}
    assert {found.nbytes for found in list_collectives(module)} == {8 * 8 * 128 * 4}


def test_attention_on_two_mesh_axes_reduces_activations_and_gradients() -> None:
    """There are 4L - 1 along one axis as in Alpa, and gradients along the other, which Alpa
    merges into one.
    """
    batch = pair((8, 8, 128), P("data"))
    module = train_step(bert_loss, (2, 2), bert_shapes(LAYERS, 128, 8, "model"), batch)
    assert count_collectives(module, ("model",)) == {"all-reduce": 4 * LAYERS - 1}
    assert count_collectives(module, ("data",)) == {"all-reduce": 12 * LAYERS}
    assert len(list_collectives(module)) == 16 * LAYERS - 1


def test_an_embedding_sharded_by_words_only_reduces() -> None:
    """Alpa's objective has two reductions of rows and two of scalars per token; here there are
    three of scalars: the largest logit, the sum of exponentials, and the sum of the gradient.
    """
    batch, words, width = 8 * 8 // 2, 1024, 8

    def loss(params: Any, x: Any, y: Any) -> Any:
        return surprise(params["words"][x] @ params["words"].T, y)

    shapes: Shapes = {"words": ((words, width), P("model"))}
    module = train_step(loss, (2, 2), shapes, pair((8, 8), P("data"), "int32"))
    assert set(count_collectives(module)) == {"all-reduce"}
    along = [(found.axes, found.nbytes) for found in list_collectives(module)]
    assert along.count((("data",), words // 2 * width * 4)) == 1
    assert along.count((("model",), batch * width * 4)) == 2
    assert along.count((("model",), batch * 4)) == 3
    assert len(along) == 6


def test_a_data_parallel_language_model_reduces_each_gradient() -> None:
    """Alpa counts one merged all-reduce; the embedding is used twice and reduced once."""
    shapes = masked_shapes(128, 32, 16, 4, None)
    module = train_step(masked_loss, (4, 1), shapes, pair((32, 32), P("data"), "int32"))
    assert count_collectives(module) == {"all-reduce": len(shapes)}


def test_a_tensor_parallel_language_model_reduces_activations_and_logits() -> None:
    """There are 4L in the layers, two of rows at the embedding, and three over words; Alpa has
    4L + 4.
    """
    shapes = masked_shapes(512, 16, 128, 8, "model")
    module = train_step(masked_loss, (1, 4), shapes, pair((16, 16), P(), "int32"))
    assert count_collectives(module) == {"all-reduce": 4 * LAYERS + 5}


def test_data_parallel_convolutions_reduce_gradients_and_statistics() -> None:
    """There are four numbers per channel and normalization; Alpa counts two each, merged, and
    one for all gradients.
    """
    batch = [((16, 16, 16, 4), P("data"), "float32"), ((16, 2, 2, 4), P("data"), "float32")]
    module = train_step(convolution_loss, (4, 1), convolution_shapes(3, 4), batch)
    assert count_collectives(module) == {"all-reduce": 3 * 3 + 4 * 3}


def test_tensor_parallel_convolutions_reduce_activations() -> None:
    """There are n - 1 all-reduces for n layers, as in Alpa."""
    batch = [((8, 16, 16, 256), P(), "float32"), ((8, 1, 1, 256), P(), "float32")]
    module = train_step(convolution_loss, (1, 4), convolution_shapes(4, 256, "model"), batch)
    assert count_collectives(module) == {"all-reduce": 3}


def test_convolutions_by_channel_reduce_once() -> None:
    """The layers are wide, depthwise and narrow: there is one all-reduce, after the last, as in
    Alpa.
    """
    width = 256

    def loss(params: Any, x: Any, target: Any) -> Any:
        x = convolved(x, params["wide"])
        x = convolved(x, params["by_channel"], groups=8 * width)
        x = relu(convolved(x, params["narrow"]))
        return error(batch_normalized(x, params["scale"], params["shift"]), target)

    shapes: Shapes = {
        "wide": ((3, 3, width, 8 * width), P(None, None, None, "model")),
        "by_channel": ((3, 3, 1, 8 * width), P(None, None, None, "model")),
        "narrow": ((3, 3, 8 * width, width), P(None, None, "model")),
        "scale": ((width,), P()),
        "shift": ((width,), P()),
    }
    module = train_step(loss, (1, 4), shapes, pair((4, 8, 8, width), P()))
    assert count_collectives(module) == {"all-reduce": 1}


def test_experts_exchange_tokens_four_times() -> None:
    """Tokens are sent to the experts and back, forward and backward, as in Alpa. The gradients
    of attention and gate are reduced, which Alpa counts as one, merged. Those of experts stay
    local.
    """

    def loss(params: Any, x: Any, target: Any) -> Any:
        return error(expert_layer(params, "0", x, 32, mesh_of((4, 1))), target)

    shapes = expert_shapes("0", 64, 16, 16, "data")
    module = train_step(loss, (4, 1), shapes, pair((64, 16, 64), P("data")))
    assert count_collectives(module) == {"all-to-all": 4, "all-reduce": len(shapes) - 2}


def test_a_language_model_with_experts_exchanges_tokens_four_times() -> None:
    """One layer of two has experts. Alpa counts four exchanges and up to four all-reduces."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        h = expert_layer(params, "0", params["words"][x], 32, mesh_of((4, 1)))
        return surprise(bert_layer(params, "1", h) @ params["words"].T, y)

    shapes = expert_shapes("0", 64, 16, 16, "data")
    shapes |= attention_shapes("1", 64, 16, None) | dense_shapes("1", 64, None)
    shapes["words"] = ((32, 64), P())
    module = train_step(loss, (4, 1), shapes, pair((64, 16), P("data"), "int32"))
    assert count_collectives(module) == {"all-to-all": 4, "all-reduce": len(shapes) - 2}
