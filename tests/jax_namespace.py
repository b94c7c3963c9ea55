"""The public names that an installed JAX has and shardir lacks.

A name of a module that shardir lacks as a whole counts as the module. `shardir._imports` has the
reason for each.
"""

import warnings
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any

COMPARED = (
    "jax",
    "jax.ad_checkpoint",
    "jax.custom_batching",
    "jax.custom_derivatives",
    "jax.debug",
    "jax.distributed",
    "jax.dlpack",
    "jax.dtypes",
    "jax.errors",
    "jax.experimental",
    "jax.experimental.checkify",
    "jax.experimental.custom_partitioning",
    "jax.experimental.layout",
    "jax.experimental.mesh_utils",
    "jax.experimental.multihost_utils",
    "jax.experimental.pjit",
    "jax.experimental.shard_map",
    "jax.export",
    "jax.ffi",
    "jax.flatten_util",
    "jax.image",
    "jax.lax",
    "jax.lax.linalg",
    "jax.monitoring",
    "jax.nn",
    "jax.nn.initializers",
    "jax.numpy",
    "jax.numpy.fft",
    "jax.numpy.linalg",
    "jax.ops",
    "jax.profiler",
    "jax.random",
    "jax.scipy",
    "jax.scipy.cluster",
    "jax.scipy.fft",
    "jax.scipy.integrate",
    "jax.scipy.interpolate",
    "jax.scipy.linalg",
    "jax.scipy.ndimage",
    "jax.scipy.optimize",
    "jax.scipy.signal",
    "jax.scipy.sparse.linalg",
    "jax.scipy.spatial.transform",
    "jax.scipy.special",
    "jax.scipy.stats",
    "jax.sharding",
    "jax.stages",
    "jax.test_util",
    "jax.tree",
    "jax.tree_util",
    "jax.typing",
)
"""The modules of JAX whose names are compared."""

EXPERIMENTAL_MODULES = (
    "buffer_callback", "checkify", "colocated_python", "compilation_cache", "compute_on",
    "custom_partitioning", "fused", "hijax", "jet", "key_reuse", "layout", "mesh_utils",
    "multihost_utils", "ode", "pallas", "pjit", "rnn", "scheduling_groups", "serialize_executable",
    "shard_map", "sparse", "topologies", "transfer", "xla_metadata",
)  # fmt: skip
"""The modules of `jax.experimental`, which its `dir` lists only if they have been imported."""

PUBLIC_IN_EXPERIMENTAL = MappingProxyType(
    {
        "jax.experimental": ("io_callback",),
        "jax.experimental.custom_partitioning": (
            "ArrayMapping", "BATCHING", "CompoundFactor", "SdyShardingRule", "custom_partitioning",
        ),
        "jax.experimental.mesh_utils": ("create_device_mesh", "create_hybrid_device_mesh"),
        "jax.experimental.multihost_utils": (
            "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
            "host_local_array_to_global_array", "live_devices", "process_allgather",
            "reached_preemption_sync_point", "sync_global_devices",
        ),
        "jax.experimental.shard_map": ("shard_map",),
    }
)  # fmt: skip
"""The documented names of modules that also expose their imports."""


def missing_names() -> set[str]:
    """Return the public names of JAX that shardir lacks, without those that JAX deprecates."""
    missing = {
        f"jax.experimental.{name}"
        for name in EXPERIMENTAL_MODULES
        if _module_here(f"jax.experimental.{name}") is None
    }
    # `dir(jax)` lists this module only if it has been imported.
    import_module("jax.example_libraries")
    for module in COMPARED:
        here = _module_here(module)
        if here is None:
            missing.add(module)
        else:
            missing |= {f"{module}.{name}" for name in public_names(module) if not _has(here, name)}
    return missing


def _has(module: Any, name: str) -> bool:
    return hasattr(module, name) or _module_here(f"{module.__name__}.{name}") is not None


def _module_here(name: str) -> ModuleType | None:
    """Return the module of shardir that corresponds to a module of JAX, if it exists."""
    try:
        return import_module(name.replace("jax", "shardir", 1))
    except ImportError:
        return None


def public_names(module: str) -> list[str]:
    if module in PUBLIC_IN_EXPERIMENTAL:
        return list(PUBLIC_IN_EXPERIMENTAL[module])
    theirs = import_module(module)
    deprecated = getattr(theirs, "_deprecations", {})
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        return [
            name
            for name in dir(theirs)
            if not name.startswith("_") and name not in deprecated and hasattr(theirs, name)
        ]
