"""Expressions of Python source files by the positions that JAX records."""

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, order=True)
class SourceRange:
    """A range of a file. Lines count from 1; columns are bytes of UTF-8 and count from 0."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


def expression_text(place: SourceRange) -> str | None:
    """Return the text of the expression at a range; `None` if the range is no expression."""
    node = _expression(place)
    lines = linecache.getlines(place.file)
    if node is None:
        return None
    return ast.get_source_segment("".join(lines), node)


def assigned_name(place: SourceRange) -> str | None:
    """Return the variable to which a statement assigns the expression at a range."""
    for node in ast.walk(_tree(place.file)):
        if isinstance(node, ast.Assign) and _covers(node.value, place):
            target = node.targets[0]
            return target.id if len(node.targets) == 1 and isinstance(target, ast.Name) else None
    return None


def replace_name(expression: str, name: str, new: str) -> str | None:
    """Return an expression with a variable replaced; `None` if it does not use the variable.

    `name` may also be an element of one, such as `params['w']`.
    """
    try:
        name_dump = ast.dump(ast.parse(name, mode="eval").body)
        tree = ast.parse(f"({expression})", mode="eval")
    except SyntaxError:
        return None
    places = [
        (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        for node in _free_nodes(tree, name)
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute)
        and ast.dump(node) == name_dump
    ]
    if not places:
        return None
    lines = f"({expression})".split("\n")
    for line, start, end_line, end in sorted(places, reverse=True):
        if line != end_line:
            return None
        encoded = lines[line - 1].encode()
        lines[line - 1] = (encoded[:start] + new.encode() + encoded[end:]).decode()
    return "\n".join(lines)[1:-1]


def _free_nodes(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """Yield the nodes outside of functions and comprehensions that bind the variable of a name."""
    variable = re.match(r"\w*", name)
    assert variable is not None
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            bound = {each.arg for each in ast.walk(child) if isinstance(each, ast.arg)} | {
                each.id
                for each in ast.walk(child)
                if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
            }
            is_scope = isinstance(
                child, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
            )
            if not is_scope or variable[0] not in bound:
                pending.append(child)


def free_names(expression: str) -> list[str]:
    """Return the variables that an expression uses, except roots of attributes, called functions
    and variables that the expression binds."""
    try:
        tree = ast.parse(f"({expression})", mode="eval")
    except SyntaxError:
        return []
    excluded: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            excluded.add(node.value.id if node.attr not in _ARRAY_ATTRIBUTES else "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            excluded.add(node.func.id)
        elif isinstance(node, ast.arg):
            excluded.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            excluded.add(node.id)
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return [name for name in dict.fromkeys(names) if name not in excluded]


_ARRAY_ATTRIBUTES = ("T", "mT", "at", "astype", "reshape", "sum", "mean", "real", "imag")
"""Attributes of arrays, unlike those of modules."""


def source_line(file: str, line: int) -> str:
    """Return a line of a file without indentation; empty if it cannot be read."""
    return linecache.getline(file, line).strip()


@lru_cache(maxsize=16)
def _tree(file: str) -> ast.AST:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _expression(place: SourceRange) -> ast.expr | None:
    """Return the largest expression at a range."""
    for node in ast.walk(_tree(place.file)):
        if isinstance(node, ast.expr) and _covers(node, place):
            return node
    return None


def _covers(node: ast.expr, place: SourceRange) -> bool:
    return (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset) == (
        place.line,
        place.column,
        place.end_line,
        place.end_column,
    )
