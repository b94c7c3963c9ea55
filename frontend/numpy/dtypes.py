"""Element types under NumPy's names, their limits and promotion; constants such as `pi`.

`float32(x)` converts `x` to an array of that type. Every argument for an element type accepts
`float32`, NumPy's types, Python's `float` and the text `"float32"`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final, get_args

import ml_dtypes
import numpy as np

from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.argument_errors import FOREIGN_ERRORS, with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.tracer_helpers.array_annotations import as_result
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, convert, operand_dtype
from shardir.frontend.tracing.promotion import (
    DType,
    KeyType,
    dtype_of,
    invalid_dtype_error,
    user_dtype,
)
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO, EXTENSION_DTYPES
from shardir.ir.types import (
    COMPLEX,
    FLOATS,
    INEXACT,
    INTEGERS,
    NUMPY_DTYPES,
    SIGNED,
    UNSIGNED,
    NumpyDType,
    dtype_name,
)

pi: Final = float(np.pi)
"""The ratio of the circumference of a circle to its diameter."""
e: Final = float(np.e)
"""The base of natural logarithms."""
euler_gamma: Final = float(np.euler_gamma)
"""Euler's constant, the limit of 1 + 1/2 + ... + 1/n - log(n)."""
inf: Final = float("inf")
"""Positive infinity."""
nan: Final = float("nan")
"""Not a number; no number is equal to it, and it is not equal to itself."""
newaxis: Final = None
"""An index that adds a dimension of size 1."""

# The type families of `issubdtype`.
generic, number, inexact = np.generic, np.number, np.inexact
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
floating, complexfloating = np.floating, np.complexfloating
character, flexible, object_ = np.character, np.flexible, np.object_


class _NumpyDtypeMeta(type):
    """The metaclass of `dtype`: a call returns a NumPy dtype, and `isinstance` tests for one."""

    def __call__(cls, dtype: Any, *args: PyTree, **options: PyTree) -> NumpyDType:
        if not args and not options and not isinstance(dtype, (list, dict)):
            return _numpy_dtype(dtype)
        try:
            result: NumpyDType = np.dtype(dtype, *args, **options)
        except FOREIGN_ERRORS as error:
            described = ", ".join(map(brief, (dtype, *args, *options.values())))
            raise ArgumentError(
                with_location(f"dtype does not take ({described}): {error}")
            ) from error
        return result

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, np.dtype)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, np.dtype)


if TYPE_CHECKING:
    dtype = np.dtype
else:

    class dtype(metaclass=_NumpyDtypeMeta):
        """`dtype(x)` is the element type that `x` names; raises `NotAnArrayError` if it
        names none.
        """


class extended(np.generic):
    """The family of element types that are not numbers; for `issubdtype`."""


class prng_key(extended):
    """The family of element types of PRNG keys; for `issubdtype`."""


@final
class ScalarType:
    """A callable element type: `float32(3)` is an array of that type."""

    __slots__ = ("dtype",)

    def __init__(self, name: str) -> None:
        self.dtype = NUMPY_DTYPES[name]

    @with_argument_errors
    def __call__(self, x: ArrayLike = 0) -> Tracer:
        return asarray(x, self.dtype)

    @property
    def __name__(self) -> str:
        return str(self.dtype.name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (str, type, np.dtype, ScalarType)):
            return False
        try:
            return bool(self.dtype == _numpy_dtype(other))
        except (TypeError, ValueError):
            return False

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        name = self.dtype.name
        return f"shardir.numpy.{'bool_' if name == 'bool' else name}"


bool_ = ScalarType("bool")
int2, int4, int8, int16, int32, int64 = map(ScalarType, SIGNED)
uint2, uint4, uint8, uint16, uint32, uint64 = map(ScalarType, UNSIGNED)
(
    float4_e2m1fn,
    float8_e3m4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3b11fnuz,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    bfloat16,
    float32,
    float64,
) = map(ScalarType, FLOATS)
complex64, complex128 = map(ScalarType, COMPLEX)
int_, uint, float_, complex_ = int64, uint64, float64, complex128
single, double, csingle, cdouble = float32, float64, complex64, complex128


@composed_function()
def astype(
    x: ArrayLike, dtype: DTypeLike | None, /, *, copy: bool = False, device: ShardingRequest = None
) -> Tracer:
    """Convert `x` to another element type: floats are truncated to integers, wide integers wrap.

    `device`, a device or a sharding, states where the result is placed.
    """
    if not copy and isinstance(x, Array) and not x.weak_type and device is None:
        name = dtype_of(float if dtype is None else dtype)
        if name == x.type.dtype:
            return as_result(x)
    result = _astype(x, dtype)
    placed: Tracer = result if device is None else device_put(result, device)
    return placed


@public(static=("dtype",))
def _astype(x: ArrayLike, dtype: DTypeLike | None) -> Tracer:
    return convert(as_tracer(x), dtype_of(float if dtype is None else dtype))


def _numpy_dtype(spec: Any) -> NumpyDType:
    """Return the NumPy dtype of `spec` without narrowing of 64-bit types; raise
    `NotAnArrayError`.
    """
    if isinstance(spec, str) and spec in EXTENSION_DTYPES:
        return EXTENSION_DTYPES[spec]
    found = spec if isinstance(spec, type) else getattr(spec, "dtype", spec)
    try:
        named: NumpyDType = np.dtype(found)
    except (TypeError, ValueError):
        raise invalid_dtype_error(spec) from None
    return named


# The stubs of ml_dtypes give their constructors no parameters.
_FINFO: Callable[[NumpyDType], ml_dtypes.finfo] = ml_dtypes.finfo
_IINFO: Callable[[NumpyDType], ml_dtypes.iinfo] = ml_dtypes.iinfo


@with_argument_errors
def finfo(dtype: DTypeLike | ArrayLike) -> ml_dtypes.finfo:
    """Return the limits of a floating type: `eps`, `max`, `min`, `tiny`, `bits` and more.

    As in JAX, `eps`, `max` and other numbers are NumPy scalars of the type.

    Raise `ArgumentError` for another type.
    """
    kind = _numpy_dtype(dtype)
    if dtype_of(kind) not in INEXACT:
        raise ArgumentError(
            with_location(f"finfo takes floating-point types, got {kind}; use iinfo")
        )
    return _FINFO(kind)


@with_argument_errors
def iinfo(dtype: DTypeLike | ArrayLike) -> ml_dtypes.iinfo:
    """Return the limits of an integer type: `max`, `min`, `bits`.

    Raise `ArgumentError` for another type.
    """
    kind = _numpy_dtype(int if type(dtype) is int else dtype)
    if dtype_of(kind) not in INTEGERS:
        raise ArgumentError(
            with_location(f"iinfo takes integer types, got {kind}; use finfo for floats")
        )
    return _IINFO(kind)


@with_argument_errors
def result_type(*operands: PyTree) -> DType:
    """Return the element type to which arrays, scalars and types promote.

    Python scalars and the types `int`, `float` and `complex` are weakly typed.
    """
    if not operands:
        raise ArgumentError(with_location("result_type takes at least one array or element type"))
    try:
        name, _ = promotion.result_type(*map(_dtype_and_weak_type, operands))
    except RecursionError:
        check_acyclic(operands)
        raise
    return user_dtype(name)


@with_argument_errors
def promote_types(a: object, b: object) -> DType:
    """Return the element type to which two element types promote."""
    return result_type(a, b)


def _dtype_and_weak_type(x: object) -> tuple[str, bool]:
    if isinstance(x, (list, tuple)):
        if not x:
            return dtype_of(float), False
        return promotion.result_type(*map(_dtype_and_weak_type, x))[0], False
    if isinstance(x, type) and x in (int, float, complex):
        return dtype_of(x), True
    if isinstance(x, (str, type, np.dtype, ScalarType, KeyType)):
        return dtype_of(x), False
    return operand_dtype(x)


CastingRule: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
CASTING_RULES = get_args(CastingRule)


@with_argument_errors
def can_cast(
    from_: DTypeLike | ArrayLike, to: DTypeLike | ArrayLike, casting: CastingRule = "safe"
) -> bool:
    """Return whether NumPy's rule `casting` permits a conversion between the element types."""
    if not is_one_of(casting, CASTING_RULES):
        described = ", ".join(map(repr, CASTING_RULES))
        raise ArgumentError(
            with_location(f"casting of can_cast is {brief(casting)}; the rules are {described}")
        )
    return bool(np.can_cast(_numpy_dtype(from_), _numpy_dtype(to), casting))


@with_argument_errors
def issubdtype(arg1: object, arg2: object) -> bool:
    """Return whether an element type equals another one, or belongs to a family such as
    `floating`.
    """
    if isinstance(arg2, type) and issubclass(arg2, np.generic) and arg2 in _DTYPE_FAMILIES:
        if isinstance(arg1, type) and arg1 in _DTYPE_FAMILIES:
            return issubclass(arg1, arg2)
        if isinstance(arg1, KeyType):
            return issubclass(prng_key, arg2)
        found = _numpy_dtype(arg1)
        return issubclass(_family_of(found), arg2)
    if isinstance(arg1, KeyType) or isinstance(arg2, KeyType):
        return arg1 == arg2
    if isinstance(arg1, type) and arg1 in _DTYPE_FAMILIES:
        return False
    return bool(_numpy_dtype(arg1) == _numpy_dtype(arg2))


def _family_of(dtype: NumpyDType) -> type[np.generic]:
    """Return the scalar type of NumPy that classifies an element type."""
    if dtype.name not in EXTENSION_DTYPES:
        return dtype.type
    kind = DTYPE_INFO[dtype_name(dtype)].kind
    families: dict[str, type[np.generic]] = {
        "signed": np.signedinteger,
        "unsigned": np.unsignedinteger,
    }
    return families.get(kind, np.floating)


_DTYPE_FAMILIES = (
    *(generic, number, inexact, integer, signedinteger, unsignedinteger),
    *(floating, complexfloating, character, flexible, extended, prng_key),
)

_ISDTYPE_KINDS = {
    "bool": ("bool",),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": SIGNED + UNSIGNED,
    "real floating": FLOATS,
    "complex floating": COMPLEX,
    "numeric": SIGNED + UNSIGNED + INEXACT,
}


@with_argument_errors
def isdtype(dtype: DTypeLike, kind: object) -> bool:
    """Return whether an element type is of a kind such as `"real floating"`, or of one of
    several.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str) and kind in _ISDTYPE_KINDS:
        return _numpy_dtype(dtype) in [NUMPY_DTYPES[name] for name in _ISDTYPE_KINDS[kind]]
    try:
        return bool(_numpy_dtype(dtype) == _numpy_dtype(kind))
    except TypeError:
        known = ", ".join(map(repr, _ISDTYPE_KINDS))
        raise ArgumentError(
            with_location(f"{kind!r} is not a kind of element type; the kinds are {known}")
        ) from None
