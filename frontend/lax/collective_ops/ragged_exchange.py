"""`ragged_all_to_all`: an exchange of slices whose sizes are data."""

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.lax.collective_ops.collectives import (
    AxisName,
    Groups,
    all_gather,
    all_to_all,
    axis_size,
)
from shardir.frontend.numpy.creation import ranges
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.indexing import take
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.tracer import Tracer


@public(static=("axis_name", "axis_index_groups"))
def ragged_all_to_all(
    operand: ArrayLike, output: ArrayLike, input_offsets: ArrayLike, send_sizes: ArrayLike,
    output_offsets: ArrayLike, recv_sizes: ArrayLike, *, axis_name: AxisName,
    axis_index_groups: Groups = None,
) -> Tracer:  # fmt: skip
    """Send slices of the rows of `operand` to all positions; return `output` with those received.

    The four vectors have one element, or the same number of elements, for each position. Slice i of
    `operand` has `send_sizes[i]` rows from `input_offsets[i]` on; its receiver writes it from
    `output_offsets[i]` on. `recv_sizes` are the sizes of the slices that arrive here, in the order
    of their senders. Slices that arrive here must not overlap.

    The sizes are unknown when the program is compiled, so each position receives the whole operands
    of all others. Raise `ShapeError` for shapes that do not fit.
    """
    x, rows = as_tracer(operand), as_tracer(output)
    starts, sent, targets, received = (
        as_tracer(each) for each in (input_offsets, send_sizes, output_offsets, recv_sizes)
    )
    vectors = (starts, sent, targets, received)
    if x.ndim < 1 or x.shape[1:] != rows.shape[1:] or x.dtype != rows.dtype:
        raise ShapeError(
            with_location(
                "ragged_all_to_all takes an operand and an output of one element type whose shapes "
                f"differ in the first dimension at most, got {x.value.type} and {rows.value.type}"
            )
        )
    if any(each.ndim != 1 or each.shape != starts.shape for each in vectors):
        shapes = ", ".join(str(each.shape) for each in vectors)
        raise ShapeError(
            with_location(
                "the offsets and sizes of ragged_all_to_all are vectors of one length, got "
                f"{shapes}"
            )
        )
    # The sender of each slice has its offsets in both arrays.
    begins, places = (
        all_to_all(each, axis_name, 0, 0, axis_index_groups=axis_index_groups, tiled=True)
        for each in (starts, targets)
    )
    everything = all_gather(x, axis_name, axis_index_groups=axis_index_groups, tiled=True)
    senders = len(axis_index_groups[0]) if axis_index_groups else axis_size(axis_name)
    slices = starts.shape[0] // senders
    number = ranges.arange(rows.shape[0], dtype=places.dtype)[:, None]
    arrives = (number >= places) & (number < places + received)
    sender = ranges.arange(starts.shape[0], dtype=places.dtype) // slices
    origin = selection.where(arrives, sender * x.shape[0] + begins + number - places, 0)
    found = take.take(everything, basic_reductions.sum(origin, axis=1), axis=0, mode="clip")
    is_new = basic_reductions.any(arrives, axis=1)
    return selection.where(reshape(is_new, (*is_new.shape, *(1,) * (x.ndim - 1))), found, rows)
