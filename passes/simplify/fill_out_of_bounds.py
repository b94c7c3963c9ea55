"""Write the fill value only into out-of-bounds rows instead of selecting over the gather result.

before: `%3 = gather(%table, %rows, ...) : f32[64, 128]`
        `%4 = broadcast(%found, dims=[0]) : bool[64, 128]`
        `%5 = select(%4, %3, %zero) : f32[64, 128]`
after:  `%3 = gather(%table, %rows, ...) : f32[64, 128]`
        `%6 = iota(dim=0) : i32[64]`, `%7 = constant(value=64) : i32[64]`
        `%8 = select(%found, %7, %6) : i32[64]`, `%9 = reshape(%8) : i32[64, 1]`
        `%5 = scatter(%3, %9, %zero, op="set", ...) : f32[64, 128]`

Few rows are out of bounds, and a scatter drops updates whose index is out of bounds: it then reads
one index per row, whereas the selection reads and writes the whole array once more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.module import Function, Module, Op, Value
from shardir.ir.operation import OPS, Dense
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import rewrite_each, use_counts

MIN_ROW_ELEMENTS = 16
"""Minimum elements per row; a selection over shorter rows stays as it is."""
MAX_ROWS = 1 << 31


@dataclass(frozen=True)
class FillOutOfBounds(Pass, name="fill-out-of-bounds"):
    """Replace selections between gathered rows and a constant by a scatter of that constant."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_rewrite_function, module.functions)))


def _rewrite_function(function: Function) -> Function:
    if not any(op.spec is ops.gather for op in function.body.walk()):
        return function
    filled = partial(_append_scatter, use_counts(function.body))
    return rewrite_each(function, ops.select, filled)


def _append_scatter(
    uses: Mapping[Value, int], b: Builder, op: Op, makers: Mapping[Value, Op]
) -> bool:
    """Append the scatter that replaces a selection if the selection is the only use of a gather."""
    spread, gather, number = (makers.get(value) for value in op.operands)
    if spread is None or spread.spec is not ops.broadcast:
        return False
    if gather is None or gather.spec is not ops.gather or uses[gather.result] != 1:
        return False
    if (
        number is None
        or number.spec is not ops.constant
        or isinstance(number.attrs["value"], Dense)
    ):
        return False
    dims, (is_in_bounds,), full_type = tuple(spread.attrs["dims"]), spread.operands, op.result.type
    count, kind = is_in_bounds.type.shape, is_in_bounds.type.with_dtype("i32")
    if (
        tuple(full_type.shape[d] for d in dims) != count
        or full_type.size < MIN_ROW_ELEMENTS * is_in_bounds.type.size
    ):
        return False
    if not dims or max(count) >= MAX_ROWS:
        return False
    places = [b.iota(dim=i, result=kind) for i in range(len(dims))]
    places[0] = b.select(is_in_bounds, b.full(count[0], kind), places[0])
    column = kind.with_shape((*count, 1))
    columns = [b.reshape(row_indices, result=column) for row_indices in places]
    row_indices = b.concatenate(*columns, dim=len(dims)) if columns[1:] else columns[0]
    attrs = {
        "op": "set",
        "update_window_dims": tuple(d for d in range(full_type.rank) if d not in dims),
        "inserted_window_dims": dims,
        "scatter_dims": dims,
    }
    operands = (gather.result, row_indices, number.result)
    b.append(replace(op, spec=OPS["scatter"], operands=operands, attrs=attrs))
    return True
