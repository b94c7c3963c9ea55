"""Errors about JAX names without a counterpart in shardir, with the nearest alternative."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from shardir._imports.absent_names import absence_reason
from shardir.errors import ShardirError
from shardir.interop.jax_shim.renamed import IGNORED_SETTING_CONTEXTS, MOVED_NAMES, NO_OP_FUNCTIONS

ROOT: Any = import_module("shardir")
"""The root package. It lists `interop` among its modules, so the name is resolved at run time."""


class UncoveredName(ShardirError, AttributeError):
    """A JAX name that shardir does not have."""


class UncoveredImport(ShardirError, ImportError):
    """An import of a name that shardir does not have."""


ALTERNATIVES = {
    "jax.abstract_arrays": "jax.ShapeDtypeStruct",
    "jax.core.ShapedArray": "jax.ShapeDtypeStruct",
    "jax.core": "shardir.make_ir",
    "jax.dlpack": "jax.numpy.from_dlpack",
    "jax.example_libraries.optimizers": "shardir.optim",
    "jax.example_libraries.stax": "jax.nn",
    "jax.experimental.host_callback": "jax.pure_callback",
    "jax.experimental.jax2tf": "shardir.stablehlo.printer.show",
    "jax.experimental.loops": "jax.lax.fori_loop",
    "jax.experimental.maps.xmap": "jax.shard_map",
    "jax.experimental.optimizers": "shardir.optim",
    "jax.experimental.pallas": "shardir.register_rule",
    "jax.experimental.stax": "jax.nn",
    "jax.experimental.topologies": "shardir.sharding.AbstractMesh",
    "jax.extend": "shardir.make_ir",
    "jax.ffi": "jax.pure_callback",
    "jax.interpreters": "shardir.make_ir",
    "jax.lax.tie_in": "jax.lax.optimization_barrier",
    "jax.ops.index": "jax.Array.at",
    "jax.ops.index_add": "jax.Array.at",
    "jax.ops.index_max": "jax.Array.at",
    "jax.ops.index_min": "jax.Array.at",
    "jax.ops.index_mul": "jax.Array.at",
    "jax.ops.index_update": "jax.Array.at",
    "jax.test_util": "shardir.testing",
}
"""The alternative for each JAX name and all names below it, unless `ABSENT_NAMES` has a reason."""

SEARCHED_NAMESPACES = (
    "numpy",
    "lax",
    "random",
    "nn",
    "nn.initializers",
    "sharding",
    "tree_util",
    "scipy.special",
    "scipy.stats",
    "scipy.linalg",
    "scipy.sparse.linalg",
    "numpy.linalg",
    "numpy.fft",
    "lax.linalg",
    "debug",
    "experimental.mesh_utils",
    "ad_checkpoint",
)
"""The namespaces that are searched for similar names, in order of preference."""


def explain_uncovered(full: str) -> str:
    """Return the message for `full`, such as `jax.numpy.sinn`."""
    reason = absence_reason(f"shardir.{full.removeprefix('jax.')}")
    near = "" if reason else find_nearest(full)
    return f"{full} is not covered by shardir; " + (
        reason or (f"the nearest is {near}" if near else "nothing here is near to it")
    )


def find_nearest(full: str) -> str:
    """Return the covered name that is most similar to `full`, or an empty text."""
    for name, instead in ALTERNATIVES.items():
        if full == name or full.startswith(f"{name}."):
            return instead
    parent, _, last = full.rpartition(".")
    names = list_covered()
    elsewhere = [each for each in names if each.rpartition(".")[2] == last]
    if elsewhere:
        return elsewhere[0]
    beside = [each for each in names if each.rpartition(".")[0] == parent]
    for candidates, likeness in ((beside, 0.75), (names, 0.85)):
        lasts = {each.rpartition(".")[2]: each for each in reversed(candidates)}
        close = get_close_matches(last, sorted(lasts), 1, likeness)
        if close:
            return lasts[close[0]]
    return ""


@cache
def list_covered() -> tuple[str, ...]:
    """Return every covered name in JAX's spelling."""
    return tuple(dict.fromkeys(_iterate_covered()))


def _iterate_covered() -> Iterator[str]:
    yield from (f"jax.{name}" for names in ROOT.TABLE.values() for name in sorted(names))
    for space in SEARCHED_NAMESPACES:
        yield f"jax.{space}"
        outer, _, last = f"shardir.{space}".rpartition(".")
        module = getattr(import_module(outer), last)
        for name in dir(module):
            if name[0] != "_" and not isinstance(getattr(module, name), ModuleType):
                yield f"jax.{space}.{name}"
    yield from (
        name
        for table in (MOVED_NAMES, IGNORED_SETTING_CONTEXTS, NO_OP_FUNCTIONS)
        for name in sorted(table)
    )
