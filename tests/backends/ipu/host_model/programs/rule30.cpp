// Rule 30 on a board cut over 8 replicas: each row is made of the row before, and the cells at the
// borders come from the neighbours. What comes round the end of the ring is cleared.
#include "shardir_ipu_host.hpp"

#include <popops/DynamicSlice.hpp>
#include <popops/ElementWise.hpp>
#include <popops/Loop.hpp>
#include <popops/Zero.hpp>
#include <popops/codelets.hpp>
#include <poputil/TileMapping.hpp>

using poplar::BOOL;
using poplar::Tensor;
using poplar::program::Copy;
using poplar::program::CrossReplicaCopy;
using poplar::program::Sequence;
namespace pe = popops::expr;

namespace {

constexpr unsigned replicas = 8;
constexpr std::size_t cells = 9, rows = 30;

shardir_ipu::Contract contract() {
  return {"rule30", replicas,
          {{"first", "first", BOOL, {replicas * cells}, {cells}, {{{replicas, 1}}}}},
          {{"board", "board", BOOL, {rows, replicas * cells}, {rows, cells}, {{}, {{replicas, 1}}}}}};
}

void build(shardir_ipu::Program& program) {
  poplar::Graph& graph = program.graph;
  Sequence& step = program.step;
  popops::addCodelets(graph);
  const Tensor first = program.argument("first");
  Tensor row = graph.clone(first, "row");
  Tensor board = graph.addVariable(BOOL, {rows, cells}, poplar::VariableMappingMethod::LINEAR);
  Tensor left = graph.addVariable(BOOL, {1}, poplar::VariableMappingMethod::LINEAR, "left");
  Tensor right = graph.addVariable(BOOL, {1}, poplar::VariableMappingMethod::LINEAR, "right");
  Tensor index = graph.addReplicationIndexConstant();
  graph.setTileMapping(index, 0);
  std::map<unsigned, unsigned> up, down;
  for (unsigned i = 0; i < replicas; ++i) {
    up[i] = (i + 1) % replicas;
    down[(i + 1) % replicas] = i;
  }
  step.add(Copy(first, row));
  step.add(popops::countedLoop(graph, rows, [&](const Tensor& count) {
    Sequence body;
    popops::dynamicUpdate(graph, board, row.expand({0}), count, {0}, {1}, body);
    body.add(CrossReplicaCopy(row.slice(cells - 1, cells), left, up));
    body.add(CrossReplicaCopy(row.slice(0, 1), right, down));
    popops::mapInPlace(graph, pe::_1 && (pe::_2 != pe::Const(0U)), {left, index}, body);
    popops::mapInPlace(graph, pe::_1 && (pe::_2 != pe::Const(replicas - 1)), {right, index}, body);
    const Tensor wide = poplar::concat({left, row, right});
    const Tensor next = popops::map(
        graph, pe::_1 != (pe::_2 || pe::_3),
        {wide.slice(0, cells), wide.slice(1, cells + 1), wide.slice(2, cells + 2)}, body);
    body.add(Copy(next, row));
    return body;
  }));
  program.result("board", board);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
