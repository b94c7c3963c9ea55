"""Text of the functions of `library` that a program uses, with their dependencies."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from shardir.backends.gpu.line_wrapping import wrap_code

MAX_LINE_CHARACTERS = 100
LIBRARY_PACKAGE = "shardir.backends.gpu.library"
_TENSOR = re.compile(r"\bTensor\b")


@cache
def definitions() -> dict[str, tuple[str, frozenset[str]]]:
    """Return the text of each function and constant of the library, and the names it uses."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for file in sorted(files(LIBRARY_PACKAGE).iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".py"):
            continue
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                name = node.name
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
            else:
                continue
            if name in found:
                raise ValueError(f"the library has two functions called {name!r}")
            text_of = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            used = frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))
            found[name] = (
                wrap_code(_TENSOR.sub("torch.Tensor", text_of), MAX_LINE_CHARACTERS),
                used - {name},
            )
    return found


def collect_dependencies(names: Iterable[str]) -> list[str]:
    """Return the given names and their transitive dependencies, in the library's order."""
    every, needed, left = definitions(), set[str](), list(names)
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left += [other for other in every[name][1] if other in every]
    return [name for name in every if name in needed]


def library_text(names: Iterable[str]) -> str:
    """Return the definitions of the given functions and of their dependencies."""
    every, used = definitions(), collect_dependencies(names)
    constants = [every[name][0] for name in used if name.isupper()]
    functions = [every[name][0] for name in used if not name.isupper()]
    return "\n\n\n".join(["\n".join(constants)] * bool(constants) + functions)
