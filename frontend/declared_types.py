"""The declared types of parameters: whether a value fits an annotation, and its text in errors.

Annotations are read only after Python or NumPy refused a value, so that they cost nothing in calls
that succeed. A value fits if a function may accept it: every integer is a real number, and
every object that NumPy converts is an array.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from enum import Enum
from functools import reduce
from operator import or_
from os import PathLike
from types import NoneType, UnionType
from typing import (
    IO,
    Any,
    Final,
    ForwardRef,
    Literal,
    NamedTuple,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import numpy.typing as npt

from shardir.errors import ShardirError
from shardir.frontend.argument_checks import MAX_RANK, as_integer
from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.ir.dtypes import COMPLEX, INTEGERS

Annotation = object
"""A type, or another object that an annotation contains, such as `int | None`."""


class Misfit(NamedTuple):
    """The part of an argument that does not fit the annotation of its parameter."""

    path: str
    value: object
    requirement: str


def parameter_annotations(fun: Callable[..., object]) -> dict[str, Annotation]:
    """Return the annotations of the parameters of `fun`; none if they name unknown types."""
    try:
        return get_type_hints(fun)
    except (NameError, TypeError, AttributeError):
        return {}


def find_misfit(annotation: Annotation, value: object) -> Misfit | None:
    """Return the part of `value` that does not fit `annotation`, or `None` if all of it fits."""
    members = _list_members(annotation)
    if any(_fits(member, value) for member in members):
        return None
    if isinstance(value, (list, tuple)):
        for item_type in filter(None, map(_item_type, members)):
            for number, item in enumerate(value):
                part = find_misfit(item_type, item)
                if part is not None:
                    return part._replace(path=f".{number}{part.path}")
    return Misfit("", value, _join_alternatives(members))


def _is_integer(value: object) -> bool:
    if isinstance(value, ArrayBase):
        return value.ndim == 0 and value.abstract.type.dtype in INTEGERS
    try:
        return as_integer(value) is not None
    except ShardirError:
        return True  # A traced integer has its own error.


def _is_real(value: object) -> bool:
    if isinstance(value, ArrayBase):
        return value.ndim == 0 and value.abstract.type.dtype not in COMPLEX
    if isinstance(value, (np.ndarray, np.generic)):
        return value.ndim == 0 and not np.issubdtype(value.dtype, np.complexfloating)
    return (not isinstance(value, type) and hasattr(value, "__float__")) or _is_integer(value)


def _is_number(value: object) -> bool:
    return isinstance(value, complex) or _is_real(value) or getattr(value, "ndim", None) == 0


def _has_truth_value(value: object) -> bool:
    return not isinstance(value, (np.ndarray, ArrayBase)) or value.size == 1


def _is_array(value: object) -> bool:
    return _array_shape(value, MAX_RANK) is not None


def _array_shape(value: object, depth: int) -> tuple[int, ...] | None:
    """Return the shape of an array, a number or nested lists, or `None` if it is no array."""
    if isinstance(value, (np.ndarray, np.generic)):
        return None if value.dtype.kind in "OSUMm" else value.shape
    if isinstance(value, (str, bytes, type)):
        return None
    if isinstance(value, ArrayBase):
        return value.shape
    if isinstance(value, (list, tuple)) and depth:
        shapes = {_array_shape(item, depth - 1) for item in value}
        shape = shapes.pop() if shapes else ()
        return None if shapes or shape is None else (len(value), *shape)
    is_converted = any(
        hasattr(value, name) for name in ("__array__", "__jax_array__", "__dlpack__")
    )
    return () if is_converted or _is_number(value) else None


def _is_dtype(value: object) -> bool:
    """Return whether functions check `value` themselves; they accept some strings and classes."""
    if isinstance(value, (np.ndarray, ArrayBase)):
        return False
    is_name = isinstance(value, (str, type, np.dtype)) or value is None
    return is_name or hasattr(value, "dtype")


class _Kind(NamedTuple):
    """The names that errors use for one value and for several values of a type, and a predicate of
    such values."""

    singular: str
    plural: str
    accepts: Callable[[Any], bool]


_ARRAY: Final = _Kind("an array", "arrays", _is_array)
_ARRAY_OBJECT: Final = _Kind(
    "an array",
    "arrays",
    lambda value: isinstance(value, (np.ndarray, ArrayBase)) and _is_array(value),
)
_DTYPE: Final = _Kind("an element type", "element types", _is_dtype)
_INTEGER: Final = _Kind("an integer", "integers", _is_integer)
_REAL: Final = _Kind("a real number", "real numbers", _is_real)
_FUNCTION: Final = _Kind("a function", "functions", callable)
_BYTES: Final = _Kind("bytes", "bytes", lambda value: isinstance(value, (bytes, bytearray)))
_FILE: Final = _Kind("an open file", "open files", lambda value: hasattr(value, "__enter__"))
_KINDS: Final[dict[Annotation, _Kind]] = {
    int: _INTEGER,
    SupportsIndex: _INTEGER,
    np.integer: _INTEGER,
    float: _REAL,
    np.number: _REAL,
    complex: _Kind("a number", "numbers", _is_number),
    bool: _Kind("True, False", "bools", _has_truth_value),
    bytes: _BYTES,
    bytearray: _BYTES,
    str: _Kind("a string", "strings", lambda value: isinstance(value, str)),
    NoneType: _Kind("None", "None", lambda value: value is None),
    type: _Kind("a class", "classes", lambda value: isinstance(value, type)),
    PathLike: _Kind("a path", "paths", lambda value: isinstance(value, PathLike)),
    IO: _FILE,
    ArrayBase: _ARRAY,
    Callable: _FUNCTION,
    np.ndarray: _ARRAY_OBJECT,
}


def _list_members(annotation: Annotation) -> list[Annotation]:
    """Return the members of a union, with one `_Kind` for those of `ArrayLike` or `DTypeLike`."""
    if isinstance(annotation, TypeVar):
        return [annotation.__bound__]
    if get_origin(annotation) not in (Union, UnionType):
        return [annotation]
    members = list(get_args(annotation))
    for alias, kind, is_present in (
        (get_args(npt.ArrayLike), _ARRAY, ArrayBase in members),
        (get_args(npt.DTypeLike), _DTYPE, type[Any] in members),
    ):
        if is_present:
            rest = (each for each in members if each not in alias and not _is_part(each))
            members = [kind, *rest, *([NoneType] if NoneType in members else [])]
    return list(dict.fromkeys(members))


def _is_part(member: Annotation) -> bool:
    """Return whether a type is that of the sequences in `ArrayLike`, or of random keys, which are
    element types.
    """
    item_type = _item_type(member)
    return getattr(member, "kind", "") == "V" or any(
        each is ArrayBase or isinstance(each, (str, ForwardRef))
        for each in (get_args(item_type) or [item_type])
    )


def _kind_of(member: Annotation) -> _Kind | None:
    if isinstance(member, _Kind):
        return member
    if isinstance(member, type) and issubclass(member, ArrayBase):
        return _ARRAY_OBJECT
    return _KINDS.get(get_origin(member)) or _KINDS.get(member)


def _fits(member: Annotation, value: object) -> bool:
    """Return whether `value` fits a member of a union; also if that is unknown."""
    kind = _kind_of(member)
    if kind is not None:
        return kind.accepts(value)
    origin, parameters = get_origin(member), get_args(member)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in parameters)
    if origin is tuple and parameters[-1:] != (Ellipsis,):
        items = value if isinstance(value, (list, tuple)) else ()
        return len(items) == len(parameters) and all(
            find_misfit(part, item) is None for part, item in zip(parameters, items, strict=True)
        )
    item_type = _item_type(member)
    if item_type is not None:
        is_ordered = isinstance(origin, type) and issubclass(origin, Sequence)
        is_wrong_set = is_ordered and isinstance(value, AbstractSet)
        return not is_wrong_set and _is_sequence_of(item_type, value)
    try:
        return isinstance(value, origin or member)  # type: ignore[arg-type]
    except TypeError:
        return True  # `Any`, a protocol, or the absent bound of a type variable.


def _item_type(member: Annotation) -> Annotation | None:
    """Return the type of the items of a sequence, or `None` for another type."""
    origin, parameters = get_origin(member), get_args(member)
    if not isinstance(origin, type) or not issubclass(origin, Iterable):
        return None
    if issubclass(origin, Mapping):
        return None
    if parameters[1:] in ((), (...,)):
        item_type: Annotation = parameters[0]
        return item_type
    union: Annotation = reduce(or_, parameters)
    return union


def _is_sequence_of(item_type: Annotation, value: object) -> bool:
    if isinstance(value, str):
        return item_type in (str, Any, object)
    if isinstance(value, (np.ndarray, ArrayBase)):
        if not any(_kind_of(each) is _INTEGER for each in _list_members(item_type)):
            return value.ndim > 0
        if isinstance(value, ArrayBase):
            return value.ndim == 1 and value.abstract.type.dtype in INTEGERS
        return value.ndim == 1 and np.issubdtype(value.dtype, np.integer)
    if isinstance(value, (list, tuple, AbstractSet)):
        return all(find_misfit(item_type, item) is None for item in value)
    return isinstance(value, Iterable) and not isinstance(value, (bytes, type, Mapping))


def _join_alternatives(members: Iterable[Annotation], plural: bool = False) -> str:
    """Return the text of a union, for example "an integer, a sequence of integers or None"."""
    parts = [part for each in members for part in _describe(each, plural).split(", ")]
    texts = sorted(dict.fromkeys(parts), key=lambda text: text == "None")
    return " or ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _describe(member: Annotation, plural: bool) -> str:
    kind = _kind_of(member)
    if kind is not None:
        return kind.plural if plural else kind.singular
    origin, parameters = get_origin(member), get_args(member)
    if origin is Literal:
        return ", ".join(map(repr, parameters))
    if origin is tuple and parameters[-1:] != (...,):
        return _describe_tuple(parameters, plural)
    item_type = _item_type(member)
    if item_type is not None:
        name = "sequences" if plural else "a sequence"
        if item_type in (Any, object):
            return name
        return f"{name} of {_join_alternatives(_list_members(item_type), plural=True)}"
    described = origin or member
    if isinstance(described, type):
        return _describe_class(described, plural)
    return "objects" if plural else "an object"


def _describe_tuple(parameters: tuple[Annotation, ...], plural: bool) -> str:
    """Return the text of a tuple of a fixed length, for example "a pair of integers"."""
    if len(parameters) == 2:
        name = "pairs" if plural else "a pair"
    else:
        name = "tuples" if plural else f"a tuple of {len(parameters)} items"
    if len(set(parameters)) > 1 or len(parameters) != 2:
        return name
    return f"{name} of {_join_alternatives(_list_members(parameters[0]), plural=True)}"


def _describe_class(kind: type, plural: bool) -> str:
    name = kind.__name__
    if issubclass(kind, Mapping):
        return "dictionaries" if plural else "a dictionary"
    if issubclass(kind, Enum):
        return f"members of {name}" if plural else f"a member of {name}"
    if plural:
        return f"{name} objects"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
