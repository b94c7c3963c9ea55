"""Whether two programs compute the same: arguments to try, and how near results must be.

Programs that add in another order differ in their last digits. How much that may be depends on
the narrowest type a program computes in. A comparison, a rounding or a division by almost nothing
can make much of a last digit, so results that differ count only where the program is steady:
where arguments that differ as little give nearly the same results.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.interpret import run
from shardir.ir import Module, Value

Array = npt.NDArray[Any]

ROUNDING = {"bf16": 1e-1, "f16": 2e-2, "f32": 2e-4, "c64": 2e-4, "f64": 1e-9, "c128": 1e-9}
"""How far results may differ, relative to the largest, when sums are taken in another order."""


def rounding(module: Module) -> float:
    """The tolerance for the narrowest type that the first function computes in."""
    dtypes = {value.type.dtype for value in _values(module)}
    return max((by for dtype, by in ROUNDING.items() if dtype in dtypes), default=0.0)


def _values(module: Module) -> Iterator[Value]:
    yield from module.main.body.params
    for op in module.main.body.walk():
        yield from op.tensors


def distance(want: Array, got: Array, tolerance: float) -> float:
    """How far two arrays are apart, in units of what is tolerated: more than 1 is too far.

    Whole numbers and bools must be equal; NaN is equal to NaN.
    """
    if want.dtype.kind in "biu":
        return 0.0 if np.array_equal(want, got) else np.inf
    with np.errstate(all="ignore"):  # Of NaNs that signal, NumPy warns when they are widened.
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(a[np.isfinite(a)])
        gap = np.where(same, 0.0, np.abs(a - b)) / (tolerance * finite.max(initial=1.0) or 1e-300)
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))


def agree(want: Sequence[Array], got: Sequence[Array], tolerance: float) -> bool:
    """Whether all arrays are as near as is tolerated."""
    return all(distance(a, b, tolerance) <= 1 for a, b in zip(want, got, strict=True))


def steady(
    module: Module, arguments: Sequence[Array], want: Sequence[Array], tolerance: float
) -> bool:
    """Whether arguments that differ in their last digits give results near `want`."""
    shaken = ([_shaken(x, tolerance, seed) for x in arguments] for seed in range(1, 6))
    return all(agree(want, run(module, moved), tolerance) for moved in shaken)


def _shaken(x: Array, tolerance: float, seed: int) -> Array:
    if x.dtype.kind in "biu":
        return x
    noise = np.random.default_rng(seed).uniform(-1, 1, x.shape)
    return np.asarray(x * (1 + tolerance / 10 * noise)).astype(x.dtype)
