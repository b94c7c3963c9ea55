"""The public names of JAX that shardir does not have, each with the reason and an alternative.

Errors for unknown names state them. `tests/jax_namespace.py` compares the table with an installed
JAX: every missing name is here, and every name here is missing.
"""

from functools import cache

ABSENT_NAMES: dict[str, str] = {
    "JAX's primitives identify equations of its programs, and programs of shardir consist of "
    "operations; call the function of the same name, or define one with shardir.extend": """
        custom_derivatives.*_p lax.*_p lax.linalg.*_p random.random_gamma_p
    """,
    "arrays do not change in place; update a copy with x.at[index].set(value), and carry it "
    "through loops in the state of shardir.lax.scan or fori_loop": """
        Ref empty_ref free_ref freeze new_ref ref
    """,
    "it indexes references to arrays that change in place; slice an array with "
    "shardir.lax.dynamic_slice": """
        ds
    """,
    "it is a module of JAX's implementation, not an interface for programs; use the public names "
    "of shardir": """
        ad api_util core interpreters lib version
    """,
    "the setting changes how JAX traces or compiles, and has no counterpart; leave it out": """
        allow_f16_reductions array_garbage_collection_guard auto_pcast enable_checks
        jax2tf_associative_scan_reductions make_user_context no_execution
        no_tracing remove_size_one_mesh_axis_from_type softmax_custom_jvp thread_guard
    """,
    "the reasons are always recorded; call cache_info() of a function of shardir.jit": """
        explain_cache_misses
    """,
    "JAX documents it as an older name; call shardir.process_count or shardir.process_index": """
        host_count host_id host_ids
    """,
    "shardir.ops contains the operations of programs; call the function of the same name in "
    "shardir": """
        ops.segment_max ops.segment_min ops.segment_prod ops.segment_sum
    """,
    "a traced program is a module of shardir's IR, not a jaxpr; call shardir.make_ir": """
        make_jaxpr
    """,
    "JAX reports events of its own implementation there; shardir.log_compiles, cache_info and "
    "profile report those of shardir": """
        monitoring
    """,
    "a trace is a file, without a server and options of XLA; call shardir.profiler.start_trace or "
    "shardir.profiler.trace": """
        profiler.ProfileData profiler.ProfileEvent profiler.ProfileOptions profiler.ProfilePlane
        profiler.register_subprocess profiler.start_server profiler.stop_server
    """,
    "shardir.live_arrays lists the memory of arrays, and memory_analysis of a compiled function "
    "that of a program": """
        profiler.device_memory_profile profiler.save_device_memory_profile
    """,
    "each function has one algorithm for each element type; convert the operands to a wider type "
    "for more accuracy": """
        lax.linalg.EigImplementation lax.linalg.EighImplementation lax.linalg.SvdAlgorithm
    """,
    "effects of a program are ordered without tokens, and collectives name their pairs; leave "
    "tokens out, and send with shardir.lax.ppermute": """
        lax.after_all lax.create_token lax.precv lax.psend
    """,
    "a function without used results has no effect on a program; call shardir.io_callback": """
        lax.dce_sink
    """,
    "call the foreign function from Python, for example with ctypes, in shardir.pure_callback": """
        ffi
    """,
    "arrays are in the memory of their devices, and shardings refuse all other memory kinds; leave "
    "it out": """
        memory
    """,
    "the shapes of a program are constant; export a program for each shape": """
        export.SymbolicScope export.is_symbolic_dim export.symbolic_args_specs export.symbolic_shape
    """,
    "a serialized program states its own format, and its pytrees are dictionaries, lists and "
    "tuples; convert other nodes before": """
        export.DisabledSafetyCheck export.maximum_supported_calling_convention_version
        export.minimum_supported_calling_convention_version
        export.register_namedtuple_serialization export.register_pytree_node_serialization
    """,
    "keys may be used several times, and no setting checks this; leave it out": """
        experimental.key_reuse
    """,
    "arrays are dense; pass the indices and the values of a sparse array as two arrays": """
        experimental.sparse
    """,
    "the code generators of the backends write kernels; a kernel of the user joins a program as an "
    "operation of a backend (docs/extending.md) or in shardir.pure_callback": """
        experimental.buffer_callback experimental.pallas
    """,
    "it calls kernels of cuDNN; shardir.lax.scan expresses the same recurrence": """
        experimental.rnn
    """,
    "it annotates or fuses equations for XLA, which does not run these programs; leave it out": """
        experimental.compute_on experimental.fused experimental.scheduling_groups
        experimental.xla_metadata
    """,
    "it serves accelerators that XLA's runtimes manage; make a mesh with shardir.make_mesh": """
        experimental.colocated_python experimental.topologies experimental.transfer
    """,
    "it extends the types of JAX's programs; define operations with shardir.extend": """
        experimental.hijax
    """,
    "the setting checks programs, and shardir acts as its default value in JAX states; leave it "
    "out": """
        debug_key_reuse dtypes.TypePromotionError numpy_dtype_promotion
        numpy_rank_promotion transfer_guard
        transfer_guard_device_to_device transfer_guard_device_to_host
        transfer_guard_host_to_device
    """,
    "compiled kernels are always cached on disk, and shardir.export serializes programs": """
        experimental.compilation_cache experimental.serialize_executable
    """,
    "the backends choose the layouts of buffers; leave it out": """
        experimental.layout
    """,
    "a policy of shardir.checkpoint returns whether a value is saved, in the memory of its "
    "devices; return a bool": """
        ad_checkpoint.Offloadable ad_checkpoint.Recompute ad_checkpoint.Saveable
    """,
    "it identifies an effect, or a part of a type, of JAX's own programs; use the public names of "
    "shardir": """
        debug.DebugEffect debug.OrderedDebugEffect
    """,
    "an AbstractMesh has names and sizes of axes, but no kind of device; leave it out": """
        sharding.AbstractDevice
    """,
    "it quantizes operands for units of Blackwell GPUs; pass quantized operands to "
    "shardir.nn.scaled_matmul or shardir.lax.scaled_dot": """
        nn.get_scaled_dot_general_config nn.scaled_dot_general
    """,
    "XLA for CPUs refuses this element type; use a wider one": """
        numpy.float6_e2m3fn numpy.float6_e3m2fn
    """,
    "XLA for CPUs exchanges this element type with bools, and does not compute with it; use bool "
    "or a wider integer": """
        numpy.int1 numpy.uint1
    """,
    "the registry of node types is not an object; call shardir.tree_util.register_pytree_node": """
        tree_util.default_registry
    """,
    "JAX implements the module with its public names; `python -m shardir as-jax` runs it": """
        example_libraries
    """,
}
"""The names relative to `shardir`, by what errors state about them; `*_p` is any name that ends
in `_p`."""


@cache
def absence_reasons() -> dict[str, str]:
    """Return what errors state about each name, and about each pattern, relative to `shardir`."""
    return {name: reason for reason, names in ABSENT_NAMES.items() for name in names.split()}


def matches_pattern(name: str, pattern: str) -> bool:
    """Return whether a name or a pattern of `ABSENT_NAMES` stands for a name."""
    if not pattern.endswith("*_p"):
        return name == pattern
    module = pattern.removesuffix("*_p")
    return name.startswith(module) and "." not in name[len(module) :] and name.endswith("_p")


def absence_reason(full_name: str) -> str | None:
    """Return what an error states about a name such as `shardir.lax.add_p`; `None` for a name that
    JAX does not have either."""
    name = full_name.removeprefix("shardir.")
    for pattern, reason in absence_reasons().items():
        if matches_pattern(name, pattern):
            return reason
    return None
