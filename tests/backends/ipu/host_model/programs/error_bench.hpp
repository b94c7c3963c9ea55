// The tensors and the runner of error cases. A test puts this in front of a file with cases.
#pragma once

#include <cstdio>
#include <functional>
#include <utility>

#include <shardir_host_model/declarations.hpp>

using namespace poplar;
using gcl::CollectiveOperator;
using gcl::CommGroup;
using gcl::CommGroupType;
using poplar::program::Copy;
using poplar::program::CrossReplicaCopy;
using poplar::program::Sequence;
namespace pe = popops::expr;

namespace {

constexpr auto LINEAR = VariableMappingMethod::LINEAR;

// A graph of 4 replicas with a variable of each kind.
struct Bench {
  Bench()
      : device(DeviceManager::createDeviceManager().getDevices(TargetType::IPU, 4)[0]),
        graph(device, replication_factor(4)) {
    popops::addCodelets(graph);
    poplin::addCodelets(graph);
    x = graph.addVariable(FLOAT, {4, 6}, LINEAR, "x");
    y = graph.addVariable(FLOAT, {4, 6}, LINEAR, "y");
    i = graph.addVariable(INT, {4, 6}, LINEAR, "i");
    h = graph.addVariable(HALF, {4, 6}, LINEAR, "h");
    c = graph.addVariable(BOOL, {}, LINEAR, "c");
    u = graph.addVariable(UNSIGNED_INT, {1}, LINEAR, "u");
    s = graph.addVariable(SHORT, {4, 6}, LINEAR, "s");
    index = graph.addReplicationIndexConstant("index");
    graph.setTileMapping(index, 0);
  }

  void run() {
    Engine engine(graph, sequence);
    engine.load(device);
    engine.run(0);
  }

  Device device;
  Graph graph;
  Sequence sequence;
  Tensor x, y, i, h, c, u, s, index;
};

void set(Bench& b, const Tensor& tensor, unsigned value) {
  popops::fill(b.graph, tensor, b.sequence, value);
}

using Case = std::pair<const char*, std::function<void(Bench&)>>;

// Prints the name of each case and what the model says.
template <std::size_t count>
int report(const Case (&cases)[count]) {
  for (const Case& each : cases) {
    Bench bench;
    try {
      each.second(bench);
      std::printf("%s\tnothing is refused\n", each.first);
    } catch (const poplar_error& error) {
      std::printf("%s\t%s\n", each.first, error.what());
    }
  }
  return 0;
}

}  // namespace
