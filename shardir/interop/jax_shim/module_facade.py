"""Module objects with JAX's names, whose attributes are looked up in shardir.

Some modules of the JAX package use only public names and therefore run on shardir. Their files are
executed as part of a program in which `import jax` imports shardir. JAX must be installed, but it
is not imported.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar

from shardir.frontend.source_locations import with_location
from shardir.interop.jax_shim import stubs
from shardir.interop.jax_shim.ignored_settings import IgnoredSettingContext
from shardir.interop.jax_shim.internals import Placeholder, is_name_of_jax
from shardir.interop.jax_shim.jax_config import JaxConfig, apply_xla_flags
from shardir.interop.jax_shim.renamed import (
    CONTAINER_MODULES,
    IGNORED_SETTING_CONTEXTS,
    MOVED_NAMES,
    NO_OP_FUNCTIONS,
    REPLACED_NAMES,
    current_name,
)
from shardir.interop.jax_shim.suggestions import ROOT, UncoveredName, explain_uncovered

FORWARDED_MODULES = frozenset(["jax.example_libraries.optimizers", "jax.example_libraries.stax"])
"""The forwarded modules."""


Execute = Callable[[CodeType, dict[str, Any]], None]
"""A function that runs code of a program in a namespace."""


def load_forwarded(full: str, execute: Execute) -> ModuleType | None:
    """Return the module `full` on top of shardir; `None` if JAX or the module is not installed."""
    spec = find_spec("jax")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.joinpath(*full.split(".")[1:]).with_suffix(".py")
    if not path.is_file():
        return None
    module = ModuleType(full)
    module.__dict__["__file__"] = str(path)
    code = compile(path.read_bytes(), str(path), "exec")
    execute(code, module.__dict__)
    return module


JAX_VERSION = "0.10.2"
"""The version of JAX whose names are provided."""

NAMES_OF_PROGRAMS = frozenset(["jax.make_jaxpr"])
"""Names whose results a library reads as programs of JAX, although shardir returns its own."""

DEVICE_QUERIES = frozenset(
    ["devices", "device_count", "local_devices", "local_device_count", "make_mesh"]
)
"""Names of `jax` that query the devices."""


PUBLIC_SUBMODULES = frozenset(["fft", "initializers", "linalg", "sparse", "special", "stats"])
"""Submodules that JAX exposes as attributes of their parents."""


class MissingNameError(Exception):
    """The name does not exist."""


class ModuleFacade(ModuleType):
    """A module with JAX's name `full`; `backing` is the corresponding shardir module, if any.

    `library` is the library on JAX that imports the module, or empty for the program itself. Names
    that JAX has and shardir lacks are placeholders for a library, and errors for the program.
    `__file__` is the file of the shardir module.
    """

    execute: ClassVar[Execute]
    """Run the code of a forwarded module; `program` sets it, since programs look up names here."""

    def __init__(self, full: str, backing: ModuleType | None, library: str = "") -> None:
        super().__init__(full, f"{full}, by shardir")
        file = getattr(backing, "__file__", None)
        spec = ModuleSpec(full, None, origin=file, is_package=True)
        self.__dict__.update(_full=full, _backing=backing, _library=library, __path__=[])
        self.__dict__.update(__file__=file, __spec__=spec, __package__=full)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._full}.{name}"
        try:
            result = look_up(full, self._backing, self._library)
        except MissingNameError:
            if self._library and is_name_of_jax(full):
                result = self.__dict__[name] = Placeholder(full, self._library)
                return result
            raise UncoveredName(with_location(explain_uncovered(full))) from None
        if name not in DEVICE_QUERIES:
            self.__dict__[name] = result
        return result

    def __dir__(self) -> list[str]:
        locations = {
            full.rpartition(".")
            for full in (
                *MOVED_NAMES,
                *CONTAINER_MODULES,
                *IGNORED_SETTING_CONTEXTS,
                *NO_OP_FUNCTIONS,
            )
        }
        moved = {name for module_name, _, name in locations if module_name == self._full}
        return sorted({name for name in dir(self._backing) if name[0] != "_"} | moved)

    def __repr__(self) -> str:
        return f"<module {self._full!r} by shardir>"


def look_up(full: str, backing: ModuleType | None, library: str = "") -> object:
    """Return the object for the JAX name `full` in `backing`; raise `MissingNameError`.

    Modules have the names that `library` sees.
    """
    name = full.rpartition(".")[2]
    if library and full in NAMES_OF_PROGRAMS:
        raise MissingNameError(full)
    if full in CONSTRUCTED_MODULES:
        return CONSTRUCTED_MODULES[full](full, library)
    if name in DEVICE_QUERIES:
        apply_xla_flags()
    if full in REPLACED_NAMES:
        return _look_up_shardir(REPLACED_NAMES[full])
    try:
        attribute = _get_attribute(backing, name)
    except MissingNameError:
        return _look_up_fallback(full, library)
    if isinstance(attribute, ModuleType):
        return ModuleFacade(full, attribute, library)
    return attribute


def _look_up_fallback(full: str, library: str) -> object:
    """Return the object for a name that the backing module lacks; raise `MissingNameError`."""
    if full in MOVED_NAMES:
        return _look_up_shardir(MOVED_NAMES[full])
    if full in IGNORED_SETTING_CONTEXTS:
        return partial(IgnoredSettingContext, *IGNORED_SETTING_CONTEXTS[full])
    if full in NO_OP_FUNCTIONS:
        return stubs.do_nothing
    if full in CONTAINER_MODULES:
        return ModuleFacade(full, None, library)
    if (
        full in FORWARDED_MODULES
        and (lent := load_forwarded(full, ModuleFacade.execute)) is not None
    ):
        return lent
    if (recent := current_name(full)) != full:
        return look_up_jax(recent, library)
    raise MissingNameError(full)


def look_up_jax(full: str, library: str = "") -> Any:
    """Return the object for a full name such as `jax.numpy.sin`; raise `MissingNameError`.

    `library` is the library that imports it, or empty for the program itself.
    """
    result: Any = jax_module(library)
    for part in full.split(".")[1:]:
        try:
            result = getattr(result, part)
        except AttributeError:
            raise MissingNameError(full) from None
    return result


def _look_up_shardir(path: str) -> object:
    module, _, name = f"shardir.{path}".rpartition(".")
    return getattr(import_module(module), name)


def _get_attribute(owner: ModuleType | None, name: str) -> object:
    """Return `owner.name`, importing it if it is a submodule."""
    if owner is None or name.startswith("_"):
        raise MissingNameError(name)
    # Imported submodules are attributes of their package even if they are not public.
    if owner is ROOT and name not in _public_root_names():
        raise MissingNameError(name)
    try:
        result = getattr(owner, name)
    except AttributeError:
        pass
    else:
        # Implementation modules are attributes too, but not part of JAX's names.
        inner = isinstance(result, ModuleType) and result.__name__.startswith("shardir.frontend.")
        if inner and name not in PUBLIC_SUBMODULES:
            raise MissingNameError(name)
        return result
    try:
        return import_module(f"{owner.__name__}.{name}")
    except ImportError:
        raise MissingNameError(name) from None


def _public_root_names() -> frozenset[str]:
    """Return the public names of `shardir`, including its modules."""
    names = {name for names in ROOT.TABLE.values() for name in names}
    modules = {module.rpartition(".")[2] for module, lent in ROOT.TABLE.items() if not lent}
    return frozenset(names | modules)


def _make_config(full: str, library: str) -> object:
    return JaxConfig()


def _make_xla_bridge(full: str, library: str) -> ModuleType:
    result = ModuleFacade(full, None, library)
    result.__dict__.update(stubs.XLA_BRIDGE)
    return result


def _make_mesh_utils(full: str, library: str) -> ModuleType:
    result = ModuleFacade(full, import_module("shardir.experimental.mesh_utils"), library)
    result.__dict__["create_device_mesh"] = stubs.device_mesh_of_jax
    return result


def _make_version(full: str, library: str) -> ModuleType:
    result = ModuleFacade(full, None, library)
    result.__dict__.update(_versions())
    return result


def _versions() -> dict[str, object]:
    numbers = tuple(int(each) for each in JAX_VERSION.split("."))
    return {"__version__": JAX_VERSION, "__version_info__": numbers}


CONSTRUCTED_MODULES: Mapping[str, Callable[[str, str], object]] = {
    "jax.config": _make_config,
    "jax.experimental.mesh_utils": _make_mesh_utils,
    "jax.lib.xla_bridge": _make_xla_bridge,
    "jax.version": _make_version,
}
"""Modules that are constructed instead of looked up."""


@cache
def jax_module(library: str = "") -> ModuleFacade:
    """Return the module that `import jax` returns in `library`, or in the program itself."""
    result = ModuleFacade("jax", ROOT, library)
    result.__dict__.update(_versions())
    return result
