"""Result shapes of convolutions and window reductions; a batch size may be -1."""

from collections.abc import Sequence
from typing import Any

from shardir.frontend.amounts import sizes_of, whole_of
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.convolution import (
    ConvDimensionNumbers,
    conv_dimension_numbers,
    pads_of,
    pairs_of,
    rank_of,
    steps_of,
)
from shardir.frontend.lax.transposed_convolution import pads_turned
from shardir.frontend.locations import point

Shape = tuple[int, ...]


def conv_general_permutations(dimension_numbers: Any) -> tuple[Shape, Shape, Shape]:
    """Return the positions of batch, feature and spatial dimensions.

    The three tuples are those of operand, filter and result.
    """
    shape = (1,) * rank_of(dimension_numbers)
    numbers = conv_dimension_numbers(shape, shape, dimension_numbers)
    return numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Any,
    pads: Any,
    batch_group_count: int = 1,
) -> Shape:
    """Return the shape of the result of `conv`."""
    x, w = _shapes("conv_shape_tuple", lhs_shape, rhs_shape)
    groups = whole_of("batch_group_count", batch_group_count, least=1)
    sizes = reduce_window_shape_tuple(x[2:], w[2:], strides, pads)
    return (x[0] // groups, w[0], *sizes)


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Any,
    padding: Any,
    dimension_numbers: Any,
) -> Shape:
    """Return the shape of the result of `conv_general_dilated`."""
    operand, filter = _shapes("conv_general_shape_tuple", lhs_shape, rhs_shape)
    numbers = conv_dimension_numbers(operand, filter, dimension_numbers)
    x = tuple(operand[d] for d in numbers.lhs_spec)
    w = tuple(filter[d] for d in numbers.rhs_spec)
    return _placed(conv_shape_tuple(x, w, window_strides, padding), numbers)


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Any,
    padding: Any,
    dimension_numbers: Any,
) -> Shape:
    """Return the shape of the result of `conv_transpose`."""
    operand, filter = _shapes("conv_transpose_shape_tuple", lhs_shape, rhs_shape)
    numbers = conv_dimension_numbers(operand, filter, dimension_numbers)
    batch, _, *sizes = (operand[d] for d in numbers.lhs_spec)
    out, _, *window = (filter[d] for d in numbers.rhs_spec)
    steps = steps_of("window_strides", window_strides, len(window))
    if isinstance(padding, str) and padding in ("SAME", "VALID"):
        padding = [pads_turned(k, s, padding) for k, s in zip(window, steps, strict=True)]
    pads = pairs_of(padding, len(window))
    spatial = [
        (i - 1) * s - k + 2 + low + high
        for i, k, s, (low, high) in zip(sizes, window, steps, pads, strict=True)
    ]
    return _placed((batch, out, *spatial), numbers)


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Any,
    padding: Any,
    base_dilation: Any = None,
    window_dilation: Any = None,
) -> Shape:
    """Return the shape of the result of `reduce_window`."""
    sizes = sizes_of("operand_shape of a window", operand_shape)
    rank = len(sizes)
    window = steps_of("window_dimensions", window_dimensions, rank)
    strides = steps_of("window_strides", window_strides, rank)
    base = steps_of("base_dilation", base_dilation, rank)
    dilation = steps_of("window_dilation", window_dilation, rank)
    dilated = [max((n - 1) * by + 1, 0) for n, by in zip(sizes, base, strict=True)]
    reach = [(n - 1) * by + 1 for n, by in zip(window, dilation, strict=True)]
    pads = pads_of(padding, dilated, reach, strides)
    return tuple(
        max((n + low + high - k) // s + 1, 0)
        for n, k, s, (low, high) in zip(dilated, reach, strides, pads, strict=True)
    )


def _shapes(what: str, lhs_shape: Any, rhs_shape: Any) -> tuple[Shape, Shape]:
    """Return the shapes of operand and filter; raise `ArgumentError` unless they have one rank."""
    x, w = sizes_of(f"lhs_shape of {what}", lhs_shape), sizes_of(f"rhs_shape of {what}", rhs_shape)
    if len(x) != len(w) or len(x) < 2:
        raise ArgumentError(point(f"{what} takes shapes of one rank, at least 2, got {x} and {w}"))
    return x, w


def _placed(shape: Sequence[int], numbers: ConvDimensionNumbers) -> Shape:
    """Return a shape (batch, feature, spatial...) in the order of dimensions of the result."""
    known = dict(zip(numbers.out_spec, shape, strict=True))
    return tuple(known[d] for d in range(len(known)))
