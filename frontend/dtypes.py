"""Element types under the names of `jax.dtypes`: limits, classes, and canonical types."""

from ml_dtypes import bfloat16

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.numpy.dtypes import (
    extended as extended,
    finfo as finfo,
    floating as _floating,
    iinfo as iinfo,
    issubdtype as issubdtype,
    prng_key as prng_key,
    result_type as result_type,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import DType, dtype_of, user_dtype
from shardir.frontend.transforms.differentiated_arguments import FLOAT0 as float0
from shardir.ir.dtypes import DTYPE_INFO

__all__ = [
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]


@with_argument_errors
def canonicalize_dtype(dtype: object) -> DType:
    """Return the canonical element type of `dtype`: 32 bits instead of 64, unless `enable_x64` is
    set."""
    return user_dtype(dtype_of(dtype))


@with_argument_errors
def itemsize_bits(dtype: object) -> int:
    """Return the number of bits of one element."""
    return DTYPE_INFO[dtype_of(canonicalize_dtype(dtype))].bits


@with_argument_errors
def scalar_type_of(x: object) -> type[bool | int | float | complex]:
    """Return the Python scalar type that corresponds to an array or a number."""
    dtype = result_type(x)
    kinds: dict[str, type[bool | int | float | complex]] = {"b": bool, "c": complex}
    if issubdtype(dtype, extended):
        raise NotAnArrayError(with_location(f"{dtype} is not a kind of number"))
    return kinds.get(dtype.kind, float if issubdtype(dtype, _floating) else int)
