"""Random orthogonal and unitary matrices."""

from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import shape_of
from shardir.frontend.numpy.decomposing import diagonal, turned
from shardir.frontend.numpy.pointwise import same
from shardir.frontend.operands import as_tracer
from shardir.frontend.random.distributions import normal
from shardir.frontend.trace import emit


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
    rows, columns = shape_of((n, n if m is None else m))
    if not rows or not columns:
        raise ShapeError(
            point(f"orthogonal matrices cannot have {rows} rows and {columns} columns")
        )
    drawn = as_tracer(
        normal(key, (*shape_of(shape), max(rows, columns), min(rows, columns)), dtype)
    )
    if drawn.value.type.dtype in ("f16", "bf16"):
        raise OperationTypeError(
            point(f"orthogonal draws float32 or wider numbers, not {drawn.value.type.dtype}")
        )
    q, r = emit("qr", drawn, full=False)
    result = as_tracer(q * same("sign", diagonal(r))[..., None, :])
    return turned(result) if rows < columns else result
