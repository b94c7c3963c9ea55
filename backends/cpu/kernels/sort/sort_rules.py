"""Lowering rules of `sort` and `top_k`; sorts many lines together with one lane for each line.

Lines are stored side by side in scratch memory, as integers that compare in element order; a
sorting network (`row_network`) sorts the rows without shuffles. Long lines or few lines are sorted
by vectorized quicksort (`samplesort`, `argsort`, `complex_sort`) or radix sort.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import FLOAT_TYPES, LLVMFunction, vector_type
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement import element_values, transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import (
    GridBlock,
    KernelForm,
    block_grid_of,
    grid_kernel,
)
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.gather import gather_phase
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.data_movement.view_transforms import slice_dim
from shardir.backends.cpu.kernels.selection.radix_select import radix_select_phases
from shardir.backends.cpu.kernels.sort.argsort import argsort_phases
from shardir.backends.cpu.kernels.sort.complex_sort import complex_sort_phases
from shardir.backends.cpu.kernels.sort.network_lines import NetworkLines, largest_word, word_type
from shardir.backends.cpu.kernels.sort.radix_sort import radix_sort_phases
from shardir.backends.cpu.kernels.sort.row_network import REGISTER_ROWS, sort_rows
from shardir.backends.cpu.kernels.sort.samplesort import (
    compress_sort_phases,
    is_compress_sort_faster,
)
from shardir.backends.cpu.kernels.sort.tuning import (
    MAX_NETWORK_ARGSORT_ELEMENTS,
    MAX_NETWORK_ELEMENTS,
    MIN_NETWORK_LINES,
)
from shardir.backends.cpu.schedule.buffer_views import dimension_order
from shardir.ir.dtypes import KEYS
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, TensorType


def sort_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower a sort by real operands, or by one complex operand of type c64."""
    x, dim = operands[0], op.attrs["dim"]
    if x.dtype == "c64" and len(operands) == 1 and x.size:
        return complex_sort_phases(
            x, results[0], dim, partial(_values_phases, context=context), context
        )
    keys = operands[: op.attrs.get("keys", 1)]
    if any(key.dtype in (*COMPLEX, *KEYS) for key in keys):
        return None
    if x.size == 0:
        return []
    if len(operands) == 1:
        return _values_phases(x, results[0], dim, op.attrs.get("positions", ()), context=context)
    permutation_index = op.attrs.get("order")
    order = (
        _temporary_indices(x, context) if permutation_index is None else results[permutation_index]
    )
    if len(keys) > 1:
        phases, is_sorted = _permutation_phases(keys, order, dim, context), False
    else:
        values = results[0] if permutation_index is None and x.itemsize == 4 else None
        phases = argsort_phases(x, order, dim, values, context)
        is_sorted = phases is not None and values is not None
        phases = phases or _argsort_phases(x, order, dim, context)
    if phases is None or permutation_index is not None:
        return phases
    gathered = [
        _gather_by(source, order, target, dim, context)
        for source, target in list(zip(operands, results, strict=True))[is_sorted:]
    ]
    return [*phases, *gathered]


def _argsort_phases(
    x: BufferView, order: BufferView, dim: int, context: LoweringContext
) -> list[Phase] | None:
    phases = None
    if x.shape[dim] > MAX_NETWORK_ARGSORT_ELEMENTS.get(x.itemsize, 0):
        phases = radix_sort_phases(x, order, dim, True, context)
    phases = phases or _network_phases(x, order, dim, "places", context)
    return phases or radix_sort_phases(x, order, dim, True, context)


def _permutation_phases(
    keys: Sequence[BufferView], order: BufferView, dim: int, context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the permutation that sorts by several keys, the first is the
    primary.

    The operands are sorted by one key after the other, from the last to the first; each sort is
    stable.
    """
    phases: list[Phase] = []
    before: BufferView | None = None
    for number, key in reversed(list(enumerate(keys))):
        if before is not None:
            slot = context.temporary(key.size * key.itemsize)
            type = TensorType(key.shape, key.dtype)
            arranged = BufferView(
                slot, 0, key.shape, row_major_strides(type, dimension_order(key)), key.dtype
            )
            phases.append(_gather_by(key, before, arranged, dim, context))
            key = arranged
        places = _temporary_indices(key, context)
        more = argsort_phases(key, places, dim, None, context)
        more = more or _argsort_phases(key, places, dim, context)
        if more is None:
            return None
        phases += more
        if before is not None:
            after = _temporary_indices(key, context) if number else order
            phases.append(_gather_by(before, places, after, dim, context))
            places = after
        before = places
    return phases


def _values_phases(
    x: BufferView,
    y: BufferView,
    dim: int = 1,
    positions: Sequence[int] = (),
    *,
    context: LoweringContext,
) -> list[Phase] | None:
    """Return phases that write the sorted lines of `x`; if `positions` is not empty,
    only the elements there."""
    steps, phases = x.shape[dim], None
    if is_compress_sort_faster(x.dtype, x.size // steps, steps, bool(positions), context):
        phases = compress_sort_phases(x, y, dim, positions, context)
    if phases is None and _is_network_fast(x, steps, context):
        phases = _network_phases(x, y, dim, "", context)
    phases = phases or compress_sort_phases(x, y, dim, positions, context)
    if phases is None and positions:
        phases = radix_select_phases(x, y, dim, positions, context)
    phases = phases or radix_sort_phases(x, y, dim, False, context)
    return phases or _network_phases(x, y, dim, "", context)


def top_k_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower `top_k`: sort all indices in descending order of their elements and take the first."""
    (x,), (values, indices) = operands, results
    if values.size == 0:
        return []
    dim = len(x.shape) - 1
    order = _temporary_indices(x, context)
    phases = _network_phases(x, order, dim, "largest", context)
    if phases is None:
        return None
    first = slice_dim(order, dim, 0, values.shape[dim])
    still = x._replace(shape=values.shape)
    return [
        *phases,
        _gather_by(still, first, values, dim, context, x.shape[dim]),
        *copy_phases(first, indices, context),
    ]


def _temporary_indices(x: BufferView, context: LoweringContext) -> BufferView:
    """Return a temporary for the index of each element in its line."""
    type = TensorType(x.shape, "i32")
    slot = context.temporary(type.nbytes)
    return BufferView(slot, 0, type.shape, row_major_strides(type, dimension_order(x)), type.dtype)


def _gather_by(
    source: BufferView,
    order: BufferView,
    target: BufferView,
    dim: int,
    context: LoweringContext,
    extent: int = 0,
) -> Phase:
    """Return the phase that gathers elements of `source` by the indices `order` along `dim`."""
    start = source._replace(
        strides=tuple(0 if d == dim else stride for d, stride in enumerate(source.strides))
    )
    component = ((extent or source.shape[dim]) - 1, source.strides[dim])
    return gather_phase(order, start, target, [component], 0, context)


def _is_network_fast(x: BufferView, steps: int, context: LoweringContext) -> bool:
    """Return whether the network may be faster than radix sort; few lines leave lanes unused."""
    most = MAX_NETWORK_ELEMENTS.get(x.itemsize)
    if most is None:
        return True
    side = transpose_tiles.tile_side(x.itemsize, context.machine)
    return steps * side <= most * min(side, x.size // steps)


def _network_phases(
    x: BufferView, y: BufferView, dim: int, places: str, context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the lines of `x` in order, or with `places` their permutation."""
    steps, size = x.shape[dim], x.itemsize
    if places and size > 4:
        return None  # A word cannot hold both key and index.
    side = transpose_tiles.tile_side(size, context.machine)
    row_bytes = side * int(word_type(x.dtype, places)[1:]) // 8
    found = loop_nest_of([x, y], [dim])
    column = max(found.loops, key=lambda loop: loop.extent, default=None)
    if (
        column is None
        or column.extent < MIN_NETWORK_LINES
        or (steps + REGISTER_ROWS) * row_bytes > SCRATCH_BYTES_PER_WORKER
    ):
        return None
    rows = [loop for loop in found.loops if loop is not column]
    if (x.strides[dim], y.strides[dim]) == (size, y.itemsize) == (size, size) and steps >= side:
        variant = "tiles"
    elif column.strides == (size, y.itemsize):
        variant = "beside"
    else:
        variant = "items"
    each = max(1, -(-column.extent // side) // (4 * context.workers))
    grid = block_grid_of([x, y], found, rows[-1] if rows else None, column, 1, side * each)
    name = f"{places or 'sort'}_{variant}_{x.dtype}"
    kernel = grid_kernel(
        name, KernelForm(2, extras=3), partial(_emit_network_sort, variant, x.dtype, places)
    )
    levels = steps.bit_length()
    cost = x.size * (1.0 + 0.02 * levels * levels) * (2.5 if places else 1.0)
    extra = (steps, x.strides[dim], y.strides[dim])
    return [grid.phase(kernel, cost, context.workers, "sort", extra)]


def _emit_network_sort(
    variant: str, dtype: str, places: str, f: LLVMFunction, block: GridBlock
) -> None:
    side = transpose_tiles.tile_side(element_values.ELEMENT_BYTES[dtype], f.machine)
    word = word_type(dtype, places)
    steps = block.extra(0)
    last = block.columns - 1
    row_type = vector_type(word, side)
    padded = (steps + (REGISTER_ROWS - 1)) & -REGISTER_ROWS
    with f.loop(0, block.columns, side) as first:
        ends = [
            [f.offset(end, f.umin(first + lane, last) * stride) for lane in range(side)]
            for end, stride in zip(block.addresses, block.column_strides, strict=True)
        ]
        is_full_vector = (first + side).is_("sle", block.columns)
        lines = NetworkLines(variant, dtype, places, f, block, ends, is_full_vector)
        lines.read()
        with f.loop(steps, padded) as i:
            f.store(f.value(largest_word(word), row_type), f.offset(block.scratch, i, row_type), 1)
        sort_rows(f, block.scratch, padded, row_type)
        if element_values.kind_of(dtype).type in FLOAT_TYPES and not places:
            flags = lines.signs.get().is_("ne", 0).to(f"i{side}", "bitcast")
            with f.when(flags.is_("ne", 0) | lines.sign.get()):
                lines.restore_zeros()
        lines.write()


RULES: dict[str, Rule] = {"sort": sort_rule, "top_k": top_k_rule}
"""Complex keys other than a single c64 operand are not supported; neither are `top_k` of few or
very long lines, nor permutations of 64-bit elements in many short lines."""
