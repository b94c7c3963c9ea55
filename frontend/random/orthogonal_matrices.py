"""Random orthogonal and unitary matrices."""

from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.linear_algebra.matrix_helpers import square_diagonal, transpose_matrices
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import emit_elementwise
from shardir.frontend.random.continuous_distributions import normal
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import emit
from shardir.ir.dtypes import NARROW_FLOATS


@public(static=("n", "shape", "dtype", "m"))
def orthogonal(
    key: Any,
    n: int,
    shape: Any = (),
    dtype: Any = None,
    m: int | None = None,
    *,
    out_sharding: Any = None,
) -> Any:
    """Return matrices of n rows and m (or n) columns with orthonormal rows or columns.

    Square matrices are uniformly distributed over all rotations and reflections (F. Mezzadri, "How
    to generate random matrices from the classical compact groups", 2007).
    """
    rows, columns = canonicalize_shape((n, n if m is None else m))
    if not rows or not columns:
        raise ShapeError(
            with_location(f"orthogonal matrices cannot have {rows} rows and {columns} columns")
        )
    drawn = as_tracer(
        normal(key, (*canonicalize_shape(shape), max(rows, columns), min(rows, columns)), dtype)
    )
    if drawn.value.type.dtype in NARROW_FLOATS:
        raise OperationTypeError(
            with_location(
                f"orthogonal draws float32 or wider numbers, not {drawn.value.type.dtype}"
            )
        )
    q, r = emit("qr", drawn, full=False)
    result = as_tracer(q * emit_elementwise("sign", square_diagonal(r))[..., None, :])
    return transpose_matrices(result) if rows < columns else result
