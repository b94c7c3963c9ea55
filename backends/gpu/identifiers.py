"""Names in emitted programs: a value keeps its name in the IR where it is valid in Python."""

import builtins
import keyword
import re
import sys
from collections.abc import Iterable

from shardir.ir.module import Value

_WORD = re.compile(r"[^A-Za-z0-9_]+")
_COPY = re.compile(r"(?<=.)\.\d+$")
_FUNCTION_PREFIXES = ("compute_", "constant_", "stage_")
"""Prefixes of the functions that a program defines."""


def make_identifier(name: str) -> str:
    """Return a name of the IR as a Python identifier: `h.1` becomes `h_1`, `0` becomes `v0`."""
    word = _WORD.sub("_", name) or "value"
    return f"v{word}" if word[0].isdigit() else word


def make_file_name(title: str) -> str:
    """Return the file name of a program: importable, and different from imported packages."""
    word = make_identifier(title)
    taken = {*sys.stdlib_module_names, "torch", "triton", "numpy", "sympy", "networkx"}
    taken.update(keyword.kwlist)
    return f"{word}_program.py" if word in taken else f"{word}.py"


class FunctionNames:
    """Unique names of the values of one function, distinct from all other names in the program."""

    def __init__(self, taken: Iterable[str] = (), inner: bool = False) -> None:
        """Reserve the names `taken`; with `inner`, drop the copy numbers of the values' names."""
        self.taken, self._inner = frozenset(taken), inner
        self._foreign = frozenset((*self.taken, *keyword.kwlist, *dir(builtins)))
        self._used = set(self._foreign)
        self._names: dict[Value, str] = {}

    def __getitem__(self, value: Value) -> str:
        """Return the name of a value, choosing one at first use."""
        if value not in self._names:
            name = _COPY.sub("", value.name) if self._inner else value.name
            self._names[value] = self.make_fresh(name)
        return self._names[value]

    def alias(self, value: Value, as_: Value) -> None:
        """Make `value` an alias of `as_`."""
        self._names[value] = self[as_]

    def name_after(self, value: Value, base: str) -> None:
        """Name a value after `base` if it has no name."""
        if value not in self._names:
            self._names[value] = self.make_fresh(base)

    def make_fresh(self, base: str) -> str:
        """Return an unused name for a value, derived from `base`."""
        word = make_identifier(base)
        if word in self._foreign:
            word += "_"
        return self.reserve(f"v_{word}" if word.startswith(_FUNCTION_PREFIXES) else word)

    def reserve(self, base: str) -> str:
        """Return and reserve `base`, with a number appended if it is in use."""
        name, number = base, 2
        while name in self._used:
            name, number = f"{base}_{number}", number + 1
        self._used.add(name)
        return name
