"""The dtypes of expressions of the namespaces, here and in JAX.

`tests/data/dtypes.json` has, for both settings of `enable_x64` and for each expression, the dtypes
that JAX 0.10.2 returns where `x` has the dtypes of the columns. `*` marks weak types, `,` separates
several results, `-` is an error, and `.` is not evaluated. `python -m tests.dtype_table` writes the
dtypes of JAX for all expressions in the file, including new expressions without columns.

In an expression `x` is a vector of four elements, `m` a matrix of three rows and columns, and `t` a
scalar array of the column's dtype; for the columns `True`, `1`, `1.0` and `1j`, `x` is that number.
For the columns `int`, `float` and `complex` these arrays are weakly typed, with the default
dtype of these Python types.
"""

import importlib
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shardir.ir.dtypes import KEYS
from shardir.ir.types import NUMPY_DTYPES
from tests.dtype_groups import DTYPES

FILE = Path(__file__).parent / "data" / "dtypes.json"
NUMBERS: dict[str, Any] = {"True": True, "1": 1, "1.0": 1.0, "1j": 1j}
NARROWED = ("u64", "i64", "f64", "c128")
WEAK = {"int": ("i32", "i64"), "float": ("f32", "f64"), "complex": ("c64", "c128")}
"""The dtypes of weakly typed arrays without `enable_x64` and with it."""
COLUMNS = [*(name for name in DTYPES if name not in KEYS), *NUMBERS, *WEAK]
MODULES = {
    "snp": "numpy",
    "lax": "lax",
    "nn": "nn",
    "special": "scipy.special",
    "linalg": "scipy.linalg",
    "random": "random",
}


def columns(mode: str) -> list[str]:
    """Return the dtypes and Python numbers of the columns in a mode, "x32" or "x64"."""
    return [name for name in COLUMNS if mode == "x64" or name not in NARROWED]


def needs_arrays(expression: str) -> bool:
    """Return whether an expression reads `m` or `t`, which do not exist for Python numbers."""
    return bool(re.search(r"\b[mt]\b", expression))


class Library:
    """`jax` or `shardir`, and the modules that expressions use."""

    def __init__(self, name: str) -> None:
        self.top: Any = importlib.import_module(name)
        self.names = {
            word: importlib.import_module(f"{name}.{path}") for word, path in MODULES.items()
        }
        importlib.import_module(f"{name}.lax.linalg")
        self.names["np"] = np
        self.names["segment"] = self.top.ops.segment_sum if name == "jax" else self.top.segment_sum

    def is_x64(self) -> bool:
        """Return whether the default dtypes have 64 bits."""
        return bool(self.names["snp"].asarray(1).dtype == np.int64)

    def types(self, expression: str, column: str) -> str:
        """Return the dtypes of the results of an expression, `-` for an error, or `nothing`."""
        if column in NUMBERS:
            arrays = {"x": NUMBERS[column]}
        else:
            is_weak = column in WEAK
            name = WEAK[column][self.is_x64()] if is_weak else column
            shapes: dict[str, tuple[int, ...]] = {"x": (4,), "m": (3, 3), "t": ()}
            arrays = {
                word: self.top.ShapeDtypeStruct(shape, NUMPY_DTYPES[name], weak_type=is_weak)
                for word, shape in shapes.items()
            }
        others: list[str] = []

        def evaluate(arrays: Any) -> Any:
            found = eval(expression, {**self.names, **arrays})
            leaves = self.top.tree.leaves(found)
            others.extend(dtype_word(leaf) for leaf in leaves if not _is_array(leaf))
            return [leaf for leaf in leaves if _is_array(leaf)]

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.top.eval_shape(evaluate, arrays)
        except Exception:
            return "-"
        return ",".join([*map(dtype_word, found), *others]) or "nothing"


def _is_array(x: Any) -> bool:
    return hasattr(x, "dtype") and hasattr(x, "shape") and not isinstance(x, (np.dtype, type))


def dtype_word(x: Any) -> str:
    """Return the name of the dtype of a result, with `*` if it is weakly typed."""
    names = {dtype: name for name, dtype in NUMPY_DTYPES.items() if name not in KEYS}
    if isinstance(x, np.dtype):
        return f"d:{names.get(x, x)}"
    if not _is_array(x):
        return type(x).__name__
    name = names.get(x.dtype, str(x.dtype))
    # Bools are never weakly typed in this package, so the mark is ignored.
    return name + ("*" if getattr(x, "weak_type", False) and name != "bool" else "")


def rows(library: Library, expressions: list[str], mode: str) -> Iterator[tuple[str, str]]:
    """Yield each expression and its row in the current mode."""
    for expression in expressions:
        words = [
            "." if column in NUMBERS and needs_arrays(expression)
            else library.types(expression, column)
            for column in columns(mode)
        ]  # fmt: skip
        yield expression, " ".join(words)


def main() -> None:
    table = json.loads(FILE.read_text("utf-8"))
    library = Library("jax")
    for mode in ("x32", "x64"):
        with library.top.enable_x64(mode == "x64"):
            table[mode] = dict(rows(library, list(table[mode]), mode))
    FILE.write_text(json.dumps(table, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
