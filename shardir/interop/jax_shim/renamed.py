"""The shardir names for JAX names that moved or that have another name in shardir.

Names that are equal in both libraries need no entry.
"""

import re
from collections.abc import Mapping

REPLACED_NAMES: Mapping[str, str] = {
    "jax.Array": "numpy.ndarray",
    "jax.lax.scan": "interop.jax_shim.stubs.scan",
    "jax.numpy.einsum": "interop.jax_shim.stubs.einsum",
    "jax.make_mesh": "interop.jax_shim.stubs.make_mesh",
}
"""The shardir names for JAX names that mean something else in shardir."""

MOVED_NAMES: Mapping[str, str] = {
    "jax._src.core.trace_state_clean": "interop.jax_shim.stubs.trace_state_clean",
    "jax._src.traceback_util.api_boundary": "interop.jax_shim.stubs.return_function",
    "jax._src.tree_util._registry": "interop.jax_shim.stubs.PYTREE_REGISTRY",
    "jax._src.util.safe_map": "interop.jax_shim.stubs.safe_map",
    "jax._src.util.safe_zip": "interop.jax_shim.stubs.safe_zip",
    "jax._src.util.unzip2": "interop.jax_shim.stubs.unzip2",
    "jax.api_util.debug_info": "interop.jax_shim.partial_evaluation.make_debug_info",
    "jax.api_util.flatten_fun_nokwargs": "interop.jax_shim.partial_evaluation.flatten_fun_nokwargs",
    "jax.core.AbstractValue": "ShapeDtypeStruct",
    "jax.core.ShapedArray": "ShapeDtypeStruct",
    "jax.core.Tracer": "frontend.tracing.tracer.Tracer",
    "jax.core.get_aval": "interop.jax_shim.stubs.typeof",
    "jax.core.ensure_compile_time_eval": "ensure_compile_time_eval",
    "jax.experimental.PartitionSpec": "sharding.PartitionSpec",
    "jax.experimental.enable_x64": "enable_x64",
    "jax.experimental.io_callback": "io_callback",
    "jax.experimental.maps.Mesh": "sharding.Mesh",
    "jax.experimental.pjit.with_sharding_constraint": "lax.with_sharding_constraint",
    "jax.extend.linear_util.wrap_init": "interop.jax_shim.partial_evaluation.wrap_init",
    "jax.interpreters.partial_eval.PartialVal": "interop.jax_shim.partial_evaluation.PartialVal",
    "jax.interpreters.partial_eval.trace_to_jaxpr_nounits": (
        "interop.jax_shim.partial_evaluation.trace_to_jaxpr_nounits"
    ),
    "jax.extend.core.get_opaque_trace_state": "interop.jax_shim.stubs.get_opaque_trace_state",
    "jax.host_count": "process_count",
    "jax.host_id": "process_index",
    "jax.interpreters.pxla.Mesh": "sharding.Mesh",
    "jax.interpreters.pxla.PartitionSpec": "sharding.PartitionSpec",
    "jax.interpreters.pxla.ShardedDeviceArray": "Array",
    "jax.interpreters.sharded_jit.PartitionSpec": "sharding.PartitionSpec",
    "jax.interpreters.xla.DeviceArray": "Array",
    "jax.lax.bessel_i0e": "scipy.special.i0e",
    "jax.lax.bessel_i1e": "scipy.special.i1e",
    "jax.lax.betainc": "scipy.special.betainc",
    "jax.lax.igamma": "scipy.special.gammainc",
    "jax.lax.igammac": "scipy.special.gammaincc",
    "jax.lax.polygamma": "scipy.special.polygamma",
    "jax.lax.reciprocal": "numpy.reciprocal",
    "jax.lax.zeta": "scipy.special.zeta",
    "jax.make_jaxpr": "make_ir",
    "jax.numpy.DeviceArray": "Array",
    "jax.ops.segment_max": "segment_max",
    "jax.ops.segment_min": "segment_min",
    "jax.ops.segment_prod": "segment_prod",
    "jax.ops.segment_sum": "segment_sum",
    "jax.tree_multimap": "tree_util.tree_map",
    "jax.xla.DeviceArray": "Array",
}
"""The public shardir name, without `shardir.`, for each JAX name."""

OLDER_NAME_PATTERNS = (
    (r"jax\.(tree_(?:all|flatten|leaves|map|reduce|structure|transpose|unflatten))",
     r"jax.tree_util.\1"),
    (r"jax\.api\.(\w+)", r"jax.\1"),
    (r"jax\.experimental\.(optimizers|stax)", r"jax.example_libraries.\1"),
    (r"jax\.experimental\.sharding\.(\w+)", r"jax.sharding.\1"),
    (r"jax\._src\.lib\.xla_bridge", "jax.lib.xla_bridge"),
    (r"jax\._src\.xla_bridge", "jax.lib.xla_bridge"),
    (r"jax\._src\.(?:mesh|named_sharding|partition_spec|sharding_impls|sharding)\.(\w+)",
     r"jax.sharding.\1"),
    (r"jax\._src\.(?:api|array)\.(\w+)", r"jax.\1"),
    (r"jax\._src\.(tree_util|random|mesh_utils|typing|dtypes)\.(\w+)", r"jax.\1.\2"),
    (r"jax\.mesh_utils\.(\w+)", r"jax.experimental.mesh_utils.\1"),
)  # fmt: skip
"""Regular expressions of names in older JAX versions, and their current names."""

CONTAINER_MODULES = frozenset(
    [
        "jax._src",
        "jax._src.api",
        "jax._src.array",
        "jax._src.core",
        "jax._src.dispatch",
        "jax._src.dtypes",
        "jax._src.lib",
        "jax._src.mesh",
        "jax._src.mesh_utils",
        "jax._src.named_sharding",
        "jax._src.partition_spec",
        "jax._src.random",
        "jax._src.sharding",
        "jax._src.sharding_impls",
        "jax._src.traceback_util",
        "jax._src.tree_util",
        "jax._src.typing",
        "jax._src.util",
        "jax.api",
        "jax.api_util",
        "jax.core",
        "jax.example_libraries",
        "jax.experimental.sharding",
        "jax.extend",
        "jax.extend.core",
        "jax.extend.linear_util",
        "jax.interpreters",
        "jax.interpreters.partial_eval",
        "jax.interpreters.pxla",
        "jax.interpreters.sharded_jit",
        "jax.interpreters.xla",
        "jax.lib",
        "jax.ops",
        "jax.xla",
    ]
)
"""Modules of JAX that exist only as containers of names in `MOVED_NAMES`."""

IGNORED_SETTING_CONTEXTS: Mapping[str, tuple[str] | tuple[str, bool]] = {
    "jax.debug_key_reuse": ("jax_debug_key_reuse",),
    "jax.enable_checks": ("jax_enable_checks",),
    "jax.numpy_dtype_promotion": ("jax_numpy_dtype_promotion",),
    "jax.numpy_rank_promotion": ("jax_numpy_rank_promotion",),
    "jax.transfer_guard": ("jax_transfer_guard",),
    "jax.transfer_guard_device_to_device": ("jax_transfer_guard_device_to_device",),
    "jax.transfer_guard_device_to_host": ("jax_transfer_guard_device_to_host",),
    "jax.transfer_guard_host_to_device": ("jax_transfer_guard_host_to_device",),
}
"""Context managers that change a setting without effect here: its name, and a fixed value."""

NO_OP_FUNCTIONS = frozenset(
    [
        "jax._src.dispatch.wait_for_tokens",
        "jax._src.traceback_util.register_exclusion",
        "jax.clear_backends",
        "jax.effects_barrier",
    ]
)
"""Functions that have no effect here."""


def current_name(full: str) -> str:
    """Return the name that `full`, from any version of JAX, has in recent versions."""
    for pattern, replacement in OLDER_NAME_PATTERNS:
        if re.fullmatch(pattern, full):
            return re.sub(pattern, replacement, full)
    return full
