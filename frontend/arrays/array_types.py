"""Types of the arguments of public functions, named as in `jax.typing`.

A function that is decorated with `public` states the types that it has inside of a trace: it
accepts everything that `as_tracer` converts, and returns tracers. Outside of a trace the same
function returns arrays, which have the same operators and methods.
"""

from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

import numpy.typing as npt

from shardir.frontend.arrays.abstract_value import ArrayBase
from shardir.frontend.tracing.promotion import KeyType

ArrayLike: TypeAlias = ArrayBase | npt.ArrayLike | Sequence["ArrayLike"]
"""Arrays, tracers, everything that NumPy converts to an array, and nested lists of these."""

DTypeLike: TypeAlias = npt.DTypeLike | KeyType
"""Element types: names, NumPy's and Python's types, the type of random keys."""

ShapeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
"""A shape; one integer is a shape of one dimension."""

AxisLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
"""One or several axes; `None` is all axes."""
