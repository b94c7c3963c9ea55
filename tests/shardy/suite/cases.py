"""The suites of Shardy's test files: passes, comparisons, and excluded cases with reasons.

To add a suite, add an entry: the files, the passes that correspond to their RUN line, and the
comparison of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shardir.ir.module import Function, Module
from shardir.passes import InsertExplicitReshards, Propagate
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.split_constants import split_constants
from tests.shardy.suite.check_files import Case
from tests.shardy.suite.check_matching import ComparisonMode, Matcher
from tests.shardy.suite.collectives import compare_collectives
from tests.shardy.suite.execution import execute
from tests.shardy.suite.reshard_comparison import ReshardMatcher, with_names_kept

SDY = "shardy/dialect/sdy/transforms"
Passes = Callable[[Module], Module]
PROPAGATION = "propagation, rules and origins"


@dataclass(frozen=True)
class Suite:
    """`files` are paths below the checkout; `passes` run before the comparison.

    `origins` is the source of axis origins, for suites that compare them.
    `whole`: operations that would become several are one opaque operation.
    `alone`: each function runs without the others of its module.
    `conservative`: rules are those of conservative propagation.
    `compare` replaces the comparison with the CHECK lines.
    `execute` replaces the comparison of a complete file.
    `part` is the group in which its cases are counted, if they are in scope.
    `left_out` are excluded cases by function and label line, with the reason.
    """

    name: str
    files: tuple[str, ...]
    passes: Passes
    mode: ComparisonMode
    part: str = PROPAGATION
    origins: Propagate | None = None
    execute: Callable[[Case], list[str]] | None = None
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


NOT_IMPORTED = (
    "call graph: nothing is to flow into a function that is called before the passes that "
    "import calls; we read it in place of the call"
)
EDGE = (
    "call graph: the edge at the border of a function has a sharding of its own; we read the "
    "function in place, where its parameters and results are the values of the caller"
)
SHARED = "call graph: all calls of a function share one sharding; ours are cut one by one"

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
            "foo:1099": NOT_IMPORTED,
            "foo:847": EDGE,
            "main:749": EDGE,
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
    ),
    Suite(
        "origins",
        (f"{SDY}/propagation/debugging/test/sharding_origins.mlir",),
        Propagate(level="aggressive", keep_open=True),
        ComparisonMode(),
        origins=Propagate(level="aggressive", keep_open=True),
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
