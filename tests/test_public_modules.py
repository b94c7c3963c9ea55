"""Public modules list the names that type checkers see, and import quickly."""

import ast
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import shardir
from shardir._imports import lazy_names

ROOT = Path(__file__).parents[1]
TABLES = (
    "shardir.export",
    "shardir.profiler",
    "shardir.typing",
    "shardir.stages",
    "shardir.dlpack",
    "shardir.custom_derivatives",
    "shardir.custom_batching",
    "shardir",
    "shardir.ad_checkpoint",
    "shardir.checkpoints",
    "shardir.debug",
    "shardir.distributed",
    "shardir.experimental",
    "shardir.extend",
    "shardir.experimental.maps",
    "shardir.experimental.mesh_utils",
    "shardir.experimental.multihost_utils",
    "shardir.experimental.pjit",
    "shardir.experimental.shard_map",
    "shardir.interop",
    "shardir.interop.in_place_of_jax",
    "shardir.interop.jax",
    "shardir.machine",
    "shardir.report",
    "shardir.scipy",
    "shardir.sharding",
    "shardir.testing",
    "shardir.tree",
)
"""The faces that list their names; the others show all of one module."""


def table(face: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = import_module(face).TABLE
    return found


def source(face: str) -> str:
    path = ROOT.joinpath(*face.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


@pytest.mark.parametrize("face", TABLES)
def test_type_checkers_see_the_names_of_the_table(face: str) -> None:
    (guard,) = (node for node in ast.parse(source(face)).body if isinstance(node, ast.If))
    # Imports without another name are no public names; an assignment replaces a name of the table.
    seen = {
        (f"{node.module}.{alias.name}", alias.asname)
        for node in guard.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    }
    replaced = {
        target.id
        for node in guard.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    listed = {(f"{module}.{name}", name) for module, names in table(face).items() for name in names}
    listed |= {(module, module.rpartition(".")[2]) for module, n in table(face).items() if not n}
    assert seen == {each for each in listed if each[1] not in replaced}


def test_an_unknown_name_suggests_a_known_one() -> None:
    wrong = "make_mush"
    with pytest.raises(lazy_names.UnknownName) as caught:
        getattr(shardir, wrong)
    assert str(caught.value) == "shardir has no name 'make_mush'; did you mean 'make_mesh'"
    assert not hasattr(shardir, "qqq")


def test_an_unknown_private_name_suggests_no_public_one() -> None:
    wrong = "_make_mesh"
    with pytest.raises(lazy_names.UnknownName) as caught:
        getattr(shardir, wrong)
    assert str(caught.value) == "shardir has no name '_make_mesh'"


def test_foreign_functions_are_called_in_callbacks() -> None:
    nearest = (
        "call the foreign function from Python, for example with ctypes, in shardir.pure_callback"
    )
    with pytest.raises(ImportError) as caught:
        import_module("shardir.ffi")
    assert str(caught.value) == f"there is no shardir.ffi; {nearest}"
    with pytest.raises(AttributeError) as unknown:
        getattr(shardir, "ffi")  # noqa: B009, because type checkers know that it is absent
    assert str(unknown.value) == f"shardir has no name 'ffi'; {nearest}"


@pytest.mark.parametrize("name", ["Ref", "new_ref"])
def test_arrays_that_change_in_place_name_the_alternative(name: str) -> None:
    with pytest.raises(lazy_names.UnknownName) as caught:
        getattr(shardir, name)
    assert str(caught.value) == (
        f"shardir has no name {name!r}; arrays do not change in place; update a copy with "
        "x.at[index].set(value), and carry it through loops in the state of shardir.lax.scan or "
        "fori_loop"
    )


def test_importing_shardir_imports_no_heavy_module() -> None:
    code = "import shardir, sys; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    heavy = {"lark", "ml_dtypes", "networkx", "numpy", "optree", "rich", "typer"}
    assert "shardir" in done.stdout.split()
    assert heavy.isdisjoint(done.stdout.split())


def test_importing_the_arrays_imports_no_parser_and_no_decimals() -> None:
    """They would take a twelfth of the time, and over half of the first use of `shardir.lax`."""
    code = "import shardir.numpy, shardir.lax, sys; shardir.lax.top_k; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert {"shardir.frontend.numpy.api", "shardir.frontend.lax.api"} <= set(done.stdout.split())
    assert {"lark", "decimal"}.isdisjoint(done.stdout.split())


def test_dir_lists_the_public_names() -> None:
    assert {"Mesh", "jit", "numpy", "parse"} <= set(dir(shardir))
    assert {"TABLE", "TYPE_CHECKING", "lazy_names"}.isdisjoint(dir(shardir))


@pytest.mark.parametrize(
    ("face", "some"),
    [
        ("shardir.numpy", ["arange", "linalg", "fft", "float32"]),
        ("shardir.numpy.linalg", ["norm", "outer", "svd"]),
        ("shardir.numpy.fft", ["fft", "rfftfreq"]),
        ("shardir.lax", ["scan", "linalg"]),
        ("shardir.lax.linalg", ["lu", "triangular_solve"]),
        ("shardir.nn", ["relu", "initializers"]),
        ("shardir.nn.initializers", ["he_normal"]),
        ("shardir.random", ["key", "normal"]),
        ("shardir.optim", ["adam", "chain"]),
        ("shardir.scipy.linalg", ["expm", "lu_factor"]),
        ("shardir.tree", ["map", "leaves"]),
    ],
)
def test_a_public_module_lists_and_provides_its_public_names(face: str, some: list[str]) -> None:
    module = import_module(face)
    given: dict[str, object] = {}
    exec(f"from {face} import *", given)
    assert {*some} <= {*given}
    assert {*given} - {"__builtins__"} <= {*dir(module)}
    internal = {"Any", "Tracer", "TYPE_CHECKING", "np", "point", "public", "emit", "lazy_module"}
    assert internal.isdisjoint({*given, *dir(module)})


def test_the_import_system_can_be_asked_for_absent_modules() -> None:
    for name in ("shardir.ref", "shardir.core", "shardir.numpy.nothing"):
        assert find_spec(name) is None
    with pytest.raises(ImportError, match=r"there is no shardir\.ref; arrays do not change"):
        import_module("shardir.ref")
