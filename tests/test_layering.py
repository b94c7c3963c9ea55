"""Import rules: the core imports no other package, and passes and backends stay separate; imports
have no cycles, short chains, and are at the start of modules; names of files state their concepts.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
    "image",
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
    "test_util",
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


def statements_within(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements directly inside of a node, without expressions, which import nothing."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in statements_within(tree):
        yield from imported_modules(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their module in full"
            module = node.module or ""
            if module == "shardir":
                yield from (f"shardir.{alias.name}" for alias in node.names)
            else:
                yield module


def test_imports_point_one_way() -> None:
    wrong = []
    for path in FILES:
        here = layer_of_file(path)
        for module in imported_modules(parse_file(path)):
            there = layer_of_module(module)
            if there is not None and there not in ALLOWED[here]:
                wrong.append(f"{path.relative_to(ROOT)}: {here} may not import {module}")
    assert wrong == []


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


MODULES = {module_of_file(path): path for path in FILES}


class Import(NamedTuple):
    """An import of a module of the library by another one."""

    importer: str
    imported: str
    kind: str
    """`top` at the start of the importer, `function`, or `typing` for type checkers alone."""


def imports_of(importer: str, node: ast.AST, kind: str = "top") -> Iterator[Import]:
    """Yield the imports below a node of the syntax tree of a module."""
    for child in statements_within(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            base = child.module or ""
            names = [f"{base}.{alias.name}" for alias in child.names]
            names = [name if name in MODULES else base for name in names]
        else:
            names = []
        yield from (Import(importer, n, kind) for n in names if n in MODULES and n != importer)
        inner = kind
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name):
            inner = "typing" if child.test.id == "TYPE_CHECKING" else kind
        elif isinstance(child, ast.FunctionDef) and kind == "top":
            inner = "function"
        yield from imports_of(importer, child, inner)


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(
        each for module, path in MODULES.items() for each in imports_of(module, parse_file(path))
    )


def test_imports_have_no_cycles() -> None:
    """Imports inside of functions and for type checkers count too."""
    graph = nx.DiGraph((each.importer, each.imported) for each in all_imports())
    cycles = [cycle for cycle in nx.strongly_connected_components(graph) if len(cycle) > 1]
    assert [sorted(cycle) for cycle in cycles] == []


MAX_IMPORT_CHAIN = 27
"""The maximum number of modules in a chain of imports at the start of modules.

The longest chains begin with the IR (6 modules: `errors` to `ir.builder`), and the rules and the
declarations of operations (7: up to `ops`). 14 modules follow, each of which uses names of the one
before it at run time. In the chain of `scipy.stats`, these are the lowering of traced programs and
the dispatch of eager functions (5: up to `eager`), elementwise functions and gathers (2), special
functions (5), and distributions (2). In that of the command `explain`, they are propagation (5),
its explanations (4), reports (3), and the command (2); in that of the GPU backend, kernels (9), and
rules and programs (5). The chains of plans, of `shardir.lax` and of the primitives of JAX are as
long.
"""


def test_import_chains_are_short() -> None:
    graph = nx.DiGraph((e.importer, e.imported) for e in all_imports() if e.kind == "top")
    chain = nx.dag_longest_path(graph)
    assert len(chain) <= MAX_IMPORT_CHAIN, "\n".join(chain)


FUNCTION_LEVEL_IMPORTS = {
    "shardir.backends.gpu.backend": "torch is an optional dependency",
    "shardir.backends.numpy.profiling": "llvmlite is an optional dependency",
    "shardir.backends.numpy.threads": "llvmlite is an optional dependency",
    "shardir.display.representation": "the module is below all others, and few programs need HTML",
    "shardir.frontend.cli.targets": "JAX is an optional dependency",
    "shardir.frontend.distributed.connect": "mpi4py is an optional dependency",
}
"""The modules whose functions import others, and the reasons. Modules that few programs need are
imported lazily (`shardir/_imports/lazy_import.py`)."""


def test_functions_import_optional_dependencies_alone() -> None:
    found = {each for each in all_imports() if each.kind == "function"}
    assert {each.importer for each in found} == set(FUNCTION_LEVEL_IMPORTS)
    assert len(found) <= 15


def test_lazy_imports_agree_with_those_of_type_checkers() -> None:
    typed = {(e.importer, e.imported) for e in all_imports() if e.kind == "typing"}
    lazy = {
        (module, node.args[0].value)
        for module, path in MODULES.items()
        for node in ast.walk(parse_file(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "lazy_import"
        and isinstance(node.args[0], ast.Constant)
    }
    assert lazy
    assert lazy <= typed


FAMILY_FILE_NAMES = {
    "arithmetic.py", "collectives.py", "contraction.py", "control_flow.py",
    "custom_partitioning.py", "decompositions.py", "dtypes.py", "fft.py", "linalg.py", "random.py",
    "random_bits.py", "regions.py", "special.py",
}  # fmt: skip
"""File names of a family of operations or of a public namespace. They denote the same family in
each folder, whose name states what the file does with it: `shardir/ops/communication/collectives`
declares the operations, `stablehlo/reading/collectives` reads them, `ipu/lowering/collectives`
lowers them. Public namespaces have the names of JAX (`numpy/linalg`, `scipy/special`)."""
ROLE_FILE_NAMES = {"__init__.py", "api.py", "rules.py"}
"""File names of a role, which each folder can have once."""


def test_file_names_that_repeat_denote_families_or_roles() -> None:
    counts = Counter(path.name for path in FILES)
    repeated = {name for name, count in counts.items() if count >= 4}
    assert repeated == FAMILY_FILE_NAMES | ROLE_FILE_NAMES


def test_folders_have_few_modules() -> None:
    counts = Counter(path.parent for path in FILES if path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > 25} == {}


def start_up_graph() -> nx.DiGraph:
    """Return the graph of the imports that run when a module is imported.

    An import runs the packages around a module too, except those that run already.
    """
    graph = nx.DiGraph()
    for module, path in MODULES.items():
        body = parse_file(path).body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        for name in imported_modules(ast.Module([*imports], [])):
            parts = name.split(".")
            names = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
            around = (each for each in names if not f"{module}.".startswith(f"{each}."))
            graph.add_edges_from((module, each) for each in around)
    return graph


def test_every_module_can_be_imported_first() -> None:
    cycles = nx.strongly_connected_components(start_up_graph())
    assert [sorted(cycle) for cycle in cycles if len(cycle) > 1] == []
