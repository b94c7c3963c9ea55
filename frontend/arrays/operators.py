"""Operators and methods shared by tracers and arrays.

Each one calls a function of the NumPy-like namespace, which is looked up at first use: `x + y` is
`shardir.numpy.add(x, y)`, `x.sum(axis=0)` is `shardir.numpy.sum(x, axis=0)`.
"""

from collections.abc import Callable, Iterator
from functools import cache, update_wrapper
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from shardir.backends.native import has_call_cache, vectorcall_class
from shardir.caller_warnings import warn_caller
from shardir.errors import suggest_name
from shardir.frontend.absent_members import absence_of_member
from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.errors import ArgumentError, ImmutableError, NotAnArrayError, UnknownMethod
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import hide_own_frames, traceback_boundary
from shardir.frontend.tracing.promotion import DType
from shardir.ir.types import NumpyArray

_NUMBER_TYPES = (bool, int, float, complex, np.ndarray, np.generic)


_NON_OPERAND_TYPES = (str, bytes, list, tuple, set, frozenset, dict, type(None))
"""Built-in types that are no operands and define no operators for arrays."""


_SYMBOLS = {
    "add": "+", "subtract": "-", "multiply": "*", "true_divide": "/", "floor_divide": "//",
    "remainder": "%", "divmod": "divmod()", "power": "** or pow()", "matmul": "@",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<",
    "right_shift": ">>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
"""Python's symbols of the operators, except `==` and `!=`, which accept any operand."""


def _unsupported_error(function: str, x: object, y: object, swapped: bool) -> NotAnArrayError:
    """Return Python's error for such operands, with the user's line and a suggestion."""
    names = " and ".join(repr(type(z).__name__) for z in ((y, x) if swapped else (x, y)))
    symbol = _SYMBOLS[function]
    way_out = "make it an array with snp.array" if isinstance(y, (list, tuple)) else ""
    text = (
        f"{symbol!r} not supported between instances of {names}"
        if function.startswith(("less", "greater"))
        else f"unsupported operand type(s) for {symbol}: {names}"
    )
    error = NotAnArrayError(with_location(f"{text}; {way_out}" if way_out else text))
    return error.repeat(TypeError(text))


@cache
def _namespace_function(name: str) -> UserFunction:
    function: UserFunction = getattr(import_module("shardir.frontend.numpy.api"), name)
    return function


_INDEXING_MODULES = {
    "At": "indexing.at",
    "byteswap": "shaping.views",
    "view": "shaping.views",
}
"""The modules of functions that are not in `indexing.getitem`."""


@cache
def _indexing_function(name: str) -> UserFunction:
    module = _INDEXING_MODULES.get(name, "indexing.getitem")
    function: UserFunction = getattr(import_module(f"shardir.frontend.numpy.{module}"), name)
    return function


def _binary(function: str, swapped: bool = False) -> "NamespaceOperator":
    def _operator(self: "Operators", other: ArrayLike) -> object:
        if not isinstance(other, (Operators, *_NUMBER_TYPES)) and not hasattr(other, "__array__"):
            # Python compares unrelated types as unequal, and multiplies a list by an index.
            python = function not in _SYMBOLS or (swapped and function == "multiply")
            if python or type(other) not in _NON_OPERAND_TYPES:
                return NotImplemented
            raise _unsupported_error(function, self, other, swapped)
        return (
            _namespace_function(function)(other, self)
            if swapped
            else _namespace_function(function)(self, other)
        )

    return NamespaceOperator(_operator, function, swapped)


def _unary(function: str) -> "NamespaceOperator":
    def _operator(self: "Operators") -> object:
        return _namespace_function(function)(self)

    return NamespaceOperator(_operator, function)


def _subscript() -> "NamespaceOperator":
    def _operator(self: "Operators", index: object) -> object:
        found = _indexing_function("getitem_by_mask")(self, index)
        return _indexing_function("getitem")(self, index) if found is None else found

    return NamespaceOperator(_operator, "getitem", function=_indexing_function)


def _method(function: str) -> "NamespaceOperator":
    def method(self: "Operators", *args: ArrayLike, **options: object) -> object:
        return _namespace_function(function)(self, *args, **options)

    method.__name__ = function
    method.__doc__ = f"Return `shardir.numpy.{function}` of this array."
    return NamespaceOperator(method, function)


Instance = TypeVar("Instance", bound="Operators")


@vectorcall_class
class NamespaceOperator:
    """An operator or a method that calls a namespace function; `swapped` exchanges its
    two arguments.

    Its result has the class of the instance: operations on a tracer make a tracer, and operations
    on an array make an array.
    """

    call_cache: Any

    def __init__(
        self,
        fun: UserFunction,
        name: str,
        swapped: bool = False,
        function: Callable[[str], UserFunction] = _namespace_function,
    ) -> None:
        update_wrapper(self, fun)
        self._fun, self._name, self._swapped, self._function = fun, name, swapped, function
        self._can_share_cache = True

    def __call__(self, *args: PyTree, **options: PyTree) -> object:
        try:
            result = self._fun(*args, **options)
        except Exception as error:
            hide_own_frames(error)
            raise
        if self.call_cache is None and self._can_share_cache:
            self._share_cache()
        return result

    def _share_cache(self) -> None:
        """Share the native call cache of the function."""
        function: Any = self._function(self._name)
        if not has_call_cache(function):
            self._can_share_cache = False
        elif function.call_cache is not None:
            function.share_call_cache(self, self._swapped)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "NamespaceOperator": ...

    @overload
    def __get__(self, instance: Instance, owner: type | None = None) -> Callable[..., Instance]: ...

    def __get__(self, instance: object, owner: type | None = None) -> object:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<operator {self._name}>"


def immutable_error() -> ImmutableError:
    """Return the error for an assignment to elements of an array."""
    return ImmutableError(
        with_location(
            "arrays are never changed in place; make a new one: "
            "x = x.at[index].set(value), or .add, .multiply, .max, ..."
        )
    )


class Operators(ArrayBase):
    """Operators and methods of tracers and arrays. Subclasses define `shape`, `abstract` and
    `dtype`."""

    __slots__ = ()

    def __init__(self, *args: object, **options: object) -> None:
        """Raise `ArgumentError`: subclasses make arrays, this class is their common type."""
        raise ArgumentError(
            with_location(
                "ndarray is the type of arrays and traced values, for isinstance and annotations; "
                "make an array with array, zeros, ones, full or empty"
            )
        )

    # NumPy arrays leave `ndarray + x` to `x`.
    __array_priority__: ClassVar[int] = 100

    def __getattr__(self, name: str) -> Any:
        """Raise an error for an unknown attribute.

        Python also calls this for a property that raised `AttributeError`; it is evaluated again to
        raise the original error.
        """
        known = getattr(type(self), name, None)
        if isinstance(known, property) and known.fget is not None:
            return known.fget(self)
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(text)  # Libraries test for such attributes.
        reason = absence_of_member(type(self), name)
        members = (each for each in dir(type(self)) if each[0] != "_")
        guess = suggest_name(name, members) if reason is None else reason
        error = UnknownMethod(with_location(f"{text}; {guess}" if guess else text))
        raise error.repeat(AttributeError(text))

    @property
    def dtype(self) -> DType:
        """The element type."""
        raise NotImplementedError

    @property
    def __numpy_dtype__(self) -> DType:
        """The element type of the array, which NumPy reads when the array is passed as a dtype."""
        warn_caller(
            "an array was passed for an element type; write dtype=x.dtype, not dtype=x",
            DeprecationWarning,
        )
        return self.dtype

    __add__, __radd__ = _binary("add"), _binary("add", swapped=True)
    __sub__, __rsub__ = _binary("subtract"), _binary("subtract", swapped=True)
    __mul__, __rmul__ = _binary("multiply"), _binary("multiply", swapped=True)
    __truediv__, __rtruediv__ = _binary("true_divide"), _binary("true_divide", swapped=True)
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _binary("floor_divide", swapped=True)
    __mod__, __rmod__ = _binary("remainder"), _binary("remainder", swapped=True)
    __divmod__: Any = _binary("divmod")
    __rdivmod__: Any = _binary("divmod", swapped=True)
    __pow__, __rpow__ = _binary("power"), _binary("power", swapped=True)
    __matmul__, __rmatmul__ = _binary("matmul"), _binary("matmul", swapped=True)
    __and__, __rand__ = _binary("bitwise_and"), _binary("bitwise_and", swapped=True)
    __or__, __ror__ = _binary("bitwise_or"), _binary("bitwise_or", swapped=True)
    __xor__, __rxor__ = _binary("bitwise_xor"), _binary("bitwise_xor", swapped=True)
    __lshift__, __rlshift__ = _binary("left_shift"), _binary("left_shift", swapped=True)
    __rshift__, __rrshift__ = _binary("right_shift"), _binary("right_shift", swapped=True)
    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("abs"), _unary("invert")
    # Comparison is elementwise, so an array cannot be a key.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    __getitem__ = _subscript()

    if TYPE_CHECKING:
        # Arrays and tracers define these methods.
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __complex__(self) -> complex: ...
        def __index__(self) -> int: ...
        def __len__(self) -> int: ...
        def __iter__(self) -> Iterator[Self]: ...
        def __array__(
            self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
        ) -> NumpyArray: ...

    @traceback_boundary
    def __delitem__(self, index: object) -> None:
        raise ImmutableError(
            with_location(
                "elements of an array are never deleted in place; make a new one with snp.delete"
            )
        )

    @traceback_boundary
    def __setitem__(self, index: object, value: object) -> None:
        raise immutable_error()

    def __contains__(self, item: object) -> bool:
        return bool(_namespace_function("any")(self == item))

    def __round__(self, digits: int | None = None) -> Self:
        # As in Python, the result is an integer unless the number of digits is given.
        rounded = _namespace_function("round")(self, 0 if digits is None else digits)
        result: Self = rounded.astype(int) if digits is None else rounded
        return result

    def __array_namespace__(self, *, api_version: str | None = None) -> object:
        """Return the functions of the Array API standard; raises `ArgumentError` for other
        versions."""
        return import_module("shardir.frontend.numpy.array_api_info").array_namespace(api_version)

    @traceback_boundary
    def to_device(self, device: object, /, *, stream: object = None) -> Self:
        """Return this array on a device or with a sharding; streams are not supported."""
        device_transfer = import_module("shardir.frontend.arrays.device_transfer")
        result: Self = device_transfer.device_put(self, device)
        return result

    @property
    def at(self) -> Any:
        """Updates at an index: `x.at[i].set(y)`, `.add`, `.multiply`, `.min`, `.max`, `.get`."""
        return _indexing_function("At")(self)

    @property
    def T(self) -> Self:
        """The array with its dimensions in reverse order; see `shardir.numpy.transpose`."""
        result: Self = _namespace_function("transpose")(self)
        return result

    @property
    def mT(self) -> Self:
        """The array with the last two dimensions swapped; see `shardir.numpy.matrix_transpose`."""
        result: Self = _namespace_function("matrix_transpose")(self)
        return result

    @property
    def real(self) -> Self:
        """The real part; see `shardir.numpy.real`."""
        result: Self = _namespace_function("real")(self)
        return result

    @property
    def imag(self) -> Self:
        """The imaginary part; see `shardir.numpy.imag`."""
        result: Self = _namespace_function("imag")(self)
        return result

    @property
    def flat(self) -> Self:
        """The elements in one dimension, the last dimension fastest; see `shardir.numpy.ravel`."""
        result: Self = _namespace_function("ravel")(self)
        return result

    @traceback_boundary
    def astype(self, dtype: DTypeLike | None, copy: bool = False, device: object = None) -> Self:
        """Return this array with another element type; see `shardir.numpy.astype`."""
        function = _namespace_function("astype")
        if device is None:
            result: Self = function(self, dtype, copy=copy)
        else:
            result = function(self, dtype, copy=copy, device=device)
        return result

    @traceback_boundary
    def view(self, dtype: object = None, *more: object) -> Self:
        """Return the bits of this array as another element type."""
        result: Self = _indexing_function("view")(self, (dtype, *more) if more else dtype)
        return result

    def byteswap(self) -> Self:
        """Return this array with the bytes of each element in reverse order."""
        result: Self = _indexing_function("byteswap")(self)
        return result

    @traceback_boundary
    def compress(
        self, condition: ArrayLike, axis: int | None = None, *, out: None = None,
        size: int | None = None, fill_value: ArrayLike = 0,
    ) -> Self:  # fmt: skip
        """Return the elements where a condition is true; see `shardir.numpy.compress`."""
        result: Self = _namespace_function("compress")(
            condition, self, axis, out=out, size=size, fill_value=fill_value
        )
        return result

    @traceback_boundary
    def reshape(
        self, *shape: ShapeLike | None, order: str = "C", out_sharding: object = None
    ) -> Self:
        """Return a reshaped array: `x.reshape(2, 3)` or `x.reshape((2, 3))`."""
        new_shape, function = shape[0] if len(shape) == 1 else shape, _namespace_function("reshape")
        if out_sharding is None:
            result: Self = function(self, new_shape, order=order)
        else:
            result = function(self, new_shape, order=order, out_sharding=out_sharding)
        return result

    def transpose(self, *axes: object) -> Self:
        """Return a transposed array: `x.transpose()`, `x.transpose(1, 0)` or `x.transpose((1,
        0))`."""
        try:
            if not axes or (len(axes) == 1 and axes[0] is None):
                result: Self = _namespace_function("transpose")(self)
            else:
                result = _namespace_function("transpose")(self, axes[0] if len(axes) == 1 else axes)
            return result
        except Exception as error:
            hide_own_frames(error)
            raise

    @traceback_boundary
    def flatten(self, order: str = "C", *, out_sharding: object = None) -> Self:
        """Return the elements in one dimension; see `shardir.numpy.ravel`."""
        function = _namespace_function("ravel")
        if out_sharding is None:
            result: Self = function(self, order=order)
        else:
            result = function(self, order=order, out_sharding=out_sharding)
        return result

    all, any = _method("all"), _method("any")
    argmax, argmin = _method("argmax"), _method("argmin")
    argpartition, choose = _method("argpartition"), _method("choose")
    argsort, sort = _method("argsort"), _method("sort")
    clip, round = _method("clip"), _method("round")
    conj, conjugate = _method("conj"), _method("conj")
    copy = _method("copy")
    cumsum, cumprod = _method("cumsum"), _method("cumprod")
    diagonal, trace = _method("diagonal"), _method("trace")
    dot = _method("dot")
    max, min = _method("max"), _method("min")
    mean, std, var = _method("mean"), _method("std"), _method("var")
    nonzero: Any = _method("nonzero")
    prod, sum, ptp = _method("prod"), _method("sum"), _method("ptp")
    ravel, squeeze = _method("ravel"), _method("squeeze")
    repeat, swapaxes = _method("repeat"), _method("swapaxes")
    searchsorted = _method("searchsorted")
    take = _method("take")
