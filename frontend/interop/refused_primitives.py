"""Primitives of JAX that `from_jax` refuses, with the reason and an alternative.

`reason_for_refusal` returns them for the name of a primitive. Every primitive of JAX 0.10.2 has a
rule, is computed by the StableHLO operations to which JAX lowers it, or is in `REFUSALS`;
`tests/frontend/interop/test_primitive_table.py` checks this.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Refusal(NamedTuple):
    """Primitives that have no meaning in shardir for one reason."""

    reason: str
    alternative: str
    names: Sequence[str]


REFUSALS = (
    Refusal(
        "it draws other numbers in each run",
        "draw them by jax.random.uniform from a key",
        ("rng_uniform",),
    ),
    Refusal(
        "it orders effects by tokens, which programs of shardir do not have",
        "use an ordered jax.experimental.io_callback",
        ("after_all", "create_token"),
    ),
    Refusal(
        "it belongs to a derivative that JAX is still computing",
        "call from_jax on the function that takes the derivative",
        ("custom_lin", "zeros_like", "custom_jvp_call_jaxpr"),
    ),
    Refusal(
        "it reads or writes a mutable array (jax.Ref) or box",
        "carry the contents as a value, and return the new contents",
        (
            "accum_grad_in_ref", "add_dependency", "addupdate", "box_get", "box_set", "empty_ref",
            "free_ref", "freeze", "get", "log_extend", "log_read", "new_box", "new_log", "new_ref",
            "pin", "run_state", "swap", "unpin",
        ),
    ),
    Refusal(
        "it is an instruction of a Pallas kernel",
        "call an implementation by jax.numpy, or compute it by jax.pure_callback",
        (
            "assert_consumed_value", "bitcast", "broadcast_to", "consume", "core_map",
            "create_linear", "delay", "dma_start", "dma_wait", "einshape_lo", "emit_pipeline",
            "fusible", "get_barrier_semaphore", "get_global", "jaxpr_call", "masked_load",
            "masked_swap", "matmul_acc_lhs", "matmul_pop", "matmul_push_rhs", "mosaic_gpu_p",
            "mpmd_map", "multiple_of", "num_programs", "pack_dtype", "pack_elementwise",
            "pallas_call", "pipeline_body", "prng_join", "prng_random_bits", "prng_seed",
            "prng_split", "program_id", "reciprocal", "roll", "run_scoped", "semaphore_read",
            "semaphore_signal", "semaphore_wait", "stochastic_round", "tpu_custom_call",
            "trace_value", "unpack_dtype", "unpack_elementwise", "remove_memory_space",
            "with_memory_space_constraint",
        ),
    ),
    Refusal(
        "it calls a kernel of cuDNN or cuSPARSE, which runs on GPUs of NVIDIA alone",
        'use the implementation by XLA, such as implementation="xla"',
        (
            "coo_spmm", "coo_spmv", "csr_spmm", "csr_spmv", "cudnn_fusion",
            "dot_product_attention_bwd", "dot_product_attention_bwd_wrapper",
            "dot_product_attention_fp8_bwd", "dot_product_attention_fp8_bwd_wrapper",
            "dot_product_attention_fp8_fwd", "dot_product_attention_fp8_fwd_wrapper",
            "dot_product_attention_fwd", "dot_product_attention_fwd_wrapper", "rnn_bwd",
            "rnn_fwd", "scaled_matmul", "scaled_matmul_wrapper",
        ),
    ),
    Refusal(
        "it calls foreign code that only XLA loads",
        "compute it by jax.pure_callback",
        ("buffer_callback", "ffi_call"),
    ),
    Refusal(
        "it factorizes a sparse matrix by a library that only XLA calls",
        "use jax.scipy.sparse.linalg.cg or gmres, or jax.pure_callback",
        ("spsolve",),
    ),
    Refusal(
        "it starts or ends an asynchronous transfer, and shardir schedules transfers itself",
        "use the collective without start and done; the pass overlap runs it during computation",
        (
            "all_gather_done", "all_gather_reduced_start", "all_gather_start", "all_to_all_done",
            "all_to_all_start", "pbroadcast_done", "pbroadcast_start", "ppermute_done",
            "ppermute_start", "precv", "psend", "psum_done", "psum_invariant_start", "psum_start",
            "reduce_scatter_done", "reduce_scatter_start", "unreduced_psum_start",
            "unreduced_reduce_scatter_start",
        ),
    ),
    Refusal(
        "it keeps partial sums in the type of a value inside of shard_map",
        "reduce by psum or psum_scatter inside of shard_map",
        (
            "all_gather_reduced", "preduced", "reduced_vary_cast_p", "unreduced_psum",
            "unreduced_reduce_scatter", "vary_unreduced_cast_p",
        ),
    ),
    Refusal(
        "it computes with a size that is known only at run time",
        "trace the function for each shape",
        ("dim_as_value", "dimension_size", "shape_assertion"),
    ),
    Refusal(
        "it is a check at run time that JAX has not made functional",
        "wrap the function in jax.experimental.checkify.checkify",
        ("check", "unreachable"),
    ),
    Refusal(
        "it converts between arrays of one process and of all processes, and is not a computation",
        "call it outside of from_jax",
        ("global_array_to_host_local_array", "host_local_array_to_global_array"),
    ),
    Refusal(
        "it belongs to an experimental kind of JAX types (hijax)",
        "use arrays",
        (
            "call_hi_primitive", "call_hi_primitive_linearized", "eval_jaxpr", "from_edtype",
            "stage", "to_edtype",
        ),
    ),
    Refusal(
        "it is a call that only a compiler plug-in of XLA expands",
        "call the function directly",
        ("custom_fusion", "dce_sink"),
    ),
)  # fmt: skip
"""The reasons, with the names of the primitives that are refused for them."""

_REFUSAL_BY_NAME = {name: refusal for refusal in REFUSALS for name in refusal.names}


def reason_for_refusal(name: str) -> tuple[str, str] | None:
    """Return the reason for the refusal of a primitive, and an alternative; `None` if another
    primitive of this name may be read.
    """
    refusal = _REFUSAL_BY_NAME.get(name)
    return None if refusal is None else (refusal.reason, refusal.alternative)
