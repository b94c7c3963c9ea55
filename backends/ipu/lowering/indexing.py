"""Lowering rules of dynamic slices, gather and scatter.

Poplar's offsets are unsigned and its behaviour out of bounds is undefined, so indices are clamped
or checked first, as the operations require.
"""

from collections.abc import Sequence
from math import prod

from shardir.backends.emission import EmissionError
from shardir.backends.ipu.codegen.device_types import (
    NARROW_INTEGERS,
    UNSLICEABLE_TYPES,
    initializer_text,
    physical_type,
)
from shardir.backends.ipu.codegen.emitter import (
    ProgramEmitter,
    broadcast_view,
    reshape_view,
    shuffle_view,
)
from shardir.backends.ipu.lowering.data_movement import slice_view
from shardir.backends.ipu.lowering.fused_groups import index_range
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.backends.ipu.lowering.reductions import extreme_text
from shardir.ir.module import Op, Value
from shardir.ops.indexing.layout import (
    GatherAttributes,
    IndexingLayout,
    ScatterAttributes,
)

COMBINE_EXPRESSIONS = {"add": "pe::_1 + pe::_2", "mul": "pe::_1 * pe::_2"}
EXTREME_OPERATORS = {"max": "Max", "min": "Min"}


def cast_to_32_bits(e: ProgramEmitter, value: Value) -> tuple[str, str]:
    """Return an integer tensor with 32-bit elements, and its element type."""
    if value.type.dtype not in NARROW_INTEGERS:
        return e.text(value), value.type.dtype
    return f"popops::cast(graph, {e.text(value)}, poplar::INT, {e.sequence})", "i32"


def clamp_text(e: ProgramEmitter, text: str, dtype: str, most: int, label: str) -> str:
    """Return integers clamped to [0, most], as unsigned integers."""
    if dtype == "u32":
        return e.map_text(f"pe::Min(pe::_1, pe::Const({most}u))", [text], label)
    inside = f"pe::Max(pe::Min(pe::_1, pe::Const({most})), pe::Const(0))"
    return e.map_text(f"pe::Cast({inside}, poplar::UNSIGNED_INT)", [text], label)


def _offsets(
    e: ProgramEmitter, starts: Sequence[Value], whole: Sequence[int], sizes: Sequence[int], y: Value
) -> tuple[list[int], str]:
    """Return the dimensions along which a window can move, and its start along them."""
    dims = [d for d, (n, m) in enumerate(zip(whole, sizes, strict=True)) if n != m]
    parts, label = [], e.label(y)
    for d in dims:
        text, dtype = cast_to_32_bits(e, starts[d])
        parts.append(f"{clamp_text(e, text, dtype, whole[d] - sizes[d], label)}.reshape({{1}})")
    joined = parts[0] if len(parts) == 1 else f"poplar::concat({{{', '.join(parts)}}})"
    return dims, e.temporary(f"{y.name}_start", joined)


@lowers("dynamic_slice")
def _dynamic_slice(e: ProgramEmitter, op: Op) -> None:
    x, *starts = op.operands
    y = op.result
    if x.type.shape == y.type.shape:
        e.alias(y, e.text(x), x)
        return
    if (places := _known_starts(e, starts, x.type.shape, y.type.shape)) is not None:
        e.define(y, _slice_of(e.text(x), x.type.shape, places, y.type.shape), x)
        return
    e.comment(op)
    dims, offsets = _offsets(e, starts, x.type.shape, y.type.shape, y)
    sizes = [y.type.shape[d] for d in dims]
    e.define(y, dynamic_slice_text(e, e.text(x), y.type.dtype, offsets, dims, sizes, e.label(y)))


def dynamic_slice_text(
    e: ProgramEmitter,
    text: str,
    dtype: str,
    offsets: str,
    dims: Sequence[int],
    sizes: Sequence[int],
    label: str,
) -> str:
    """Return the expression of a slice whose start is a tensor."""
    held = e.cast_text(text, "i32", label) if dtype in UNSLICEABLE_TYPES else text
    arguments = f"{held}, {offsets}, {initializer_text(dims)}, {initializer_text(sizes)}"
    arguments += f", {e.sequence}, {label}"
    made = f"popops::dynamicSlice(graph, {arguments})"
    return e.cast_text(made, dtype, label) if dtype in UNSLICEABLE_TYPES else made


@lowers("dynamic_update_slice")
def _dynamic_update_slice(e: ProgramEmitter, op: Op) -> None:
    x, update, *starts = op.operands
    y = op.result
    if x.type.shape == update.type.shape:
        e.alias(y, e.text(update), update)
        return
    e.comment(op)
    if (places := _known_starts(e, starts, x.type.shape, update.type.shape)) is not None:
        copy_to_variable(e, y, e.text(x))
        piece = _slice_of(e.text(y), y.type.shape, places, update.type.shape)
        e.add(f"{e.sequence}.add(Copy({e.text(update)}, {piece}));")
        return
    if x.type.dtype in UNSLICEABLE_TYPES:
        raise unsliceable_error(e, op, x.type.dtype)
    dims, offsets = _offsets(e, starts, x.type.shape, update.type.shape, y)
    copy_to_variable(e, y, e.text(x))
    sizes = initializer_text([update.type.shape[d] for d in dims])
    arguments = f"{e.text(y)}, {e.text(update)}, {offsets}, {initializer_text(dims)}, {sizes}"
    e.add(f"popops::dynamicUpdate(graph, {arguments}, {e.sequence}, {e.label(y)});")


def _known_starts(
    e: ProgramEmitter, starts: Sequence[Value], shape: Sequence[int], sizes: Sequence[int]
) -> list[int] | None:
    """Return the start of a slice, if it is known at compile time, else `None`."""
    places = []
    for start, have, size in zip(starts, shape, sizes, strict=True):
        if have != size and start not in e.scalars:
            return None
        place = int(e.scalars[start]) if have != size else 0
        places.append(min(max(place, 0), have - size))
    return places


def _slice_of(text: str, shape: Sequence[int], places: Sequence[int], sizes: Sequence[int]) -> str:
    """Return the view of a slice of a tensor."""
    return slice_view(text, shape, places, [1] * len(shape), sizes)


def unsliceable_error(e: ProgramEmitter, op: Op, dtype: str) -> EmissionError:
    """Return the error for dynamic updates of element types that poplibs does not support."""
    return e.refusal_error(
        op,
        f"writes {dtype} at indices that are known only at run time, for which poplibs has no call",
        "convert to i32 first",
    )


def copy_to_variable(e: ProgramEmitter, value: Value, source: str) -> None:
    """Bind a value to a new variable initialized with a copy of a tensor."""
    e.define(value, e.variable_text(value.type, e.label(value)))
    e.add(f"{e.sequence}.add(Copy({source}, {e.text(value)}));")


@lowers("gather")
def _gather(e: ProgramEmitter, op: Op) -> None:
    """Lower `gather`; `popops::gather` has XLA's dimensions except batching ones, for which indices
    are added.
    """
    e.comment(op)
    x, indices = op.operands
    y, attrs = op.result, op.attrs
    layout = IndexingLayout.for_shapes(x.type.shape, y.type.rank, GatherAttributes.of(op).dims)
    label = e.label(y)
    index_map = list(layout.index_map)
    along = {d: s for s, d in layout.window.items()}
    sizes = [y.type.shape[along[d]] if d in along else 1 for d in range(x.type.rank)]
    batch = indices.type.shape[:-1]
    parts = [
        index_component(e, indices, i, x.type.shape[d] - sizes[d], label)
        for i, d in enumerate(index_map)
    ]
    for d, i in layout.batching.items():
        index_map.append(d)
        parts.append(_index_along(e, batch, i))
    collapsed = sorted((*layout.dropped, *layout.batching))
    words = physical_type(x.type).shape[x.type.rank :]
    offset = [*attrs["offset_dims"], *(y.type.rank for _ in words)]
    if not parts:  # All index vectors are empty.
        view = reshape_view(e.text(x), x.type.shape, [x.type.shape[d] for d in along])
        kept = [s for s in range(y.type.rank) if s in layout.window]
        e.define(y, broadcast_view(view, [y.type.shape[s] for s in kept], kept, y.type.shape))
        return
    vectors = parts[0] if len(parts) == 1 else _concatenate(parts, len(batch))
    vectors = e.temporary(f"{y.name}_places", vectors)
    arguments = (
        f"{e.text(x)}, {vectors}, {len(batch)}, {initializer_text(offset)}, "
        f"{initializer_text([*sizes, *words])}, "
        f"{initializer_text(collapsed)}, {initializer_text(index_map)}, {e.sequence}, {label}"
    )
    e.define(y, f"popops::gather(graph, {arguments})")


def index_component(e: ProgramEmitter, indices: Value, i: int, most: int, label: str) -> str:
    """Return one component of the index vectors, clamped; the last dimension keeps size 1."""
    text, dtype = cast_to_32_bits(e, indices)
    last = indices.type.rank - 1
    if indices.type.shape[last] > 1:
        text = f"{text}.slice({i}, {i + 1}, {last})"
    return clamp_text(e, text, dtype, most, label)


def _index_along(e: ProgramEmitter, batch: Sequence[int], dim: int) -> str:
    line = index_range(e, batch[dim], "u32")
    return broadcast_view(line, (batch[dim],), (dim,), (*batch, 1))


def _concatenate(parts: Sequence[str], dim: int) -> str:
    return f"poplar::concat({{{', '.join(parts)}}}, {dim})"


@lowers("scatter")
def _scatter(e: ProgramEmitter, op: Op) -> None:
    """Lower `scatter`, row by row of the dimensions that are not indexed.

    Out-of-bounds updates are written to an extra row. `popops::scatter` applies updates in order,
    so the last of several updates of an element is kept.
    """
    e.comment(op)
    x, _, updates = op.operands
    y, how = op.result, op.attrs["op"]
    if x.type.dtype in ("bool", *NARROW_INTEGERS) and how != "set":
        raise e.refusal_error(
            op,
            f"combines {x.type.dtype}, for which poplibs has no arithmetic",
            "convert to i32 first",
        )
    layout = IndexingLayout.for_shapes(
        x.type.shape, updates.type.rank, ScatterAttributes.of(op).dims
    )
    whole = layout.full_window_dims(updates.type.shape)
    led = [s for s in range(updates.type.rank) if s not in whole]
    kept = [layout.window[s] for s in whole]
    lead = [d for d in range(x.type.rank) if d not in kept]
    words = physical_type(x.type).shape[x.type.rank :]
    extents = [x.type.shape[d] for d in lead]
    rows, rest = prod(extents), prod(x.type.shape[d] for d in kept) * prod(words)
    row = _row_indices(e, op, layout, led, lead, extents)
    wide = x.type.dtype == "f16" and how in ("add", "mul")
    tail = range(x.type.rank, x.type.rank + len(words))
    matrix = reshape_view(
        shuffle_view(e.text(x), (*lead, *kept, *tail)),
        [x.type.shape[d] for d in (*lead, *kept)] + list(words),
        (rows, rest),
    )
    count = prod(updates.type.shape[s] for s in led)
    tail = range(updates.type.rank, updates.type.rank + len(words))
    news = reshape_view(shuffle_view(e.text(updates), (*led, *whole, *tail)), (), (count, rest))
    if wide:
        matrix = f"popops::cast(graph, {matrix}, poplar::FLOAT, {e.sequence}, {e.label(y)})"
        news = f"popops::cast(graph, {news}, poplar::FLOAT, {e.sequence}, {e.label(y)})"
    arguments = f"graph, {matrix}, {row}, {news}"
    if how != "set":
        named = (
            extreme_text(e, EXTREME_OPERATORS[how], x.type.dtype)
            if how in EXTREME_OPERATORS
            else COMBINE_EXPRESSIONS[how]
        )
        arguments += f", {named}"
    helper = e.use_helper("scattered" if how == "set" else "scattered_with")
    made = f"{helper}({arguments}, {e.sequence}, "
    made += f"{e.label(y)})"
    if wide:
        made = f"popops::cast(graph, {made}, poplar::HALF, {e.sequence}, {e.label(y)})"
    order = [*lead, *kept]
    shape = [x.type.shape[d] for d in order]
    view = reshape_view(made, (), (*shape, *words))
    back = [
        *(order.index(d) for d in range(x.type.rank)),
        *range(x.type.rank, x.type.rank + len(words)),
    ]
    e.define(y, shuffle_view(view, back))


def _row_indices(
    e: ProgramEmitter,
    op: Op,
    layout: IndexingLayout,
    led: Sequence[int],
    lead: Sequence[int],
    extents: Sequence[int],
) -> str:
    """Return the operand's row for each row of the updates; one past the last row if
    out of bounds.
    """
    _, indices, updates = op.operands
    shape = [updates.type.shape[s] for s in led]
    along = {d: s for s, d in layout.window.items()}
    text, dtype = cast_to_32_bits(e, indices)
    if dtype == "u32":
        text = e.map_text("pe::Cast(pe::Min(pe::_1, pe::Const(2147483647u)), poplar::INT)", [text],
                     e.label(op.result))  # fmt: skip
    if text != e.text(indices):
        text = e.temporary(f"{op.result.name}_indices", text)
    row, inside = "", ""
    places: list[str] = []
    last = indices.type.rank - 1
    for n, (d, extent) in enumerate(zip(lead, extents, strict=True)):
        terms = []
        if d in layout.batching:
            terms.append(_update_index(e, updates, led, layout.batch[layout.batching[d]]))
        if d in layout.index_map:
            i = layout.index_map.index(d)
            part = text if indices.type.shape[last] == 1 else f"{text}.slice({i}, {i + 1}, {last})"
            batch = [led.index(s) for s in layout.batch]
            part = reshape_view(part, indices.type.shape[:-1] + (1,), indices.type.shape[:-1])
            terms.append(broadcast_view(part, indices.type.shape[:-1], batch, shape))
        if d in along and updates.type.shape[along[d]] > 1:
            terms.append(_update_index(e, updates, led, along[d]))
        index = (
            " + ".join(f"pe::_{len(places) + k + 1}" for k in range(len(terms))) or "pe::Const(0)"
        )
        places += terms
        held = f"({index})" if len(terms) > 1 else index
        before = f"({row})" if " " in row and not row.startswith("(") else row
        row = held if n == 0 else f"{before} * pe::Const({extent}) + {held}"
        if d in layout.index_map:
            within = f"{held} >= pe::Const(0) && {held} < pe::Const({extent})"
            inside = f"{inside} && {within}" if inside else within
    if not places:
        zero = e.constant(0, "u32")
        return broadcast_view(zero, (), (), (prod(shape), 1))
    label = e.label(op.result)
    safe = f"pe::Select({row}, pe::Const({prod(extents)}), {inside})" if inside else row
    made = e.map_text(f"pe::Cast({safe}, poplar::UNSIGNED_INT)", places, label)
    return e.temporary(f"{op.result.name}_rows", f"{made}.reshape({{{prod(shape)}, 1}})")


def _update_index(e: ProgramEmitter, updates: Value, led: Sequence[int], dim: int) -> str:
    """Return the index along a dimension of the updates, broadcast to the other `led`
    dimensions.
    """
    line = index_range(e, updates.type.shape[dim], "i32")
    shape = [updates.type.shape[s] for s in led]
    return broadcast_view(line, (updates.type.shape[dim],), (led.index(dim),), shape)
