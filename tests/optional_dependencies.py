"""Modules that extras install, and recognition of errors that a missing extra causes."""

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import pytest

EXTRAS = (
    "absl",
    "axe_core_python",
    "equinox",
    "flax",
    "jax",
    "jaxlib",
    "mpi4py",
    "mpmath",
    "optax",
    "pytoulbar2",
    "ray",
    "safetensors",
    "setuptools",
    "sklearn",
    "torch",
    "triton",
    "ziglang",
)
"""Modules that the library, or its tests, can do without: those of the extra `test`, and `ray`."""
IN_NO_EXTRA = ("ray",)
"""Modules that `make test-long` installs."""


_NOT_INSTALLED = re.compile(rf"\b({'|'.join(EXTRAS)}) is not installed; pip install 'shardir")


def missing_extra(error: BaseException | None) -> str | None:
    """Return the missing extra that caused an error, or `None` if no extra is missing.

    An error that was raised from the error of the import, or while that error was handled, has the
    same cause. An mpi4py that finds no MPI library counts as not installed. An error of this
    library may state what is not installed.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        name = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ImportError) and name in EXTRAS and find_spec(name) is None:
            return name
        if stated := _NOT_INSTALLED.search(str(error)):
            return stated[1] if find_spec(stated[1]) is None else None
        if isinstance(error, RuntimeError) and "cannot load MPI library" in str(error):
            return "mpi4py"
        error = error.__cause__ or error.__context__
    return None


def reason_without(extra: str) -> str:
    """Return why a test is skipped without an extra."""
    package = extra if extra in IN_NO_EXTRA else "'shardir[test]'"
    return f"needs {extra}, which is not installed: pip install {package}"


def require(*modules: str) -> None:
    """Skip the test that calls this if a module of an extra is not installed, or cannot be used."""
    for name in modules:
        if not _is_usable(name):
            pytest.skip(reason_without(name))


def extras_in(source: str) -> list[str]:
    """Return the modules of extras that a program of Python imports."""
    found = re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE)
    return sorted({name for name in found if name in EXTRAS})


@cache
def _is_usable(name: str) -> bool:
    if find_spec(name) is None:
        return False
    if name == "mpi4py":
        try:
            import_module("mpi4py.MPI")
        except (ImportError, RuntimeError):  # mpi4py finds no MPI library.
            return False
    return True
