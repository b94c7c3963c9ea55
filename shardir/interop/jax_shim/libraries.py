"""The installed libraries that import JAX, which a program loads for itself on shardir.

A library imports JAX if its distribution requires JAX, also through other distributions, or if its
source text imports JAX or one of these libraries. The text of libraries with C extensions is not
searched: such a library computes without Python, and most of its extensions cannot be loaded twice.
"""

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.metadata import Distribution, distributions

JAX_DISTRIBUTIONS = frozenset(["jax", "jaxlib"])

JAX_PACKAGES = JAX_DISTRIBUTIONS
"""The packages of JAX itself. `jax` is replaced, and `jaxlib` contains no Python interface."""

SHARED_PACKAGES = frozenset(["llvmlite", "ml_dtypes", "numpy", "optree", "scipy", "shardir"])
"""Packages whose objects shardir and the program exchange, so that both use the same modules."""

_REQUIREMENT = re.compile(r"^Requires-Dist: *([A-Za-z0-9._-]+)([^\n]*)", re.MULTILINE)


_known: dict[str, bool] = {}
"""The packages that were searched: True for those that import JAX."""


def imports_jax(package: str) -> bool:
    """Return whether the installed top-level package or module `package` imports JAX."""
    if package in sys.stdlib_module_names or package in SHARED_PACKAGES | JAX_PACKAGES:
        return False
    if package not in _known:
        spec = PathFinder.find_spec(package)
        if spec is None:
            return False  # The package may be found later, in a folder that joins `sys.path`.
        _known[package] = package in packages_requiring_jax() or _has_text_with_import(spec)
    return _known[package]


@cache
def packages_requiring_jax() -> frozenset[str]:
    """Return the top-level packages of the distributions that require JAX.

    An extra of a distribution counts only if it requires JAX itself.
    """
    required: dict[str, set[str]] = {}
    installed: dict[str, Distribution] = {}
    for distribution in distributions():
        header = (distribution.read_text("METADATA") or "").partition("\n\n")[0]
        name = _normalize(distribution.metadata["Name"] or "")
        if name in installed:
            continue
        installed[name] = distribution
        required[name] = set()
        for other, rest in _REQUIREMENT.findall(header):
            if "extra" not in rest.partition(";")[2] or _normalize(other) in JAX_DISTRIBUTIONS:
                required[name].add(_normalize(other))
    found = set(JAX_DISTRIBUTIONS)
    while new := {name for name, others in required.items() if others & found} - found:
        found |= new
    chosen = sorted((found - JAX_DISTRIBUTIONS) & installed.keys())
    return frozenset(package for name in chosen for package in _top_level_names(installed[name]))


def _normalize(name: str) -> str:
    """Return the normalized form of the name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _top_level_names(distribution: Distribution) -> Iterator[str]:
    """Return the packages and modules that a distribution installs."""
    for file in distribution.files or ():
        first = file.parts[0]
        if len(file.parts) > 1:
            if file.suffix == ".py" and first.isidentifier():
                yield first
        elif file.suffix == ".py":
            yield file.stem


def _has_text_with_import(spec: ModuleSpec) -> bool:
    """Return whether a package without C extensions contains an import of JAX, or the name `"jax"`.

    The name occurs where a package searches for JAX among the imported modules.
    """
    folders = list(spec.submodule_search_locations or ())
    files = [spec.origin] if spec.origin and not folders else list(_files_in(folders))
    if any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files):
        return False
    pattern = _import_pattern()
    return any(pattern.search(_read(file)) for file in files if file.endswith(".py"))


@cache
def _import_pattern() -> re.Pattern[bytes]:
    names = "|".join(sorted({"jax", *packages_requiring_jax()}))
    return re.compile(rf"""^[ \t]*(?:import|from)[ ]+(?:{names})\b|["']jax\b""".encode(), re.M)


def _files_in(folders: list[str]) -> Iterator[str]:
    for top in folders:
        for folder, _, names in os.walk(top):
            for name in names:
                yield os.path.join(folder, name)


def _read(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError:
        return b""
