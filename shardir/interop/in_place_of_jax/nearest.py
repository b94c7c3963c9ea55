"""What to say about a name of JAX's that shardir does not have: which of ours is nearest."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import ModuleType

import shardir
from shardir.errors import ShardirError
from shardir.interop.in_place_of_jax.names import GUARDS, MOVED, NOTHING


class UncoveredName(ShardirError, AttributeError):
    """A name of JAX's that shardir does not have."""


class UncoveredImport(ShardirError, ImportError):
    """An import of what shardir does not have, or of a library that computes with JAX itself."""


INSTEAD = {
    "jax.abstract_arrays": "jax.ShapeDtypeStruct",
    "jax.core.ShapedArray": "jax.ShapeDtypeStruct",
    "jax.core": "shardir.make_ir",
    "jax.dlpack": "jax.numpy.from_dlpack",
    "jax.example_libraries.optimizers": "shardir.optim",
    "jax.example_libraries.stax": "jax.nn",
    "jax.experimental.checkify": "jax.debug.callback",
    "jax.experimental.custom_partitioning": "shardir.register_rule",
    "jax.experimental.host_callback": "jax.pure_callback",
    "jax.experimental.jax2tf": "shardir.stablehlo.printer.show",
    "jax.experimental.loops": "jax.lax.fori_loop",
    "jax.experimental.maps.xmap": "jax.shard_map",
    "jax.experimental.optimizers": "shardir.optim",
    "jax.experimental.pallas": "shardir.register_rule",
    "jax.experimental.stax": "jax.nn",
    "jax.experimental.topologies": "shardir.sharding.AbstractMesh",
    "jax.export": "shardir.stablehlo.printer.show",
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
    "jax.profiler": "shardir.profile",
    "jax.test_util": "shardir.testing",
}
"""What does for a name, and all below it, what JAX does there."""

LIBRARIES = {
    "brax": "",
    "chex": "",
    "diffrax": "",
    "distrax": "",
    "equinox": "",
    "flax": "",
    "haiku": "",
    "jaxopt": "",
    "jraph": "",
    "numpyro": "",
    "optax": "shardir.optim",
    "orbax": "shardir.checkpoints",
    "rlax": "",
}
"""Libraries that compute with JAX itself, and what of shardir's does as they do."""

NAMESPACES = (
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
"""Where names are looked for, the likeliest place first."""


def uncovered(full: str) -> str:
    """The message for `full`, such as `jax.numpy.sinn`."""
    near = nearest(full)
    return f"{full} is not covered by shardir; " + (
        f"the nearest is {near}" if near else "nothing here is near to it"
    )


def library(name: str) -> str:
    """The message for an import of the library `name`."""
    own = LIBRARIES[name]
    return (
        f"{name} computes with JAX itself, and a program in whose imports shardir stands for JAX "
        "cannot use it; hand functions that do to shardir.interop.jax.from_jax in a program of "
        "shardir's" + (f", or use {own}" if own else "")
    )


def nearest(full: str) -> str:
    """The covered name that is nearest to `full`; "" without one."""
    for name, instead in INSTEAD.items():
        if full == name or full.startswith(f"{name}."):
            return instead
    place, _, last = full.rpartition(".")
    names = covered()
    elsewhere = [each for each in names if each.rpartition(".")[2] == last]
    if elsewhere:
        return elsewhere[0]
    beside = [each for each in names if each.rpartition(".")[0] == place]
    for candidates, likeness in ((beside, 0.75), (names, 0.85)):
        lasts = {each.rpartition(".")[2]: each for each in reversed(candidates)}
        close = get_close_matches(last, sorted(lasts), 1, likeness)
        if close:
            return lasts[close[0]]
    return ""


@cache
def covered() -> tuple[str, ...]:
    """Every name that is covered, in JAX's spelling."""
    return tuple(dict.fromkeys(_covered()))


def _covered() -> Iterator[str]:
    yield from (f"jax.{name}" for names in shardir.TABLE.values() for name in sorted(names))
    for space in NAMESPACES:
        yield f"jax.{space}"
        outer, _, last = f"shardir.{space}".rpartition(".")
        module = getattr(import_module(outer), last)
        for name in dir(module):
            if name[0] != "_" and not isinstance(getattr(module, name), ModuleType):
                yield f"jax.{space}.{name}"
    yield from (name for table in (MOVED, GUARDS, NOTHING) for name in sorted(table))
