"""Contractions of operands with block scales, such as those of float8 and float4."""

from collections.abc import Sequence

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.contraction import DotDimensionNumbers, dot_general
from shardir.frontend.lax.data_movement import broadcast_in_dim
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer


@public(static=("dimension_numbers", "preferred_element_type"))
def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Contract `lhs * lhs_scale` with `rhs * rhs_scale`.

    A scale has the dimensions of its operand. Along contracted dimensions, one element of it
    applies to a block of consecutive elements of the operand. The operands are scaled in bfloat16,
    and products are added in `preferred_element_type`, by default bfloat16. By default, matrices
    are multiplied, and the leading dimensions are batch dimensions. Raise `OperationTypeError` for
    shapes that do not match.
    """
    x, y = as_tracer(lhs), as_tracer(rhs)
    if dimension_numbers is None:
        if x.ndim < 2 or y.ndim != x.ndim:
            raise OperationTypeError(
                with_location(
                    f"scaled_dot multiplies matrices, got shapes {x.shape} and {y.shape}; give "
                    "dimension_numbers, or use lax.dot"
                )
            )
        batch = tuple(range(x.ndim - 2))
        dimension_numbers = ((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)
    contract_x, contract_y = dimension_numbers[0]
    return dot_general(
        apply_scale(x, lhs_scale, contract_x, "bf16", "lhs of scaled_dot"),
        apply_scale(y, rhs_scale, contract_y, "bf16", "rhs of scaled_dot"),
        dimension_numbers,
        None,
        "bfloat16" if preferred_element_type is None else preferred_element_type,
    )


def apply_scale(
    x: Tracer, scale: ArrayLike | None, contracted: Sequence[int], dtype: str, what: str
) -> Tracer:
    """Return `x`, converted to `dtype` and multiplied with the scale of each block."""
    wide = convert(x, dtype)
    if scale is None:
        return wide
    factors = as_tracer(scale)
    _check_scale_shape(x, factors, contracted, what)
    # Each dimension of the scale is followed by one for the elements of its blocks.
    blocks = [size // count for size, count in zip(x.shape, factors.shape, strict=True)]
    pairs = [part for pair in zip(factors.shape, blocks, strict=True) for part in pair]
    dims = tuple(range(0, 2 * x.ndim, 2))
    repeated = reshape(broadcast_in_dim(convert(factors, dtype), pairs, dims), x.shape)
    scaled: Tracer = emit("mul", wide, repeated)
    return scaled


def _check_scale_shape(x: Tracer, scale: Tracer, contracted: Sequence[int], what: str) -> None:
    fits = (
        scale.ndim == x.ndim
        and 0 not in scale.shape
        and all(
            size % count == 0 if dim in contracted else size == count
            for dim, (size, count) in enumerate(zip(x.shape, scale.shape, strict=True))
        )
    )
    if not fits:
        raise OperationTypeError(
            with_location(
                f"{what} has shape {x.shape} and its scale {scale.shape}; a scale has the size of "
                "its operand, or along a contracted dimension a divisor of it"
            )
        )
