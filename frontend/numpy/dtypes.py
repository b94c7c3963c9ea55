"""Element types under NumPy's names, what they can hold and what they become together.

`float32(x)` is `x` as an array of that type, and wherever a type is wanted `float32` is one, as
are NumPy's own types, Python's `float` and the name `"float32"`.
"""

from typing import Any, Final, final

import ml_dtypes
import numpy as np

from shardir.frontend import promotion
from shardir.frontend.eager import public
from shardir.frontend.operands import as_tracer, convert, kind_of
from shardir.frontend.promotion import KEY, DType, canonical, dtype_of, user_dtype
from shardir.types import COMPLEX, FLOATS, NUMPY_DTYPES, SIGNED, UNSIGNED

pi: Final = float(np.pi)
e: Final = float(np.e)
euler_gamma: Final = float(np.euler_gamma)
inf: Final = float("inf")
nan: Final = float("nan")
newaxis: Final = None

generic, number, integer = np.generic, np.number, np.integer
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
inexact, floating, complexfloating = np.inexact, np.floating, np.complexfloating
character, flexible, object_ = np.character, np.flexible, np.object_


@final
class ScalarType:
    """An element type that can be called: `float32(3)` is an array of it."""

    __slots__ = ("dtype",)

    def __init__(self, name: str) -> None:
        self.dtype = NUMPY_DTYPES[name]

    def __call__(self, x: Any = 0) -> Any:
        return _of_type(x, self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarType):
            return bool(self.dtype == other.dtype)
        return bool(self.dtype == other)

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        name = self.dtype.name
        return f"shardir.numpy.{name + '_' if name == 'bool' else name}"


@public(static=("dtype",))
def _of_type(x: Any, dtype: Any) -> Any:
    return convert(as_tracer(x), dtype_of(dtype))


bool_ = ScalarType("bool")
int8, int16, int32, int64 = map(ScalarType, SIGNED)
uint8, uint16, uint32, uint64 = map(ScalarType, UNSIGNED)
float16, bfloat16, float32, float64 = map(ScalarType, FLOATS)
complex64, complex128 = map(ScalarType, COMPLEX)
int_, uint, float_, complex_ = int64, uint64, float64, complex128
single, double, csingle, cdouble = float32, float64, complex64, complex128

dtype = np.dtype


def finfo(type: Any) -> Any:
    """The limits of a floating type: `eps`, `max`, `min`, `tiny`, `bits`, ..."""
    return ml_dtypes.finfo(_numpy(type))


def iinfo(type: Any) -> Any:
    """The limits of an integer type: `max`, `min`, `bits`."""
    return ml_dtypes.iinfo(_numpy(type))


def _numpy(type: Any) -> np.dtype[Any]:
    """The element type meant, without narrowing 64-bit types."""
    if isinstance(type, str) and type == "bfloat16":
        return NUMPY_DTYPES["bf16"]
    return np.dtype(getattr(type, "dtype", type))


def result_type(*operands: Any) -> DType:
    """The element type of arrays, numbers and types computed with together."""
    name, _ = promotion.result_type(*map(_kind, operands))
    return user_dtype(name)


def promote_types(first: Any, second: Any) -> DType:
    """The element type of both types together."""
    return result_type(dtype_of(first) and _typed(first), _typed(second))


def _typed(spec: Any) -> DType:
    return user_dtype(dtype_of(spec))


def _kind(x: Any) -> tuple[str, bool]:
    if isinstance(x, (list, tuple)):
        tracerless = np.asarray(x)
        return canonical(dtype_of(tracerless.dtype)), False
    if x in (int, float, complex) and isinstance(x, type):
        return dtype_of(x), True
    if isinstance(x, (str, type, np.dtype, ScalarType)) or x is KEY:
        return dtype_of(x), False
    return kind_of(x)
