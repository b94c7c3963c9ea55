"""Result shapes of convolutions and window reductions; a batch size may be -1."""

from collections.abc import Sequence

from shardir.frontend.argument_checks import check_integer, check_integers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.convolutions.conv_transpose import transpose_padding
from shardir.frontend.lax.convolutions.convolution import (
    ConvDimensionNumbers,
    check_padding_pairs,
    check_positive_integers,
    conv_dimension_numbers,
    resolve_padding,
    spec_rank,
)
from shardir.frontend.source_locations import with_location

ShapeTuple = tuple[int, ...]


@with_argument_errors
def conv_general_permutations(
    dimension_numbers: object,
) -> tuple[ShapeTuple, ShapeTuple, ShapeTuple]:
    """Return the positions of batch, feature and spatial dimensions.

    The three tuples are those of operand, filter and result.
    """
    shape = (1,) * spec_rank(dimension_numbers)
    numbers = conv_dimension_numbers(shape, shape, dimension_numbers)
    return numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec


@with_argument_errors
def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: object,
    batch_group_count: int = 1,
) -> ShapeTuple:
    """Return the shape of the result of `conv`."""
    x, w = _check_shapes("conv_shape_tuple", lhs_shape, rhs_shape)
    groups = check_integer("batch_group_count", batch_group_count, least=1)
    sizes = reduce_window_shape_tuple(x[2:], w[2:], strides, pads)
    return (x[0] // groups, w[0], *sizes)


@with_argument_errors
def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: object,
) -> ShapeTuple:
    """Return the shape of the result of `conv_general_dilated`."""
    x, w, numbers = _ordered_shapes(
        "conv_general_shape_tuple", lhs_shape, rhs_shape, dimension_numbers
    )
    return _order_dims(conv_shape_tuple(x, w, window_strides, padding), numbers)


@with_argument_errors
def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    dimension_numbers: object,
) -> ShapeTuple:
    """Return the shape of the result of `conv_transpose`."""
    (batch, _, *sizes), (out, _, *window), numbers = _ordered_shapes(
        "conv_transpose_shape_tuple", lhs_shape, rhs_shape, dimension_numbers
    )
    steps = check_positive_integers("window_strides", window_strides, len(window))
    if isinstance(padding, str) and padding in ("SAME", "VALID"):
        padding = [transpose_padding(k, s, padding) for k, s in zip(window, steps, strict=True)]
    pads = check_padding_pairs(padding, len(window))
    spatial = [
        (i - 1) * s - k + 2 + low + high
        for i, k, s, (low, high) in zip(sizes, window, steps, pads, strict=True)
    ]
    return _order_dims((batch, out, *spatial), numbers)


@with_argument_errors
def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None,
    padding: object,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> ShapeTuple:
    """Return the shape of the result of `reduce_window`."""
    sizes = check_integers("operand_shape of a window", operand_shape)
    rank = len(sizes)
    window = check_positive_integers("window_dimensions", window_dimensions, rank)
    strides = check_positive_integers("window_strides", window_strides, rank)
    base = check_positive_integers("base_dilation", base_dilation, rank)
    dilation = check_positive_integers("window_dilation", window_dilation, rank)
    dilated = [max((n - 1) * by + 1, 0) for n, by in zip(sizes, base, strict=True)]
    reach = [(n - 1) * by + 1 for n, by in zip(window, dilation, strict=True)]
    pads = resolve_padding(padding, dilated, reach, strides)
    return tuple(
        max((n + low + high - k) // s + 1, 0)
        for n, k, s, (low, high) in zip(dilated, reach, strides, pads, strict=True)
    )


def _ordered_shapes(
    what: str, lhs_shape: object, rhs_shape: object, dimension_numbers: object
) -> tuple[ShapeTuple, ShapeTuple, ConvDimensionNumbers]:
    """Return the shapes with batch and feature dimensions first, and the dimension numbers."""
    operand, filter = _check_shapes(what, lhs_shape, rhs_shape)
    numbers = conv_dimension_numbers(operand, filter, dimension_numbers)
    x = tuple(operand[d] for d in numbers.lhs_spec)
    return x, tuple(filter[d] for d in numbers.rhs_spec), numbers


def _check_shapes(what: str, lhs_shape: object, rhs_shape: object) -> tuple[ShapeTuple, ShapeTuple]:
    """Return the shapes of operand and filter; raise `ArgumentError` unless they have one rank."""
    x, w = (
        check_integers(f"lhs_shape of {what}", lhs_shape),
        check_integers(f"rhs_shape of {what}", rhs_shape),
    )
    if len(x) != len(w) or len(x) < 2:
        raise ArgumentError(
            with_location(f"{what} takes shapes of one rank, at least 2, got {x} and {w}")
        )
    return x, w


def _order_dims(shape: Sequence[int], numbers: ConvDimensionNumbers) -> ShapeTuple:
    """Return a shape (batch, feature, spatial...) in the order of dimensions of the result."""
    known = dict(zip(numbers.out_spec, shape, strict=True))
    return tuple(known[d] for d in range(len(known)))
