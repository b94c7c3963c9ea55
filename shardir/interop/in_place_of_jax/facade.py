"""What a program sees under the name `jax`: modules whose names are looked up in shardir."""

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
"""The version of JAX whose names are followed."""

ASKING = frozenset(["devices", "device_count", "local_devices", "local_device_count", "make_mesh"])
"""Names of `jax` by which a program asks what devices there are."""


INNER = frozenset(["fft", "initializers", "linalg", "sparse", "special", "stats"])
"""Modules of JAX's that are attributes of others here."""


class Missing(Exception):
    """There is no such name."""


class Facade(ModuleType):
    """The module of JAX's that is called `full`; `backing` is shardir's, if there is one."""

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
    """What `full` means, a name in the module that `backing` stands for. Raises `Missing`."""
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
    """What a name means that shardir does not have in this place. Raises `Missing`."""
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
    """What the name `full`, such as `jax.numpy.sin`, means. Raises `Missing`."""
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
    """`owner.name`, also where it is a submodule that is not imported yet."""
    if owner is None or name.startswith("_"):
        raise Missing(name)
    # A package has its submodules as attributes once they are imported, listed or not.
    if owner is shardir and name not in _names_of_root():
        raise Missing(name)
    try:
        found = getattr(owner, name)
    except AttributeError:
        pass
    else:
        # Files that names come from are attributes too, and none of JAX's modules.
        inner = isinstance(found, ModuleType) and found.__name__.startswith("shardir.frontend.")
        if inner and name not in INNER:
            raise Missing(name)
        return found
    try:
        return import_module(f"{owner.__name__}.{name}")
    except ImportError:
        raise Missing(name) from None


def _names_of_root() -> frozenset[str]:
    """The public names of shardir itself, its modules among them."""
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
"""What is made anew instead of being looked up."""

JAX = Facade("jax", shardir)
"""What `import jax` brings."""

JAX.__dict__.update(
    __version__=VERSION, __version_info__=tuple(int(each) for each in VERSION.split("."))
)
