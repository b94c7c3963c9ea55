// Views, padding, fills, constants: what goes nowhere and is only seen otherwise.
#include "shardir_ipu_host.hpp"

#include <poplar/IPUModel.hpp>
#include <popops/Fill.hpp>
#include <popops/Pad.hpp>
#include <popops/Zero.hpp>
#include <popops/codelets.hpp>
#include <poputil/TileMapping.hpp>

using poplar::Tensor;
using poplar::program::Copy;

namespace {

std::map<std::string, Tensor> views(poplar::Graph& graph, const Tensor& x) {
  std::map<std::string, Tensor> made;
  made["row"] = x[1];
  made["slice"] = x.slice(1, 3, 2);
  made["box"] = x.slice({0, 1, 1}, {2, 3, 4});
  made["reshape"] = x.reshape({4, 6});
  made["flatten"] = x.flatten();
  made["shuffle"] = x.dimShuffle({2, 0, 1});
  made["transpose"] = x[0].transpose();
  made["expand"] = x.expand({3});
  made["squeeze"] = x.slice(1, 2, 1).squeeze({1});
  made["broadcast"] = x.slice(0, 2, 1).broadcast(3, 1);
  made["reverse"] = x.reverse(2);
  made["sample"] = x.subSample(2, 1);
  made["joined"] = poplar::concat({x, x.reverse(0), x.slice(0, 1, 0)}, 0);
  made["both"] = poplar::concat(x, x, 1);
  made["padded"] = popops::pad(graph, x, {1, 0, -1}, {0, 2, 1}, 5.0F);
  return made;
}

shardir_ipu::Contract contract() {
  poplar::Graph graph(poplar::IPUModel().createDevice());
  Tensor x = graph.addVariable(poplar::FLOAT, {2, 3, 4});
  shardir_ipu::Contract contract{"views", 1, {}, {}};
  const std::vector<std::size_t> shape = {2, 3, 4};
  contract.arguments.push_back({"x", "x", poplar::FLOAT, shape, shape, {{}, {}, {}}});
  for (const auto& view : views(graph, x)) {
    contract.results.push_back({view.first, view.first, poplar::FLOAT, view.second.shape(),
                                view.second.shape(), {{}, {}, {}, {}}});
  }
  contract.results.push_back({"halves", "halves", poplar::HALF, {3}, {3}, {{}}});
  contract.results.push_back({"filled", "filled", poplar::INT, {2, 2}, {2, 2}, {{}, {}}});
  contract.results.push_back({"written", "written", poplar::INT, {4}, {4}, {{}}});
  return contract;
}

void build(shardir_ipu::Program& program) {
  poplar::Graph& graph = program.graph;
  poplar::program::Sequence& step = program.step;
  popops::addCodelets(graph);
  for (const auto& view : views(graph, program.argument("x"))) {
    program.result(view.first, view.second);
  }
  Tensor halves = graph.addConstant<float>(poplar::HALF, {3}, {0.1F, 65519.0F, -1e-8F}, "halves");
  graph.setTileMapping(halves, 3);
  program.result("halves", halves);
  Tensor filled = graph.addVariable(poplar::INT, {2, 2}, poplar::VariableMappingMethod::LINEAR);
  popops::fill(graph, filled, step, -3);
  program.result("filled", filled);
  // A part of a variable is written through a view of it.
  Tensor written = graph.addVariable(poplar::INT, {4}, "written");
  poputil::mapTensorLinearly(graph, written, 2, 2);
  popops::zero(graph, written, step);
  step.add(Copy(filled[0], written.subSample(2, 0)));
  program.result("written", written);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
