"""Products of matrices with block scales, with the name of `jax.nn`."""

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.contraction import dot_general
from shardir.frontend.lax.scaled_dot import apply_scale
from shardir.frontend.numpy.tracer_helpers.product_precision import Precision
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.tracer import Tracer


@public(static=("preferred_element_type",))
def scaled_matmul(
    lhs: ArrayLike,
    rhs: ArrayLike,
    lhs_scales: ArrayLike,
    rhs_scales: ArrayLike,
    preferred_element_type: DTypeLike = "float32",
) -> Tracer:
    """Multiply a batch of matrices (batch, rows, inner) with the transposes of (batch, columns,
    inner).

    One element of a scale applies to a block of consecutive elements along the dimension `inner`.
    The operands are scaled in float32. Raise `OperationTypeError` for shapes that do not match.
    """
    x, y = as_tracer(lhs), as_tracer(rhs)
    if x.ndim != 3 or y.ndim != 3:
        raise OperationTypeError(
            with_location(
                "scaled_matmul takes shapes (batch, rows, inner) and (batch, columns, inner), got "
                f"{x.shape} and {y.shape}"
            )
        )
    product = dot_general(
        apply_scale(x, lhs_scales, (2,), "f32", "lhs of scaled_matmul"),
        apply_scale(y, rhs_scales, (2,), "f32", "rhs of scaled_matmul"),
        (((2,), (2,)), ((0,), (0,))),
        Precision.HIGHEST,
    )
    return convert(product, dtype_of(preferred_element_type))
