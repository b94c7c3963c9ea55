"""Functions of two arrays return the dtypes of JAX for pairs of dtypes, over the whole namespace.

The test evaluates abstractly every public function of `numpy`, `lax`, `nn` and `scipy.special` that
JAX accepts with two vectors, in both settings of `enable_x64`. Intended differences are rules:
shardir accepts more operands than JAX, some of its functions refuse complex numbers, and results of
Python numbers keep their weak type; `UNORDERED`, `REAL`, `STATIC`, `INTEGRAL`, `EDGES` and
`PROMOTED` name the functions.
"""

import inspect
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shardir.frontend.config import enable_x64
from shardir.ir.types import NUMPY_DTYPES
from tests.dtype_table import NUMBERS, WEAK, Library, columns, dtype_word

pytestmark = [pytest.mark.long, pytest.mark.needs("jax")]

NAMESPACES = ("snp", "lax", "nn", "special")
PAIRS_PER_FUNCTION = 24
COMPLEX = ("c64", "c128", "1j")
BOOLS = ("bool", "True")
UNORDERED = {
    "arctan2", "atan2", "celu", "digitize", "elu", "histogram", "histogram_bin_edges",
    "histogram2d", "searchsorted", "clip",
}  # fmt: skip
"""Functions that refuse complex numbers, where JAX orders them."""
REAL = {"boxcox", "boxcox1p", "owens_t"}
"""Functions that refuse complex numbers as SciPy does, where JAX computes a value."""
STATIC = {"roll", "take", "dot", "select_n"}
"""Functions that refuse operands which JAX converts to integers or ignores, or sums of bools."""
INTEGRAL = {"unravel_index"}
"""Functions of indices and sizes: they refuse floats and bools, and their results are integers
where those of JAX are floats."""
EDGES = {"histogram", "histogram_bin_edges"}
"""Functions whose edges keep their own float dtype where JAX uses that of the data."""
PROMOTED = {"owens_t": "xlogy"}
"""Functions that promote their operands like this function of JAX, where JAX uses the default float
type."""


def functions() -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """Yield the name of each function of two vectors, the function of JAX and that of shardir."""
    theirs, ours = Library("jax"), Library("shardir")
    for namespace in NAMESPACES:
        module = theirs.names[namespace]
        for name in sorted(dir(module)):
            function = getattr(module, PROMOTED.get(name, name))
            own = getattr(ours.names[namespace], name, None)
            if name.startswith("_") or own is None or not callable(function):
                continue
            if inspect.isclass(function):
                continue
            if any(
                dtypes(theirs, function, each, each) not in ("-", "nothing")
                for each in ("i32", "f32")
            ):
                yield f"{namespace}.{name}", function, own


def dtypes(library: Library, function: Callable[..., Any], first: str, second: str) -> str:
    """Return the dtypes of the results for operands of two columns, `-` for an error."""
    known = {i: NUMBERS[c] for i, c in enumerate((first, second)) if c in NUMBERS}
    arrays = {
        i: library.top.ShapeDtypeStruct((4,), NUMPY_DTYPES[c])
        for i, c in enumerate((first, second))
        if c not in NUMBERS
    }

    def evaluate(arrays: dict[int, Any]) -> Any:
        both = {**known, **arrays}
        return function(both[0], both[1])

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = library.top.eval_shape(evaluate, arrays)
    except Exception:
        return "-"
    return ",".join(map(dtype_word, library.top.tree.leaves(found))) or "nothing"


def is_intended(name: str, pair: tuple[str, str], expected: str, found: str) -> bool:
    """Return whether a difference follows from the stated rules."""
    short = name.partition(".")[2]
    if expected == "-":
        return True  # More operands are accepted.
    is_float = expected.startswith(("f", "bf"))
    if found == "-":
        return (
            short in STATIC
            or (short in UNORDERED | REAL and any(each in COMPLEX for each in pair))
            or (short in INTEGRAL and (is_float or any(each in BOOLS for each in pair)))
        )
    # u64 and a signed type have no common integer type; JAX marks some of these floats as weak.
    if any(each in NUMBERS or each == "u64" for each in pair) and found.replace(
        "*", ""
    ) == expected.replace("*", ""):
        return True
    return short in EDGES or (short in INTEGRAL and is_float)


@pytest.mark.parametrize("mode", ["x32", "x64"])
def test_functions_of_two_arrays_have_the_dtypes_of_jax(mode: str) -> None:
    theirs, ours = Library("jax"), Library("shardir")
    chooser, wrong = random.Random(int(np.frombuffer(mode.encode(), np.uint8).sum())), []
    with theirs.top.enable_x64(mode == "x64"), enable_x64(mode == "x64"):
        names = [name for name in columns(mode) if name not in WEAK]
        pairs = [
            (first, second)
            for first in names
            for second in names
            if not (first in NUMBERS and second in NUMBERS)
        ]
        for name, function, own in functions():
            for pair in chooser.sample(pairs, PAIRS_PER_FUNCTION):
                expected, found = dtypes(theirs, function, *pair), dtypes(ours, own, *pair)
                if expected != found and not is_intended(name, pair, expected, found):
                    wrong.append((name, *pair, expected, found))
    assert not wrong
