"""Random numbers without a key, with the name of `jax.lax`; `shardir.random` has keys."""

from collections.abc import Sequence

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.dispatch.callbacks import io_callback
from shardir.frontend.numpy.tracer_helpers import inspection
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import operand_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import FLOATS, NumpyArray, TensorType


@with_argument_errors
def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Sequence[int]) -> Tracer:
    """Return uniform random numbers in [a, b), different in every call.

    The bounds are scalars of one type, floats or integers. NumPy's generator draws in every run of
    the program, so that a run is not reproducible: `shardir.random.uniform` takes a key. The
    function has no derivative. Raise `OperationTypeError` for bounds of several types or shapes,
    and at run time if `a` is above `b`, or if no integer is between them.
    """
    kind, other = operand_dtype(a)[0], operand_dtype(b)[0]
    shapes = inspection.shape(a), inspection.shape(b)
    if kind != other or any(shapes):
        raise OperationTypeError(
            with_location(
                f"rng_uniform takes two numbers of one type, got {kind} of shape {shapes[0]} "
                f"and {other} of shape {shapes[1]}"
            )
        )
    sizes = canonicalize_shape(shape)
    dtype = TensorType(sizes, kind).numpy

    def draw(low: NumpyArray, high: NumpyArray) -> NumpyArray:
        if low > high or (low == high and kind not in FLOATS):
            message = (
                f"rng_uniform draws from a up to b, got a = {low} and b = {high}; make b larger"
            )
            raise OperationTypeError(with_location(message))
        source = np.random.default_rng()
        if kind not in FLOATS:
            return source.integers(low, high, sizes, dtype)
        parts = source.random(sizes)
        drawn = (np.float64(low) + parts * (np.float64(high) - np.float64(low))).astype(dtype)
        return np.where(drawn < high, drawn, low).astype(dtype)  # Rounding may produce `high`.

    drawn: Tracer = io_callback(draw, ShapeDtypeStruct(sizes, dtype), a, b)
    return drawn
