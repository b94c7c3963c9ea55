"""Gather and scatter."""

from shardir.backends.emission import EmissionError
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import list_text
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX
from shardir.ops.indexing.layout import (
    GatherAttributes,
    IndexingLayout,
    ScatterAttributes,
)


@lowers("gather")
def _gather(w: FunctionWriter, op: Op, x: str, indices: str) -> str:
    shape = op.result.type.shape
    layout = IndexingLayout.for_shapes(
        op.operands[0].type.shape, len(shape), GatherAttributes.of(op).dims
    )
    if _takes_rows(op, layout):
        return w.call_library("take_rows", x, f"{indices}[..., 0]")
    if _takes_along(op, layout):
        return w.call_library("take_along", x, f"{indices}[..., 0]", str(layout.dropped[0]))
    return w.call_library("gather_windows", x, indices, list_text(shape), *_geometry(layout))


@lowers("scatter")
def _scatter(w: FunctionWriter, op: Op, x: str, indices: str, updates: str) -> str:
    combine = op.attrs["op"]
    if combine == "mul" and op.result.type.dtype in COMPLEX:
        raise EmissionError.of(
            op,
            f"torch cannot multiply {op.result.type.dtype} into elements at indices of a tensor",
            "scatter real and imaginary parts of logarithms, or multiply in a loop",
        )
    rank = len(op.operands[2].type.shape)
    layout = IndexingLayout.for_shapes(
        op.operands[0].type.shape, rank, ScatterAttributes.of(op).dims
    )
    return w.call_library(
        "scatter_windows", x, indices, updates, f'"{combine}"', *_geometry(layout)
    )


def _takes_rows(op: Op, layout: IndexingLayout) -> bool:
    """Return whether the gather takes complete rows of the first dimension, one index each."""
    x, indices, to = op.operands[0].type, op.operands[1].type, op.result.type
    batch = indices.rank - 1
    return (
        layout.index_map == (0,)
        and layout.dropped == (0,)
        and not layout.batching
        and layout.window == {batch + d - 1: d for d in range(1, x.rank)}
        and to.shape[batch:] == x.shape[1:]
    )


def _takes_along(op: Op, layout: IndexingLayout) -> bool:
    """Return whether the gather takes single elements along one dimension, batched over
    the others.
    """
    rank = op.operands[0].type.rank
    return (
        not layout.window
        and len(layout.dropped) == 1
        and layout.index_map == layout.dropped
        and layout.batching == {d: d for d in range(rank) if d not in layout.dropped}
        and op.operands[1].type.rank == rank + 1
    )


def _geometry(layout: IndexingLayout) -> tuple[str, str, str]:
    return _pairs(layout.window), list_text(layout.index_map), _pairs(layout.batching)


def _pairs(pairs: dict[int, int]) -> str:
    return f"{{{', '.join(f'{key}: {value}' for key, value in pairs.items())}}}"
