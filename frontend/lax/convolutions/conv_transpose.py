"""Transposed convolutions: `conv_transpose`."""

from collections.abc import Sequence

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import check_integers
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.convolutions.convolution import (
    ConvGeneralDilatedDimensionNumbers,
    check_positive_integers,
    conv_dimension_numbers,
    conv_general_dilated,
)
from shardir.frontend.lax.data_movement import rev, transpose
from shardir.frontend.numpy.tracer_helpers.product_precision import PrecisionLike
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer

DEFAULT_DIMENSION_NUMBERS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}
"""The default dimension numbers by rank."""


@public(
    static=(
        "strides",
        "padding",
        "rhs_dilation",
        "dimension_numbers",
        "transpose_kernel",
        "precision",
        "preferred_element_type",
        "use_consistent_padding",
    )
)
def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: object,
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: object = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Tracer:
    """Convolve `lhs` with its elements dilated by `strides`.

    "SAME" and "VALID" are the padding of the corresponding forward convolution; pairs are the
    padding of this one, or, with `use_consistent_padding`, of the forward convolution. With
    `transpose_kernel` the result is the gradient of the forward convolution: the filter is
    reversed, and its features are exchanged. `dimension_numbers` are by default those of
    TensorFlow.
    """
    x, w = as_tracer(lhs), as_tracer(rhs)
    if dimension_numbers is None:
        if x.ndim not in DEFAULT_DIMENSION_NUMBERS:
            raise OperationTypeError(
                with_location(f"conv_transpose of rank {x.ndim} needs dimension_numbers; give them")
            )
        dimension_numbers = DEFAULT_DIMENSION_NUMBERS[x.ndim]
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    spatial = numbers.rhs_spec[2:]
    steps = check_positive_integers("strides of conv_transpose", strides, len(spatial))
    dilation = check_positive_integers("rhs_dilation", rhs_dilation, len(spatial))
    named = isinstance(padding, str)
    if named and padding not in ("SAME", "VALID"):
        raise OperationTypeError(
            with_location(
                f"padding {padding!r} of conv_transpose is unknown; it is 'SAME', 'VALID' or pairs"
            )
        )
    pads = padding
    if named or use_consistent_padding:
        reach = [(w.shape[d] - 1) * by + 1 for d, by in zip(spatial, dilation, strict=True)]
        each: Sequence[str | tuple[int, int]] = (
            [padding] * len(steps) if isinstance(padding, str) else padding
        )
        pads = [transpose_padding(*given) for given in zip(reach, steps, each, strict=True)]
    if transpose_kernel:
        out, into = numbers.rhs_spec[:2]
        order = list(range(w.ndim))
        order[out], order[into] = into, out
        w = transpose(rev(w, spatial), order)
    return conv_general_dilated(
        x,
        w,
        (1,) * len(steps),
        pads,
        steps,
        dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def transpose_padding(reach: int, step: int, padding: str | Sequence[int]) -> tuple[int, int]:
    """Return the padding with which a filter of dilated size `reach` inverts a padded
    convolution.
    """
    if padding == "SAME":
        total = reach + step - 2
        low = reach - 1 if step > reach - 1 else -(-total // 2)
        return low, total - low
    if padding == "VALID":
        return reach - 1, max(reach, step) - 1
    low, high = check_integers("a pair in the padding of conv_transpose", padding, 2)
    return reach - 1 - low, reach - 1 - high
