// An array of 7 by 5 cut over 2 by 4 replicas: parts of 4 by 2, the last ones partly or all padding.
// A number that all replicas have, and an array without elements.
#include "shardir_ipu_host.hpp"

#include <gcl/Collectives.hpp>
#include <popops/ElementWise.hpp>
#include <popops/Reduce.hpp>
#include <popops/codelets.hpp>

namespace {

shardir_ipu::Contract contract() {
  using poplar::HALF;
  return {"uneven", 8,
          {{"x", "batch['x']", HALF, {7, 5}, {4, 2}, {{{2, 4}}, {{2, 1}, {2, 2}}}},
           {"scale", "scale", HALF, {}, {}, {}},
           {"empty", "empty", HALF, {0, 3}, {0, 3}, {{}, {}}}},
          {{"y", "y", HALF, {7, 5}, {4, 2}, {{{2, 4}}, {{2, 1}, {2, 2}}}},
           {"sum", "sum", HALF, {}, {}, {}},
           {"none", "none", HALF, {0, 3}, {0, 3}, {{}, {}}}}};
}

void build(shardir_ipu::Program& program) {
  namespace pe = popops::expr;
  poplar::Graph& graph = program.graph;
  popops::addCodelets(graph);
  const poplar::Tensor x = program.argument("x"), scale = program.argument("scale");
  const poplar::Tensor y = popops::map(graph, pe::_1 * pe::_2, {x, scale}, program.step, "y");
  const poplar::Tensor part =
      popops::reduce(graph, x, {0, 1}, popops::Operation::ADD, program.step, "part");
  program.result("y", y);
  program.result("sum", gcl::allReduceCrossReplica(graph, part, gcl::CollectiveOperator::ADD,
                                                   program.step, gcl::CommGroup()));
  program.result("none", program.argument("empty"));
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
