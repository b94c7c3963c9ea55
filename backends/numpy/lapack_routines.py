"""Find the functions of the LAPACK that NumPy is linked with.

NumPy links a LAPACK for its own decompositions, and offers no interface to its functions. Wheels
prefix the names of the functions and, where integers have 64 bits, append a suffix.
"""

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import _umath_linalg

SYMBOL_PATTERNS = (("scipy_{}_64_", np.int64), ("{}_64_", np.int64), ("scipy_{}_", np.int32))
LAPACK_SYMBOL_PREFIX = "lapack_"
"""The prefix of these functions in native code: `lapack_dsyevd`."""


class LapackRoutine(NamedTuple):
    """A function of LAPACK, and its integer type."""

    call: Callable[..., object]
    integer: type[np.signedinteger[Any]]


@cache
def find_routine(name: str) -> LapackRoutine | None:
    """Return a function of LAPACK; `None` if NumPy's library does not export it."""
    try:
        library = ctypes.CDLL(_umath_linalg.__file__)
    except OSError:
        return None
    for pattern, integer in SYMBOL_PATTERNS:
        found = getattr(library, pattern.format(name), None)
        if found is not None:
            found.restype = None
            return LapackRoutine(found, integer)
    return None


def routine_addresses(symbols: Iterable[str]) -> dict[str, int]:
    """Return the addresses of the LAPACK functions among `symbols`; other symbols are left out."""
    found = {}
    for symbol in symbols:
        found_routine = (
            find_routine(symbol.removeprefix(LAPACK_SYMBOL_PREFIX))
            if symbol.startswith(LAPACK_SYMBOL_PREFIX)
            else None
        )
        if found_routine is not None:
            found[symbol] = ctypes.cast(found_routine.call, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    return found
