// A group of replicas that do not follow one another: refused unless it is allowed.
#include "shardir_ipu_host.hpp"

#include <gcl/Collectives.hpp>
#include <popops/codelets.hpp>

namespace {

shardir_ipu::Contract contract() {
  return {"strided", 8,
          {{"x", "x", poplar::INT, {8}, {1}, {{{8, 1}}}}},
          {{"y", "y", poplar::INT, {8, 4}, {1, 4}, {{{8, 1}}, {}}}}};
}

void build(shardir_ipu::Program& program) {
  popops::addCodelets(program.graph);
  const gcl::CommGroup group(gcl::CommGroupType::CONSECUTIVE, 4, 2);
  const poplar::Tensor x = program.argument("x");
  program.result("y", gcl::allGatherCrossReplica(program.graph, x, program.step, group)
                          .reshape({1, 4}));
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
