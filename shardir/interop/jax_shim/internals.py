"""Placeholders for the names of JAX that a library on JAX uses and shardir does not have.

Libraries refer to JAX's internals when they are imported: they define primitives, register rules,
subclass tracers. A placeholder accepts this without effect, so that the parts of the library that
use public names alone run. Any use of a placeholder in a computation raises an error.
"""

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, UnionType
from typing import Any, NoReturn

from shardir.errors import ShardirError
from shardir.frontend.source_locations import (
    CallSite,
    is_internal_code,
    site_at,
    user_position,
    with_location,
)

_is_importing: ContextVar[bool] = ContextVar("shardir_importing_library", default=False)


class UncoveredInternal(ShardirError, NotImplementedError):
    """A library on JAX computes with a name of JAX that shardir does not have."""


@contextmanager
def importing_library() -> Iterator[None]:
    """A context in which the module of a library is executed, so that placeholders are callable."""
    token = _is_importing.set(True)
    try:
        yield
    finally:
        _is_importing.reset(token)


def explain_internal(name: str, library: str) -> str:
    """Return the message for the current line of a library, which uses the name `name` of JAX."""
    place = user_position()
    at = ""
    if place is not None:
        file = place.site.loc.file.rpartition("site-packages" + os.sep)[2]
        at = f" ({file}:{place.site.loc.line})"
    return (
        f"{library} needs {name} of JAX{at}, which shardir does not have; pass the function that "
        "calls it to shardir.interop.jax.from_jax in a program that imports shardir"
    )


def _refuse(name: str, library: str) -> NoReturn:
    message = explain_internal(name, library)
    raise UncoveredInternal(with_location(message, _find_caller(sys._getframe(1))))


def _find_caller(frame: FrameType | None) -> CallSite | None:
    """Return the innermost call site outside of shardir and of installed libraries."""
    while frame is not None:
        code = frame.f_code
        if "site-packages" not in code.co_filename and not is_internal_code(code):
            return site_at(code, frame.f_lasti)
        frame = frame.f_back
    return None


class PlaceholderBase:
    """The base of the classes that a library derives from a class of JAX's internals."""

    _placeholder: "Placeholder"

    def __new__(cls, *args: Any, **keywords: Any) -> Any:
        if not _is_importing.get():
            _refuse(cls._placeholder._name, cls._placeholder._library)
        return super().__new__(cls)

    def __init__(self, *args: Any, **keywords: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._placeholder, name)


class Placeholder:
    """A name of JAX without a counterpart in shardir, as the library `library` sees it.

    Its attributes and items are placeholders, stores have no effect, and no object is an instance
    of it. Calls are permitted while a library is imported, and the results are placeholders.
    Everything else is an `UncoveredInternal`.
    """

    def __init__(self, name: str, library: str) -> None:
        self.__dict__.update(_name=name, _library=library, __name__=name.rpartition(".")[2])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}"
        if is_name_of_jax(full) is False:
            raise AttributeError(f"module {self._name!r} has no attribute {name!r}")
        result = self.__dict__[name] = Placeholder(full, self._library)
        return result

    def __setattr__(self, name: str, value: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def __call__(self, *args: Any, **keywords: Any) -> "Placeholder":
        if not _is_importing.get() or self.__name__ == "bind":
            _refuse(self._name, self._library)
        return self

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        return (_make_base(self),)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:
        return False

    def __getitem__(self, key: object) -> "Placeholder":
        return self

    def __or__(self, other: object) -> Any:
        """Return the union with a type, which has only the instances of `other`."""
        if not (callable(other) or isinstance(other, UnionType | str | None)):
            _refuse(self._name, self._library)
        return other

    __ror__ = __or__

    def __repr__(self) -> str:
        return f"<{self._name} of JAX, which shardir does not have>"


@cache
def _make_base(placeholder: Placeholder) -> type:
    return type(placeholder.__name__, (PlaceholderBase,), {"_placeholder": placeholder})


def _make_refusal(method: str) -> Any:
    def refuse(self: Placeholder, *args: object) -> NoReturn:
        _refuse(self._name, self._library)

    refuse.__name__ = method
    return refuse


for _method in (
    "__array__", "__jax_array__", "__bool__", "__int__", "__float__", "__complex__", "__index__",
    "__len__", "__iter__", "__next__", "__contains__", "__enter__", "__exit__", "__neg__",
    "__abs__", "__invert__", "__lt__", "__le__", "__gt__", "__ge__", "__and__", "__rand__",
    "__xor__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__",
    "__matmul__", "__rmatmul__", "__lshift__", "__rshift__",
):  # fmt: skip
    setattr(Placeholder, _method, _make_refusal(_method))


def is_name_of_jax(full: str) -> bool | None:
    """Return whether the installed JAX has the name `full`, according to its source text.

    `None` if it is no name of a module, such as a method of a class, or if JAX is not installed.
    """
    root = _find_jax()
    if root is None:
        return None
    parent, _, name = full.rpartition(".")
    if _module_file(root, full) is not None:
        return True
    file = _module_file(root, parent)
    return None if file is None else not _names_in(file).isdisjoint({name, "*"})


@cache
def _find_jax() -> Path | None:
    spec = find_spec("jax")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _module_file(root: Path, full: str) -> Path | None:
    """Return the file of a module of JAX; the folder of a package without `__init__.py`."""
    path = root.joinpath(*full.split(".")[1:])
    files = [path / "__init__.py", path.parent / f"{path.name}.py"]
    return next((file for file in files if file.is_file()), None)


@cache
def _names_in(file: Path) -> frozenset[str]:
    """Return the names that a module defines or imports, including deprecated ones."""
    return frozenset(_iterate_names(ast.parse(file.read_bytes()).body))


def _iterate_names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((each.asname or each.name).partition(".")[0] for each in aliases)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id="_deprecations")], value=ast.Dict() as table):
                yield from _iterate_deprecated(table)
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try() | ast.With():
                for field in ("body", "orelse", "finalbody"):
                    yield from _iterate_names(getattr(node, field, []))


def _iterate_deprecated(table: ast.Dict) -> Iterator[str]:
    """Yield the deprecated names that still have a value."""
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
            last = value.elts[-1]
            if not (isinstance(last, ast.Constant) and last.value is None):
                yield str(key.value)
