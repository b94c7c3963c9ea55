"""The bytes that a dense layer communicates according to the scaling book (jax-ml/scaling-book).

The layer has two matrices of D by F in bf16 and a batch of B. The bytes are those that a device
receives; a ring needs only (n - 1) / n of the book's numbers. Both passes use the weights that are
gathered once, so that fully sharded training communicates 4DF + 4DF, where the book, which gathers
again, has 4DF + 8DF.
"""

from typing import Any

import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.cost.communication import list_collectives
from shardir.sharding import PartitionSpec as P
from tests.passes.ground_truth_models import compile_step, received_bytes, struct

B, D, F, N = 4096, 64, 256, 4


def layer(x: Any, up: Any, down: Any) -> Any:
    return snp.tanh(x @ up) @ down


def step(x: Any, up: Any, down: Any, seed: Any) -> Any:
    """Return the layer, and the results of its backward pass for a cotangent."""
    y, back = sd.vjp(layer, x, up, down)
    return y, back(seed)


@pytest.mark.parametrize(
    ("x", "up", "down", "nbytes"),
    [
        (P("y"), P(), P(), 8 * D * F),
        (P(), P(None, "y"), P("y"), 4 * B * D + 4 * B * D),
        (P("y"), P("y"), P(None, "y"), 4 * D * F + 4 * D * F),
    ],
    ids=["data", "tensor", "fully sharded"],
)
def test_a_dense_layer_communicates_the_bytes_of_the_book(
    x: P, up: P, down: P, nbytes: int
) -> None:
    args = [
        struct((B, D), x, "bfloat16"),
        struct((D, F), up, "bfloat16"),
        struct((F, D), down, "bfloat16"),
        struct((B, D), x, "bfloat16"),
    ]
    places = (args[0].sharding, tuple(arg.sharding for arg in args[:3]))
    module = compile_step(step, *args, results=places)
    assert sum(map(received_bytes, list_collectives(module))) == nbytes * (N - 1) / N
