// More programs for which Poplar or its libraries would throw.
namespace {

const Case cases[] = {
    {"map_option",
     [](Bench& b) { popops::map(b.graph, pe::Abs(pe::_1), {b.x}, b.sequence, "",
                                {{"fast", "1"}}); }},
    {"no_tensor", [](Bench& b) { popops::map(b.graph, pe::Abs(pe::_1), {Tensor()}, b.sequence); }},
    {"concat_types", [](Bench& b) { concat(b.x, b.i, 0); }},
    {"slice_backwards", [](Bench& b) { b.x.slice(3, 1, 0); }},
    {"reverse_dimension", [](Bench& b) { b.x.reverse(2); }},
    {"no_stride", [](Bench& b) { b.x.subSample(0, 0); }},
    {"mapped_too_late",
     [](Bench& b) {
       Tensor late = b.graph.addVariable(FLOAT, {3}, "late");
       popops::map(b.graph, pe::Abs(pe::_1), {late}, b.sequence);
       poputil::mapTensorLinearly(b.graph, late);
     }},
    {"mapped_too_late_for_gcl",
     [](Bench& b) {
       Tensor late = b.graph.addVariable(FLOAT, {3}, "late");
       gcl::allGatherCrossReplica(b.graph, late, b.sequence, CommGroup());
       poputil::mapTensorLinearly(b.graph, late);
     }},
    {"other_graph_sequence",
     [](Bench& b) { Bench other; b.sequence.add(Copy(other.x, other.y)); b.run(); }},
    {"stream_to_constant",
     [](Bench& b) {
       Tensor one = b.graph.addConstant<float>(FLOAT, {2}, 1.0F, "one");
       Copy(b.graph.addHostToDeviceFIFO("in", FLOAT, 2), one);
     }},
    {"stream_to_twice",
     [](Bench& b) {
       Copy(b.graph.addHostToDeviceFIFO("in", FLOAT, 24), b.y.slice(0, 1, 0).broadcast(4, 0));
     }},
    {"stream_type",
     [](Bench& b) { Copy(b.graph.addHostToDeviceFIFO("in", INT, 24), b.x); }},
    {"permutation_shape",
     [](Bench& b) { CrossReplicaCopy(b.x, b.y[0], {{0, 1}, {1, 2}, {2, 3}, {3, 0}}); }},
    {"permutation_type",
     [](Bench& b) { CrossReplicaCopy(b.x, b.i, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}); }},
    {"permutation_to_twice",
     [](Bench& b) {
       CrossReplicaCopy(b.x, b.y.slice(0, 1, 0).broadcast(4, 0), {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
     }},
    {"permutation_to_constant",
     [](Bench& b) {
       CrossReplicaCopy(b.u.reshape({}), b.index, {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
     }},
    {"while_type",
     [](Bench& b) { poplar::program::RepeatWhileTrue(Sequence(), b.u, Sequence()); }},
    {"control_type", [](Bench& b) { poplar::program::Switch(b.x[0][0], {}, Sequence()); }},
    {"inside_itself", [](Bench& b) { b.sequence.add(b.sequence); }},
    {"product_rank", [](Bench& b) { poplin::matMul(b.graph, b.x[0], b.y, b.sequence); }},
    {"product_narrower",
     [](Bench& b) { poplin::matMul(b.graph, b.x, b.y.transpose(), b.sequence, HALF); }},
    {"product_out_type",
     [](Bench& b) { poplin::matMul(b.graph, b.x, b.y.transpose(), b.sequence, INT); }},
    {"product_groups",
     [](Bench& b) { poplin::matMulGrouped(b.graph, b.x.reshape({2, 2, 6}), b.y.reshape({4, 6, 1}),
                                          b.sequence, FLOAT); }},
    {"slice_of_shorts",
     [](Bench& b) { popops::dynamicSlice(b.graph, b.s, b.u, {0}, {2}, b.sequence); }},
    {"update_constant",
     [](Bench& b) {
       Tensor one = b.graph.addConstant<float>(FLOAT, {4, 6}, 1.0F, "one");
       popops::dynamicUpdate(b.graph, one, b.y.slice(0, 2), b.u, {0}, {2}, b.sequence);
     }},
    {"update_twice",
     [](Bench& b) { popops::dynamicUpdate(b.graph, b.x.slice(0, 1).broadcast(4, 0), b.y.slice(0, 2),
                                          b.u, {0}, {2}, b.sequence); }},
    {"update_by_itself",
     [](Bench& b) { popops::dynamicUpdate(b.graph, b.x, b.x.slice(0, 2), b.u, {0}, {2},
                                          b.sequence); }},
    {"gather_index_type",
     [](Bench& b) { popops::gather(b.graph, b.x, b.y.flatten().slice(0, 1), 0, b.sequence,
                                   popops::GatherParams{}); }},
    {"scatter_index_type",
     [](Bench& b) { popops::scatter(b.graph, b.x, b.y.slice(0, 1, 1).slice(0, 2),
                                    b.y.slice(0, 2), 1, {1}, {0}, {0}, b.sequence); }},
    {"scatter_to_constant",
     [](Bench& b) {
       Tensor one = b.graph.addConstant<float>(FLOAT, {4, 6}, 1.0F, "one");
       popops::scatter(b.graph, one, b.u.reshape({1, 1}), b.y.slice(0, 1), 1, {1}, {0}, {0},
                       b.sequence);
     }},
    {"zero_constant",
     [](Bench& b) {
       Tensor one = b.graph.addConstant<float>(FLOAT, {4, 6}, 1.0F, "one");
       popops::zero(b.graph, one, b.sequence);
     }},
    {"top_none",
     [](Bench& b) { popops::topK(b.graph, b.sequence, b.x,
                                 popops::TopKParams(0, true, popops::SortOrder::NONE)); }},
    {"top_of_shorts",
     [](Bench& b) { popops::topK(b.graph, b.sequence, b.s,
                                 popops::TopKParams(1, true, popops::SortOrder::NONE)); }},
    {"reduce_dimension",
     [](Bench& b) { popops::reduce(b.graph, b.x, {2}, popops::Operation::ADD, b.sequence); }},
    {"sum_of_shorts",
     [](Bench& b) { gcl::allReduceCrossReplica(b.graph, b.s, CollectiveOperator::ADD, b.sequence,
                                               CommGroup()); }},
    {"sum_into_constant",
     [](Bench& b) {
       Tensor one = b.graph.addConstant<float>(FLOAT, {4, 6}, 1.0F, "one");
       gcl::allReduceInPlaceCrossReplica(b.graph, one, CollectiveOperator::ADD, b.sequence,
                                         CommGroup());
     }},
    {"sum_into_twice",
     [](Bench& b) {
       Tensor wide = b.y.slice(0, 1, 0).broadcast(4, 0);
       gcl::allReduceInPlaceCrossReplica(b.graph, wide, CollectiveOperator::ADD, b.sequence,
                                         CommGroup());
     }},
    {"sum_into_other_shape",
     [](Bench& b) {
       Tensor row = b.y[0];
       gcl::allReduceToDestinationCrossReplica(b.graph, b.x, row, CollectiveOperator::ADD,
                                               b.sequence, CommGroup());
     }},
    {"sum_into_overlap",
     [](Bench& b) {
       Tensor turned = b.x.reverse(0);
       gcl::allReduceToDestinationCrossReplica(b.graph, b.x, turned, CollectiveOperator::ADD,
                                               b.sequence, CommGroup());
     }},
};

}  // namespace

int main() { return report(cases); }
