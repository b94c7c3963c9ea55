"""Faces: modules of public names, each imported when it is first asked for.

`import shardir` must be quick and the core must import no sibling, so a face holds only text: for
each name the module that defines it. Type checkers and editors read the imports that stand beside
the table under `if TYPE_CHECKING`; `tests/test_face.py` keeps the two the same.
"""

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module

from shardir.errors import ShardirError


class UnknownName(ShardirError, AttributeError):
    """A face has no such name."""


class MissingModule(ShardirError, ModuleNotFoundError):
    """Functions of JAX's that have no names here, though they can be called."""


ELSEWHERE = {
    "shardir.image": "jax.image",
    "shardir.scipy.ndimage": "jax.scipy.ndimage",
    "shardir.scipy.optimize": "jax.scipy.optimize",
    "shardir.scipy.signal": "jax.scipy.signal",
}
"""What stands nearest to modules that are not here. Each is a file that says so."""


def missing_module(name: str) -> MissingModule:
    """The error for a module of `ELSEWHERE`."""
    return MissingModule(f"there is no {name}; {_nearest(name)}")


def _nearest(name: str) -> str:
    return f"call the functions of {ELSEWHERE[name]} through shardir.interop.jax.from_jax"


Face = tuple[Callable[[str], object], Callable[[], list[str]]]
"""What a module needs to be one: its `__getattr__` and its `__dir__` (PEP 562)."""


def lazy_names(face: str, table: Mapping[str, tuple[str, ...]]) -> Face:
    """The face whose `table` lists, for each module, the names that it lends.

    A module that lends nothing but itself stands with no names.
    """
    homes = {name: module for module, names in table.items() for name in names}
    submodules = {module.rpartition(".")[2]: module for module in table if not table[module]}

    def lookup(name: str) -> object:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif name in submodules:
            value = import_module(submodules[name])
        else:
            raise _unknown(face, name, [*homes, *submodules])
        setattr(sys.modules[face], name, value)
        return value

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[face]), *homes, *submodules})

    return lookup, listing


def lazy_module(face: str, home: str) -> Face:
    """The face that shows every public name of the module `home`."""

    def lookup(name: str) -> object:
        # Of the names that Python itself asks for, only those of the Array API standard are lent.
        if name.startswith("__") and name != "__all__" and not name.startswith("__array_"):
            raise _unknown(face, name, [])
        module = import_module(home)
        try:
            value = getattr(module, name)
        except AttributeError:
            raise _unknown(face, name, dir(module)) from None
        setattr(sys.modules[face], name, value)
        return value

    def listing() -> list[str]:
        module = import_module(home)
        return sorted({*vars(sys.modules[face]), *getattr(module, "__all__", dir(module))})

    return lookup, listing


def _unknown(face: str, name: str, known: list[str]) -> UnknownName:
    whole = f"{face}.{name}"
    if whole in ELSEWHERE:
        return UnknownName(f"{face} has no name {name!r}; {_nearest(whole)}")
    close = get_close_matches(name, known, 1)
    return UnknownName(
        f"{face} has no name {name!r}" + (f"; did you mean {close[0]!r}" if close else "")
    )
