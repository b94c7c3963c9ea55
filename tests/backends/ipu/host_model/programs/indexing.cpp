// Slices at places known when the program runs, and sorting.
#include "shardir_ipu_host.hpp"

#include <popops/DynamicSlice.hpp>
#include <popops/ElementWise.hpp>
#include <popops/Gather.hpp>
#include <popops/Scatter.hpp>
#include <popops/Sort.hpp>
#include <popops/TopK.hpp>
#include <popops/codelets.hpp>

using poplar::FLOAT;
using poplar::Tensor;
using poplar::UNSIGNED_INT;
using poplar::program::Copy;
using poplar::program::Sequence;
using popops::SortOrder;
using popops::TopKParams;

namespace {

shardir_ipu::Port port(const std::string& name, const poplar::Type& type,
                       const std::vector<std::size_t>& shape) {
  return {name, name, type, shape, shape, std::vector<std::vector<shardir_ipu::Split>>(shape.size())};
}

shardir_ipu::Contract contract() {
  return {"indexing", 1,
          {port("x", FLOAT, {4, 5, 6}), port("rows", UNSIGNED_INT, {7}),
           port("at", UNSIGNED_INT, {2}), port("patch", FLOAT, {4, 2, 3}),
           port("places", UNSIGNED_INT, {3, 2}), port("updates", FLOAT, {3, 4}),
           port("keys", FLOAT, {3, 8}), port("ties", poplar::INT, {2, 9})},
          {port("picked", FLOAT, {4, 7, 6}), port("points", FLOAT, {3, 4}),
           port("windows", FLOAT, {2, 3, 2, 4}), port("cut", FLOAT, {4, 2, 3}),
           port("put", FLOAT, {4, 5, 6}), port("looked_up", FLOAT, {7, 1, 30}),
           port("scattered", FLOAT, {4, 5, 6}), port("added", FLOAT, {4, 5, 6}),
           port("sorted", FLOAT, {3, 8}), port("sorted_columns", FLOAT, {3, 8}),
           port("carried", UNSIGNED_INT, {3, 8}), port("top", FLOAT, {3, 3}),
           port("bottom", FLOAT, {3, 3}), port("stable", poplar::INT, {2, 9}),
           port("stable_places", UNSIGNED_INT, {2, 9}), port("top_places", UNSIGNED_INT, {2, 4})}};
}

Tensor copy_of(poplar::Graph& graph, const Tensor& x, Sequence& step) {
  Tensor made = graph.clone(x, "copy");
  step.add(Copy(x, made));
  return made;
}

void build(shardir_ipu::Program& program) {
  poplar::Graph& graph = program.graph;
  Sequence& step = program.step;
  popops::addCodelets(graph);
  const Tensor x = program.argument("x"), rows = program.argument("rows");
  const Tensor at = program.argument("at"), patch = program.argument("patch");
  const Tensor places = program.argument("places"), updates = program.argument("updates");
  const Tensor keys = program.argument("keys"), ties = program.argument("ties");
  program.result("picked", popops::gather(graph, x, rows, 1, step, popops::GatherParams{}));
  // x[:, j, k] for each place (j, k).
  program.result("points", popops::gather(graph, x, places, 1, {1}, {4, 1, 1}, {1, 2}, {1, 2}, step));
  // For each place (i, k): x[i : i + 2, :3, k : k + 4] without its middle, the places last but one.
  program.result("windows", popops::gather(graph, x.slice(0, 3, 1), places.slice(0, 2, 0), 1,
                                           {0, 1, 3}, {2, 3, 4}, {}, {0, 2}, step));
  program.result("cut", popops::dynamicSlice(graph, x, at, {1, 2}, {2, 3}, step));
  Tensor put = copy_of(graph, x, step);
  popops::dynamicUpdate(graph, put, patch, at, {1, 2}, {2, 3}, step);
  program.result("put", put);
  program.result("looked_up",
                 popops::multiSlice(graph, x.reshape({4, 30}), rows.expand({1}), {0}, {1}, step,
                                    popops::SlicePlan(), {}));
  Tensor scattered = copy_of(graph, x, step), added = copy_of(graph, x, step);
  popops::scatter(graph, scattered, places, updates, 1, {1}, {1, 2}, {1, 2}, step);
  popops::UpdateComputationFunc sum = [](poplar::Graph& inner, Tensor& old, Tensor& update,
                                         Sequence& body) {
    namespace pe = popops::expr;
    return popops::map(inner, pe::_1 + pe::_2, {old, update}, body);
  };
  popops::scatter(graph, added, places, updates, 1, {1}, {1, 2}, {1, 2}, sum, step);
  program.result("scattered", scattered);
  program.result("added", added);
  program.result("sorted", popops::sort(graph, keys, 1, step));
  program.result("sorted_columns", popops::sort(graph, keys, 0, step));
  std::vector<unsigned> numbers;
  for (unsigned i = 0; i < 24; ++i) numbers.push_back(i % 8);
  Tensor index = graph.addConstant<unsigned>(UNSIGNED_INT, {3, 8}, numbers);
  graph.setTileMapping(index, 0);
  program.result("carried", popops::sortKeyValue(graph, keys, index, 1, step));
  program.result("top", popops::topK(graph, step, keys, TopKParams(3, true, SortOrder::DESCENDING)));
  program.result("bottom",
                 popops::topK(graph, step, keys, TopKParams(3, false, SortOrder::ASCENDING)));
  const auto stable = popops::topKWithPermutation(
      graph, step, ties, TopKParams(9, false, SortOrder::ASCENDING, true));
  program.result("stable", stable.first);
  program.result("stable_places", stable.second);
  const auto top = popops::topKWithPermutation(graph, step, ties,
                                               TopKParams(4, true, SortOrder::DESCENDING, true));
  program.result("top_places", top.second);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
