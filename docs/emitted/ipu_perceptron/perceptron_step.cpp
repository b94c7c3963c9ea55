// perceptron_step: a program for 4 IPUs, a replica on each. Emitted by shardir.
//
//   mesh @mesh = [data=2, model=2]   (replicas in row-major order)
//
// Arguments, with what one replica holds of each:
//
//   params.b1: f32[16@model], f32[8], donated
//   params.w1: f32[8@-, 16@model], f32[8, 8], donated
//   params.w2: f32[16@model, 4@-], f32[8, 4], donated
//   x: f32[16@data, 8@-], f32[8, 8]
//   y: f32[16@data, 4@-], f32[8, 4]
//
// Results, with what one replica holds of each:
//
//   result.0: f32[] on @mesh
//   result.1.b1: f32[16@model], f32[8]
//   result.1.w1: f32[8@-, 16@model], f32[8, 8]
//   result.1.w2: f32[16@model, 4@-], f32[8, 4]
//
// On a replica at most 2.8 KiB live at once, 2 bytes on each of 1472 tiles (0.0%), code and
// exchange not counted.
//
// Build with the Poplar SDK, and run:
//
//   g++ -std=c++17 -O2 perceptron_step.cpp -o perceptron_step \
//     -lgcl -lpoplin -lpopops -lpoputil -lpoplar
//   ./perceptron_step --arguments arguments --results results

#include "shardir_ipu_host.hpp"

#include <gcl/Collectives.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <poplin/MatMul.hpp>
#include <poplin/codelets.hpp>
#include <popops/DynamicSlice.hpp>
#include <popops/ElementWise.hpp>
#include <popops/Reduce.hpp>
#include <popops/codelets.hpp>
#include <poputil/TileMapping.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

using poplar::Graph;
using poplar::Tensor;
using poplar::program::Copy;
using poplar::program::CrossReplicaCopy;
using poplar::program::Sequence;
namespace pe = popops::expr;

namespace {

// Groups of replicas that communicate, each in order of position.
using Groups = std::vector<std::vector<unsigned>>;

using Shape = std::vector<std::size_t>;

// The index of this replica.
Tensor replica_index(Graph &graph) {
  Tensor made = graph.addReplicationIndexConstant("replica");
  graph.setTileMapping(made, 0);
  return made.reshape({});
}

// A variable mapped linearly over the tiles.
Tensor variable(Graph &graph, const poplar::Type &type, const Shape &shape,
                const std::string &name) {
  Tensor made = graph.addVariable(type, shape, name);
  poputil::mapTensorLinearly(graph, made);
  return made;
}

// For each replica the one `places` positions further in its group, cyclically.
std::map<unsigned, unsigned> onward(const Groups &groups, unsigned places) {
  std::map<unsigned, unsigned> partner;
  for (const std::vector<unsigned> &group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      partner[group[i]] = group[(i + places) % group.size()];
    }
  }
  return partner;
}

// Row i of the result is row `first` + i of `t`, cyclically.
Tensor turned(Graph &graph, const Tensor &t, const Tensor &first, Sequence &step,
              const std::string &name) {
  return popops::dynamicSlice(graph, poplar::concat(t, t), first.reshape({1}), {0}, {t.dim(0)},
                              step, name);
}

// Rows in order of position, from rows that start after the replica's own position.
Tensor in_order(Graph &graph, const std::vector<Tensor> &rows, const Tensor &position,
                Sequence &step, const std::string &name) {
  const pe::Const last(static_cast<unsigned>(rows.size() - 1));
  Tensor first = popops::map(graph, last - pe::_1, {position}, step, name);
  return turned(graph, poplar::concat(rows), first, step, name);
}

// All-gather: one row per member of the replica's group, in order of position. In each step, a
// replica sends the row it received last to the next one.
Tensor ring_gather(Graph &graph, const Tensor &t, const Groups &groups, const Tensor &position,
                   Sequence &step, const std::string &name) {
  const std::size_t size = groups[0].size();
  Shape row = t.shape();
  row.insert(row.begin(), 1);
  std::vector<Tensor> rows(size);
  rows[size - 1] = t.reshape(row);
  for (std::size_t i = size - 1; i > 0; --i) {
    rows[i - 1] = variable(graph, t.elementType(), row, name);
    step.add(CrossReplicaCopy(rows[i], rows[i - 1], onward(groups, 1)));
  }
  return in_order(graph, rows, position, step, name);
}

// Reduce-scatter: the replica's row of the combined rows. A row starts at the replica after its
// owner, and each replica on the way to the owner combines it with its own row. So each row is
// combined in one fixed order.
Tensor ring_reduce_scatter(Graph &graph, const Tensor &rows, const Groups &groups,
                           const Tensor &position, const pe::Expr &combine, Sequence &step,
                           const std::string &name) {
  const std::size_t size = groups[0].size();
  Tensor own = turned(graph, rows, position, step, name);
  Tensor row = own[size - 1];
  for (std::size_t i = size - 1; i > 0; --i) {
    Tensor arrived = variable(graph, row.elementType(), row.shape(), name);
    step.add(CrossReplicaCopy(row, arrived, onward(groups, 1)));
    row = popops::map(graph, combine, {arrived, own[i - 1]}, step, name);
  }
  return row;
}

// All-reduce: a reduce-scatter of shards, one per member of the replica's group, and an all-gather.
Tensor ring_all_reduce(Graph &graph, const Tensor &t, const Groups &groups, const Tensor &position,
                       const pe::Expr &combine, Sequence &step, const std::string &name) {
  const std::size_t size = groups[0].size(), count = t.numElements();
  const std::size_t piece = (count + size - 1) / size, missing = piece * size - count;
  Tensor flat = t.flatten();
  if (missing > 0) flat = poplar::concat(flat, flat.slice(0, 1).broadcast(missing, 0));
  Tensor own = ring_reduce_scatter(graph, flat.reshape({size, piece}), groups, position, combine,
                                   step, name);
  return ring_gather(graph, own, groups, position, step, name)
      .flatten()
      .slice(0, count)
      .reshape(t.shape());
}

const gcl::CommGroup along_model(gcl::CommGroupType::CONSECUTIVE, 2);
const Groups around_data = {{0, 2}, {1, 3}};

// The program's arguments and results with their shardings: for each dimension the sizes
// and strides, in replicas, of the mesh axes that shard it.
shardir_ipu::Contract contract() {
  return {"perceptron_step", 4,
          {{"params_b1", "params.b1", poplar::FLOAT, {16}, {8}, {{{2, 1}}}},
           {"params_w1", "params.w1", poplar::FLOAT, {8, 16}, {8, 8}, {{}, {{2, 1}}}},
           {"params_w2", "params.w2", poplar::FLOAT, {16, 4}, {8, 4}, {{{2, 1}}, {}}},
           {"x", "x", poplar::FLOAT, {16, 8}, {8, 8}, {{{2, 2}}, {}}},
           {"y", "y", poplar::FLOAT, {16, 4}, {8, 4}, {{{2, 2}}, {}}}},
          {{"result_0", "result.0", poplar::FLOAT, {}, {}, {}},
           {"result_1_b1", "result.1.b1", poplar::FLOAT, {16}, {8}, {{{2, 1}}}},
           {"result_1_w1", "result.1.w1", poplar::FLOAT, {8, 16}, {8, 8}, {{}, {{2, 1}}}},
           {"result_1_w2", "result.1.w2", poplar::FLOAT, {16, 4}, {8, 4}, {{{2, 1}}, {}}}}};
}

void build(shardir_ipu::Program &program) {
  Graph &graph = program.graph;
  Sequence &step = program.step;
  popops::addCodelets(program.graph);
  poplin::addCodelets(program.graph);

  Tensor params_b1 = program.argument("params_b1");
  Tensor params_w1 = program.argument("params_w1",
      poplin::createMatMulInputRHS(graph, poplar::FLOAT, {8, 8}, {8, 8}, "params.w1"));
  Tensor params_w2 = program.argument("params_w2",
      poplin::createMatMulInputRHS(graph, poplar::FLOAT, {8, 8}, {8, 4}, "params.w2"));
  Tensor x = program.argument("x",
      poplin::createMatMulInputLHS(graph, poplar::FLOAT, {8, 8}, {8, 8}, "x"));
  Tensor y = program.argument("y");

  Tensor replica = replica_index(graph);
  Tensor place_along_data = popops::map(graph, pe::_1 / pe::Const(2u), {replica}, step,
      "place_along_data");

  // %0 = dot(%x, %params.w1, dims="bi,ih->bh") : f32[8, 8]
  Tensor v0 = poplin::matMul(graph, x, params_w1, step, "0");
  Tensor hidden = popops::map(graph, pe::Tanh(pe::_1 + pe::_2), {v0, params_b1.reshape({1, 8})},
      step, "hidden");
  Tensor v13 = popops::map(graph, pe::Const(1.0f) - pe::Square(pe::_1), {hidden}, step, "13");
  // %3.partial = dot(%hidden, %params.w2, dims="bi,ih->bh") : f32[8, 4]
  Tensor v3_partial = poplin::matMul(graph, hidden, params_w2, step, "3.partial");
  // %3 = all-reduce(%3.partial, axes=[model], op=add) : f32[8, 4]
  Tensor v3 = gcl::allReduceCrossReplica(graph, v3_partial, gcl::CollectiveOperator::ADD, step,
      along_model, "3");
  Tensor v5 = popops::map(graph, pe::Square(pe::_1 - pe::_2), {v3, y}, step, "5");
  Tensor v31 = popops::map(graph, pe::Const(0.015625f) * (pe::_1 - pe::_2), {v3, y}, step, "31");
  Tensor v4_grad = popops::map(graph, pe::_1 + pe::_1, {v31}, step, "4.grad");
  // %6.partial = sum(%5, dims=[0, 1]) : f32[]
  Tensor v6_partial = popops::reduce(graph, v5, {0, 1}, popops::Operation::ADD, step, "6.partial");
  // %6 = all-reduce(%6.partial, axes=[data], op=add) : f32[]
  Tensor v6 = ring_all_reduce(graph, v6_partial, around_data, place_along_data, pe::_1 + pe::_2,
      step, "6");
  Tensor v8 = popops::map(graph, pe::_1 / pe::Const(64.0f), {v6}, step, "8");
  // %hidden.grad = dot(%4.grad, %params.w2, dims="bh,ih->bi") : f32[8, 8]
  Tensor hidden_grad = poplin::matMul(graph, v4_grad, params_w2.dimShuffle({1, 0}), step,
      "hidden.grad");
  // %params.w2.grad.partial = dot(%4.grad, %hidden, dims="bh,bi->ih") : f32[8, 4]
  Tensor params_w2_grad_partial = poplin::matMul(graph, hidden.dimShuffle({1, 0}), v4_grad, step,
      "params.w2.grad.partial");
  // %params.w2.grad = all-reduce(%params.w2.grad.partial, axes=[data], op=add) : f32[8, 4]
  Tensor params_w2_grad = ring_all_reduce(graph, params_w2_grad_partial, around_data,
      place_along_data, pe::_1 + pe::_2, step, "params.w2.grad");
  Tensor v2_grad = popops::map(graph, pe::_1 * pe::_2, {hidden_grad, v13}, step, "2.grad");
  // %params.b1.grad.partial = sum(%2.grad, dims=[0]) : f32[8]
  Tensor params_b1_grad_partial = popops::reduce(graph, v2_grad, {0}, popops::Operation::ADD, step,
      "params.b1.grad.partial");
  // %params.b1.grad = all-reduce(%params.b1.grad.partial, axes=[data], op=add) : f32[8]
  Tensor params_b1_grad = ring_all_reduce(graph, params_b1_grad_partial, around_data,
      place_along_data, pe::_1 + pe::_2, step, "params.b1.grad");
  // %params.w1.grad.partial = dot(%2.grad, %x, dims="bh,bi->ih") : f32[8, 8]
  Tensor params_w1_grad_partial = poplin::matMul(graph, x.dimShuffle({1, 0}), v2_grad, step,
      "params.w1.grad.partial");
  // %params.w1.grad = all-reduce(%params.w1.grad.partial, axes=[data], op=add) : f32[8, 8]
  Tensor params_w1_grad = ring_all_reduce(graph, params_w1_grad_partial, around_data,
      place_along_data, pe::_1 + pe::_2, step, "params.w1.grad");
  Tensor v16 = popops::map(graph, pe::_1 - pe::Const(0.1f) * pe::_2, {params_b1, params_b1_grad},
      step, "16");
  Tensor v19 = popops::map(graph, pe::_1 - pe::Const(0.1f) * pe::_2, {params_w1, params_w1_grad},
      step, "19");
  Tensor v22 = popops::map(graph, pe::_1 - pe::Const(0.1f) * pe::_2, {params_w2, params_w2_grad},
      step, "22");
  // Donated arguments get the results that the next step starts with.
  step.add(Copy(v16, params_b1));
  step.add(Copy(v19, params_w1));
  step.add(Copy(v22, params_w2));
  program.result("result_0", v8);
  program.result("result_1_b1", params_b1);
  program.result("result_1_w1", params_w1);
  program.result("result_1_w2", params_w2);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
