"""Windows of several arrays, or with any computation: their elements are combined pairwise."""

from collections.abc import Sequence
from itertools import product
from math import prod

from shardir.errors import OperationTypeError
from shardir.frontend.lax.control_flow.tree_reduction import reduce_pairwise
from shardir.frontend.lax.convolutions.convolution import Pads
from shardir.frontend.lax.data_movement import pad
from shardir.frontend.lax.elementwise import bitwise_or, select
from shardir.frontend.lax.slicing import slice as slice_array
from shardir.frontend.numpy.shaping import concatenation
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import convert, splat
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType

MAX_WINDOW_POSITIONS = 4096
"""The largest number of positions of a window: each becomes a slice of the program."""


def combine_windows(
    computation: UserFunction,
    operands: Sequence[Tracer],
    initial: Sequence[Tracer],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Pads,
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> tuple[Tracer, ...]:
    """Combine the elements of each window and the initial values by an associative `computation`
    of tuples of scalars. As in XLA, padding and the gaps of a dilated operand do not count.
    """
    if prod(window) > MAX_WINDOW_POSITIONS:
        raise OperationTypeError(
            with_location(
                f"reduce_window has a slice for each of {prod(window)} positions of a window with "
                f"this computation, and at most {MAX_WINDOW_POSITIONS}; reduce one dimension at a "
                "time, or use lax.add, lax.mul, lax.max or lax.min"
            )
        )
    values = [
        convert(first, x.value.type.dtype) for x, first in zip(operands, initial, strict=True)
    ]
    config = [(low, high, by - 1) for (low, high), by in zip(padding, base_dilation, strict=True)]
    padded = [pad(x, value, config) for x, value in zip(operands, values, strict=True)]
    if any(map(any, config)):
        is_element = splat(1, TensorType(operands[0].shape, "bool"))
        padded.append(pad(is_element, splat(0, TensorType((), "bool")), config))
        values.append(splat(1, TensorType((), "bool")))
        computation = _skip_padding(computation)
    stacked = [_stack_windows(x, window, strides, window_dilation) for x in padded]
    return reduce_pairwise(computation, stacked, values, (0,), single=False)[: len(operands)]


def _skip_padding(computation: UserFunction) -> UserFunction:
    """Return a computation whose last operand states which values are elements of the operands."""

    def combine(first: Sequence[Tracer], second: Sequence[Tracer]) -> tuple[Tracer, ...]:
        *left, is_left = first
        *right, is_right = second
        both = computation(left, right)
        made = [
            select(is_left, select(is_right, c, a), b)
            for a, b, c in zip(left, right, both, strict=True)
        ]
        return (*made, bitwise_or(is_left, is_right))

    return combine


def _stack_windows(
    x: Tracer, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Tracer:
    """Return the elements of all windows; the first dimension is the position inside a window."""
    reach = [(size - 1) * by + 1 for size, by in zip(window, dilation, strict=True)]
    spans = zip(x.shape, reach, strides, strict=True)
    counts = [max((n - size) // step + 1, 0) for n, size, step in spans]
    parts = []
    for position in product(*map(range, window)):
        # Without a window along a dimension, the positions of a window can lie outside of it.
        starts = [
            at * by if count else 0
            for at, by, count in zip(position, dilation, counts, strict=True)
        ]
        stops = [
            start + (count - 1) * step + 1 if count else start
            for start, count, step in zip(starts, counts, strides, strict=True)
        ]
        parts.append(slice_array(x, starts, stops, strides))
    stacked: Tracer = concatenation.stack(parts)
    return stacked
