"""Gather and scatter with general dimension numbers, with the names of `jax.lax`.

The dimension numbers are those of StableHLO. By default, an index out of range gives a fill value
in a gather, and drops the window in a scatter.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_checks import check_integers
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import with_constructor_errors, with_method_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.indexing.getitem import fill_value_of
from shardir.frontend.numpy.indexing.unclamped_indices import emit_index_check
from shardir.frontend.numpy.indexing.updates import convert_lossless
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, constant, splat, widen_indices
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.operation import Symbol
from shardir.ir.types import TensorType

DimTuple = tuple[int, ...]


@with_constructor_errors
class GatherDimensionNumbers(NamedTuple):
    """The correspondence of dimensions of operand, indices and result of a gather."""

    offset_dims: DimTuple
    """The dimensions of the result that are the dimensions of the window."""
    collapsed_slice_dims: DimTuple
    """The dimensions of the operand of window size 1 that the result lacks."""
    start_index_map: DimTuple
    """The dimension of the operand for each component of an index."""
    operand_batching_dims: DimTuple = ()
    """The batch dimensions of the operand; their window size is 1."""
    start_indices_batching_dims: DimTuple = ()
    """The batch dimensions of the indices, for `operand_batching_dims`."""


@with_constructor_errors
class ScatterDimensionNumbers(NamedTuple):
    """The correspondence of dimensions of operand, indices and updates of a scatter."""

    update_window_dims: DimTuple
    """The dimensions of the updates that are the dimensions of the window."""
    inserted_window_dims: DimTuple
    """The dimensions of the operand of window size 1 that the updates lack."""
    scatter_dims_to_operand_dims: DimTuple
    """The dimension of the operand for each component of an index."""
    operand_batching_dims: DimTuple = ()
    """The batch dimensions of the operand; their window size is 1."""
    scatter_indices_batching_dims: DimTuple = ()
    """The batch dimensions of the indices, for `operand_batching_dims`."""


@with_method_errors
class GatherScatterMode(Enum):
    """The treatment of indices out of range."""

    CLIP = "clip"
    """Move a window that exceeds the bounds inside of them."""
    FILL_OR_DROP = "fill"
    """Gather a fill value outside of the bounds; drop updates outside of them."""
    PROMISE_IN_BOUNDS = "promise_in_bounds"
    """Rely on the caller: every window is inside of the bounds."""

    @staticmethod
    def from_any(mode: object) -> "GatherScatterMode":
        """Return the mode that a string or `None` denotes."""
        if isinstance(mode, GatherScatterMode):
            return mode
        known = {
            None: GatherScatterMode.FILL_OR_DROP,
            "fill": GatherScatterMode.FILL_OR_DROP,
            "drop": GatherScatterMode.FILL_OR_DROP,
            "clip": GatherScatterMode.CLIP,
            "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
        }
        if mode not in known:
            raise OperationTypeError(
                with_location(
                    f"mode {mode!r} is unknown; the modes are 'fill', 'drop', 'clip' and "
                    "'promise_in_bounds'"
                )
            )
        return known[mode]


def _start_limits(x: Tracer, index_map: DimTuple, window: dict[int, int]) -> list[int]:
    """Return the last start along each indexed dimension for which the window is in bounds."""
    return [x.shape[d] - window.get(d, 1) for d in index_map]


def _are_in_bounds(indices: Tracer, limits: list[int]) -> Tracer:
    """Return whether each index vector is in bounds, without the last dimension."""
    kind = indices.value.type
    last = len(kind.shape) - 1
    high = broadcast(constant(np.asarray(limits, kind.numpy)), kind.shape)
    low = emit("ge", indices, splat(0, kind))
    both = emit("and", low, emit("le", indices, high))
    result: Tracer = emit("all", both, dims=(last,))
    return result


@public(
    static=(
        "dimension_numbers",
        "slice_sizes",
        "unique_indices",
        "indices_are_sorted",
        "mode",
        "fill_value",
    )
)
def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: object = None,
    fill_value: ArrayLike | None = None,
) -> Tracer:
    """Return windows of `slice_sizes` that start at index vectors (the last dimension of the
    indices).

    The slice size is 1 along dimensions that the result lacks.
    A window that exceeds the bounds gives `fill_value` (mode "fill"; by default NaN, or the lowest
    signed integer), or is clamped. The derivative flows to elements of clamped windows only in mode
    "clip", not in mode "promise_in_bounds", the default.
    """
    x = as_tracer(operand)
    indices = widen_indices(as_tracer(start_indices), max(x.shape, default=0))
    chosen = GatherScatterMode.from_any("promise_in_bounds" if mode is None else mode)
    numbers = GatherDimensionNumbers(
        *(check_integers("dimension_numbers of gather", dims) for dims in dimension_numbers)
    )
    sizes = check_integers("slice_sizes of gather", slice_sizes)
    if len(sizes) != x.ndim:
        raise OperationTypeError(
            with_location(
                f"gather takes a slice size for each of {count_noun(x.ndim, 'dimension')}, got "
                f"{len(sizes)}"
            )
        )
    removed = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    _check_removed_slice_sizes(numbers, sizes)
    window = [n for d, n in enumerate(sizes) if d not in removed]
    rank = indices.ndim - 1 + len(numbers.offset_dims)
    if len(window) != len({d for d in numbers.offset_dims if 0 <= d < rank}):
        raise OperationTypeError(
            with_location(
                f"offset_dims of gather are {numbers.offset_dims}; they are {len(window)} "
                f"different dimensions of the result, 0 to {rank - 1}, one for each dimension of "
                "the operand that is neither collapsed nor batching"
            )
        )
    rest, batch = iter(window), iter(indices.shape[:-1])
    shape = [next(rest) if d in numbers.offset_dims else next(batch) for d in range(rank)]
    limits = _start_limits(x, numbers.start_index_map, dict(enumerate(sizes)))
    if chosen is GatherScatterMode.CLIP:
        emit_index_check(x.shape, indices, numbers.start_index_map, dict(enumerate(sizes)))
        indices = _clamp_starts(indices, limits)
    result: Tracer = emit(
        "gather",
        x,
        indices,
        offset_dims=numbers.offset_dims,
        collapsed_dims=numbers.collapsed_slice_dims,
        start_index_map=numbers.start_index_map,
        operand_batching_dims=numbers.operand_batching_dims,
        indices_batching_dims=numbers.start_indices_batching_dims,
        result=x.value.type.with_shape(shape),
        weak=x.weak_type,
    )
    if chosen is not GatherScatterMode.FILL_OR_DROP:
        return result
    in_bounds = _are_in_bounds(indices, limits)
    dims = tuple(d for d in range(rank) if d not in numbers.offset_dims)
    mask = emit("broadcast", in_bounds, dims=dims, result=TensorType(tuple(shape), "bool"))
    fill = splat(fill_value_of(x.value.type.dtype, fill_value), result.value.type)
    return emit("select", mask, result, fill, weak=x.weak_type)


def _check_removed_slice_sizes(numbers: GatherDimensionNumbers, sizes: Sequence[int]) -> None:
    """Raise `OperationTypeError` if the result lacks a dimension of windows of other sizes than 1.

    A window has no element along a batching dimension of size 0.
    """
    for name, dims, least in [
        ("collapsed_slice_dims", numbers.collapsed_slice_dims, 1),
        ("operand_batching_dims", numbers.operand_batching_dims, 0),
    ]:
        for d in dims:
            if d in range(len(sizes)) and not least <= sizes[d] <= 1:
                raise OperationTypeError(
                    with_location(
                        f"gather has dimension {d} in {name}, so its slice size must be 1, and it "
                        f"is {sizes[d]}; put it into offset_dims, or pass the slice size 1"
                    )
                )


def _define_scatter(name: str, op: str, meaning: str) -> UserFunction:
    def scatter(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
    ) -> Tracer:
        x = as_tracer(operand)
        indices = widen_indices(as_tracer(scatter_indices), max(x.shape, default=0))
        new = convert_lossless(x, updates)
        numbers = ScatterDimensionNumbers(
            *(check_integers("dimension_numbers of scatter", dims) for dims in dimension_numbers)
        )
        return emit(
            "scatter",
            x,
            _adjust_for_mode(x, indices, new, numbers, GatherScatterMode.from_any(mode)),
            new,
            update_window_dims=numbers.update_window_dims,
            inserted_window_dims=numbers.inserted_window_dims,
            scatter_dims=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            indices_batching_dims=numbers.scatter_indices_batching_dims,
            op=Symbol(op),
            weak=x.weak_type,
        )

    scatter.__name__ = scatter.__qualname__ = name
    scatter.__doc__ = (
        f"Return a copy of `operand` with windows of updates {meaning} at index vectors.\n\n"
        '    A window that exceeds the bounds is dropped, or clamped (mode "clip").'
    )
    static = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    return public(static=static)(scatter)


def _clamp_starts(indices: Tracer, limits: Sequence[int]) -> Tracer:
    """Clamp index vectors so that windows are in bounds."""
    kind = indices.value.type
    high = broadcast(constant(np.asarray(limits, kind.numpy)), kind.shape)
    result: Tracer = emit("clamp", splat(0, kind.with_shape(())), indices, high)
    return result


def _adjust_for_mode(
    x: Tracer,
    indices: Tracer,
    new: Tracer,
    numbers: ScatterDimensionNumbers,
    mode: GatherScatterMode,
) -> Tracer:
    """Adjust the indices so that dropping single elements has the effect of the mode."""
    removed = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    free = [d for d in range(x.ndim) if d not in removed]
    if len(free) != len(numbers.update_window_dims):
        return indices
    window = {d: new.shape[w] for d, w in zip(free, numbers.update_window_dims, strict=True)}
    mapped = numbers.scatter_dims_to_operand_dims
    limits = _start_limits(x, mapped, window)
    kind = indices.value.type
    emit_index_check(x.shape, indices, mapped, window)
    if mode is GatherScatterMode.CLIP:
        return _clamp_starts(indices, limits)
    if mode is GatherScatterMode.PROMISE_IN_BOUNDS or all(window.get(d, 1) == 1 for d in mapped):
        return indices
    # A window that exceeds the bounds is moved completely out of bounds.
    in_bounds = _are_in_bounds(indices, limits)
    dims = tuple(range(in_bounds.ndim))
    mask = emit("broadcast", in_bounds, dims=dims, result=kind.with_dtype("bool"))
    out_of_bounds = broadcast(
        constant(np.asarray([x.shape[d] for d in mapped], kind.numpy)), kind.shape
    )
    result: Tracer = emit("select", mask, indices, out_of_bounds)
    return result


scatter = _define_scatter("scatter", "set", "written")
scatter_add = _define_scatter("scatter_add", "add", "added")
scatter_mul = _define_scatter("scatter_mul", "mul", "multiplied")
scatter_min = _define_scatter("scatter_min", "min", "compared, the smaller kept,")
scatter_max = _define_scatter("scatter_max", "max", "compared, the larger kept,")
