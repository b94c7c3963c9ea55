"""Registries: tables of named objects to which installed packages and loaded files add entries.

A package adds a pass, a target, a backend, an operation or a sharding rule with an entry point:

    [project.entry-points."shardir.passes"]
    my-pass = "mypackage.passes:MyPass"

A registry reads the entry points when a name is looked up that it does not have, and imports only
the one of that name. `load_plugin` imports a file or a module, which adds its entries itself. This
module imports no other module of shardir except `errors`, so that every table can use it.
"""

import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, TypeVar

from shardir.errors import bound_message, missing_file_reason
from shardir.plugins.entry_points import (
    OWN_ORIGIN,
    EntryPoint,
    PluginError,
    attribute_entries,
    current_origin,
    describe_exception,
    entry_points,
    import_object,
)

Entry = TypeVar("Entry")

LOAD_VARIABLE: Final = "SHARDIR_LOAD"
"""The environment variable that names files and modules to load, separated as paths in `PATH`."""


class Registry(dict[str, Entry]):
    """A dictionary of entries by name, which imports the entries of other packages on demand.

    `noun` names an entry in errors, `group` is the group of entry points, `expected` states the
    kind of object in errors and `accepts` checks it. `own` has the module and the attribute of
    each entry of shardir that is imported on demand, `package` is the package of shardir whose
    import registers all of its entries. `name_of` returns the name of an entry; without it, an
    entry has the name of its entry point. Entries that `are_registered_by_definition` are checked
    where they are defined, so that an object which was made otherwise is no entry.
    """

    def __init__(
        self,
        noun: str,
        group: str,
        *,
        expected: str,
        accepts: Callable[[Any], bool],
        name_of: Callable[[Any], str] | None = None,
        own: Mapping[str, tuple[str, str]] = MappingProxyType({}),
        package: str | None = None,
        are_registered_by_definition: bool = False,
    ) -> None:
        super().__init__()
        self.noun = noun
        self.group = group
        self._expected = expected
        self._accepts = accepts
        self._name_of = name_of
        self._own = own
        self._package = package
        self._are_registered_by_definition = are_registered_by_definition
        self._origins: dict[str, str] = {}
        self._being_loaded: set[str] = set()
        self.has_extensions = False
        """True if an entry of another package or file is registered."""
        _registries.append(self)

    def __missing__(self, name: str) -> Entry:
        if name in self._own:
            module, attribute = self._own[name]
            self[name] = getattr(import_module(module), attribute)
            return self[name]
        if self._package is not None:
            import_module(self._package)
            if name in self:
                return self[name]
        load_environment_plugins()
        # A module whose import looks up its own entry before it defines it finds none.
        is_absent = name not in self and name not in self._being_loaded
        if is_absent and (point := self._points().get(name)) is not None:
            self._load(point)
        if name not in self:
            raise KeyError(name)
        return self[name]

    def find(self, name: str) -> Entry | None:
        """Return the entry of this name, or `None`; import it from its package if necessary."""
        try:
            return self[name]
        except KeyError:
            return None

    def lookup(self, name: str, error: type[Exception]) -> Entry:
        """Return the entry of this name; raise `error`, which lists the names, without one."""
        entry = self.find(name)
        if entry is None:
            names = ", ".join(self.names())
            raise error(f"no {self.noun} is called {name!r}; the {self.noun}s are {names}")
        return entry

    def register(self, name: str, entry: Entry) -> None:
        """Add an entry; raise `PluginError` if the name is taken or the object is another kind."""
        origin = current_origin(entry)
        self._check(entry, f"the {self.noun} {name!r} of {origin}")
        if name in self or name in self._own:
            raise PluginError(
                f"{origin} defines the {self.noun} {name!r}, which {self.origin(name)} defines "
                "already; give it another name"
            )
        self[name] = entry
        self._origins[name] = origin
        self.has_extensions |= origin != OWN_ORIGIN

    def accepts(self, entry: object) -> bool:
        """Return whether an object is an entry of this registry."""
        return self._accepts(entry)

    def register_object(self, entry: Entry) -> None:
        """Add an entry under its own name, unless it is there already."""
        if self._name_of is None:
            raise PluginError(f"a {self.noun} has no name of its own; register it under a name")
        name = self._name_of(entry)
        if self.get(name) is not entry:
            self.register(name, entry)

    def origin(self, name: str) -> str:
        """Return where an entry comes from: `shardir`, a package, a file or a module."""
        if name in self._origins:
            return self._origins[name]
        if name not in self and name not in self._own and name in self._points():
            return self._points()[name].origin
        return OWN_ORIGIN

    def names(self) -> list[str]:
        """Return all names in sorted order, including those of packages that are not imported."""
        load_environment_plugins()
        return sorted({*self, *self._own, *self._points()})

    def _points(self) -> Mapping[str, EntryPoint]:
        """Return the entry points by name; raise `PluginError` for a name that is taken."""
        points: dict[str, EntryPoint] = {}
        for point in entry_points(self.group):
            if point.name in self._own or self._origins.get(point.name) == OWN_ORIGIN:
                raise PluginError(
                    f"{point.origin} defines the {self.noun} {point.name!r}, which shardir defines "
                    "already; uninstall the package, or give its entry point another name"
                )
            other = points.setdefault(point.name, point)
            if other != point:
                raise PluginError(
                    f"{other.origin} and {point.origin} both define the {self.noun} "
                    f"{point.name!r}; uninstall one of them"
                )
        return points

    def _load(self, point: EntryPoint) -> None:
        """Import the entry of a package."""
        self._being_loaded.add(point.name)
        try:
            entry = point.load()
        finally:
            self._being_loaded.discard(point.name)
        where = f"the entry point {point.name} = {point.value!r} of {point.origin}"
        self._check(entry, where)
        name = point.name if self._name_of is None else self._name_of(entry)
        if name != point.name:
            raise PluginError(f"{where} is the {self.noun} {name!r}; give both the same name")
        # The import of a pass or an operation adds it already.
        if self.get(name) is not entry:
            if self._are_registered_by_definition:
                raise self._kind_error(entry, where)
            with attribute_entries(point.origin):
                self.register(name, entry)

    def _check(self, entry: object, where: str) -> None:
        if not self._accepts(entry):
            raise self._kind_error(entry, where)

    def _kind_error(self, entry: object, where: str) -> PluginError:
        article = "an" if self.noun[0] in "aeiou" else "a"
        # The text of a function or a module contains an address or a path.
        kind = {FunctionType: "function", ModuleType: "module"}.get(type(entry))
        text = repr(entry) if kind is None else f"the {kind} {entry.__name__}"  # type: ignore[attr-defined]
        return PluginError(
            bound_message(f"{where} is {text}, and {article} {self.noun} is {self._expected}")
        )


_registries: list[Registry[Any]] = []
_loaded_plugins: set[str] = set()


@cache
def load_entry_points(group: str) -> None:
    """Import all entry points of a group, once: modules that add their entries themselves."""
    load_environment_plugins()
    for point in entry_points(group):
        point.load()


def load_plugin(plugin: str) -> None:
    """Load an extension: the path of a Python file, a module, or `module:name`.

    The file or module adds its entries when it is imported; an object `name` that is a pass, a
    target or a backend is added too. Loading a file or a module again has no effect. Raises
    `PluginError` that names the extension and the exception.
    """
    path = Path(plugin)
    if plugin.endswith(".py") or os.path.isfile(path):
        _load_file(path)
        return
    module, _, attribute = plugin.partition(":")
    if not all(map(str.isidentifier, filter(None, (*module.split("."), *attribute.split("."))))):
        raise PluginError(
            f"cannot load {plugin!r}: it is not a file; name a file such as mypass.py, a module, "
            "or module:name"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")  # As `python -m` does: modules of this folder.
    origin = f"module {module}"
    try:
        with attribute_entries(origin):
            plugin_object = import_object(plugin)
    except Exception as error:
        raise PluginError(f"cannot load {plugin!r}: {describe_exception(error)}") from error
    if isinstance(plugin_object, ModuleType):
        return
    for registry in _registries:
        if registry.accepts(plugin_object):
            with attribute_entries(origin):
                registry.register_object(plugin_object)
            return
    raise PluginError(
        bound_message(
            f"cannot load {plugin!r}: it is {_describe_object(plugin_object)}; name a pass, an "
            "operation, a target or a backend"
        )
    )


def _describe_object(found: object) -> str:
    """Return the kind and name of a function or class, the kind of an object whose `repr` is an
    address, or the `repr`."""
    name, kind = getattr(found, "__qualname__", None), type(found).__name__
    if isinstance(name, str):
        return f"the {'class' if isinstance(found, type) else kind} {name}"
    text = repr(found)
    return f"an object of type {kind}" if " at 0x" in text else text


@cache
def load_environment_plugins() -> None:
    """Load the extensions that the environment variable `SHARDIR_LOAD` names, once."""
    for plugin in filter(None, os.environ.get(LOAD_VARIABLE, "").split(os.pathsep)):
        try:
            load_plugin(plugin)
        except PluginError as error:
            error.add_note(f"named in the environment variable {LOAD_VARIABLE}")
            raise


def _load_file(path: Path) -> None:
    """Import a file as a module."""
    # Imported late for start-up time.
    from importlib.util import module_from_spec, spec_from_file_location

    if not os.path.isfile(path):
        raise PluginError(f"cannot load {str(path)!r}: {missing_file_reason(path)}")
    key = str(path.resolve())
    if key in _loaded_plugins or _is_imported(key):
        return
    # Other files can import this one by its name, unless the name is taken.
    name = path.stem
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"_shardir_plugin_{len(_loaded_plugins)}_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"cannot load {str(path)!r}: it is not a Python file (.py)")
    module = module_from_spec(spec)
    sys.modules[name] = module
    _loaded_plugins.add(key)
    try:
        with attribute_entries(f"file {path}"):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        _loaded_plugins.discard(key)
        if not isinstance(error, Exception):
            raise
        raise PluginError(f"cannot load {str(path)!r}: {describe_exception(error)}") from error


def _is_imported(file: str) -> bool:
    """Return whether a module of this file is imported."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    # Most files have other names; to resolve their paths would take long.
    name = os.path.basename(file)
    return any(str(Path(each).resolve()) == file for each in files if each and name in each)
