"""Find the guards of a source file.

A guard is an `if` statement without `else` whose body ends in `return`, `raise`, `continue` or
`break`, or one operand of `and` or `or`. Guards outside of functions are ignored, since they are
evaluated at import.
"""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Guard:
    """A guard: `path` and `line` state where it is."""

    path: Path
    line: int
    index: int
    """The position of its node in `ast.walk` over the file."""
    operand: int | None
    """The position of the operand of `and` or `or`; None for a statement."""
    text: str

    @property
    def key(self) -> str:
        """The guard without its line, by which `explained.txt` states why it needs no test."""
        return f"{os.path.relpath(self.path)}: {self.text}"

    def __str__(self) -> str:
        return f"{os.path.relpath(self.path)}:{self.line}: {self.text}"


def find_guards(path: Path) -> list[Guard]:
    """Return the guards of a file, ordered by line."""
    tree = ast.parse(read_source(path))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) for n in _body_nodes(f)}
    found: list[Guard] = []
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in inside:
            continue
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], EXITS):
            text = f"if {ast.unparse(node.test)}: {ast.unparse(node.body[-1])}"
            found.append(Guard(path, node.lineno, index, None, text))
        elif isinstance(node, ast.BoolOp):
            word = "and" if isinstance(node.op, ast.And) else "or"
            for operand, value in enumerate(node.values):
                text = f"{word}: {ast.unparse(value)}"
                found.append(Guard(path, value.lineno, index, operand, text))
    return sorted(found, key=lambda guard: guard.line)


@cache
def read_source(path: Path) -> str:
    """Return the text of a file. The first call reads it, so that later edits have no effect."""
    return path.read_text("utf-8")


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _body_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.AST]:
    for part in [function.body] if isinstance(function, ast.Lambda) else function.body:
        yield from ast.walk(part)
