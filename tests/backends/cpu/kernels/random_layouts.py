"""Arrays that lie in memory in any way."""

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from shardir.ir.types import NUMPY_DTYPES

Array = npt.NDArray[Any]


def array(shape: Any, dtype: Any, seed: int = 0) -> Array:
    """Small different numbers of a NumPy element type."""
    numbers = np.random.default_rng(seed).integers(0, 200, tuple(shape))
    return np.asarray(numbers.astype(dtype))


@st.composite
def laid_out(draw: st.DrawFn, x: Array, repeated: bool = False) -> Array:
    """The numbers of `x` in memory of any order of dimensions, with gaps and turned around.

    With `repeated`, some dimensions may repeat their first element, and the numbers change.
    """
    order = draw(st.permutations(range(x.ndim)))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1]), min_size=x.ndim, max_size=x.ndim))
    gap = draw(st.sampled_from([0, 0, 3]))
    room = [n * abs(step) + gap for n, step in zip(x.shape, steps, strict=True)]
    memory = np.zeros([room[d] for d in order], x.dtype)
    view = np.transpose(memory, [order.index(d) for d in range(x.ndim)])
    pairs = list(zip(x.shape, steps, strict=True))
    within: Any = (*(slice(0, n * abs(step), abs(step)) for n, step in pairs), ...)
    turned: Any = (*(slice(None, None, 1 if step > 0 else -1) for step in steps), ...)
    view = view[within][turned]
    assert view.shape == x.shape
    view[...] = x
    if repeated and draw(st.booleans()):
        for d in range(x.ndim):
            if draw(st.booleans()):
                first = tuple(slice(0, 1) if i == d else slice(None) for i in range(x.ndim))
                view = np.broadcast_to(view[first], x.shape)
    return view


def random_of(dtype: str, shape: Any, seed: int = 0) -> Array:
    """Any bits that are numbers of the IR's element type, special ones too."""
    rng = np.random.default_rng(seed)
    to = NUMPY_DTYPES[dtype]
    shape = tuple(shape)
    if to.kind == "c":
        made: Array = (rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)).astype(to)
        return made
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
