"""Find the guards of a source file, and make mutants of the file in which one guard is removed.

A guard is an `if` statement without `else` whose body ends in `return`, `raise`, `continue` or
`break`, or one operand of `and` or `or`. Guards outside of functions are ignored, since they are
evaluated at import.
"""

import ast
import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType

EXITS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Guard:
    """A guard: `path` and `line` state where it is, `lines` those that run if it has an effect."""

    path: Path
    line: int
    lines: frozenset[int]
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


def guards(path: Path) -> list[Guard]:
    """Return the guards of a file, ordered by line."""
    tree = ast.parse(_source(path))
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, _FUNCTIONS) for n in _body_nodes(f)}
    found: list[Guard] = []
    for index, node in enumerate(ast.walk(tree)):
        if id(node) not in inside:
            continue
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], EXITS):
            text = f"if {ast.unparse(node.test)}: {ast.unparse(node.body[-1])}"
            taken = frozenset([node.body[0].lineno])
            found.append(Guard(path, node.lineno, taken, index, None, text))
        elif isinstance(node, ast.BoolOp):
            word = "and" if isinstance(node.op, ast.And) else "or"
            lines = frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            for operand, value in enumerate(node.values):
                text = f"{word}: {ast.unparse(value)}"
                found.append(Guard(path, value.lineno, lines, index, operand, text))
    return sorted(found, key=lambda guard: guard.line)


@cache
def _source(path: Path) -> str:
    """Return the text of a file. The first call reads it, so that later edits have no effect."""
    return path.read_text("utf-8")


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _body_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.AST]:
    for part in [function.body] if isinstance(function, ast.Lambda) else function.body:
        yield from ast.walk(part)


def mutated_codes(guard: Guard) -> list[tuple[CodeType, CodeType]]:
    """Return the code objects that change if a guard is removed, before and after."""
    tree = ast.parse(_source(guard.path))
    before = _codes(compile(tree, str(guard.path), "exec", dont_inherit=True))
    after = _codes(compile(_without(tree, guard), str(guard.path), "exec", dont_inherit=True))
    return [(code, after[key]) for key, code in before.items() if after.get(key, code) != code]


def _without(tree: ast.Module, guard: Guard) -> ast.Module:
    changed = copy.deepcopy(tree)
    node = list(ast.walk(changed))[guard.index]
    if isinstance(node, ast.If):
        new: ast.AST = ast.Pass()
    else:
        assert isinstance(node, ast.BoolOp)
        rest = [value for at, value in enumerate(node.values) if at != guard.operand]
        new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    _replace(changed, node, ast.copy_location(new, node))
    return ast.fix_missing_locations(changed)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list):
                for at, each in enumerate(value):
                    if each is old:
                        value[at] = new
                        return
    raise AssertionError("the node is not part of the tree")


def _codes(module: CodeType) -> dict[tuple[str, int, int], CodeType]:
    """Return the code objects in a module by name, line and position among equals."""
    found: dict[tuple[str, int, int], CodeType] = {}
    pending = [module]
    while pending:
        code = pending.pop()
        for part in code.co_consts:
            if isinstance(part, CodeType):
                pending.append(part)
                name, line, at = part.co_qualname, part.co_firstlineno, 0
                while (name, line, at) in found:
                    at += 1
                found[name, line, at] = part
    return found
