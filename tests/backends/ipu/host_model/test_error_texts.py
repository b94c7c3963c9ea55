"""The host model rejects invalid programs with the expected error texts."""

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shardir.backends.ipu.host_model import build_executable
from tests.backends.ipu.host_model.compiled_programs import PROGRAMS

pytestmark = pytest.mark.sample(3)

ERROR_TEXTS = {
    "long_variable": (
        "Graph::addVariable: an IPU computes with no LONGLONG; use INT, UNSIGNED_INT or FLOAT"
    ),
    "double_cast": "popops::cast: an IPU computes with no DOUBLE; use INT, UNSIGNED_INT or FLOAT",
    "long_expression": (
        "popops::map: an IPU computes with no LONGLONG; use INT, UNSIGNED_INT or FLOAT"
    ),
    "unmapped_variable": (
        "poplar::Engine: 'weights' FLOAT is not mapped to tiles; call setTileMapping or "
        "poputil::mapTensorLinearly"
    ),
    "unmapped_constant": (
        "poplar::Engine: 'one' FLOAT is not mapped to tiles; call setTileMapping or "
        "poputil::mapTensorLinearly"
    ),
    "unmapped_index": (
        "poplar::Engine: 'which' UNSIGNED_INT is not mapped to tiles; call setTileMapping "
        "or poputil::mapTensorLinearly"
    ),
    "no_such_tile": (
        "Graph::setTileMapping: there is no tile 1472 for 'x' FLOAT [4, 6]; a replica has "
        "1472 tiles"
    ),
    "full_tile": (
        "poplar::Engine: tile 7 holds 640016 bytes, more than its 638976; map variables to "
        "more tiles"
    ),
    "constant_of_other_kind": (
        "Graph::addConstant: 'ones' of type INT is given FLOAT values; give values of its own kind"
    ),
    "constant_too_large": "Graph::addConstant: 'k' of type SIGNED_CHAR cannot hold 128",
    "constant_too_short": (
        "Graph::addConstant: 'k' of shape [3] is given 2 values; give one, or one for each element"
    ),
    "replicas_do_not_fit": (
        "poplar::Graph: 4 IPUs cannot be shared by 3 replicas; ask for a multiple of the replicas"
    ),
    "other_graph": (
        "popops::map: 'x' FLOAT [4, 6] is no tensor of this graph; make it with this graph"
    ),
    "slice_outside": "Tensor::slice: 'x' FLOAT [4, 6] has no elements 2 to 7 in dimension 1",
    "row_outside": "Tensor::operator[]: 'x' FLOAT [4, 6] has no element 4",
    "reshape": "Tensor::reshape: 'x' FLOAT [4, 6] has not the elements of [5, 5]",
    "shuffle": "Tensor::dimShuffle: [0, 0] names not each dimension of 'x' FLOAT [4, 6] once",
    "expand_twice": (
        "Tensor::expand: 'x' FLOAT [4, 6] gets one new dimension at a time, at most after "
        "its last; call expand again for more"
    ),
    "squeeze": (
        "Tensor::squeeze: dimension 1 of 'x' FLOAT [4, 6] cannot be dropped; drop "
        "dimensions of size 1, each once"
    ),
    "concat": "poplar::concat: 'x' FLOAT [1, 5] does not join 'x' FLOAT [4, 6] in dimension 0",
    "reinterpret": "Tensor::reinterpret: 'x' FLOAT [4, 6] has not the element size of HALF",
    "copy_shape": (
        "program::Copy: 'x' FLOAT [6] does not fit into 'x' FLOAT [4, 6]; give both one "
        "shape and type"
    ),
    "copy_type": (
        "program::Copy: 'i' INT [4, 6] does not fit into 'x' FLOAT [4, 6]; give both one "
        "shape and type"
    ),
    "copy_to_constant": (
        "program::Copy: 'one' is a constant and cannot be written; copy it to a variable first"
    ),
    "copy_to_twice": (
        "program::Copy: an element of 'y' is in the destination twice; write to a variable "
        "that is not broadcast"
    ),
    "copy_over_itself": (
        "program::Copy: source and destination share an element of 'x'; copy through a "
        "variable between them"
    ),
    "read_before_written": "'x' is read before it is written on replica 0; write all of it first",
    "read_undefined": "'x' is read before it is written on replica 0; write all of it first",
    "partial_permutation": (
        "program::CrossReplicaCopy: 2 of 4 replicas send; complete the map to a permutation"
    ),
    "self_permutation": (
        "program::CrossReplicaCopy: replica 2 sends to itself; let it send elsewhere and "
        "keep its own value by a select"
    ),
    "doubled_permutation": (
        "program::CrossReplicaCopy: replica 3 sends to 1, which receives from another "
        "already; complete the map to a permutation"
    ),
    "permutation_outside": (
        "program::CrossReplicaCopy: replica 3 sends to 4, but there are 4 replicas"
    ),
    "permutation_in_place": (
        "program::CrossReplicaCopy: source and destination share an element of 'x'; copy "
        "through a variable between them"
    ),
    "predicate_type": "program::If: 'u' UNSIGNED_INT [1] is not one element of type BOOL",
    "predicate_differs": (
        "program::If: 'first' BOOL [] differs between replicas 0 and 1; compute both ways "
        "and select"
    ),
    "two_cases": "program::Switch: there are two programs for 1",
    "add_too_late": (
        "Sequence::add: the sequence is a part of another program already; complete it before"
    ),
    "loop_steps": "popops::countedLoop: from 0 to 10 is not a number of steps of 3",
    "large_stream": (
        "Graph::addHostToDeviceFIFO: the stream 'in' carries 134217732 bytes, more than "
        "134217728; carry it in several streams"
    ),
    "same_stream": (
        "Graph::addDeviceToHostFIFO: a stream is called 'in' already; call this one otherwise"
    ),
    "empty_stream": "Graph::addDeviceToHostFIFO: the stream 'out' carries nothing",
    "stream_size": "program::Copy: the stream 'in' of 23 FLOAT does not fit 'x' FLOAT [4, 6]",
    "stream_direction": (
        "program::Copy: the stream 'out' goes to the host; use one from addHostToDeviceFIFO"
    ),
    "unconnected_stream": (
        "the stream 'in' is not connected; call Engine::connectStream before running"
    ),
    "stream_buffer": (
        "Engine::connectStream: the buffer of 'in' has 96 bytes, no multiple of the 384 of "
        "one transfer; it holds the shards of all replicas"
    ),
    "no_such_stream": "Engine::connectStream: no stream is called 'in'",
    "not_loaded": "Engine::run: the engine is on no device; call load before",
    "no_such_program": "Engine::run: there is no program 1; the engine has 1",
    "other_device": "Engine::load: the graph is for 4 IPUs, the device has 1",
    "tensor_buffer": (
        "Engine::writeTensor: the buffer of 'x' has 96 bytes, not 384; it holds the shards "
        "of all replicas"
    ),
    "mixed_types": "popops::map: Add of FLOAT and HALF; cast one of them",
    "mixed_constant": "popops::map: Mul of HALF and FLOAT; cast one of them",
    "mixed_select": "popops::map: Select of FLOAT and INT; cast one of them",
    "no_codelet_of_short": "popops::map: Add has no codelet for SHORT; cast to a type that it has",
    "no_root_of_int": "popops::map: Sqrt has no codelet for INT; cast to a type that it has",
    "no_such_tensor": "popops::map: _3 stands for no tensor; 2 are given",
    "no_broadcast": "popops::map: 'y' FLOAT [4] does not broadcast with 'x' FLOAT [4, 6]",
    "in_place_type": (
        "popops::mapInPlace: the result is BOOL [4, 6] and does not fit into 'x' FLOAT [4, "
        "6]; use popops::map"
    ),
    "out_aliased": (
        "popops::mapWithOutput: source and destination share an element of 'x'; copy "
        "through a variable between them"
    ),
    "in_place_constant": (
        "popops::mapInPlace: 'index' is a constant and cannot be written; copy it to a "
        "variable first"
    ),
    "no_codelets": (
        "popops::map: the codelets of popops are missing; call popops::addCodelets(graph) before"
    ),
    "no_matrix_codelets": (
        "poplin::matMul: the codelets of poplin are missing; call poplin::addCodelets(graph) before"
    ),
    "reduce_type": "popops::reduce: ADD has no codelet for SHORT; cast to a type that it has",
    "reduce_logical": (
        "popops::reduce: LOGICAL_AND has no codelet for FLOAT; cast to a type that it has"
    ),
    "reduce_out_type": "popops::reduce: ADD of FLOAT does not become INT; cast afterwards",
    "reduce_twice": "popops::reduce: dimension 1 of 'x' FLOAT [4, 6] is named twice",
    "reduce_nothing": "popops::reduce: FLOAT [0, 6] has nothing to reduce; use a constant",
    "product_type": (
        "poplin::matMul: there is no product of INT; cast to FLOAT, or multiply and reduce"
    ),
    "product_types": (
        "poplin::matMul: 'x' FLOAT [4, 6] and 'h' HALF [6, 4] have different types; cast "
        "one of them"
    ),
    "product_shape": "poplin::matMul: matrices of shapes [4, 6] and [4, 6] have no product",
    "pad_value": (
        "Graph::addConstant: 'popops::pad' of type INT is given FLOAT values; give values "
        "of its own kind"
    ),
    "pad_dimensions": (
        "popops::pad: 'x' FLOAT [4, 6] is padded in 1 and 1 dimensions; give two numbers for each"
    ),
    "logical_on_float": (
        "gcl::allReduceCrossReplica: there is no LOGICAL_OR of FLOAT between replicas; "
        "cast to a type that it has"
    ),
    "mean_of_int": (
        "gcl::allReduceCrossReplica: there is no MEAN of INT between replicas; cast to a "
        "type that it has"
    ),
    "orthogonal": (
        "gcl::allGatherCrossReplica: what sizes of ORTHOGONAL groups mean is not certain; "
        "use CONSECUTIVE groups with a stride"
    ),
    "strided": (
        "gcl::allGatherCrossReplica: not every machine joins groups of 2 replicas, 2 "
        "apart; use steps of CrossReplicaCopy, or set SHARDIR_HOST_MODEL_ALLOW_STRIDED"
    ),
    "group_size": "gcl::allGatherCrossReplica: 4 replicas make no groups of 3 replicas, 1 apart",
    "all_with_size": (
        "gcl::allGatherCrossReplica: a group of ALL has no size and no stride, not 4 "
        "replicas, 1 apart; use CommGroup()"
    ),
    "scatter_rank": (
        "gcl::reduceScatterCrossReplica: 'x' FLOAT [4, 6] has not one dimension; flatten it"
    ),
    "rows_of_all_to_all": (
        "gcl::allToAllCrossReplica: 'x' FLOAT [6, 4] has not one row for each of 4 members"
    ),
    "slice_past_the_end": (
        "popops::dynamicSlice: elements 3 to 5 of dimension 0 lie outside of [4, 6]; clamp "
        "the offsets"
    ),
    "offset_type": (
        "popops::dynamicSlice: 'i' INT [1] and 1 sizes do not place 1 dimensions; offsets "
        "are UNSIGNED_INT, one for each dimension"
    ),
    "update_shape": (
        "popops::dynamicUpdate: 'y' FLOAT [4, 6] is no slice [2, 6] of 'x' FLOAT [4, 6]"
    ),
    "gather_outside": (
        "popops::gather: elements 4 to 5 of dimension 0 lie outside of [4, 6]; clamp the offsets"
    ),
    "gather_positions": (
        "popops::gather: positions of 1 components are mapped to dimensions [0, 1]; name "
        "one dimension for each, and none twice"
    ),
    "sort_bools": "popops::sort: there is no codelet for keys of BOOL; cast to a type that it has",
    "sort_nan": (
        "popops::sort: there is a NaN among the keys, whose place is not said; sort integers"
    ),
    "top_too_many": (
        "popops::topK: 'x' FLOAT [4, 6] has not 7 elements to take in its last dimension"
    ),
    "stable_pairs": (
        "popops::topKKeyValue: it has no stable order; use topKWithPermutation and gather"
    ),
    "random": (
        "poprand::uniform: random numbers of the hardware are not the same anywhere else; "
        "compute them with popops::map from a counter"
    ),
    "map_option": "poplar::OptionFlags: 'fast'=1 is not modelled; leave options as they are",
    "no_tensor": (
        "popops::map: a tensor of no graph is no tensor of this graph; make it with this graph"
    ),
    "concat_types": "poplar::concat: 'i' INT [4, 6] does not join 'x' FLOAT [4, 6] in dimension 0",
    "slice_backwards": "Tensor::slice: 'x' FLOAT [4, 6] has no elements 3 to 1 in dimension 0",
    "reverse_dimension": "Tensor::reverse: 'x' FLOAT [4, 6] has no dimension 2",
    "no_stride": "Tensor::subSample: every 0th element of 'x' FLOAT [4, 6]",
    "mapped_too_late": (
        "poplibs: 'late' FLOAT [3] is not mapped to tiles yet; map it before it is used"
    ),
    "mapped_too_late_for_gcl": (
        "gcl::allGatherCrossReplica: 'late' FLOAT [3] is not mapped to tiles yet; map it before"
        " it is used"
    ),
    "other_graph_sequence": (
        "Engine::run: 'x' FLOAT [4, 6] is no tensor of this graph; make it with this graph"
    ),
    "stream_to_constant": (
        "program::Copy: 'one' is a constant and cannot be written; copy it to a variable first"
    ),
    "stream_to_twice": (
        "program::Copy: an element of 'y' is in the destination twice; write to a variable that"
        " is not broadcast"
    ),
    "stream_type": "program::Copy: the stream 'in' of 24 INT does not fit 'x' FLOAT [4, 6]",
    "permutation_shape": (
        "program::CrossReplicaCopy: 'x' FLOAT [4, 6] does not fit into 'y' FLOAT [6]; give both"
        " one shape and type"
    ),
    "permutation_type": (
        "program::CrossReplicaCopy: 'x' FLOAT [4, 6] does not fit into 'i' INT [4, 6]; give "
        "both one shape and type"
    ),
    "permutation_to_twice": (
        "program::CrossReplicaCopy: an element of 'y' is in the destination twice; write to a "
        "variable that is not broadcast"
    ),
    "permutation_to_constant": (
        "program::CrossReplicaCopy: 'index' is a constant and cannot be written; copy it to a "
        "variable first"
    ),
    "while_type": "program::RepeatWhileTrue: 'u' UNSIGNED_INT [1] is not one element of type BOOL",
    "control_type": "program::Switch: 'x' FLOAT [] is not one element of type INT",
    "inside_itself": "Sequence::add: a sequence is no part of itself; make another one",
    "product_rank": "poplin::matMul: matrices of shapes [6] and [4, 6] have no product",
    "product_narrower": "poplin::matMul: a product of FLOAT does not become HALF; cast afterwards",
    "product_out_type": "poplin::matMul: a product does not become INT; cast afterwards",
    "product_groups": (
        "poplin::matMulGrouped: matrices of shapes [2, 2, 6] and [4, 6, 1] have no product"
    ),
    "slice_of_shorts": (
        "popops::dynamicSlice: there is no codelet for SHORT; cast to a type that it has"
    ),
    "update_constant": (
        "popops::dynamicUpdate: 'one' is a constant and cannot be written; copy it to a "
        "variable first"
    ),
    "update_twice": (
        "popops::dynamicUpdate: an element of 'x' is in the destination twice; write to a "
        "variable that is not broadcast"
    ),
    "update_by_itself": (
        "popops::dynamicUpdate: source and destination share an element of 'x'; copy through a "
        "variable between them"
    ),
    "gather_index_type": (
        "popops::gather: 'y' FLOAT [1] holds no positions; indices are UNSIGNED_INT, and one of"
        " their dimensions, or the next, goes over a position's components"
    ),
    "scatter_index_type": (
        "popops::scatter: 'y' FLOAT [2, 1] holds no positions; indices are UNSIGNED_INT, and "
        "one of their dimensions, or the next, goes over a position's components"
    ),
    "scatter_to_constant": (
        "popops::scatter: 'one' is a constant and cannot be written; copy it to a variable first"
    ),
    "zero_constant": (
        "popops::zero: 'one' is a constant and cannot be written; copy it to a variable first"
    ),
    "top_none": "popops::topK: 'x' FLOAT [4, 6] has not 0 elements to take in its last dimension",
    "top_of_shorts": (
        "popops::topK: there is no codelet for keys of SHORT; cast to a type that it has"
    ),
    "reduce_dimension": "popops::reduce: 'x' FLOAT [4, 6] has no dimension 2",
    "sum_of_shorts": (
        "gcl::allReduceCrossReplica: there is no ADD of SHORT between replicas; cast to a type "
        "that it has"
    ),
    "sum_into_constant": (
        "gcl::allReduceInPlaceCrossReplica: 'one' is a constant and cannot be written; copy it "
        "to a variable first"
    ),
    "sum_into_twice": (
        "gcl::allReduceInPlaceCrossReplica: an element of 'y' is in the destination twice; "
        "write to a variable that is not broadcast"
    ),
    "sum_into_other_shape": (
        "gcl::allReduceToDestinationCrossReplica: 'x' FLOAT [4, 6] does not fit into 'y' FLOAT "
        "[6]; give both one shape and type"
    ),
    "sum_into_overlap": (
        "gcl::allReduceToDestinationCrossReplica: source and destination share an element of "
        "'x'; copy through a variable between them"
    ),
}
"""Expected text by the case in `programs/errors.cpp` or `programs/more_errors.cpp`."""


@cache
def error_texts() -> dict[str, str]:
    bench, lines = (PROGRAMS / "error_bench.hpp").read_text("utf-8"), ""
    with TemporaryDirectory() as folder:
        for name in ("errors", "more_errors"):
            program = Path(folder) / name
            build_executable(bench + (PROGRAMS / f"{name}.cpp").read_text("utf-8"), program)
            lines += subprocess.run([program], capture_output=True, text=True, check=True).stdout
    pairs = (line.split("\t") for line in lines.splitlines())
    return {case: message for case, message in pairs}


@pytest.mark.parametrize("case", ERROR_TEXTS)
def test_each_invalid_program_gives_its_error_text(case: str) -> None:
    assert error_texts()[case] == ERROR_TEXTS[case]


def test_every_case_has_an_expected_text() -> None:
    assert list(error_texts()) == list(ERROR_TEXTS)
