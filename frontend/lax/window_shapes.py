"""The shapes that convolutions and windows give, from shapes alone; a batch may be -1."""

from collections.abc import Sequence
from typing import Any

from shardir.frontend.lax.convolution import (
    ConvDimensionNumbers,
    conv_dimension_numbers,
    pads_of,
    steps_of,
)
from shardir.frontend.lax.transposed_convolution import pads_turned

Shape = tuple[int, ...]


def conv_general_permutations(dimension_numbers: Any) -> tuple[Shape, Shape, Shape]:
    """Where operand, filter and result have batch, feature and spatial dimensions."""
    shape = (1,) * len(dimension_numbers[0])
    numbers = conv_dimension_numbers(shape, shape, dimension_numbers)
    return numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Any,
    pads: Any,
    batch_group_count: int = 1,
) -> Shape:
    """The shape of `conv`, of batch-feature-spatial by out-in-spatial."""
    sizes = reduce_window_shape_tuple(lhs_shape[2:], rhs_shape[2:], strides, pads)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *sizes)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Any,
    padding: Any,
    dimension_numbers: Any,
) -> Shape:
    """The shape of `conv_general_dilated`."""
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    x = tuple(lhs_shape[d] for d in numbers.lhs_spec)
    w = tuple(rhs_shape[d] for d in numbers.rhs_spec)
    return _placed(conv_shape_tuple(x, w, window_strides, padding), numbers)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Any,
    padding: Any,
    dimension_numbers: Any,
) -> Shape:
    """The shape of `conv_transpose`."""
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    batch, _, *sizes = (lhs_shape[d] for d in numbers.lhs_spec)
    out, _, *window = (rhs_shape[d] for d in numbers.rhs_spec)
    steps = steps_of("window_strides", window_strides, len(window))
    pads = padding
    if isinstance(padding, str):
        pads = [pads_turned(k, s, padding) for k, s in zip(window, steps, strict=True)]
    made = [
        (i - 1) * s - k + 2 + low + high
        for i, k, s, (low, high) in zip(sizes, window, steps, pads, strict=True)
    ]
    return _placed((batch, out, *made), numbers)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Any,
    padding: Any,
    base_dilation: Any = None,
    window_dilation: Any = None,
) -> Shape:
    """The shape of `reduce_window`."""
    rank = len(window_dimensions)
    strides = steps_of("window_strides", window_strides, rank)
    spread = steps_of("base_dilation", base_dilation, rank)
    apart = steps_of("window_dilation", window_dilation, rank)
    sizes = [max((n - 1) * by + 1, 0) for n, by in zip(operand_shape, spread, strict=True)]
    reach = [(n - 1) * by + 1 for n, by in zip(window_dimensions, apart, strict=True)]
    pads = pads_of(padding, sizes, reach, strides)
    return tuple(
        max((n + low + high - k) // s + 1, 0)
        for n, k, s, (low, high) in zip(sizes, reach, strides, pads, strict=True)
    )


def _placed(shape: Sequence[int], numbers: ConvDimensionNumbers) -> Shape:
    """A shape of batch, feature, spatial dimensions in the order of the result."""
    known = dict(zip(numbers.out_spec, shape, strict=True))
    return tuple(known[d] for d in range(len(known)))
