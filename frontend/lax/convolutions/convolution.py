"""Convolutions with the names of `jax.lax`."""

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shardir.errors import OperationTypeError, ShardirError, count_noun
from shardir.frontend.argument_checks import as_items, check_integers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.tracer_helpers.product_precision import check_precision
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType

Pads = tuple[tuple[int, int], ...]
Spec = tuple[int, ...]


@with_constructor_errors
class ConvDimensionNumbers(NamedTuple):
    """The positions of the dimensions of operand, filter and result.

    Each is (batch, feature, spatial...), of the filter (out, in, spatial...).
    """

    lhs_spec: Spec
    """The positions of (batch, feature, spatial...) in the operand."""
    rhs_spec: Spec
    """The positions of (out feature, in feature, spatial...) in the filter."""
    out_spec: Spec
    """The positions of (batch, feature, spatial...) in the result."""


ConvGeneralDilatedDimensionNumbers: TypeAlias = ConvDimensionNumbers | tuple[str, str, str] | None
"""Dimension numbers of a convolution, or three strings such as ("NHWC", "HWIO", "NHWC")."""


def resolve_padding(
    padding: object, sizes: Sequence[int], windows: Sequence[int], strides: Sequence[int]
) -> Pads:
    """Return explicit padding: "VALID" is none, "SAME" gives an output size of ceil(size /
    stride).
    """
    if not isinstance(padding, str):
        return check_padding_pairs(padding, len(sizes))
    kind = padding.upper()
    if kind == "VALID":
        return ((0, 0),) * len(sizes)
    if kind not in ("SAME", "SAME_LOWER"):
        raise _unknown_padding_error(padding)
    pads = []
    for size, window, stride in zip(sizes, windows, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + window - size, 0)
        less, more = total // 2, total - total // 2
        pads.append((less, more) if kind == "SAME" else (more, less))
    return tuple(pads)


def check_padding_pairs(padding: Any, rank: int) -> Pads:
    """Return explicit padding as pairs of integers, one for each of `rank` dimensions."""
    try:
        pairs = tuple((index(low), index(high)) for low, high in padding)
    except ShardirError:
        raise
    except (TypeError, ValueError):
        raise _unknown_padding_error(padding) from None
    if len(pairs) != rank:
        count = count_noun(rank, "dimension")
        raise OperationTypeError(
            with_location(f"padding has a pair for each of {count}, got {pairs}")
        )
    return pairs


def _unknown_padding_error(padding: object) -> OperationTypeError:
    return OperationTypeError(
        with_location(
            f"padding {padding!r} is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs"
        )
    )


def check_positive_integers(what: str, given: object, rank: int) -> tuple[int, ...]:
    """Return one integer above 0 for each of `rank` dimensions; `None` is 1 for each."""
    if given is None:
        return (1,) * rank
    steps = as_items(given)
    all_integers = all(isinstance(step, (int, np.integer)) for step in steps)
    if len(steps) != rank or not all_integers or min(steps, default=1) < 1:
        count = count_noun(rank, "integer")
        raise OperationTypeError(with_location(f"{what} must be {count} above 0, got {given!r}"))
    return tuple(map(int, steps))


@with_argument_errors
def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
) -> list[tuple[int, int]]:  # fmt: skip
    """Return the (low, high) pairs that "SAME" or "VALID" denotes."""
    sizes = check_integers("in_shape of padtype_to_pads", in_shape)
    windows = check_integers("window_shape of padtype_to_pads", window_shape, len(sizes))
    strides = check_positive_integers("window_strides", window_strides, len(sizes))
    return list(resolve_padding(padding, sizes, windows, strides))


@with_argument_errors
def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: object
) -> ConvDimensionNumbers:
    """Return dimension numbers for strings such as ("NHWC", "HWIO", "NHWC"), or for dimension
    numbers.

    By default the order is batch, feature, spatial and out, in, spatial. Raise `OperationTypeError`
    for a specification that does not name each dimension once.
    """
    rank = len(check_integers("lhs_shape of a convolution", lhs_shape))
    check_integers("rhs_shape of a convolution", rhs_shape, rank)
    if dimension_numbers is None:
        return ConvDimensionNumbers(*(tuple(range(rank)),) * 3)
    texts = _check_triple(dimension_numbers)
    if not all(isinstance(text, str) for text in texts):
        return ConvDimensionNumbers(*(_check_positions(spec, rank) for spec in texts))
    spatial = [c for c in texts[1] if c not in "IO"]
    feature_letters = [("N", "C"), ("O", "I"), ("N", "C")]
    for text, pair in zip(texts, feature_letters, strict=True):
        if len(text) != rank or sorted(text) != sorted((*pair, *spatial)):
            raise OperationTypeError(
                with_location(
                    f"dimension_numbers {texts!r} do not name {rank} dimensions each; they are "
                    'like ("NHWC", "HWIO", "NHWC")'
                )
            )
    return ConvDimensionNumbers(
        *(
            tuple(text.index(c) for c in (*pair, *spatial))
            for text, pair in zip(texts, feature_letters, strict=True)
        )
    )


def _check_triple(dimension_numbers: object) -> tuple[Any, ...]:
    result = as_items(dimension_numbers)
    if len(result) != 3:
        raise OperationTypeError(
            with_location(
                f"dimension_numbers are three strings or tuples, got {brief(dimension_numbers)}"
            )
        )
    return result


def spec_rank(dimension_numbers: object) -> int:
    """Return the rank of dimension numbers, from the first of the three."""
    first = _check_triple(dimension_numbers)[0]
    return len(first) if isinstance(first, str) else len(check_integers("dimension_numbers", first))


def _check_positions(spec: tuple[int, ...], rank: int) -> Spec:
    """Return the positions of dimensions; raise an error unless each occurs once."""
    if isinstance(spec, str) or sorted(places := check_integers("dimension_numbers", spec)) != [
        *range(rank)
    ]:
        raise OperationTypeError(
            with_location(
                f"dimension_numbers place each of the dimensions 0 to {rank - 1} once, got "
                f"{brief(spec)}"
            )
        )
    return places


_SPEC_LETTERS = (("b", "f"), ("o", "i"), ("b", "f"))


def _format_dims(numbers: ConvDimensionNumbers) -> str:
    """Return dimension numbers as text: `b01f,01io->b01f`."""
    terms = []
    for spec, (first, second) in zip(numbers, _SPEC_LETTERS, strict=True):
        term = [""] * len(spec)
        for place, letter in zip(spec, (first, second, *map(str, range(len(spec) - 2))),
                                 strict=True):  # fmt: skip
            term[place] = letter
        terms.append("".join(term))
    return f"{terms[0]},{terms[1]}->{terms[2]}"


@public(
    static=(
        "window_strides",
        "padding",
        "lhs_dilation",
        "rhs_dilation",
        "dimension_numbers",
        "feature_group_count",
        "batch_group_count",
        "precision",
        "preferred_element_type",
    )
)
def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: object,
    padding: object,
    lhs_dilation: object = None,
    rhs_dilation: object = None,
    dimension_numbers: object = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Convolve with any number of spatial dimensions, strides, dilations and groups.

    `dimension_numbers` are three strings such as ("NHWC", "HWIO", "NHWC") or three tuples of
    (batch, feature, spatial...) positions; `padding` is "SAME", "VALID" or (low, high) pairs. The
    result has the element type of the operands, or `preferred_element_type`.
    """
    check_precision(precision)
    x, w = as_tracer(lhs), as_tracer(rhs)
    if x.ndim != w.ndim or x.ndim < 2:
        raise OperationTypeError(
            with_location(
                "a convolution takes operand and filter of one rank, at least 2, got shapes "
                f"{x.shape} and {w.shape}"
            )
        )
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    strides = check_positive_integers("window_strides", window_strides, x.ndim - 2)
    lhs_factors = check_positive_integers("lhs_dilation", lhs_dilation, x.ndim - 2)
    rhs_factors = check_positive_integers("rhs_dilation", rhs_dilation, x.ndim - 2)
    if isinstance(padding, str) and max(lhs_factors, default=1) > 1:
        raise OperationTypeError(
            with_location(
                f"padding {padding!r} of a convolution with lhs_dilation {lhs_factors} is "
                "ambiguous; state (low, high) pairs, or call lax.conv_transpose"
            )
        )
    sizes = [x.shape[dim] for dim in numbers.lhs_spec[2:]]
    windows = _dilated_sizes(w.shape, numbers.rhs_spec[2:], rhs_factors)
    result_dtype = preferred_element_type
    result = None if result_dtype is None else TensorType((), dtype_of(result_dtype))
    return emit(
        "convolution",
        x,
        w,
        strides=strides,
        padding=resolve_padding(padding, sizes, windows, strides),
        lhs_dilation=lhs_factors,
        rhs_dilation=rhs_factors,
        dims=_format_dims(numbers),
        groups=int(feature_group_count),
        batch_groups=int(batch_group_count),
        result=result,
    )


def _dilated_sizes(shape: Sequence[int], dims: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the dilated size along each spatial dimension."""
    return [(shape[d] - 1) * by + 1 for d, by in zip(dims, dilation, strict=True)]


@with_argument_errors
def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Convolve an operand (batch, feature, spatial...) with a filter (out, in, spatial...)."""
    return conv_with_general_padding(
        lhs, rhs, window_strides, padding, None, None, precision, preferred_element_type
    )


@with_argument_errors
def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Convolve like `conv`, with dilations."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
