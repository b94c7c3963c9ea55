"""Reading of scatters that combine elements by any computation, also of several tensors together.

If the indices are unique, one computation combines all windows. Otherwise a loop combines one
window after the other, in the order of the indices.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from lark import Token

from shardir.ir.module import Value
from shardir.ir.operation import Symbol
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import OperationReader, rename_results
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, repeat, tensors_of
from shardir.stablehlo.reading.shapes import move_index_vectors_last, scatter_dims
from shardir.stablehlo.reading.vectorized_regions import inline_vectorized

Values = tuple[Value, ...]


def scatter_by_region(
    call: OperationReader, region: records.BlockRecord, params: Sequence[Token]
) -> Values:
    """Read a scatter whose region combines an element and an update."""
    dims, vector = scatter_dims(call)
    count = len(call.operands) // 2
    indices = move_index_vectors_last(call, call.operands[count], vector)
    places = _include_batches(tensors_of(call, [indices])[0], dims)
    arrays = tensors_of(call, call.operands[:count])
    updates = tensors_of(call, call.operands[count + 1 :])
    window = dims["update_window_dims"]

    def combine(arrays: list[Tensor], at: Tensor, new: list[Tensor]) -> list[Tensor]:
        current = [
            x.apply(
                "gather",
                at,
                offset_dims=window,
                collapsed_dims=dims["inserted_window_dims"],
                start_index_map=dims["scatter_dims"],
                result=x.type.with_shape(y.type.shape),
            )
            for x, y in zip(arrays, new, strict=True)
        ]
        sides = [x.value for x in (*current, *new)]
        values = tensors_of(call, inline_vectorized(call, region, params, sides))
        return [
            x.apply("scatter", at, value, **dims, op=Symbol("set"))
            for x, value in zip(arrays, values, strict=True)
        ]

    if call.has("unique_indices") and call.types.flag(call.attr("unique_indices")):
        results = combine(arrays, places, updates)
    else:
        shape = places.type.shape[:-1]
        batch_dims = [d for d in range(updates[0].type.rank) if d not in window]

        def step(i: Tensor, values: list[Tensor]) -> list[Tensor]:
            position = _unravel(i, shape)
            row = places.slice_at([*position, 0], (*(1 for _ in shape), places.type.shape[-1]))
            parts = [_window(x, batch_dims, position) for x in updates]
            return combine(values, row, parts)

        results = repeat(call, prod(shape), arrays, step)
    return rename_results(call, [x.value for x in results])


def _include_batches(indices: Tensor, dims: dict[str, Any]) -> Tensor:
    """Return indices that also state the positions in batch dimensions, and change `dims` so."""
    batch, of_indices = dims.pop("operand_batching_dims", ()), dims.pop("indices_batching_dims", ())
    if not batch:
        return indices
    shape = (*indices.type.shape[:-1], 1)
    dtype = indices.type.dtype
    one = indices.slice_at([0] * len(shape), shape)
    columns = [one.iota(d, dtype) for d in of_indices]
    dims["scatter_dims"] = (*dims["scatter_dims"], *batch)
    dims["inserted_window_dims"] = tuple(sorted((*dims["inserted_window_dims"], *batch)))
    return indices.apply("concatenate", *columns, dim=len(shape) - 1)


def _unravel(i: Tensor, shape: Sequence[int]) -> list[Tensor]:
    """Return the multi-index of the flat index `i`."""
    position: list[Tensor] = []
    for size in reversed(shape):
        position.append(i.apply("rem", size))
        i = i / size
    return position[::-1]


def _window(x: Tensor, batch_dims: Sequence[int], position: Sequence[Tensor]) -> Tensor:
    """Return the window of the updates at a position of the scatter dimensions `batch_dims`."""
    starts: list[Tensor | int] = [0] * x.type.rank
    sizes = list(x.type.shape)
    for d, index in zip(batch_dims, position, strict=True):
        starts[d], sizes[d] = index, 1
    return x.slice_at(starts, sizes)
