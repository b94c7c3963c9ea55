"""Names of primitives in different versions of JAX."""

import subprocess
import sys
from pathlib import Path

import pytest

from shardir.frontend.interop.primitive_aliases import (
    ALIASES_BY_VERSION,
    aliases_of_version,
    canonical_name,
    jax_version,
)
from shardir.frontend.interop.primitive_rules.registry import RULES
from shardir.interop.jax import from_jax

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("at", "name", "now"),
    [
        ((0, 4), "psum2", "psum_invariant"),
        ((0, 4), "pjit", "jit"),
        ((0, 6), "custom_vjp_call_jaxpr", "custom_vjp_call"),
        ((0, 8), "checkpoint", "remat2"),
        ((0, 10), "jit", "jit"),
        ((0, 3), "xla_call", "jit"),
        ((1, 0), "scan", "scan"),
    ],
)
def test_primitive_names_depend_on_the_version(at: tuple[int, int], name: str, now: str) -> None:
    assert aliases_of_version(at).get(name, name) == now


def test_aliases_refer_to_rules() -> None:
    assert callable(from_jax)
    assert [
        n for names in ALIASES_BY_VERSION.values() for n in names.values() if n not in RULES
    ] == []


def test_the_error_without_jax_states_the_package_to_install() -> None:
    code = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "PathFinder.find_spec = lambda name, *rest: None if name == 'jax' else find(name, *rest)\n"
        "from shardir.interop.jax import from_jax\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr.splitlines()[-1] == (
        "shardir.frontend.interop.MissingExtraError: shardir.interop.jax reads programs of JAX, "
        "which is not installed; pip install 'shardir[jax]'"
    )


def test_the_installed_version_is_supported() -> None:
    assert jax_version() >= (0, 10)
    assert canonical_name("add") == "add"
