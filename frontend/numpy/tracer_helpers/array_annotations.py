"""Annotations of functions of the namespaces whose arguments are sequences of arrays, and whose
results are arrays; see `frontend/arrays/array_types.py`.
"""

from collections.abc import Sequence
from typing import TypeAlias, cast

from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import NumpyArray

ArraySequence: TypeAlias = Sequence[ArrayLike] | Operators | NumpyArray
"""Several arrays; one array is the sequence of its slices along the first dimension."""


def as_result(array: Array) -> Tracer:
    """Return `array`, with the type that results of a function have inside of a trace."""
    return cast(Tracer, array)
