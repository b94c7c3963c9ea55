"""Make the code of a file without one guard, and the code that records which guards decide.

A removed `if` statement still evaluates its condition, which may bind a name, but never runs its
body. A removed operand of `and` counts as true and one of `or` as false, whatever it evaluates to;
the last operand is omitted where the expression is used as a value instead of as a condition. Both
forms keep all names of the function, so that its local and free variables stay the same.
"""

import ast
import builtins
import copy
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.mutation.guards import Guard, read_source

CodeChange = tuple[CodeType, CodeType]
"""A code object of a file, and the one that replaces it."""


def mutated_codes(guard: Guard) -> list[CodeChange]:
    """Return the code objects that change if a guard is removed, before and after."""
    tree = ast.parse(read_source(guard.path))
    node = _nodes(tree)[guard.index]
    if isinstance(node, ast.If):
        never = ast.BoolOp(ast.And(), [node.test, ast.Constant(False)])
        node.test = ast.copy_location(never, node.test)
    elif isinstance(node, ast.BoolOp) and guard.operand is not None:
        if _is_result(node, guard.operand, _conditions(tree)):
            rest = node.values[:-1]
            shorter = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            _Replacement(node, ast.IfExp(ast.Constant(True), shorter, copy.copy(node))).visit(tree)
        else:
            operator, value = _NEUTRAL[type(node.op)]
            operand = node.values[guard.operand]
            neutral = ast.BoolOp(operator, [operand, ast.Constant(value)])
            node.values[guard.operand] = ast.copy_location(neutral, operand)
    return _changes(guard.path, ast.fix_missing_locations(tree))


_NEUTRAL: dict[type[ast.boolop], tuple[ast.boolop, bool]] = {
    ast.And: (ast.Or(), True),
    ast.Or: (ast.And(), False),
}
"""The other operator, and the constant that has no effect as an operand, of `and` and `or`."""


def recording_codes(path: Path, guards: Sequence[tuple[int, Guard]]) -> list[CodeChange]:
    """Return the code objects of a file that report the given guards, before and after.

    A guard reports its number if it decides: the body of its `if` statement runs, or its operand
    is false in `and` or true in `or`. Otherwise the mutant without the guard computes the same. The
    code reports to the functions that `report_guards` sets.
    """
    tree = ast.parse(read_source(path))
    nodes, conditions = _nodes(tree), _conditions(tree)
    for number, guard in guards:
        node = nodes[guard.index]
        if isinstance(node, ast.If):
            node.body.insert(0, ast.Expr(_call(_REACHED, ast.Constant(number))))
        elif isinstance(node, ast.BoolOp) and guard.operand is not None:
            value = isinstance(node.op, ast.Or)
            is_result = _is_result(node, guard.operand, conditions)
            node.values[guard.operand] = _call(
                _RETURNED if is_result else _DECIDED,
                *(ast.Constant(number), ast.Constant(value), node.values[guard.operand]),
            )
    return _changes(path, ast.fix_missing_locations(tree))


_REACHED, _DECIDED, _RETURNED = "__guard_reached__", "__guard_decided__", "__guard_returned__"


def report_guards(report: Callable[[int], None]) -> None:
    """Let the code of `recording_codes` report the numbers of guards to a function."""

    def decided(number: int, deciding: bool, operand: Any) -> Any:
        if bool(operand) is deciding:
            report(number)
        return operand

    def returned(number: int, deciding: bool, operand: Any) -> Any:
        if operand is not (not deciding):
            report(number)
        return operand

    setattr(builtins, _REACHED, report)
    setattr(builtins, _DECIDED, decided)
    setattr(builtins, _RETURNED, returned)


def install(changes: Iterable[CodeChange], functions: Iterable[FunctionType]) -> int:
    """Replace the code of the functions that have the code before; return their number."""
    by_place: dict[tuple[str, int], list[CodeChange]] = {}
    for change in changes:
        before = change[0]
        by_place.setdefault((before.co_qualname, before.co_firstlineno), []).append(change)
    count = 0
    for function in functions:
        code = function.__code__
        for before, after in by_place.get((code.co_qualname, code.co_firstlineno), ()):
            if _content(code) == _content(before):
                function.__code__ = after
                count += 1
                break
    return count


def _content(code: CodeType) -> tuple[object, ...]:
    """Return what distinguishes code objects of one line, also of those that have run: these are
    not equal to others, because they contain caches."""
    constants = tuple(each for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_code, code.co_names, constants


def _call(function: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(function, ast.Load()), list(arguments), [])


def _nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


def _conditions(tree: ast.Module) -> set[int]:
    """Return the ids of the expressions of which only the truth value is used."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            found.add(id(node.test))
        elif isinstance(node, ast.comprehension):
            found.update(map(id, node.ifs))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            found.add(id(node.operand))
        elif isinstance(node, ast.BoolOp) and id(node) in found:
            found.update(map(id, node.values))
    return found


def _is_result(node: ast.BoolOp, operand: int, conditions: set[int]) -> bool:
    """Return True if the value of an operand may be that of the expression, and is used."""
    return operand == len(node.values) - 1 and id(node) not in conditions


class _Replacement(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old = old
        self.new = ast.copy_location(new, old)

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


def _changes(path: Path, changed: ast.Module) -> list[CodeChange]:
    before = _original_codes(path)
    after = _codes(compile(changed, str(path), "exec", dont_inherit=True))
    return [(code, after[key]) for key, code in before.items() if after.get(key, code) != code]


@cache
def _original_codes(path: Path) -> dict[tuple[str, int, int], CodeType]:
    return _codes(compile(read_source(path), str(path), "exec", dont_inherit=True))


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
