// Programs that the model rejects.
namespace {

const Case cases[] = {
    // Types and variables.
    {"long_variable", [](Bench& b) { b.graph.addVariable(LONGLONG, {2}, "w"); }},
    {"double_cast", [](Bench& b) { popops::cast(b.graph, b.x, DOUBLE, b.sequence); }},
    {"long_expression",
     [](Bench& b) { popops::map(b.graph, pe::Cast(pe::_1, LONGLONG), {b.i}, b.sequence); }},
    {"unmapped_variable",
     [](Bench& b) {
       b.graph.addVariable(FLOAT, {3}, "weights");
       b.run();
     }},
    {"unmapped_constant",
     [](Bench& b) {
       b.graph.addConstant<float>(FLOAT, {}, 1.0F, "one");
       b.run();
     }},
    {"unmapped_index",
     [](Bench& b) {
       b.graph.addReplicationIndexConstant("which");
       b.run();
     }},
    {"no_such_tile", [](Bench& b) { b.graph.setTileMapping(b.x, 1472); }},
    {"full_tile",
     [](Bench& b) {
       Tensor large = b.graph.addVariable(FLOAT, {160000}, "large");
       b.graph.setTileMapping(large, 7);
       b.run();
     }},
    {"constant_of_other_kind",
     [](Bench& b) { b.graph.addConstant<float>(INT, {2}, {1.0F, 2.0F}, "ones"); }},
    {"constant_too_large", [](Bench& b) { b.graph.addConstant<int>(SIGNED_CHAR, {}, 128, "k"); }},
    {"constant_too_short",
     [](Bench& b) { b.graph.addConstant<int>(INT, {3}, ArrayRef<int>{1, 2}, "k"); }},
    {"replicas_do_not_fit", [](Bench& b) { Graph(b.device, replication_factor(3)); }},
    {"other_graph",
     [](Bench& b) {
       Bench other;
       popops::map(b.graph, pe::Abs(pe::_1), {other.x}, b.sequence);
     }},
    // Views.
    {"slice_outside", [](Bench& b) { b.x.slice(2, 7, 1); }},
    {"row_outside", [](Bench& b) { b.x[4]; }},
    {"reshape", [](Bench& b) { b.x.reshape({5, 5}); }},
    {"shuffle", [](Bench& b) { b.x.dimShuffle({0, 0}); }},
    {"expand_twice", [](Bench& b) { b.x.expand({0, 0}); }},
    {"squeeze", [](Bench& b) { b.x.squeeze({1}); }},
    {"concat", [](Bench& b) { concat(b.x, b.x[0].expand({0}).slice(0, 5, 1), 0); }},
    {"reinterpret", [](Bench& b) { b.x.reinterpret(HALF); }},
    // Copies and control flow.
    {"copy_shape", [](Bench& b) { Copy(b.x[0], b.x); }},
    {"copy_type", [](Bench& b) { Copy(b.i, b.x); }},
    {"copy_to_constant",
     [](Bench& b) {
       Tensor one = b.graph.addConstant<float>(FLOAT, {4, 6}, 1.0F, "one");
       Copy(b.x, one);
     }},
    {"copy_to_twice", [](Bench& b) { Copy(b.x, b.y.slice(0, 1, 0).broadcast(4, 0)); }},
    {"copy_over_itself", [](Bench& b) { Copy(b.x.slice(0, 3, 0), b.x.slice(1, 4, 0)); }},
    {"read_before_written",
     [](Bench& b) {
       b.sequence.add(Copy(b.x, b.y));
       b.run();
     }},
    {"read_undefined",
     [](Bench& b) {
       popops::zero(b.graph, b.x, b.sequence);
       b.sequence.add(poplar::program::WriteUndef(b.x[2]));
       b.sequence.add(Copy(b.x, b.y));
       b.run();
     }},
    {"partial_permutation", [](Bench& b) { CrossReplicaCopy(b.x, b.y, {{0, 1}, {1, 0}}); }},
    {"self_permutation",
     [](Bench& b) { CrossReplicaCopy(b.x, b.y, {{0, 1}, {1, 0}, {2, 2}, {3, 3}}); }},
    {"doubled_permutation",
     [](Bench& b) { CrossReplicaCopy(b.x, b.y, {{0, 1}, {1, 0}, {2, 3}, {3, 1}}); }},
    {"permutation_outside",
     [](Bench& b) { CrossReplicaCopy(b.x, b.y, {{0, 1}, {1, 2}, {2, 3}, {3, 4}}); }},
    {"permutation_in_place",
     [](Bench& b) { CrossReplicaCopy(b.x, b.x, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}); }},
    {"predicate_type", [](Bench& b) { poplar::program::If(b.u, Sequence(), Sequence()); }},
    {"predicate_differs",
     [](Bench& b) {
       Tensor first = popops::map(b.graph, pe::_1 == pe::Const(0U), {b.index}, b.sequence, "first");
       b.sequence.add(poplar::program::If(first, Sequence(), Sequence()));
       b.run();
     }},
    {"two_cases",
     [](Bench& b) {
       poplar::program::Switch(b.u, {{1, Sequence()}, {1, Sequence()}}, Sequence());
     }},
    {"add_too_late",
     [](Bench& b) {
       Sequence inner;
       b.sequence.add(inner);
       inner.add(Copy(b.x, b.y));
     }},
    {"loop_steps",
     [](Bench& b) {
       popops::countedLoop(b.graph, 0, 10, 3, [](const Tensor&) { return Sequence(); });
     }},
    // Streams and engines.
    {"large_stream",
     [](Bench& b) { b.graph.addHostToDeviceFIFO("in", FLOAT, (128 << 20) / 4 + 1); }},
    {"same_stream",
     [](Bench& b) {
       b.graph.addHostToDeviceFIFO("in", FLOAT, 3);
       b.graph.addDeviceToHostFIFO("in", FLOAT, 3);
     }},
    {"empty_stream", [](Bench& b) { b.graph.addDeviceToHostFIFO("out", FLOAT, 0); }},
    {"stream_size", [](Bench& b) { Copy(b.graph.addHostToDeviceFIFO("in", FLOAT, 23), b.x); }},
    {"stream_direction",
     [](Bench& b) { Copy(b.graph.addDeviceToHostFIFO("out", FLOAT, 24), b.x); }},
    {"unconnected_stream",
     [](Bench& b) {
       b.sequence.add(Copy(b.graph.addHostToDeviceFIFO("in", FLOAT, 24), b.x));
       b.run();
     }},
    {"stream_buffer",
     [](Bench& b) {
       b.graph.addHostToDeviceFIFO("in", FLOAT, 24);
       Engine engine(b.graph, b.sequence);
       float buffer[24];
       engine.connectStream("in", buffer, buffer + 24);
     }},
    {"no_such_stream",
     [](Bench& b) { Engine(b.graph, b.sequence).connectStream("in", nullptr); }},
    {"not_loaded", [](Bench& b) { Engine(b.graph, b.sequence).run(0); }},
    {"no_such_program",
     [](Bench& b) {
       Engine engine(b.graph, b.sequence);
       engine.load(b.device);
       engine.run(1);
     }},
    {"other_device",
     [](Bench& b) { Engine(b.graph, b.sequence).load(IPUModel().createDevice()); }},
    {"tensor_buffer",
     [](Bench& b) {
       b.graph.createHostWrite("x", b.x);
       Engine engine(b.graph, b.sequence);
       engine.load(b.device);
       float buffer[24];
       engine.writeTensor("x", buffer, buffer + 24);
     }},
    // Expressions.
    {"mixed_types",
     [](Bench& b) { popops::map(b.graph, pe::_1 + pe::_2, {b.x, b.h}, b.sequence); }},
    {"mixed_constant",
     [](Bench& b) { popops::map(b.graph, pe::_1 * pe::Const(2.0F), {b.h}, b.sequence); }},
    {"mixed_select",
     [](Bench& b) { popops::map(b.graph, pe::Select(pe::_1, pe::_2, pe::_3), {b.x, b.i, b.c},
                                b.sequence); }},
    {"no_codelet_of_short",
     [](Bench& b) { popops::map(b.graph, pe::_1 + pe::_1, {b.s}, b.sequence); }},
    {"no_root_of_int", [](Bench& b) { popops::map(b.graph, pe::Sqrt(pe::_1), {b.i}, b.sequence); }},
    {"no_such_tensor",
     [](Bench& b) { popops::map(b.graph, pe::_1 + pe::_3, {b.x, b.y}, b.sequence); }},
    {"no_broadcast",
     [](Bench& b) { popops::map(b.graph, pe::_1 + pe::_2, {b.x, b.y[0].slice(0, 4)},
                                b.sequence); }},
    {"in_place_type",
     [](Bench& b) { popops::mapInPlace(b.graph, pe::_1 < pe::_2, {b.x, b.y}, b.sequence); }},
    {"out_aliased",
     [](Bench& b) {
       popops::mapWithOutput(b.graph, pe::Neg(pe::_1), {b.x.reverse(0)}, b.x, b.sequence);
     }},
    {"in_place_constant",
     [](Bench& b) { popops::mapInPlace(b.graph, pe::_1 + pe::_1, {b.index}, b.sequence); }},
    {"no_codelets",
     [](Bench& b) {
       Graph bare(b.device, replication_factor(4));
       Tensor x = bare.addVariable(FLOAT, {2}, LINEAR, "x");
       popops::map(bare, pe::Abs(pe::_1), {x}, b.sequence);
     }},
    {"no_matrix_codelets",
     [](Bench& b) {
       Graph bare(b.device, replication_factor(4));
       Tensor x = bare.addVariable(FLOAT, {2, 2}, LINEAR, "x");
       poplin::matMul(bare, x, x, b.sequence);
     }},
    // Reductions, products, padding.
    {"reduce_type",
     [](Bench& b) { popops::reduce(b.graph, b.s, {0}, popops::Operation::ADD, b.sequence); }},
    {"reduce_logical",
     [](Bench& b) { popops::reduce(b.graph, b.x, {0}, popops::Operation::LOGICAL_AND,
                                   b.sequence); }},
    {"reduce_out_type",
     [](Bench& b) { popops::reduce(b.graph, b.x, INT, {0}, popops::Operation::ADD, b.sequence); }},
    {"reduce_twice",
     [](Bench& b) { popops::reduce(b.graph, b.x, {1, 1}, popops::Operation::ADD, b.sequence); }},
    {"reduce_nothing",
     [](Bench& b) { popops::reduce(b.graph, b.x.slice(0, 0), {0}, popops::Operation::ADD,
                                   b.sequence); }},
    {"product_type", [](Bench& b) { poplin::matMul(b.graph, b.i, b.i, b.sequence); }},
    {"product_types",
     [](Bench& b) { poplin::matMul(b.graph, b.x, b.h.transpose(), b.sequence); }},
    {"product_shape", [](Bench& b) { poplin::matMul(b.graph, b.x, b.y, b.sequence); }},
    {"pad_value", [](Bench& b) { popops::pad(b.graph, b.i, {0, 0}, {1, 0}, 1.0F); }},
    {"pad_dimensions", [](Bench& b) { popops::pad(b.graph, b.x, {0}, {1}); }},
    // Collectives.
    {"logical_on_float",
     [](Bench& b) { gcl::allReduceCrossReplica(b.graph, b.x, CollectiveOperator::LOGICAL_OR,
                                               b.sequence, CommGroup()); }},
    {"mean_of_int",
     [](Bench& b) { gcl::allReduceCrossReplica(b.graph, b.i, CollectiveOperator::MEAN, b.sequence,
                                               CommGroup()); }},
    {"orthogonal",
     [](Bench& b) { gcl::allGatherCrossReplica(b.graph, b.x, b.sequence,
                                               CommGroup(CommGroupType::ORTHOGONAL, 2)); }},
    {"strided",
     [](Bench& b) { gcl::allGatherCrossReplica(b.graph, b.x, b.sequence,
                                               CommGroup(CommGroupType::CONSECUTIVE, 2, 2)); }},
    {"group_size",
     [](Bench& b) { gcl::allGatherCrossReplica(b.graph, b.x, b.sequence,
                                               CommGroup(CommGroupType::CONSECUTIVE, 3)); }},
    {"all_with_size",
     [](Bench& b) { gcl::allGatherCrossReplica(b.graph, b.x, b.sequence,
                                               CommGroup(CommGroupType::ALL, 4)); }},
    {"scatter_rank",
     [](Bench& b) { gcl::reduceScatterCrossReplica(b.graph, b.x, CollectiveOperator::ADD,
                                                   b.sequence, CommGroup()); }},
    {"rows_of_all_to_all",
     [](Bench& b) { gcl::allToAllCrossReplica(b.graph, b.x.transpose(), b.sequence,
                                              CommGroup()); }},
    // Places known when the program runs.
    {"slice_past_the_end",
     [](Bench& b) {
       popops::zero(b.graph, b.x, b.sequence);
       set(b, b.u, 3);
       popops::dynamicSlice(b.graph, b.x, b.u, {0}, {2}, b.sequence);
       b.run();
     }},
    {"offset_type",
     [](Bench& b) { popops::dynamicSlice(b.graph, b.x, b.i.flatten().slice(0, 1), {0}, {2},
                                         b.sequence); }},
    {"update_shape",
     [](Bench& b) { popops::dynamicUpdate(b.graph, b.x, b.y, b.u, {0}, {2}, b.sequence); }},
    {"gather_outside",
     [](Bench& b) {
       popops::zero(b.graph, b.x, b.sequence);
       set(b, b.u, 4);
       popops::gather(b.graph, b.x, b.u, 0, b.sequence, popops::GatherParams{});
       b.run();
     }},
    {"gather_positions",
     [](Bench& b) { popops::gather(b.graph, b.x, b.u, 0, {0}, {1, 6}, {0}, {0, 1}, b.sequence); }},
    {"sort_bools",
     [](Bench& b) { popops::sort(b.graph, b.c.expand({0}), 0, b.sequence); }},
    {"sort_nan",
     [](Bench& b) {
       popops::zero(b.graph, b.x, b.sequence);
       popops::mapInPlace(b.graph, pe::_1 / pe::_1, {b.x}, b.sequence);
       popops::sort(b.graph, b.x, 1, b.sequence);
       b.run();
     }},
    {"top_too_many",
     [](Bench& b) { popops::topK(b.graph, b.sequence, b.x,
                                 popops::TopKParams(7, true, popops::SortOrder::NONE)); }},
    {"stable_pairs",
     [](Bench& b) {
       popops::topKKeyValue(b.graph, b.sequence, b.x, b.i,
                            popops::TopKParams(2, true, popops::SortOrder::DESCENDING, true));
     }},
    {"random",
     [](Bench& b) { poprand::uniform(b.graph, nullptr, 0, b.x, FLOAT, 0.0, 1.0, b.sequence); }},
};

}  // namespace

int main() { return report(cases); }
