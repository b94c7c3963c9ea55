// Collectives of 8 replicas: all together, and in consecutive groups of 2 and 4.
#include "shardir_ipu_host.hpp"

#include <gcl/Collectives.hpp>
#include <popops/codelets.hpp>

using gcl::CollectiveOperator;
using gcl::CommGroup;
using gcl::CommGroupType;
using poplar::FLOAT;
using poplar::Tensor;

namespace {

using Cuts = std::vector<std::vector<shardir_ipu::Split>>;

shardir_ipu::Port port(const std::string& name, const poplar::Type& type,
                       const std::vector<std::size_t>& part) {
  return {name, name, type, part, part, Cuts(part.size())};
}

shardir_ipu::Contract contract() {
  return {"collectives", 8,
          {port("x", FLOAT, {10}), port("h", poplar::HALF, {10}), port("i", poplar::INT, {3}),
           port("c", poplar::BOOL, {6}), port("rows", FLOAT, {8, 3}), port("pairs", FLOAT, {2, 3})},
          {port("sum", FLOAT, {10}), port("mean", FLOAT, {10}), port("sum_of_2", FLOAT, {10}),
           port("product_of_4", FLOAT, {10}), port("lowest", FLOAT, {10}),
           port("highest_of_4", FLOAT, {10}), port("squares", FLOAT, {10}),
           port("half", poplar::HALF, {10}), port("whole", poplar::INT, {3}),
           port("every", poplar::BOOL, {6}), port("some_of_2", poplar::BOOL, {6}),
           port("gathered", FLOAT, {8, 10}), port("gathered_of_2", FLOAT, {2, 10}),
           port("gathered_bools", poplar::BOOL, {4, 6}), port("pieces", FLOAT, {2}),
           port("pieces_of_4", FLOAT, {3}), port("own_of_4", FLOAT, {3}),
           port("turned", FLOAT, {8, 3}), port("turned_of_2", FLOAT, {2, 3}),
           port("in_place", FLOAT, {10}), port("to_place", FLOAT, {10}),
           port("index", poplar::UNSIGNED_INT, {}), port("ring", FLOAT, {10})}};
}

void build(shardir_ipu::Program& program) {
  poplar::Graph& graph = program.graph;
  poplar::program::Sequence& step = program.step;
  popops::addCodelets(graph);
  const CommGroup all, twos(CommGroupType::CONSECUTIVE, 2), fours(CommGroupType::CONSECUTIVE, 4);
  const Tensor x = program.argument("x"), h = program.argument("h"), i = program.argument("i");
  const Tensor c = program.argument("c"), rows = program.argument("rows");
  const Tensor pairs = program.argument("pairs");
  const auto reduce = [&](const std::string& name, const Tensor& data, CollectiveOperator op,
                          const CommGroup& group) {
    program.result(name, gcl::allReduceCrossReplica(graph, data, op, step, group, name));
  };
  reduce("sum", x, CollectiveOperator::ADD, all);
  reduce("mean", x, CollectiveOperator::MEAN, all);
  reduce("sum_of_2", x, CollectiveOperator::ADD, twos);
  reduce("product_of_4", x, CollectiveOperator::MUL, fours);
  reduce("lowest", x, CollectiveOperator::MIN, all);
  reduce("highest_of_4", x, CollectiveOperator::MAX, fours);
  reduce("squares", x, CollectiveOperator::SQUARE_ADD, all);
  reduce("half", h, CollectiveOperator::ADD, all);
  reduce("whole", i, CollectiveOperator::ADD, all);
  reduce("every", c, CollectiveOperator::LOGICAL_AND, all);
  reduce("some_of_2", c, CollectiveOperator::LOGICAL_OR, twos);
  program.result("gathered", gcl::allGatherCrossReplica(graph, x, step, all));
  program.result("gathered_of_2", gcl::allGatherCrossReplica(graph, x, step, twos));
  program.result("gathered_bools", gcl::allGatherCrossReplica(graph, c, step, fours));
  const auto scatter = [&](const std::string& name, CollectiveOperator op, const CommGroup& group) {
    program.result(name, gcl::reduceScatterCrossReplica(graph, x, op, step, group, name));
  };
  scatter("pieces", CollectiveOperator::ADD, all);
  scatter("pieces_of_4", CollectiveOperator::ADD, fours);
  scatter("own_of_4", CollectiveOperator::LOCAL, fours);
  program.result("turned", gcl::allToAllCrossReplica(graph, rows, step, all));
  program.result("turned_of_2", gcl::allToAllCrossReplica(graph, pairs, step, twos));
  Tensor in_place = graph.clone(x, "in_place"), to_place = graph.clone(x, "to_place");
  step.add(poplar::program::Copy(x, in_place));
  gcl::allReduceInPlaceCrossReplica(graph, in_place, CollectiveOperator::ADD, step, twos);
  gcl::allReduceToDestinationCrossReplica(graph, x, to_place, CollectiveOperator::ADD, step, twos);
  program.result("in_place", in_place);
  program.result("to_place", to_place);
  Tensor index = graph.addReplicationIndexConstant("index");
  graph.setTileMapping(index, 0);
  program.result("index", index);
  Tensor ring = graph.clone(x, "ring");
  std::map<unsigned, unsigned> next;
  for (unsigned replica = 0; replica < 8; ++replica) next[replica] = (replica + 3) % 8;
  step.add(poplar::program::CrossReplicaCopy(x, ring, next, "ring"));
  program.result("ring", ring);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
