"""Names of emitted programs: a value keeps its own, as far as Python can say it."""

import builtins
import keyword
import re
import sys
from collections.abc import Iterable

from shardir.ir.module import Value

_WORD = re.compile(r"[^A-Za-z0-9_]+")
_COPY = re.compile(r"(?<=.)\.\d+$")
_FUNCTIONS = ("compute_", "constant_")
"""How the names of functions begin that a program defines for itself."""


def identifier(name: str) -> str:
    """A name of the IR as a Python identifier: `h.1` is `h_1`, `0` is `v0`."""
    word = _WORD.sub("_", name) or "value"
    return f"v{word}" if word[0].isdigit() else word


def file_name(title: str) -> str:
    """What the file of a program is called: so that it can be imported, and hides no other."""
    word = identifier(title)
    taken = {*sys.stdlib_module_names, "torch", "triton", "numpy", "sympy", "networkx"}
    taken.update(keyword.kwlist)
    return f"{word}_program.py" if word in taken else f"{word}.py"


class Names:
    """The names of one function: no two values have one, nor what the program uses otherwise."""

    def __init__(self, taken: Iterable[str] = (), inner: bool = False) -> None:
        """`inner` values are called as those outside, of which they are numbered copies."""
        self.taken, self._inner = frozenset(taken), inner
        self._foreign = frozenset((*self.taken, *keyword.kwlist, *dir(builtins)))
        self._used = set(self._foreign)
        self._of: dict[Value, str] = {}

    def __getitem__(self, value: Value) -> str:
        """The name of a value, which it gets when it is asked for first."""
        if value not in self._of:
            name = _COPY.sub("", value.name) if self._inner else value.name
            self._of[value] = self.fresh(name)
        return self._of[value]

    def same(self, value: Value, as_: Value) -> None:
        """From now on a value is the other one."""
        self._of[value] = self[as_]

    def call(self, value: Value, wish: str) -> None:
        """Give a value a name of this kind, if it has none."""
        if value not in self._of:
            self._of[value] = self.fresh(wish)

    def fresh(self, wish: str) -> str:
        """A name for a value, that nothing has yet."""
        word = identifier(wish)
        if word in self._foreign:
            word += "_"
        return self.reserved(f"v_{word}" if word.startswith(_FUNCTIONS) else word)

    def reserved(self, wish: str) -> str:
        """A name, or that with a number, that nothing has yet."""
        name, number = wish, 2
        while name in self._used:
            name, number = f"{wish}_{number}", number + 1
        self._used.add(name)
        return name
