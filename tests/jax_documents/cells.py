"""The cells of a document: its code, and the text that follows each piece of code.

A page saved as text does not mark code, so a line counts as code if Python can parse it and, for a
simple statement, if earlier code defined all names in it. `In [3]:` begins a cell, and so does code
after text.
"""

import ast
import builtins
import re
import warnings
from codeop import compile_command
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MARK = re.compile(r"In \[\d*\]:")
SHOWN = "\x1f"
"""Begins a line that is known to be no code."""

MAGIC = ("%", "!")
CLAUSE = re.compile(r"\s|(?:except|finally|elif|else)\b")

SUPPLIED = {
    "functools": "import functools",
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "lax": "from jax import lax",
    "np": "import numpy as np",
    "os": "import os",
    "partial": "from functools import partial",
    "Sequence": "from collections.abc import Sequence",
}
"""Imports that documents leave out."""


@dataclass
class Cell:
    """Code with the number of its first line, and the lines of text that follow the code."""

    line: int
    code: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    skipped: int = 0

    @property
    def source(self) -> str:
        return "\n".join(self.code)


def cells_of(text: str) -> list[Cell]:
    """Return the cells of a document that have code, without magics and shell lines."""
    lines = text.splitlines()
    known = {*dir(builtins), *SUPPLIED}
    cells: list[Cell] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if MARK.match(line):
            cells.append(Cell(i + 1))
            i += 1
            continue
        end = i + 1
        if line.startswith(SHOWN):
            if cells:
                cells[-1].shown.append(line[1:])
            i = end
            continue
        magic = line.startswith(MAGIC)
        if not magic and line[:1] not in ("", " ", "\t"):
            end = _statement(lines, i, known)
        if magic or end > i + 1 or (end == i + 1 and _is_code(line, known)):
            if not cells or any(cells[-1].shown):
                cells.append(Cell(i + 1))
            if magic:
                cells[-1].skipped += 1
            else:
                cells[-1].code += lines[i:end]
                known |= _bound(ast.parse("\n".join(lines[i:end])))
        elif cells and not (line.startswith("#") and not any(cells[-1].shown)):
            cells[-1].shown.append(line)
        i = end
    return [cell for cell in cells if cell.code]


def missing_imports(cells: Sequence[Cell]) -> str:
    """Return the imports that the code of a document lacks."""
    trees = [ast.parse(cell.source) for cell in cells]
    bound = {name for tree in trees for name in _bound(tree)}
    expected = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return "\n".join(SUPPLIED[name] for name in sorted(SUPPLIED) if name in expected - bound)


def _statement(lines: Sequence[str], start: int, known: set[str]) -> int:
    """Return the line after the statement that begins at `start`; `start + 1` if there is none."""
    end = start + 1
    while (state := _reads(lines[start:end])) is None:
        if end == len(lines) or MARK.match(lines[end]):
            return start + 1
        end += 1
    if not state:
        return start + 1
    while (after := _next(lines, end)) is not None and CLAUSE.match(lines[after]):
        longer = _reads(lines[start : after + 1])
        reach = after + 1
        while longer is None and reach < len(lines):
            reach += 1
            longer = _reads(lines[start:reach])
        if not longer:
            break
        end = reach
    return end if _is_code("\n".join(lines[start:end]), known) else start + 1


def _next(lines: Sequence[str], at: int) -> int | None:
    return next((i for i in range(at, len(lines)) if lines[i].strip()), None)


def _reads(lines: Sequence[str]) -> bool | None:
    """Return whether Python can parse the lines; `None` if the statement is incomplete."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return compile_command("\n".join(lines), symbol="exec") is not None or None
        except (SyntaxError, ValueError, OverflowError):
            return False


def _is_code(source: str, known: set[str]) -> bool:
    if not source.strip():
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    if not tree.body:
        return False
    (first, *_) = tree.body
    if isinstance(first, ast.AnnAssign) and first.value is None:
        return False
    if not isinstance(first, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)):
        return True
    names = [*_loaded(first)]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Name):
        return first.value.id in known and not hasattr(builtins, first.value.id)
    return known.issuperset(names) and (bool(names) or not isinstance(first, ast.Expr))


def _loaded(tree: ast.AST) -> Iterator[str]:
    """Return the names that a simple statement reads and does not define itself."""
    own = _bound(tree) | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    if isinstance(tree, ast.Assign):
        own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        own |= {name for node in ast.walk(tree) if isinstance(node, ast.comprehension)
                for name in _bound(node.target)}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            yield node.id


def _bound(tree: ast.AST) -> set[str]:
    """Return the names that code defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names
