"""Test files of Shardy in no suite, each with the reason.

`NOT_APPLICABLE` has the files whose passes have no counterpart in shardir, `NOT_SUPPORTED` those
of semantics that shardir lacks. The runner prints both tables, and every file in neither.
"""

SDY = "shardy/dialect/sdy"
IMPORT = f"{SDY}/transforms/import/test"
EXPORT = f"{SDY}/transforms/export/test"
LOCAL = f"{EXPORT}/convert_global_to_local"
PAD = f"{EXPORT}/pad_for_divisibility"

NOT_APPLICABLE = {
    f"{SDY}/ir/test/data_flow_edge_verification.mlir": (
        "edges are properties of the operations of shardir, not operations: a written edge only "
        "states a sharding"
    ),
    f"{SDY}/ir/test/func_data_flow_edge_verification.mlir": (
        "these edges exist only inside of Shardy's pipeline, between two of its passes"
    ),
    f"{IMPORT}/add_data_flow_edges.mlir": (
        "the pass inserts operations for edges; shardir derives edges from the operations, and "
        "the suites `basic` and `pipeline` compare the shardings that they propagate"
    ),
    f"{IMPORT}/add_func_data_flow_edges.mlir": (
        "the pass inserts operations for the edges of calls; shardir derives edges from the calls"
    ),
    f"{IMPORT}/pre_order_funcs.mlir": (
        "the pass sorts the functions of a module, whose order has no meaning in shardir"
    ),
    f"{IMPORT}/explicit_gather_scatter_batching.mlir": (
        "the pass rewrites gathers of concatenated iotas to batching dimensions; shardir "
        "partitions the gather itself, and the suite `executable` compares the numbers of the "
        "five executable files of this pass"
    ),
    f"{IMPORT}/import_func_calls.mlir": (
        "the reader gives each call the body of its function as its block"
    ),
    f"{IMPORT}/import_func_calls_add_data_flow_edges_on_named_computations_false.mlir": (
        "calls have blocks as soon as they are read; the option concerns only the "
        "operations for their edges"
    ),
    f"{IMPORT}/flatten_call_graph.mlir": (
        "the pass copies a function for each call; each call of shardir has a block of its own"
    ),
    f"{IMPORT}/propagate_sharding_from_func_to_call.mlir": (
        "the pass copies the shardings of a function to its calls, which the reader does; "
        "the suite `pipeline` compares the result"
    ),
    f"{EXPORT}/sink_data_flow_edges.mlir": (
        "the pass removes the operations for edges, which shardir does not have"
    ),
    f"{EXPORT}/sink_func_data_flow_edges.mlir": (
        "the pass removes the operations for the edges of calls, which shardir does not have"
    ),
    f"{EXPORT}/export_named_computations.mlir": (
        "the pass makes functions of inlined named computations; the reader makes calls of them"
    ),
    f"{EXPORT}/propagate_to_func_results.mlir": (
        "the pass copies shardings to the results of called functions; in shardir, the results of "
        "calls have them"
    ),
    f"{EXPORT}/insert_explicit_reshards/call_ops_enable_full_version_false.mlir": (
        "the partial version of the pass, which leaves conflicts to XLA's partitioner; shardir "
        "has the full version"
    ),
    f"{EXPORT}/insert_explicit_reshards.mlir": (
        "the partial version of the pass, which leaves conflicts to XLA's partitioner; shardir "
        "has the full version, which the suite `reshards` compares"
    ),
    f"{EXPORT}/constant_or_scalar_merger.mlir": (
        "the pass merges equal constants again for XLA; shardir has `cse`, which merges any equal "
        "operations of equal shardings"
    ),
    f"{EXPORT}/drop_sharding_and_mesh.mlir": (
        "after `partition`, a program of shardir has no shardings that a pass would have to drop"
    ),
    f"{EXPORT}/drop_sharding_rules.mlir": (
        "rules are not attributes of operations in shardir, except those that a text states, which "
        "it keeps"
    ),
    f"{EXPORT}/inline_meshes.mlir": (
        "the pass writes meshes inside of shardings, a form of text; shardir writes named meshes"
    ),
    f"{EXPORT}/remove_propagation_debug_info.mlir": (
        "the record of propagation is beside the program, so that nothing has to be removed"
    ),
    f"{EXPORT}/remove_sharding_groups.mlir": (
        "groups have no effect after propagation; they stay in the text of shardir, and "
        "`partition` removes them"
    ),
    f"{EXPORT}/sharding_constraint_to_reshard.mlir": (
        "shardir reshards at constraints and at reshards by one rule, so that it converts neither"
    ),
    f"{EXPORT}/per_instruction_partitioning.mlir": (
        "a tool that partitions chosen operations and leaves the others to XLA's partitioner"
    ),
    f"{EXPORT}/per_instruction_partitioning_range.mlir": (
        "a tool that partitions a range of operations and leaves the others to XLA's partitioner"
    ),
    f"{EXPORT}/remove_ag_rs_for_cmv1.mlir": (
        "removes collectives that an older XLA would fuse itself; shardir fuses its own"
    ),
    f"{EXPORT}/export_pipeline.mlir": (
        "a sequence of passes of which the suites compare each; the file examines their order"
    ),
    f"{EXPORT}/export_pipeline_explicit_collectives.mlir": (
        "a sequence of passes of which the suites compare each; the file examines their order"
    ),
    f"{EXPORT}/resolve_permutation_factors.mlir": (
        "compares the operations of Shardy's halo exchange; shardir has another lowering "
        "(`row_exchange`), and the suite `executable` compares the numbers of 28 such programs"
    ),
    f"{EXPORT}/resolve_permutation_factors/resolve_permutation_factors_replica_id.mlir": (
        "compares whether a device is numbered by replica or by partition, a choice of XLA's "
        "runtime; devices of shardir are positions of the mesh"
    ),
    f"{SDY}/ir/test/manual_computation_canonicalization.mlir": (
        "a manual computation along axes of size 1 stays one, and `partition` inlines it"
    ),
    **{
        f"{PAD}/{name}.mlir": (
            f"compares the padding that Shardy inserts around {what}; shardir masks padding in "
            "`partition`, and the executable files with uneven shards compare the numbers"
        )
        for name, what in (
            ("all_to_all", "all-to-alls"), ("dot_general", "products"),
            ("generic_ops", "other operations"), ("reduce_scatter", "reduce-scatters"),
            ("sdy_all_slice_all_gather", "slices and gathers"),
            ("stablehlo_convolution", "convolutions"), ("stablehlo_pad", "pads"),
            ("stablehlo_slice", "slices"),
        )
    },
    f"{PAD}/func_ops.mlir": (
        "Shardy refuses parameters and results with uneven shards; shardir accepts them"
    ),
    **{
        f"{LOCAL}/{name}.mlir": (
            f"compares the local operations of Shardy for {name}; the executable file of the same "
            "name compares the numbers"
        )
        for name in (
            "sdy_all_gather", "sdy_all_reduce", "sdy_all_slice", "sdy_all_to_all",
            "sdy_collective_permute", "sdy_constant", "sdy_reduce_scatter", "stablehlo_concatenate",
            "stablehlo_convolution", "stablehlo_dot_general", "stablehlo_gather",
            "stablehlo_iota", "stablehlo_pad", "stablehlo_reduce_window", "stablehlo_scatter",
            "stablehlo_select_and_scatter", "stablehlo_slice",
        )
    },
    f"{LOCAL}/generic_ops.mlir": (
        "compares local types, which `partition` derives from the shardings of all operations"
    ),
    f"{LOCAL}/stablehlo_dot.mlir": (
        "compares the local operations of Shardy for `dot`, which is read as `dot_general`"
    ),
    f"{LOCAL}/sdy_manual_computation.mlir": (
        "compares the inlined bodies of manual computations; tests of `partition` compare numbers"
    ),
    f"{LOCAL}/sdy_named_computation.mlir": (
        "compares the local types of named computations, which the reader makes calls"
    ),
    f"{LOCAL}/replica_id.mlir": (
        "compares whether a device is numbered by replica or by partition, a choice of XLA's "
        "runtime; devices of shardir are positions of the mesh"
    ),
}  # fmt: skip

NOT_SUPPORTED = {
    f"{EXPORT}/resolve_single_device_sharding.mlir": (
        "the pass runs each operation on a single device there alone, and sends its results to the "
        "others; shardir does so with operations of other dialects, which may have an effect, and "
        "replicates the values of known operations, so that every device computes them"
    ),
    f"{EXPORT}/insert_explicit_reshards/single_device_sharding_errors.mlir": (
        "Shardy refuses parameters and results on a single device; shardir replicates them"
    ),
    f"{SDY}/ir/test/collective_canonicalization.mlir": (
        "each reshard of a text is planned on its own, and the default pipeline then merges "
        "chains; it does not merge all-to-alls of different dimensions"
    ),
    f"{SDY}/ir/test/reshard_canonicalization.mlir": (
        "the default pipeline merges equal reshards and chains, but not reshards of a value and "
        "of its reshape or transpose"
    ),
    f"{EXPORT}/unflatten_call_graph.mlir": (
        "the printer merges equal functions of calls; it writes text, and has no module to compare"
    ),
    f"{EXPORT}/unflatten_call_graph_dedup_functions_fully_true.mlir": (
        "each call has shardings of its own; calls of one function cannot share its shardings"
    ),
    f"{EXPORT}/insert_func_call_reshards.mlir": (
        "each call has shardings of its own, so that no operand is resharded for other calls"
    ),
    f"{IMPORT}/import_pipeline.mlir": (
        "the file examines the option that all calls of a function share one sharding"
    ),
}
