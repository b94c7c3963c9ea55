"""Numeric comparison of program results, with tolerances for reordered sums.

Programs that sum in a different order differ by rounding errors, whose size depends on the
narrowest type that the program uses. Comparisons, roundings and ill-conditioned divisions can
amplify them, so a difference counts only where the program is numerically stable: where slightly
perturbed arguments give nearly the same results.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from shardir.interpret.interpreter import run
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.module import Module, Value
from shardir.ir.types import NumpyArray

Array = NumpyArray

RELATIVE_TOLERANCES = {name: info.tolerance for name, info in DTYPE_INFO.items() if info.tolerance}


def tolerance_of(module: Module) -> float:
    """Return the tolerance for the narrowest type in the first function."""
    dtypes = {value.type.dtype for value in _values(module)}
    return max((by for dtype, by in RELATIVE_TOLERANCES.items() if dtype in dtypes), default=0.0)


def _values(module: Module) -> Iterator[Value]:
    yield from module.main.body.params
    for op in module.main.body.walk():
        yield from op.tensors


def _is_exact(x: Array) -> bool:
    """Return whether the elements are never rounded: bools, integers and keys."""
    return x.dtype.kind in "biu" or _has_keys_of_four_words(x)


def _has_keys_of_four_words(x: Array) -> bool:
    # The kind of an extension float is that of void elements, too.
    return x.dtype.type is np.void


def relative_distance(want: Array, got: Array, tolerance: float) -> float:
    """Return the distance of two arrays in units of the tolerance: above 1 they disagree.

    Integers, bools and keys must be equal; NaN equals NaN.
    """
    if _is_exact(want):
        return 0.0 if np.array_equal(want, got) else np.inf
    # NumPy warns when signaling NaNs are converted to a wider type.
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        finite = np.abs(a[np.isfinite(a)])
        gap = np.where(same, 0.0, np.abs(a - b)) / (tolerance * finite.max(initial=1.0) or 1e-300)
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))


def describe_type_difference(want: Sequence[Array], got: Sequence[Array]) -> str:
    """Return how the number or the types of results differ, or an empty text."""
    if _array_types(want) == _array_types(got):
        return ""
    return f"the results have the types {_show_types(got)} instead of {_show_types(want)}"


def _array_types(arrays: Sequence[Array]) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(array.dtype), array.shape) for array in arrays]


def _show_types(arrays: Sequence[Array]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in _array_types(arrays)) or "()"


def describe_largest_difference(want: Array, got: Array) -> str:
    """Return the largest difference of two arrays, its index, and both elements.

    Of two arrays of keys of four words, return the first keys that differ.
    """
    if _has_keys_of_four_words(want):
        different = np.asarray(want != got)
        index = np.unravel_index(int(np.argmax(different)), different.shape)
        at = [int(p) for p in index]
        words = [x[index].tobytes().hex() for x in (want, got)]
        return f"at {at}, where the key of bytes {words[0]} became {words[1]}"
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (want, got))
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    gap = np.where(np.isnan(gap), np.inf, gap)
    index = np.unravel_index(int(np.argmax(gap)), gap.shape) if gap.ndim else ()
    where = f" at {[int(p) for p in index]}" if index else ""
    return f"by up to {gap.max():.3g}{where}, where {a[index]:.6g} became {b[index]:.6g}"


def are_close(want: Sequence[Array], got: Sequence[Array], tolerance: float) -> bool:
    """Return whether all arrays agree within the tolerance."""
    return all(relative_distance(a, b, tolerance) <= 1 for a, b in zip(want, got, strict=True))


def is_stable(
    module: Module, arguments: Sequence[Array], want: Sequence[Array], tolerance: float
) -> bool:
    """Return whether slightly perturbed arguments give results near `want`."""
    shaken = ([_perturb(x, tolerance, seed) for x in arguments] for seed in range(1, 6))
    return all(are_close(want, run(module, moved), tolerance) for moved in shaken)


def _perturb(x: Array, tolerance: float, seed: int) -> Array:
    if _is_exact(x):
        return x
    noise = np.random.default_rng(seed).uniform(-1, 1, x.shape)
    return np.asarray(x * (1 + tolerance / 10 * noise)).astype(x.dtype)
