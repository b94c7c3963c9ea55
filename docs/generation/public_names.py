"""The public modules, their public names, and the documentation of each name."""

import ast
import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import GenericAlias, ModuleType
from typing import Any

import shardir

PACKAGE = Path(shardir.__file__).parent
CORE_MODULES = ("shardir._imports.lazy_names", "shardir.ir")
"""Modules that are lazy for another reason than to be public."""


@cache
def public_modules() -> tuple[str, ...]:
    """Return the import names of all public modules, parents first.

    These are the modules of `shardir/` that import their names lazily, and the module of errors.
    """
    found = []
    for path in PACKAGE.rglob("*.py"):
        # The folders of passes, frontend and backends are links, which `rglob` does not follow.
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(("shardir", *parts)).removesuffix(".__init__")
        text = path.read_text("utf-8")
        is_lazy = "import lazy_" in text and _lazy_call(ast.parse(text))
        if name == "shardir.errors" or (is_lazy and name not in CORE_MODULES):
            found.append(name)
    return tuple(sorted(found))


def public_names(module: str) -> list[str]:
    """Return the public names of a public module, sorted."""
    names: list[str] = import_module(module).__all__
    return sorted(names, key=lambda name: (name.casefold(), name))


def documentation(module: str, name: str) -> str | None:
    """Return the documentation of a public name: the docstring of the object, else the string
    below its assignment, else the docstring of its class if that is one of shardir's.
    """
    value = getattr(import_module(module), name)
    if value is Any or isinstance(value, GenericAlias):  # Its docstring is that of Python.
        return _assigned_documentation(module, name)
    if isinstance(value, ModuleType | type) or inspect.isroutine(value):
        return inspect.getdoc(value) or _assigned_documentation(module, name)
    own = getattr(value, "__dict__", {}).get("__doc__")
    if isinstance(own, str):
        return inspect.cleandoc(own)
    if found := _assigned_documentation(module, name):
        return found
    return inspect.getdoc(value) if type(value).__module__.startswith("shardir.") else None


def _assigned_documentation(module: str, name: str) -> str | None:
    """Return the string below the assignment of a name, in the module that contains it."""
    if find_spec(module) is None or not module.startswith("shardir"):
        return None
    tree = _parse(module)
    if (call := _lazy_call(tree)) and module not in CORE_MODULES:
        home = _home(call, module, name)
        return None if home is None else _assigned_documentation(home, name)
    return assigned_documentation(tree.body).get(name) or next(
        (
            found
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
            if alias.name == "*" or name == (alias.asname or alias.name)
            if (found := _assigned_documentation(node.module, _original(alias, name)))
        ),
        None,
    )


def assigned_documentation(body: list[ast.stmt]) -> dict[str, str]:
    """Return the strings below the assignments of a module or a class, by name."""
    found = {}
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if (
            isinstance(target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[target.id] = inspect.cleandoc(after.value.value)
    return found


def _original(alias: ast.alias, name: str) -> str:
    return name if alias.name == "*" else alias.name


@cache
def _parse(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


def _lazy_call(tree: ast.Module) -> ast.Call | None:
    """Return the call of `lazy_names` or `lazy_module` that makes a module lazy."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"lazy_names", "lazy_module"}
        ):
            return node
    return None


def _home(call: ast.Call, module: str, name: str) -> str | None:
    """Return the module from which a lazy module imports a name."""
    last = call.args[-1]
    if isinstance(last, ast.Constant):
        return str(last.value)
    table: dict[str, tuple[str, ...]] = import_module(module).TABLE
    return next((home for home, names in table.items() if name in names), None)


def source_function(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """Return the definition of a function in its source file."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not Path(code.co_filename).is_file():
        return None
    return _definitions(code.co_filename).get((code.co_name, code.co_firstlineno))


def source_class(cls: type) -> ast.ClassDef | None:
    """Return the definition of a class in its source file."""
    for node in ast.walk(_parse(cls.__module__)):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return node
    return None


@cache
def _definitions(file: str) -> dict[tuple[str, int], ast.FunctionDef]:
    tree = ast.parse(Path(file).read_text("utf-8"))
    return {
        (node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
