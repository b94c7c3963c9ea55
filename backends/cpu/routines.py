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

NAMES = (("scipy_{}_64_", np.int64), ("{}_64_", np.int64), ("scipy_{}_", np.int32))
PREFIX = "lapack_"
"""The prefix of these functions in native code: `lapack_dsyevd`."""


class Routine(NamedTuple):
    """A function of LAPACK, and its integer type."""

    call: Callable[..., Any]
    integer: type[np.signedinteger[Any]]


@cache
def routine(name: str) -> Routine | None:
    """Return a function of LAPACK; `None` if NumPy's library does not export it."""
    try:
        library = ctypes.CDLL(_umath_linalg.__file__)
    except OSError:
        return None
    for pattern, integer in NAMES:
        found = getattr(library, pattern.format(name), None)
        if found is not None:
            found.restype = None
            return Routine(found, integer)
    return None


def addresses(symbols: Iterable[str]) -> dict[str, int]:
    """Return the addresses of the LAPACK functions among `symbols`; other symbols are left out."""
    found = {}
    for symbol in symbols:
        found_routine = routine(symbol.removeprefix(PREFIX)) if symbol.startswith(PREFIX) else None
        if found_routine is not None:
            found[symbol] = ctypes.cast(found_routine.call, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    return found
