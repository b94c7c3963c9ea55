"""Code compares declarations of operations (`op.spec is ops.dot`), not their names."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from shardir import ops as ops  # declares the operations
from shardir.ir.operation import OPS

ROOT = Path(__file__).parents[1]
PACKAGES = ("shardir", "passes", "frontend", "backends")
OPERATION_NAMES = frozenset(OPS)

ALLOWED = {
    "shardir/interop/jax_shim/module_facade.py": "submodules of jax",
    "shardir/stablehlo/reading/formulas.py": "operations of StableHLO",
    "passes/explain/explained_pipeline.py": "passes",
    "passes/explain/xla/xla_causes.py": "primitives of JAX in the metadata of XLA's operations",
    "passes/planning/kernel_compiler.py": "functions of Python that kernels call",
    "backends/cpu/kernels/math/library.py": "functions of the mathematical library",
}
"""Files that compare names which are also names of operations, and what they name."""


def string_constants(tree: ast.Module) -> dict[str, frozenset[str]]:
    """Return the constants of a module that are strings or collections of strings."""
    found = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = literal_strings(value, {})
    return found


def literal_strings(node: ast.expr, constants: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the strings of a literal, of a set of literals, or of a constant of the module."""
    match node:
        case ast.Constant(value=str(text)):
            return frozenset({text})
        case ast.Tuple() | ast.List() | ast.Set():
            return frozenset().union(*(literal_strings(each, constants) for each in node.elts))
        case ast.Starred():
            return literal_strings(node.value, constants)
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[argument]):
            return literal_strings(argument, constants)
        case ast.Name():
            return constants.get(node.id, frozenset())
    return frozenset()


def is_name(node: ast.expr) -> bool:
    """Return whether an expression may be the name of an operation."""
    match node:
        case ast.Attribute(attr="name") | ast.Name(id="name") | ast.Name(id="op_name"):
            return True
        case ast.Call(func=ast.Name(id="kind_of")):
            return True
    return False


def compared_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comparison of a name with names of operations."""
    constants = string_constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = frozenset().union(*(literal_strings(side, constants) for side in sides))
            if any(map(is_name, sides)) and names & OPERATION_NAMES:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Match) and is_name(node.subject):
            patterns = [part for case in node.cases for part in ast.walk(case.pattern)]
            values = [part.value for part in patterns if isinstance(part, ast.MatchValue)]
            names = frozenset().union(*(literal_strings(value, constants) for value in values))
            if names & OPERATION_NAMES:
                yield node.lineno, f"match {ast.unparse(node.subject)}"


def test_no_code_compares_names_of_operations() -> None:
    found: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.resolve().is_relative_to(ROOT / package):
                continue
            file = str(path.relative_to(ROOT))
            for line, text in compared_names(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(file, []).append(f"{file}:{line}: {text}")
    others = [place for file, places in found.items() if file not in ALLOWED for place in places]
    assert others == [], "compare op.spec with declarations of shardir.ops"
    assert sorted(found) == sorted(ALLOWED), "a listed file compares no names"
