// step: a program for 4 IPUs, a replica on each. Emitted by shardir.
//
//   mesh @mesh = [i=4]   (replicas in row-major order)
//
// Arguments, with what one replica holds of each:
//
//   piece: bool[4@i, 10@-], bool[1, 10]
//
// Results, with what one replica holds of each:
//
//   result: bool[4@i, 10@-], bool[1, 10]
//
// On a replica at most 100 B live at once, 1 bytes on each of 1472 tiles (0.0%), code and
// exchange not counted.
//
// Build with the Poplar SDK, and run:
//
//   g++ -std=c++17 -O2 step.cpp -o step \
//     -lgcl -lpoplin -lpopops -lpoputil -lpoplar
//   ./step --arguments arguments --results results

#include "shardir_ipu_host.hpp"

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <popops/ElementWise.hpp>
#include <popops/codelets.hpp>
#include <poputil/TileMapping.hpp>

#include <cstddef>
#include <string>
#include <vector>

using poplar::Graph;
using poplar::Tensor;
using poplar::program::CrossReplicaCopy;
using poplar::program::Sequence;
namespace pe = popops::expr;

namespace {

using Shape = std::vector<std::size_t>;

// A variable mapped linearly over the tiles.
Tensor variable(Graph &graph, const poplar::Type &type, const Shape &shape,
                const std::string &name) {
  Tensor made = graph.addVariable(type, shape, name);
  poputil::mapTensorLinearly(graph, made);
  return made;
}

// The program's arguments and results with their shardings: for each dimension the sizes
// and strides, in replicas, of the mesh axes that shard it.
shardir_ipu::Contract contract() {
  return {"step", 4,
          {{"piece", "piece", poplar::BOOL, {4, 10}, {1, 10}, {{{4, 1}}, {}}}},
          {{"result", "result", poplar::BOOL, {4, 10}, {1, 10}, {{{4, 1}}, {}}}}};
}

void build(shardir_ipu::Program &program) {
  Graph &graph = program.graph;
  Sequence &step = program.step;
  popops::addCodelets(program.graph);

  Tensor piece = program.argument("piece");

  Tensor v1 = piece.reshape({10});
  Tensor v2 = v1.slice(0, 1, 0);
  Tensor right = v1.slice(9, 10, 0);
  // %3 = collective-permute(%2, axes=[i], pairs=[[1, 0], [2, 1], [3, 2], [0, 3]]) : bool[1]
  Tensor v3 = variable(graph, poplar::BOOL, {1}, "3");
  step.add(CrossReplicaCopy(v2, v3, {{0, 3}, {1, 0}, {2, 1}, {3, 2}}));
  // %left = collective-permute(%right, axes=[i], pairs=[[0, 1], [1, 2], [2, 3], [3, 0]]) : bool[1]
  Tensor left = variable(graph, poplar::BOOL, {1}, "left");
  step.add(CrossReplicaCopy(right, left, {{0, 1}, {1, 2}, {2, 3}, {3, 0}}));
  Tensor v4 = poplar::concat({left, v1, v3}, 0);
  Tensor v5 = v4.slice(0, 10, 0);
  Tensor v6 = v4.slice(2, 12, 0);
  Tensor center = v4.slice(1, 11, 0);
  Tensor v8 = popops::map(graph, pe::_1 != (pe::_2 || pe::_3), {v5, center, v6}, step, "8");
  Tensor v10 = v8.reshape({1, 10});
  program.result("result", v10);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
