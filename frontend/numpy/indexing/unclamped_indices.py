"""Reads at indices before they are clamped, for the index checks of `checkify`.

The modes that clamp indices do so before the gather or scatter, because derivatives depend on it.
The checks of these operations would find all indices within bounds, whereas those of JAX concern
the indices that the program states.
"""

from collections.abc import Mapping, Sequence

from shardir.frontend.dispatch.execution_context import execution_context
from shardir.frontend.tracing.operands import splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType


def has_index_checks() -> bool:
    """Return whether `checkify` checks the indices of the traced function."""
    return execution_context().checks_indices


def emit_index_check(
    shape: Sequence[int],
    vectors: Tracer,
    dims: Sequence[int],
    windows: Mapping[int, int] | None = None,
) -> None:
    """Add a read of an array of `shape` at index vectors, if `checkify` checks indices.

    `vectors` are the starts along `dims`, of windows of the size 1 or the sizes in `windows`.
    No other operation uses the result, so it remains in the program only as a check.
    """
    if not has_index_checks() or not all(shape):
        return
    operand = splat(0, TensorType(tuple(shape), "bool"))
    batch = vectors.shape[:-1]
    sizes = tuple((windows or {}).get(dim, 1) for dim in range(len(shape)))
    emit(
        "gather",
        operand,
        vectors,
        offset_dims=tuple(range(len(batch), len(batch) + len(shape))),
        collapsed_dims=(),
        start_index_map=tuple(dims),
        result=TensorType((*batch, *sizes), "bool"),
    )
