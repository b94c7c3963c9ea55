"""Vectorization (vmap): transform a function to one that computes it for a batch of arguments.

before: `func @f(%x: f32[4], %w: f32[4, 8]) -> (f32[8])`
after:  `func @f.vmap(%x: f32[16, 4], %w: f32[4, 8]) -> (f32[16, 8])`, batched over `%x`

The chosen parameters, and all values that depend on them, get a leading batch dimension; other
values are computed once. Each operation gets one more factor by the rule that it declares
(`OpSpec.batch`), so values keep their names and source lines. A loop whose condition is batched
runs until the last element is done, and a branch on a batched index computes all branches and
selects. The result is an ordinary function that can be vectorized again.
"""

from collections.abc import Sequence

from shardir.ir.module import Function
from shardir.passes.batching import (
    batched_pipeline,
    collectives,
    control_flow,
    manual,
    random_keys,
    regions,
)
from shardir.passes.batching.batcher import BatchAxes
from shardir.passes.batching.transform import BatchSharding, add_batch_dimension, vectorize_with

_BATCHING_HANDLERS = {
    **control_flow.HANDLERS,
    **regions.HANDLERS,
    **collectives.HANDLERS,
    **manual.HANDLERS,
    **batched_pipeline.HANDLERS,
    **random_keys.HANDLERS,
}


def vectorize(
    function: Function,
    batched: Sequence[bool],
    size: int,
    position: BatchSharding = add_batch_dimension,
    axis: str | None = None,
    front: BatchAxes | None = None,
) -> Function:
    """Return the function over a batch of `size` arguments.

    `batched` states for each parameter whether it has a leading dimension of `size`. Results that
    depend on such parameters have one too; the others keep their types. `position` adds the batch
    dimension to shardings, and `front` returns the axes of manual computations that shard it.
    Collectives along an axis called `axis` become operations on the batch dimension.

    Raises `VectorizeError` for per-device programs, and for operations without a batching rule.
    """
    return vectorize_with(_BATCHING_HANDLERS, function, batched, size, position, axis, front)
