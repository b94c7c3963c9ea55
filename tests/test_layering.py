"""Import rules: the core imports no other package, and passes and backends stay separate."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]

FACES = {
    "__init__",
    "__main__",
    "ad_checkpoint",
    "checkpoints",
    "cli",
    "custom_batching",
    "custom_derivatives",
    "debug",
    "distributed",
    "dlpack",
    "dtypes",
    "experimental",
    "export",
    "extend",
    "flatten_util",
    "interop",
    "lax",
    "nn",
    "numpy",
    "optim",
    "profiler",
    "random",
    "report",
    "scipy",
    "sharding",
    "stages",
    "testing",
    "tree",
    "tree_util",
    "typing",
}
"""What in `shardir/` stands over the frontend, and nothing beneath may import."""

ALLOWED = {
    "core": {"core"},
    "passes": {"core", "passes"},
    "backends": {"core", "backends"},
    "frontend": {"core", "passes", "backends", "frontend"},
    "face": {"core", "passes", "backends", "frontend", "face"},
}
FOLDERS = ("shardir", "passes", "backends", "frontend")
FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.parent.resolve().is_relative_to(ROOT / folder)
]


def layer_of_file(path: Path) -> str:
    folder, inside = path.relative_to(ROOT).parts[:2]
    if folder != "shardir":
        return folder
    return "face" if inside.removesuffix(".py") in FACES else "core"


def layer_of_module(module: str) -> str | None:
    """Return the layer of a module; `None` for other packages. `shardir.Name` is a public name."""
    top, *inside = module.split(".")
    if top in FOLDERS[1:]:
        return top
    if top != "shardir":
        return None
    if not inside or inside[0] in FACES:
        return "face"
    if inside[0] in FOLDERS:
        return inside[0]
    here = ROOT / "shardir" / inside[0]
    return "core" if here.is_dir() or here.with_suffix(".py").exists() else "face"


@cache
def parse_file(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their module in full"
            module = node.module or ""
            if module == "shardir":
                yield from (f"shardir.{alias.name}" for alias in node.names)
            else:
                yield module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = layer_of_file(path)
    for module in imported_modules(parse_file(path)):
        there = layer_of_module(module)
        assert there is None or there in ALLOWED[here], f"{here} may not import {module}"


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import numpy", None),
        ("import shardir.ir.module", "core"),
        ("from shardir import ops", "core"),
        ("from shardir import passes", "passes"),
        ("from shardir.backends.numpy import kernels", "backends"),
        ("from frontend import devices", "frontend"),
        ("import shardir", "face"),
        ("from shardir import jit", "face"),
        ("from shardir.numpy import add", "face"),
    ],
)
def test_every_import_has_a_layer(source: str, layer: str | None) -> None:
    (module,) = imported_modules(ast.parse(source))
    assert layer_of_module(module) == layer


def test_every_public_module_exists() -> None:
    core = ROOT / "shardir"
    missing = [f for f in FACES if not (core / f).is_dir() and not (core / f"{f}.py").exists()]
    assert missing == []


def module_of_file(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "shardir" else ("shardir", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> nx.DiGraph:
    """Return the graph of all imports, those inside of functions and for type checkers included."""
    modules = {module_of_file(path): path for path in FILES}
    graph = nx.DiGraph()
    for module, path in modules.items():
        for node in ast.walk(parse_file(path)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                names = [f"{base}.{alias.name}" for alias in node.names]
                names = [name if name in modules else base for name in names]
            else:
                continue
            graph.add_edges_from((module, n) for n in names if n in modules and n != module)
    return graph


def test_imports_have_no_cycles() -> None:
    """Imports inside of functions and for type checkers count too."""
    cycles = [cycle for cycle in nx.strongly_connected_components(import_graph()) if len(cycle) > 1]
    assert [sorted(cycle) for cycle in cycles] == []
