"""Arrays with random elements and random memory layouts."""

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from shardir.ir.types import NUMPY_DTYPES

Array = npt.NDArray[Any]


def integer_array(shape: Any, dtype: Any, seed: int = 0) -> Array:
    """Return random small integers of a NumPy element type."""
    numbers = np.random.default_rng(seed).integers(0, 200, tuple(shape))
    return np.asarray(numbers.astype(dtype))


@st.composite
def random_layout(draw: st.DrawFn, x: Array, repeated: bool = False) -> Array:
    """Draw a layout of the elements of `x`: any dimension order, gaps and reversed dimensions.

    With `repeated`, some dimensions may be broadcast from their first element, which changes the
    elements.
    """
    order = draw(st.permutations(range(x.ndim)))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1]), min_size=x.ndim, max_size=x.ndim))
    gap = draw(st.sampled_from([0, 0, 3]))
    sizes_with_gaps = [n * abs(step) + gap for n, step in zip(x.shape, steps, strict=True)]
    memory = np.zeros([sizes_with_gaps[d] for d in order], x.dtype)
    view = np.transpose(memory, [order.index(d) for d in range(x.ndim)])
    pairs = list(zip(x.shape, steps, strict=True))
    interior: Any = (*(slice(0, n * abs(step), abs(step)) for n, step in pairs), ...)
    reversed_dims: Any = (*(slice(None, None, 1 if step > 0 else -1) for step in steps), ...)
    view = view[interior][reversed_dims]
    assert view.shape == x.shape
    view[...] = x
    if repeated and draw(st.booleans()):
        for d in range(x.ndim):
            if draw(st.booleans()):
                first = tuple(slice(0, 1) if i == d else slice(None) for i in range(x.ndim))
                view = np.broadcast_to(view[first], x.shape)
    return view


def random_array(dtype: str, shape: Any, seed: int = 0) -> Array:
    """Return random valid elements of an IR element type, including special values."""
    rng = np.random.default_rng(seed)
    to = NUMPY_DTYPES[dtype]
    shape = tuple(shape)
    if to.kind == "c":
        complex_elements: Array = (
            rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)
        ).astype(to)
        return complex_elements
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(to))
    if to.kind in "iu":
        low, high = max(np.iinfo(to).min, -100), 100
        return np.asarray(rng.integers(low, high, shape).astype(to))
    specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])
    numbers = np.where(
        rng.random(shape) < 0.2, rng.choice(specials, shape), rng.standard_normal(shape)
    )
    return np.asarray(numbers.astype(to))
