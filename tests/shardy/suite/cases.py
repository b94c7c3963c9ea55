"""The suites of Shardy's test files: passes, comparisons, and excluded cases with reasons.

To add a suite, add an entry: the files, the passes that correspond to their RUN line, and the
comparison of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from shardir.ir.module import Function, Module
from shardir.passes import InsertExplicitReshards, Propagate
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.propagation_levels import PropagationRun
from shardir.passes.propagation.split_constants import split_constants
from tests.shardy.suite.check_files import Case, cases_of
from tests.shardy.suite.check_matching import ComparisonMode, Matcher
from tests.shardy.suite.collectives import compare_collectives
from tests.shardy.suite.edge_comparison import compare_edges
from tests.shardy.suite.execution import execute, whole_file
from tests.shardy.suite.refusals import compare_printed, compare_refusal, functions_of, parts_of
from tests.shardy.suite.reshard_comparison import ReshardMatcher, with_names_kept

SDY = "shardy/dialect/sdy/transforms"
Passes = Callable[[Module], Module]
PROPAGATION = "propagation, rules, origins and edges"


@dataclass(frozen=True)
class Suite:
    """`files` are paths below the checkout; `passes` run before the comparison.

    `origins` is the source of axis origins, for suites that compare them.
    `whole`: operations that would become several are one opaque operation.
    `alone`: each function runs without the others of its module.
    `conservative`: rules are those of conservative propagation.
    `compare` replaces the comparison with the CHECK lines.
    `execute` replaces the comparison of a complete case; `divide` divides a file into cases.
    `part` is the group in which its cases are counted, if they are in scope.
    `left_out` are excluded cases by function and label line, with the reason.
    """

    name: str
    files: tuple[str, ...]
    passes: Passes
    mode: ComparisonMode
    part: str = PROPAGATION
    origins: Propagate | None = None
    execute: Callable[[Case, Passes], list[str]] | None = None
    divide: Callable[[str, str], list[Case]] = cases_of
    compare: Callable[[Case, Module], list[str]] | None = None
    matcher: type[Matcher] = Matcher
    whole: bool = False
    alone: bool = False
    conservative: bool = False
    left_out: dict[str, str] = field(default_factory=dict)


def _propagation(*names: str) -> tuple[str, ...]:
    return tuple(f"{SDY}/propagation/test/{name}.mlir" for name in names)


def _import(name: str) -> str:
    return f"{SDY}/import/test/{name}.mlir"


def _constants_split(module: Module) -> Module:
    """Run only the first preparation of propagation."""
    return replace(module, functions=tuple(map(_split, module.functions)))


def _split(function: Function) -> Function:
    draft = FunctionDraft(function)
    split_constants(draft)
    return draft.build()


def _insert_reshards(module: Module) -> Module:
    return with_names_kept(InsertExplicitReshards()(module))


EXPORT = f"{SDY}/export/test"
RESHARDS = (
    "bitcast_convert", "broadcast_in_dim", "call_ops", "cholesky_triangular_solve", "clamp_select",
    "collective_ops", "concatenate", "convolution", "custom_call", "data_flow_ops",
    "dot_dot_general", "dynamic_slice_dynamic_update_slice", "elementwise_ops", "fft",
    "func_inputs_outputs", "gather_scatter", "manual_computation", "meshes", "pad_slice", "reduce",
    "reduce_window_select_and_scatter", "reshape", "reverse", "rng_bit_generator",
    "single_device_sharding", "sort", "unreduced",
)  # fmt: skip
EXECUTABLE = (
    "single_device_add", "single_device_switch", "stablehlo_dot_general_indivisible",
    "stablehlo_pad_indivisible", "stablehlo_pad_interior", "stablehlo_pad_large_pad",
    "stablehlo_pad_large_pad_within_one_hop", "stablehlo_pad_left_shift",
    "stablehlo_pad_multidim_mixed_shifts", "stablehlo_pad_multidim_with_hops",
    "stablehlo_pad_multiple_hops_right_shift", "stablehlo_pad_multiple_right_hops",
    "stablehlo_pad_replica_id", "stablehlo_pad_replicated_dual_slice_pad",
    "stablehlo_pad_replicated_negative_high_padding",
    "stablehlo_pad_replicated_negative_low_padding", "stablehlo_pad_right_shift",
    "stablehlo_pad_single_left_hop", "stablehlo_pad_single_right_hop",
    "stablehlo_reshape_1d_to_2d_split", "stablehlo_reshape_1d_to_2d_split_2groups",
    "stablehlo_reshape_1d_to_2d_split_custom_device_ids",
    "stablehlo_reshape_1d_to_2d_split_gap_2",
    "stablehlo_reshape_1d_to_2d_split_passthrough_indivisible",
    "stablehlo_reshape_2d_split_unrelated_axis", "stablehlo_reshape_axis_shift",
    "stablehlo_reverse_multi_dim_divisible", "stablehlo_reverse_single_dim_indivisible",
    "stablehlo_slice_comm_free", "stablehlo_slice_indivisible", "stablehlo_slice_replicated",
    "stablehlo_slice_replicated_mesh_2", "stablehlo_slice_with_communication",
)  # fmt: skip
LOWERED = (
    "sdy_all_gather", "sdy_all_reduce", "sdy_all_slice", "sdy_all_to_all",
    "sdy_collective_permute_with_self_loops", "sdy_collective_permute_without_self_loops",
    "sdy_constant", "sdy_reduce_scatter", "stablehlo_all_gather", "stablehlo_all_reduce",
    "stablehlo_all_to_all", "stablehlo_collective_permute", "stablehlo_concatenate",
    "stablehlo_convolution_shard_batch", "stablehlo_convolution_shard_batch_group",
    "stablehlo_convolution_shard_contracting_dim",
    "stablehlo_convolution_shard_feature_group", "stablehlo_dot_general", "stablehlo_fft",
    "stablehlo_gather_shard_reduction_dim_is_collapsed",
    "stablehlo_gather_shard_reduction_dim_is_collapsed_not_in_start_index_map",
    "stablehlo_gather_shard_two_reduction_dims", "stablehlo_iota",
    "stablehlo_pad_non_sharded", "stablehlo_pad_sharded_non_uniform",
    "stablehlo_pad_sharded_uniform", "stablehlo_reduce_scatter", "stablehlo_reduce_window",
    "stablehlo_scatter_shard_implicit_dim", "stablehlo_scatter_shard_indexed_inserted_dim",
    "stablehlo_select_and_scatter", "stablehlo_slice", "stablehlo_sort",
)  # fmt: skip
BATCHED = (
    "gather_iota_at_end_of_concat", "gather_iota_broadcast_concat",
    "gather_iota_concat_batch_dim", "gather_iota_reshaped_concat", "scatter_batch_dim",
)  # fmt: skip


def _as_read(module: Module) -> Module:
    return module


def _without_steps(propagate: Propagate) -> Passes:
    """Return the preparation and the end of propagation, without any step in between."""

    def run(module: Module) -> Module:
        with patch.object(PropagationRun, "run", lambda run, state: None):
            return propagate(module)

    return run


IR = "shardy/dialect/sdy/ir/test"
REFUSED = (
    "collective_verification", "constant_verification", "edge_sharding_verification",
    "manual_computation_verification",
    "mesh_verification", "named_computation_verification", "propagation_barrier_verification",
    "reshard_verification", "sharding_constraint_verification", "sharding_rule_parsing_failure",
    "sharding_rule_verification", "tensor_sharding_parsing_failure", "tensor_sharding_verification",
)  # fmt: skip
PRINTED = (
    "collective_parse_print", "constant_parse_print", "edge_sharding_parse_print",
    "manual_computation_parse_print",
    "mesh_parse_print", "named_computation_parse_print", "propagation_barrier_parse_print",
    "sharding_group_parse_print", "sharding_rule_parse_print", "tensor_sharding_parse_print",
)  # fmt: skip

COMBINED = (
    "shardir reduces a value that is unreduced by max before it makes it unreduced by sum; Shardy "
    "has no collective for this"
)
EQUAL = "shardir makes a replicated value unreduced by max: all its partial values are equal"
KINDS_OF_PARTIAL_VALUES = {
    "reshard_mismatch_reduction_op": COMBINED,
    "reshard_introduces_axes_non_sum": EQUAL,
    "reshard_keep_and_introduce_mismatch": COMBINED,
    "sharding_constraint_mismatch_reduction_op": COMBINED,
    "sharding_constraint_introduces_axes_non_sum": EQUAL,
}
INSERTED = (
    "Shardy examines a program after it has inserted all reductions; shardir inserts the reduction "
    "of this operand in insert-explicit-reshards"
)
CALLED = "shardir inserts the reduction at the boundary of the call in insert-explicit-reshards"
UNREDUCED = {
    "dropped_by_add": INSERTED,
    "callee_without_unreduced": CALLED,
    "callee_with_unreduced": CALLED,
    "callee_returns_reduced": CALLED,
    "callee_expects_unreduced": CALLED,
    "manual_computation_drops_unreduced_proper": "shardir refuses a manual computation whose "
    "operand is unreduced along a manual axis",
    "reshard_mismatches_unreduced_kind": COMBINED,
    "constraint_mismatches_unreduced_kind": COMBINED,
    "dot_unreduced_max_error": "shardir adds the partial products before it makes the value "
    "unreduced by max",
    "reduce_sum_unreduced_max_error": "shardir adds the partial sums before it makes the value "
    "unreduced by max",
    "stablehlo_all_reduce_mismatch": "outside of a manual computation, stablehlo.all_reduce is an "
    "opaque operation, which shardir does not run",
    "reshard_mismatch_reduction_op": COMBINED,
    "sdy_all_reduce_unsharded": "the verifier of sdy.all_reduce accepts an operand without "
    "sharding; shardir reads it as unreduced along the axes of the operation",
    "default_op_mismatches_unreduced_kind": COMBINED,
}

IN_PLACE = "the computation is read as a call, which is printed as a call of a private function"
STATIC = "the reader refuses types with a size that is known only at run time"
WITHOUT_MESH = "the manual axes of this computation without operands and results are in no mesh"
NOT_PRINTED = {
    "one_input_output": IN_PLACE,
    "two_inputs_outputs": IN_PLACE,
    "in_out_shardings": IN_PLACE,
    "token_type_with_sharding": IN_PLACE,
    "constant_different_types": "the reader refuses quantized types",
    "manual_computation_with_manual_axes_no_inputs_outputs_and_empty_body": WITHOUT_MESH,
    "manual_computation_with_manual_axes_no_inputs_outputs_non_empty_body": WITHOUT_MESH,
    "manual_computation_dynamic_shapes": STATIC,
    "dynamic_shaped_tensor_with_sharding": STATIC,
    "single_tuple": "the reader refuses tuples",
}

NOT_IMPORTED = (
    "call graph: nothing is to flow into a function that is called before the passes that "
    "import calls; ours is the block of the call"
)
EDGE = (
    "call graph: the edge at the border of a function has a sharding of its own; our parameter or "
    "result has the sharding of the edge"
)
SHARED = "call graph: all calls of a function share one sharding; ours are cut one by one"

SCALAR_CONSTRAINT = (
    "the constraint of a scalar inside the computation of a scatter states no axes, and the "
    "computation is read as the attribute of the scatter, which has no block"
)
WRONG_ORIGIN = (
    "a comment of the test describes the expected origin as wrong: the result states the axis "
    "itself, and the test attributes it to the argument"
)
WITHOUT_SHARDING = (
    "Shardy leaves a value without sharding as it is for XLA's partitioner; in shardir it is "
    "replicated, and must be divided before it is unreduced"
)
DEVICE_NUMBER = (
    "the test replaces an operation with an effect by an addition of `partition_id`, a value that "
    "differs between devices; outside of a manual computation, XLA's partitioner refuses it, too. "
    "tests/passes/test_single_devices.py runs an operation on one device"
)
ONE_MESH = "all values of a program of shardir are on one mesh with one order of devices"
FUNCTION_BOUNDARY = (
    "the pass trims the boundary of each function, because XLA assigns a layout to it; a call of "
    "shardir is a part of its function, and uneven shards of its parameters are padded"
)

SUITES = (
    Suite(
        "rules",
        _propagation("op_sharding_rule_registry", "op_sharding_rule_registry_failures"),
        _as_read,
        ComparisonMode(),
        whole=True,
    ),
    Suite(
        "conservative rules",
        _propagation("op_sharding_rule_registry_conservative"),
        _as_read,
        ComparisonMode(),
        whole=True,
        conservative=True,
    ),
    Suite(
        "basic",
        _propagation("basic_propagation", "basic_propagation_keep_sharding_rules",
                     "basic_propagation_token", "basic_propagation_data_flow_edges",
                     "basic_propagation_manual_computation", "sharding_group_propagation"),
        Propagate(level="basic", keep_open=True, prepare=False),
        ComparisonMode(),
        whole=True,
        left_out={
            "dynamic_shaped_func_output_skipped:814": STATIC,
            "scalar_block_arg_with_sharding_constraint:1010": SCALAR_CONSTRAINT,
            "foo:1099": NOT_IMPORTED,
            "foo:847": EDGE,
            "shard_as_applies_across_functionB:42": "call graph: a group with a member in a "
            "private function that nobody calls",
        },
    ),
    Suite(
        "conservative",
        _propagation("basic_propagation_conservative"),
        Propagate(level="basic", keep_open=True, prepare=False, conservative=True),
        ComparisonMode(),
    ),
    Suite(
        "aggressive",
        _propagation("aggressive_propagation"),
        Propagate(level="aggressive", keep_open=True, prepare=False),
        ComparisonMode(),
    ),
    Suite(
        "op-priority",
        _propagation("op_priority_propagation"),
        Propagate(level="op-priority", keep_open=True, prepare=False),
        ComparisonMode(),
    ),
    Suite(
        "user-priority",
        _propagation("user_priority_propagation"),
        Propagate(level="user-priority", keep_open=True, prepare=False),
        ComparisonMode(),
        whole=True,
    ),
    Suite(
        "origins",
        (f"{SDY}/propagation/debugging/test/sharding_origins.mlir",),
        Propagate(level="aggressive", keep_open=True),
        ComparisonMode(),
        origins=Propagate(level="aggressive", keep_open=True),
        left_out={
            f"direct_returned_arg_new_axis_{each}:{line}": WRONG_ORIGIN
            for each, line in (("input", 81), ("output", 97))
        },
    ),
    Suite(
        "edges",
        (f"{SDY}/propagation/debugging/test/edge_shardings.mlir",),
        _as_read,
        ComparisonMode(),
        execute=compare_edges,
    ),
    Suite(
        "pipeline",
        _propagation("propagation_pipeline", "propagation_pipeline_data_flow_edges",
                     "propagation_pipeline_dedup_functions_fully_true"),
        Propagate(),
        ComparisonMode(closed=True, moved=True),
        left_out={"main:6": SHARED, "foo:20": SHARED, "main:265": SHARED, "foo:281": SHARED},
    ),
    Suite(
        "reshards",
        tuple(f"{EXPORT}/insert_explicit_reshards/{name}.mlir" for name in RESHARDS),
        _insert_reshards,
        ComparisonMode(closed=True),
        part="explicit reshards",
        matcher=ReshardMatcher,
        whole=True,
        alone=True,
        left_out={
            "all_reduce_source_no_sharding_and_target_has_unreduced:223": WITHOUT_SHARDING
        },
    ),
    Suite(
        "collectives",
        (f"{EXPORT}/reshard_to_collectives.mlir",),
        _as_read,
        ComparisonMode(),
        part="reshards to collectives",
        compare=compare_collectives,
    ),
    Suite(
        "executable",
        (
            *(f"{EXPORT}/executable_partitioner_pipeline/{name}.mlir" for name in EXECUTABLE),
            *(f"{EXPORT}/executable_convert_global_to_local/{name}.mlir" for name in LOWERED),
            *(_import(f"executable_explicit_gather_scatter_batching/{name}") for name in BATCHED),
        ),
        _as_read,
        ComparisonMode(),
        part="executable files",
        execute=execute,
        divide=whole_file,
        left_out={
            "single_device_add": DEVICE_NUMBER,
            "single_device_switch": DEVICE_NUMBER,
            "sdy_collective_permute_without_self_loops": ONE_MESH,
        },
    ),
    Suite(
        "refusals",
        tuple(f"{IR}/{name}.mlir" for name in REFUSED),
        _as_read,
        ComparisonMode(),
        part="refused programs",
        execute=compare_refusal,
        divide=parts_of,
        left_out={
            **KINDS_OF_PARTIAL_VALUES,
            "missing_sharding": "the axes of edges beside no sharding are those of the only mesh",
        },
    ),
    Suite(
        "refusals of groups",
        (_import("sharding_group_constraints"), _import("manual_axes_cleanup_failures")),
        Propagate(),
        ComparisonMode(),
        part="refused programs",
        execute=compare_refusal,
        divide=parts_of,
    ),
    Suite(
        "unreduced axes",
        (f"{EXPORT}/verify_unreduced_axes.mlir",),
        _as_read,
        ComparisonMode(),
        part="refused programs",
        execute=compare_refusal,
        divide=parts_of,
        left_out=UNREDUCED,
    ),
    Suite(
        "printed",
        tuple(f"{IR}/{name}.mlir" for name in PRINTED),
        _as_read,
        ComparisonMode(),
        part="printed programs",
        execute=compare_printed,
        divide=functions_of,
        left_out=NOT_PRINTED,
    ),
    Suite(
        "constraints applied",
        (_import("apply_sharding_constraints"), _import("remove_size_one_axes")),
        _without_steps(Propagate(keep_open=True)),
        ComparisonMode(),
        part="import and export",
        left_out={"cannot_attach_sharding_to_input:31": SCALAR_CONSTRAINT},
    ),
    Suite(
        "boundaries",
        (f"{EXPORT}/update_non_divisible_input_output_shardings.mlir",
         f"{EXPORT}/remove_sub_axes_in_input_output_shardings.mlir"),
        _without_steps(Propagate(leave_open=True, prepare=False)),
        ComparisonMode(),
        part="import and export",
        left_out=dict.fromkeys(
            ("single_call:137", "foo:145", "simple_non_flat:156", "foo:166", "bar:176"),
            FUNCTION_BOUNDARY,
        ),
    ),
    Suite(
        "closed",
        (f"{EXPORT}/close_shardings.mlir",),
        _without_steps(Propagate(prepare=False)),
        ComparisonMode(closed=True),
        part="import and export",
    ),
    Suite(
        "redundant reshards",
        (f"{EXPORT}/reshard_to_collectives_keep_redundant_reshards_true.mlir",),
        _as_read,
        ComparisonMode(),
        part="reshards to collectives",
        compare=compare_collectives,
    ),
    Suite(
        "import as read",
        (_import("lift_inlined_meshes"), _import("manual_axes_cleanup"),
         _import("sharding_group_import")),
        _as_read,
        ComparisonMode(),
        part="",
    ),
    Suite(
        "import constants",
        (_import("constant_or_scalar_splitter"),),
        _constants_split,
        ComparisonMode(),
        part="",
    ),
)  # fmt: skip
