"""Emission of the operations of an indexed update.

A box of unit strides is one `dynamic_update_slice`, a mask one `select`, everything else one
`scatter`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.indexing.index_vectors import clamp_index_vectors, make_index_vectors
from shardir.frontend.numpy.indexing.subscripts import Span, Subscript
from shardir.frontend.numpy.indexing.unclamped_indices import emit_index_check
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_not_bool,
    emit_elementwise,
    is_complex,
)
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    constant,
    convert,
    operand_dtype,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import check_keys_mix
from shardir.frontend.tracing.trace import emit, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import abstract_text
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import Symbol
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS, NumpyArray, TensorType

_POINTWISE = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}


@public(static=("op",), name="at")
def update_masked(x: Tracer, mask: Tracer, values: ArrayLike, op: str) -> Tracer:
    """Combine `values` into the elements of `x` where `mask` is true, by `op`."""
    tracer, where = as_tracer(x), as_tracer(mask)
    op, new = _negate_subtraction(op, convert_lossless(tracer, values, tracer.shape))
    new = broadcast(new, tracer.shape)
    where = reshape(where, where.shape + (1,) * (tracer.ndim - where.ndim))
    return emit(
        "select",
        broadcast(where, tracer.shape),
        _combine(op, tracer, new),
        tracer,
        weak=tracer.weak_type,
    )


@public(static=("subscript", "op", "mode"), name="at")
def update(
    x: ArrayLike,
    arrays: Sequence[ArrayLike],
    values: ArrayLike,
    subscript: Subscript,
    op: str,
    mode: str,
) -> Tracer:
    """Combine `values` into the elements of `x` at a subscript, by `op`."""
    tracer = as_tracer(x)
    op, new = _negate_subtraction(op, convert_lossless(tracer, values, subscript.shape_without_new))
    new = new if is_number(values) else _broadcast_values(new, subscript)
    return emit_update(tracer, subscript, [as_tracer(a) for a in arrays], new, op, mode)


def convert_lossless(x: Tracer, values: ArrayLike, shape: tuple[int, ...] = ()) -> Tracer:
    """Convert `values` to the element type of `x`; raise `OperationTypeError` if that loses
    information.

    Python scalars that the type can represent are accepted and broadcast to `shape`, as are
    narrower types of the same kind.
    """
    have = x.value.type.dtype
    if is_number(values) and have not in KEYS and _can_represent(have, values):
        return splat(values, TensorType(shape, have), x.weak_type)
    values = values if is_number(values) else as_tracer(values)
    got, _ = operand_dtype(values)
    fits = got == have if {got, have} & set(KEYS) else _kind_rank(got) <= _kind_rank(have)
    if not fits:
        check_keys_mix(have, got)
        raise OperationTypeError(
            with_location(f"an array of {have} cannot hold {got}; convert one of them with .astype")
        )
    return convert(as_tracer(values), have, x.weak_type)


def _negate_subtraction(op: str, values: Tracer) -> tuple[str, Tracer]:
    """Rewrite a subtraction as the addition of negated values.

    The values must already have the element type of the array, because the negative of an unsigned
    number depends on its width.
    """
    if op != "subtract":
        return op, values
    check_not_bool("subtract", values.value.type.dtype, "logical_xor")
    return "add", emit("neg", values, weak=values.weak_type)


def _kind_rank(dtype: str) -> int:
    kind_families = (("bool",), INTEGERS, FLOATS, COMPLEX)
    return next(i for i, kind in enumerate(kind_families) if dtype in kind)


def _can_represent(dtype: str, number: complex) -> bool:
    if dtype in COMPLEX:
        return True
    if isinstance(number, complex):
        return False
    if dtype in FLOATS:
        return True
    if dtype == "bool":
        return number in (0, 1)
    return isinstance(number, int) or number.is_integer()


def _combine(op: str, old: Tracer, new: Tracer) -> Tracer:
    if op == "set":
        return new
    name = _POINTWISE[op]
    if old.value.type.dtype == "bool":
        name = {"add": "or", "maximum": "or", "mul": "and", "minimum": "and"}[name]
    return emit_elementwise(name, old, new)


def _broadcast_values(values: Tracer, subscript: Subscript) -> Tracer:
    """Broadcast the values to the indexed shape without new dimensions, in the order of the
    operand.
    """
    shape = values.shape
    while len(shape) > len(subscript.shape) and shape[0] == 1:
        shape = shape[1:]
    result = broadcast(reshape(values, shape), subscript.shape)
    result = reshape(result, subscript.shape_without_new)
    back = tuple(
        _dim_position(subscript, i)
        for i, d in enumerate(subscript.kept_dims)
        if (span := subscript.spans[d]) and span.reverse
    )
    return emit("reverse", result, dims=back) if back and values.size > 1 else result


def _dim_position(subscript: Subscript, i: int) -> int:
    """Return the position of the i-th kept dimension in the indexed part."""
    return i if i < subscript.lead else i + len(subscript.batch)


def emit_update(
    x: Tracer, subscript: Subscript, arrays: Sequence[Tracer], values: Tracer, op: str, mode: str
) -> Tracer:
    """Return `x` with `values`, of shape `subscript.plain`, combined into the indexed part
    by `op`.
    """
    if not values.size or not x.size:
        return x
    if not arrays and subscript.batch:
        # Only `True` adds batch dimensions without arrays; they have size 1.
        subscript = replace(subscript, batch=(), lead=0)
        values = reshape(values, subscript.shape_without_new)
    if not arrays and all(s and s.stride == 1 for s in subscript.spans):
        return _update_box(x, subscript, values, op)
    return _scatter_update(x, subscript, arrays, values, op, mode)


def _check_box_is_unsharded(x: Tracer, box: Sequence[int]) -> None:
    """Refuse the update of a part of a dimension that an Explicit axis shards, as JAX does."""
    types = require_trace("an update").program.sharding_types
    sharding = None if types is None else types.sharding_of(x.value)
    if types is None or sharding is None:
        return
    for dim, size in enumerate(box):
        axes = sharding.spec.axes(dim)
        if size != x.shape[dim] and axes and axes is not UNCONSTRAINED:
            types.refuse(
                f"x of x.at[...], {abstract_text(x.abstract)}, is sharded over "
                f"{' and '.join(map(repr, axes))} along dimension {dim}, of which a part is "
                "updated, so the sharding of the updated array is ambiguous; state it with "
                "x.at[...].set(..., out_sharding=PartitionSpec(...)), or with out_sharding= of "
                "add, multiply, min or max"
            )


def _update_box(x: Tracer, subscript: Subscript, values: Tracer, op: str) -> Tracer:
    """Update a box of unit strides."""
    spans = [span for span in subscript.spans if span]
    box = tuple(span.size for span in spans)
    new = reshape(values, box)
    if box == x.shape:
        return _combine(op, x, new)
    _check_box_is_unsharded(x, box)
    starts = tuple(span.start for span in spans)
    if op != "set":
        old = emit(
            "slice", x, starts=starts, strides=(1,) * x.ndim, result=x.value.type.with_shape(box)
        )
        new = _combine(op, old, new)
    number = {start: splat(start, TensorType((), "i32")) for start in dict.fromkeys(starts)}
    result: Tracer = emit(
        "dynamic_update_slice", x, new, *(number[s] for s in starts), weak=x.weak_type
    )
    return result


def _scatter_update(
    x: Tracer, subscript: Subscript, arrays: Sequence[Tracer], values: Tracer, op: str, mode: str
) -> Tracer:
    """Scatter windows of full spans at index vectors; spans with a stride are index arrays, too."""
    if op in ("min", "max") and is_complex(x):
        raise OperationTypeError(
            with_location(
                f"x.at[index].{op} of complex numbers takes integers, slices without steps and "
                "masks; for index arrays without repeated indices, use "
                f"x.at[index].set(snp.{_POINTWISE[op]}(x[index], values))"
            )
        )
    strided = {
        _dim_position(subscript, i): span
        for i, d in enumerate(subscript.kept_dims)
        if (span := subscript.spans[d]) and span.stride > 1
    }
    group = range(subscript.lead, subscript.lead + len(subscript.batch))
    batch_positions = [
        p for p in range(len(subscript.shape_without_new)) if p in group or p in strided
    ]
    batch = tuple(subscript.shape_without_new[p] for p in batch_positions)
    dims, parts = list(subscript.indexed_dims), []
    if arrays:
        found = make_index_vectors(subscript, arrays)
        if mode == "clip":
            emit_index_check(x.shape, found, dims)
            found = clamp_index_vectors(found, [x.shape[d] for d in dims])
        at = (*(i for i, p in enumerate(batch_positions) if p in group), len(batch))
        kind = TensorType((*batch, len(dims)), found.value.type.dtype)
        parts.append(found if found.value.type == kind else
                     emit("broadcast", found, dims=at, result=kind))  # fmt: skip
    known = _constant_starts(subscript, strided, batch_positions, batch)
    if known:
        dims += known
        dtype = parts[0].value.type.numpy if parts else np.dtype(np.int32)
        numbers = np.stack([np.broadcast_to(n, batch) for n in known.values()], -1)
        parts.append(constant(numbers.astype(dtype)))
    indices = parts[0] if len(parts) == 1 else emit("concatenate", *parts, dim=len(batch))
    inserted = [d for d, s in enumerate(subscript.spans) if s is None or s.point or s.stride > 1]
    name, kind = op, x.value.type
    if kind.dtype == "bool":
        name = {"add": "max", "mul": "min"}.get(op, op)
    result: Tracer = emit(
        "scatter",
        x,
        indices,
        values,
        update_window_dims=tuple(p for p in range(values.ndim) if p not in batch_positions),
        inserted_window_dims=tuple(inserted),
        scatter_dims=tuple(dims),
        op=Symbol(name),
        weak=x.weak_type,
    )
    return result


def _constant_starts(
    subscript: Subscript,
    strided: dict[int, Span],
    batch_positions: Sequence[int],
    batch: tuple[int, ...],
) -> dict[int, NumpyArray]:
    """Return the window starts, broadcastable to the batch, for dimensions that do not start
    at 0.
    """
    known: dict[int, NumpyArray] = {}
    positions = {d: _dim_position(subscript, i) for i, d in enumerate(subscript.kept_dims)}
    for d, span in enumerate(subscript.spans):
        if span is None:
            continue
        if positions.get(d) in strided:
            shape = [1] * len(batch)
            shape[batch_positions.index(positions[d])] = span.size
            known[d] = (span.start + span.stride * np.arange(span.size)).reshape(shape)
        elif span.point or span.start:
            known[d] = np.full((1,) * len(batch), span.start)
    return known
