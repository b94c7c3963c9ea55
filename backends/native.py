"""The native tier of dispatch, or Python classes in its place where it is not installed.

    if native is not None: native.flatten(args, options)

`native` is the C extension `_native`. It is `None` where the package was installed without a C
compiler, on free-threaded builds of Python, and with the environment variable
`SHARDIR_NATIVE_DISPATCH=0`. Python code then runs every call, with the same results. The setting
`native_dispatch` of `shardir.frontend.config` shows and validates that variable.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

FALSE_WORDS = frozenset({"0", "false", "off", "no"})
"""The words for `False` in environment variables, in lower case."""

if TYPE_CHECKING:
    import shardir.backends._native as native
    from shardir.backends._native import (
        ArrayFields as ArrayFields,
        BlockFields as BlockFields,
        StorageFields as StorageFields,
    )
else:
    native = None
    if os.environ.get("SHARDIR_NATIVE_DISPATCH", "").lower() not in FALSE_WORDS:
        with suppress(ImportError):
            import shardir.backends._native as native
    if native is not None:
        ArrayFields, BlockFields = native.ArrayFields, native.BlockFields
        StorageFields = native.StorageFields
    else:

        class ArrayFields:
            """The fields of an array."""

            # `help` shows the values as the docstrings of the fields.
            __slots__ = {
                "__weakref__": None,
                "_gone": None,
                "_parts": None,
                "_whole": None,
                "buffers": "The allocation of all elements, or the buffer of each device; `None` "
                "once the array is deleted or donated.",
                "sharding": "The sharding: the devices of the array, and the shard on each of "
                "them.",
                "signature": "The abstract value with the sharding, by which compiled programs are "
                "found.",
            }

        class BlockFields:
            """The fields of a block of memory."""

            __slots__ = ("address", "nbytes")

        class StorageFields:
            """The fields of a storage."""

            __slots__ = ("_array", "address", "dtype", "owner", "shape")


__all__ = [
    "FALSE_WORDS",
    "ArrayFields",
    "BlockFields",
    "StorageFields",
    "has_call_cache",
    "native",
    "vectorcall_class",
]

Class = TypeVar("Class", bound=type)

_EXCLUDED_MEMBERS = "__dict__", "__weakref__", "__get__"


def vectorcall_class(kind: Class) -> Class:
    """Return the class with a `call_cache` for each object, which is `None` at first.

    With a `native.CallCache`, cache hits run no Python code; a cache miss runs `__call__`. Without
    the native tier the class itself is returned. It must have no other base and no slots; its
    objects become methods in class bodies.
    """
    if native is None:
        kind.call_cache = None
        return kind
    result = native.make_callable_type(f"{kind.__module__}.{kind.__qualname__}")
    for name, value in vars(kind).items():
        if name not in _EXCLUDED_MEMBERS:
            setattr(result, "_call_slow" if name == "__call__" else name, value)
    made: Class = result
    return made


def has_call_cache(value: object) -> bool:
    """Return whether an object is of a `vectorcall_class` with the native tier."""
    return native is not None and hasattr(type(value), "_call_slow")
