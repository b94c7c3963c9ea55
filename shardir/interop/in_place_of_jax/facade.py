"""Module objects with JAX's names, whose attributes are looked up in shardir."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import shardir
from shardir.frontend.locations import point
from shardir.interop.in_place_of_jax import stand_ins
from shardir.interop.in_place_of_jax.lent import LENT, lend
from shardir.interop.in_place_of_jax.names import EMPTY, GUARDS, MOVED, NOTHING, newer
from shardir.interop.in_place_of_jax.nearest import UncoveredName, uncovered
from shardir.interop.in_place_of_jax.settings import Settings, obey_flags

VERSION = "0.10.2"
"""The version of JAX whose names are provided."""

ASKING = frozenset(["devices", "device_count", "local_devices", "local_device_count", "make_mesh"])
"""Names of `jax` that query the devices."""


INNER = frozenset(["fft", "initializers", "linalg", "sparse", "special", "stats"])
"""Submodules that JAX exposes as attributes of their parents."""


class Missing(Exception):
    """The name does not exist."""


class Facade(ModuleType):
    """A module with JAX's name `full`; `backing` is the corresponding shardir module, if any."""

    def __init__(self, full: str, backing: ModuleType | None) -> None:
        super().__init__(full, f"{full}, by shardir")
        self.__dict__.update(_full=full, _backing=backing, __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._full}.{name}"
        try:
            found = look_up(full, self._backing)
        except Missing:
            raise UncoveredName(point(uncovered(full))) from None
        if name not in ASKING:
            self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        known = {full.rpartition(".") for full in (*MOVED, *EMPTY, *GUARDS, *NOTHING)}
        moved = {name for place, _, name in known if place == self._full}
        return sorted({name for name in dir(self._backing) if name[0] != "_"} | moved)

    def __repr__(self) -> str:
        return f"<module {self._full!r} by shardir>"


def look_up(full: str, backing: ModuleType | None) -> Any:
    """Return the object for the JAX name `full` in `backing`; raise `MissingNameError`."""
    name = full.rpartition(".")[2]
    if full in MADE:
        return MADE[full](full)
    if name in ASKING:
        obey_flags()
    try:
        found = _attribute(backing, name)
    except Missing:
        return _elsewhere(full)
    return Facade(full, found) if isinstance(found, ModuleType) else found


def _elsewhere(full: str) -> Any:
    """Return the object for a name that the backing module lacks; raise `MissingNameError`."""
    if full in MOVED:
        return _of_shardir(MOVED[full])
    if full in GUARDS:
        return stand_ins.Guard
    if full in NOTHING:
        return stand_ins.do_nothing
    if full in EMPTY:
        return Facade(full, None)
    if full in LENT and (lent := lend(full)) is not None:
        return lent
    if (recent := newer(full)) != full:
        return of_jax(recent)
    raise Missing(full)


def of_jax(full: str) -> Any:
    """Return the object for a full name such as `jax.numpy.sin`; raise `MissingNameError`."""
    found: Any = JAX
    for part in full.split(".")[1:]:
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Missing(full) from None
    return found


def _of_shardir(path: str) -> Any:
    module, _, name = f"shardir.{path}".rpartition(".")
    return getattr(import_module(module), name)


def _attribute(owner: ModuleType | None, name: str) -> Any:
    """Return `owner.name`, importing it if it is a submodule."""
    if owner is None or name.startswith("_"):
        raise Missing(name)
    # Imported submodules are attributes of their package even if they are not public.
    if owner is shardir and name not in _names_of_root():
        raise Missing(name)
    try:
        found = getattr(owner, name)
    except AttributeError:
        pass
    else:
        # Implementation modules are attributes too, but not part of JAX's names.
        inner = isinstance(found, ModuleType) and found.__name__.startswith("shardir.frontend.")
        if inner and name not in INNER:
            raise Missing(name)
        return found
    try:
        return import_module(f"{owner.__name__}.{name}")
    except ImportError:
        raise Missing(name) from None


def _names_of_root() -> frozenset[str]:
    """Return the public names of `shardir`, including its modules."""
    names = {name for names in shardir.TABLE.values() for name in names}
    modules = {module.rpartition(".")[2] for module, lent in shardir.TABLE.items() if not lent}
    return frozenset(names | modules)


def _bridge(full: str) -> ModuleType:
    made = Facade(full, None)
    made.__dict__.update(stand_ins.XLA_BRIDGE)
    return made


def _mesh_utils(full: str) -> ModuleType:
    made = Facade(full, import_module("shardir.experimental.mesh_utils"))
    made.__dict__["create_device_mesh"] = stand_ins.device_mesh_of_jax
    return made


MADE: Mapping[str, Callable[[str], Any]] = {
    "jax.config": lambda full: Settings(),
    "jax.experimental.mesh_utils": _mesh_utils,
    "jax.lib.xla_bridge": _bridge,
}
"""Modules that are constructed instead of looked up."""

JAX = Facade("jax", shardir)
"""The module that `import jax` returns."""

JAX.__dict__.update(
    __version__=VERSION, __version_info__=tuple(int(each) for each in VERSION.split("."))
)
