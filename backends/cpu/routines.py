"""The functions of the LAPACK that NumPy brings with it.

NumPy links a LAPACK for its own decompositions, and gives nobody else a way to call it. Wheels
name its functions with a prefix and, where integers have 64 bits, a suffix.
"""

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import _umath_linalg

NAMES = (("scipy_{}_64_", np.int64), ("{}_64_", np.int64), ("scipy_{}_", np.int32))
PREFIX = "lapack_"
"""What machine code calls them: `lapack_dsyevd`."""


class Routine(NamedTuple):
    """A function of LAPACK, and the type of its integers."""

    call: Callable[..., Any]
    integer: type[np.signedinteger[Any]]


@cache
def routine(name: str) -> Routine | None:
    """A function of LAPACK; `None` where it cannot be found."""
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
    """Where those functions are that machine code calls by such symbols; others are left out."""
    found = {}
    for symbol in symbols:
        known = routine(symbol.removeprefix(PREFIX)) if symbol.startswith(PREFIX) else None
        if known is not None:
            found[symbol] = ctypes.cast(known.call, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    return found
