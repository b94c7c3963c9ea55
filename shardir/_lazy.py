"""Faces: modules of public names, each imported when it is first asked for.

`import shardir` must be quick and the core must import no sibling, so a face holds only text: for
each name the module that defines it. Type checkers and editors read the imports that stand beside
the table under `if TYPE_CHECKING`; `tests/test_face.py` keeps the two the same.
"""

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

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

    return _face(face, lookup, lambda: [*homes, *submodules])


def lazy_module(face: str, home: str) -> Face:
    """The face that shows the public names of the module `home`.

    Those are the names in its `__all__`; without one, all but modules that have no face.
    """

    def lookup(name: str) -> object:
        # Of the names that Python itself asks for, only those of the Array API standard are lent.
        if name.startswith("__") and not name.startswith("__array_"):
            raise _unknown(face, name, [])
        module = import_module(home)
        try:
            value = getattr(module, name)
        except AttributeError:
            raise _unknown(face, name, public()) from None
        if isinstance(value, ModuleType) and _has_face(face, name):
            value = import_module(f"{face}.{name}")
        setattr(sys.modules[face], name, value)
        return value

    def public() -> list[str]:
        module = import_module(home)
        found: list[str] | None = getattr(module, "__all__", None)
        return found or [k for k, value in vars(module).items() if _is_public(face, k, value)]

    return _face(face, lookup, public)


def _is_public(face: str, name: str, value: object) -> bool:
    """Whether a face shows what a module has that does not say so itself in `__all__`."""
    if name.startswith("_"):
        return name.startswith("__array_")
    return not isinstance(value, ModuleType) or _has_face(face, name)


def _has_face(face: str, name: str) -> bool:
    """Whether there is a face below another one."""
    return hasattr(sys.modules[face], "__path__") and find_spec(f"{face}.{name}") is not None


def _face(face: str, lookup: Callable[[str], object], public: Callable[[], list[str]]) -> Face:
    """A face that lists the `public` names, and what Python has put there."""

    def lookup_or_all(name: str) -> object:
        return sorted(public()) if name == "__all__" else lookup(name)

    def listing() -> list[str]:
        own = vars(sys.modules[face]).items()
        placed = [k for k, v in own if k.startswith("__") or isinstance(v, ModuleType)]
        return sorted({*placed, *public()})

    return lookup_or_all, listing


def _unknown(face: str, name: str, known: list[str]) -> UnknownName:
    whole = f"{face}.{name}"
    if whole in ELSEWHERE:
        return UnknownName(f"{face} has no name {name!r}; {_nearest(whole)}")
    close = get_close_matches(name, known, 1)
    return UnknownName(
        f"{face} has no name {name!r}" + (f"; did you mean {close[0]!r}" if close else "")
    )
