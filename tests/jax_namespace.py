"""The public names of JAX that shardir does not have, each with the reason.

`missing_names` measures the names that an installed JAX has and shardir lacks. A name of a module
that shardir lacks as a whole counts as the module.
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
    "jax.scipy.special",
    "jax.scipy.stats",
    "jax.sharding",
    "jax.stages",
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

REASONS: dict[str, str] = {
    "JAX's primitives identify equations of its programs; the programs of shardir consist of "
    "operations, which `shardir.ir` and `docs/extending.md` describe.": """
        jax.custom_derivatives.*_p jax.lax.*_p jax.lax.linalg.*_p jax.random.random_gamma_p
    """,
    "Arrays of shardir are immutable: a program has no mutable references.": """
        jax.Ref jax.ds jax.empty_ref jax.free_ref jax.freeze jax.new_ref jax.ref
    """,
    "The name is a module of JAX's implementation, not an interface for programs.": """
        jax.ad jax.api_util jax.core jax.interpreters jax.lib jax.version
    """,
    "The option changes how JAX itself traces or compiles, and has no counterpart here.": """
        jax.allow_f16_reductions jax.enable_checks
        jax.explain_cache_misses jax.array_garbage_collection_guard jax.auto_pcast
        jax.jax2tf_associative_scan_reductions
        jax.make_user_context jax.no_execution jax.no_tracing
        jax.remove_size_one_mesh_axis_from_type jax.softmax_custom_jvp jax.thread_guard
    """,
    "JAX documents it as an older name of `process_count` or `process_index`.": """
        jax.host_count jax.host_id jax.host_ids
    """,
    "`shardir.ops` contains the operations of the IR; `shardir` itself has the functions.": """
        jax.ops.segment_max jax.ops.segment_min jax.ops.segment_prod jax.ops.segment_sum
    """,
    "Programs of shardir are modules of its IR, which `make_ir` returns.": """
        jax.make_jaxpr
    """,
    "JAX reports events of its own implementation there; `log_compiles`, `cache_info` and "
    "`profile` report those of shardir.": """
        jax.monitoring
    """,
    "Traces are files of `start_trace` and `trace`: there is no server and no option of XLA.": """
        jax.profiler.ProfileOptions jax.profiler.register_subprocess jax.profiler.start_server
        jax.profiler.stop_server jax.profiler.ProfileData jax.profiler.ProfileEvent
        jax.profiler.ProfilePlane
    """,
    "`live_arrays` lists the memory of arrays, `memory_analysis` that of a program.": """
        jax.profiler.device_memory_profile jax.profiler.save_device_memory_profile
    """,
    "A product, an elementary function or a decomposition has one algorithm for each type.": """
        jax.lax.AccuracyMode jax.lax.DotAlgorithm jax.lax.DotAlgorithmPreset jax.lax.Tolerance
        jax.lax.linalg.EigImplementation jax.lax.linalg.EighImplementation
        jax.lax.linalg.SvdAlgorithm
    """,
    "Effects of a program are ordered without tokens, and collectives name their pairs.": """
        jax.lax.after_all jax.lax.create_token jax.lax.precv jax.lax.psend
    """,
    "A function whose results are not used has no effect on a program: `io_callback` has one.": """
        jax.lax.dce_sink
    """,
    "Foreign functions need XLA; `pure_callback` calls them from Python instead.": """
        jax.ffi
    """,
    "Arrays are in the memory of their devices; shardings refuse all other memory kinds.": """
        jax.memory
    """,
    "The shapes of a program are constant.": """
        jax.export.SymbolicScope jax.export.is_symbolic_dim jax.export.symbolic_args_specs
        jax.export.symbolic_shape
    """,
    "A serialized program states its own format, and has dictionaries, lists and tuples alone.": """
        jax.export.DisabledSafetyCheck jax.export.maximum_supported_calling_convention_version
        jax.export.minimum_supported_calling_convention_version
        jax.export.register_namedtuple_serialization
        jax.export.register_pytree_node_serialization
    """,
    "The module has no names: it describes the setting `debug_key_reuse`.": """
        jax.experimental.key_reuse
    """,
    "Arrays of shardir are dense.": """
        jax.experimental.sparse
    """,
    "The kernels of the backends are written by their code generators; a kernel of the user joins "
    "a program as an operation of a backend (`docs/extending.md`) or as a host callback.": """
        jax.experimental.buffer_callback jax.experimental.pallas
    """,
    "The module calls kernels of cuDNN; `lax.scan` expresses the same recurrence.": """
        jax.experimental.rnn
    """,
    "The module annotates or fuses equations for XLA, which does not run these programs.": """
        jax.experimental.compute_on jax.experimental.fused jax.experimental.scheduling_groups
        jax.experimental.xla_metadata
    """,
    "The module serves accelerators that XLA's runtimes manage.": """
        jax.experimental.colocated_python jax.experimental.topologies jax.experimental.transfer
    """,
    "The module extends the types of JAX's programs.": """
        jax.experimental.hijax
    """,
    "The setting checks programs, or permits lower precision. shardir acts as its default value "
    "states; `as-jax` accepts the names, and reports once that another value is ignored.": """
        jax.debug_infs jax.debug_key_reuse jax.default_matmul_precision
        jax.dtypes.TypePromotionError jax.numpy_dtype_promotion jax.numpy_rank_promotion
        jax.transfer_guard jax.transfer_guard_device_to_device
        jax.transfer_guard_device_to_host jax.transfer_guard_host_to_device
    """,
    "Compiled kernels are always cached on disk, and `export` serializes programs instead of "
    "executables of XLA.": """
        jax.experimental.compilation_cache jax.experimental.serialize_executable
    """,
    "The backends choose the layouts of buffers.": """
        jax.experimental.layout
    """,
    "A policy of `checkpoint` decides whether a value is saved; saved values are in the memory of "
    "their devices.": """
        jax.ad_checkpoint.Offloadable jax.ad_checkpoint.Recompute jax.ad_checkpoint.Saveable
    """,
    "The name identifies an effect, or a part of a type, of JAX's own programs.": """
        jax.debug.DebugEffect jax.debug.OrderedDebugEffect jax.sharding.ManualAxisType
    """,
    "An `AbstractMesh` has names and sizes of axes, but no kind of device.": """
        jax.sharding.AbstractDevice
    """,
    "The operands are quantized for units of Blackwell GPUs, on which alone JAX runs the function; "
    "`scaled_matmul` and `lax.scaled_dot` take quantized operands.": """
        jax.nn.get_scaled_dot_general_config jax.nn.scaled_dot_general
    """,
    "XLA for CPUs refuses these element types, or conversions from and to them.": """
        jax.numpy.float6_e2m3fn jax.numpy.float6_e3m2fn jax.numpy.int1 jax.numpy.uint1
    """,
    "Node types are registered by `register_pytree_node` and its variants; the registry is not an "
    "object.": """
        jax.tree_util.default_registry
    """,
    "JAX implements the modules with its public names; `as-jax` runs its files.": """
        jax.example_libraries
    """,
}
"""The names that are absent on purpose; a pattern ends in `*_p`."""


def reasons() -> dict[str, str]:
    """Return the reason for each name, and for each pattern."""
    return {name: reason for reason, names in REASONS.items() for name in names.split()}


def matches(name: str, pattern: str) -> bool:
    """Return whether a pattern of `REASONS` stands for a name."""
    if not pattern.endswith("*_p"):
        return name == pattern
    module = pattern.removesuffix("*_p")
    return name.startswith(module) and "." not in name[len(module) :] and name.endswith("_p")


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
            missing |= {
                f"{module}.{name}" for name in _public_names(module) if not _has(here, name)
            }
    return missing


def _has(module: Any, name: str) -> bool:
    return hasattr(module, name) or _module_here(f"{module.__name__}.{name}") is not None


def _module_here(name: str) -> ModuleType | None:
    """Return the module of shardir that corresponds to a module of JAX, if it exists."""
    try:
        return import_module(name.replace("jax", "shardir", 1))
    except ImportError:
        return None


def _public_names(module: str) -> list[str]:
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
