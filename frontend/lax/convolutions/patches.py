"""Patches of an array, and convolutions whose filters differ between positions."""

from math import prod

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.lax.contraction import dot_general
from shardir.frontend.lax.convolutions.convolution import (
    ConvGeneralDilatedDimensionNumbers,
    check_positive_integers,
    conv_dimension_numbers,
    conv_general_dilated,
)
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers import inspection
from shardir.frontend.numpy.tracer_helpers.product_precision import PrecisionLike
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer


@with_argument_errors
def conv_general_dilated_patches(
    lhs: ArrayLike, filter_shape: object, window_strides: object, padding: object,
    lhs_dilation: object = None, rhs_dilation: object = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the elements that each window of a convolution covers, in the feature dimension.

    Their order is feature first, then the spatial dimensions in the order of the filter. The other
    arguments are those of `conv_general_dilated`.
    """
    shape, dtype = (
        inspection.shape(lhs),
        lhs.dtype if hasattr(lhs, "dtype") else np.asarray(lhs).dtype,
    )
    rank = len(shape)
    sizes = check_positive_integers("filter_shape", filter_shape, rank - 2)
    numbers = conv_dimension_numbers(shape, shape, dimension_numbers)
    features = shape[numbers.lhs_spec[1]]
    count = prod(sizes)
    # Each window element has a filter of its own, which is 1 there and 0 elsewhere.
    identity = np.eye(count, dtype=dtype).reshape(count, 1, *sizes)
    filters = np.tile(identity, (features, 1, *(1,) * (rank - 2)))
    order = np.argsort(numbers.rhs_spec)
    return conv_general_dilated(
        lhs,
        filters.transpose(order),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        features,
        1,
        precision,
        preferred_element_type,
    )


@with_argument_errors
def conv_general_dilated_local(
    lhs: ArrayLike, rhs: ArrayLike, window_strides: object, padding: object, filter_shape: object,
    lhs_dilation: object = None, rhs_dilation: object = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Tracer:  # fmt: skip
    """Convolve with a filter for each position of the result.

    `rhs` has the dimensions of a filter, in their order: its spatial dimensions are those of the
    result, and its input features are the elements of a patch (`conv_general_dilated_patches`).
    """
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
        precision,
    )  # fmt: skip
    rhs_shape = inspection.shape(rhs)
    numbers = conv_dimension_numbers(inspection.shape(lhs), rhs_shape, dimension_numbers)
    out, filters = numbers.out_spec, numbers.rhs_spec
    positions = sorted(zip(out[2:], filters[2:], strict=True))
    if any(patches.shape[i] != rhs_shape[j] for i, j in (*positions, (out[1], filters[1]))):
        raise OperationTypeError(
            with_location(
                "conv_general_dilated_local takes a filter for each element of a patch and each "
                f"position, got patches of shape {patches.shape} and filters of shape {rhs_shape}"
            )
        )
    batch = tuple(i for i, _ in positions), tuple(j for _, j in positions)
    made = dot_general(patches, rhs, (((out[1],), (filters[1],)), batch), precision)
    return reshaping.moveaxis(made, (-2, -1), (out[0], out[1]))
