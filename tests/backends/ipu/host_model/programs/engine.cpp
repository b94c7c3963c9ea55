// A program with an engine of its own: host reads and writes, streams in a circle and broadcast, a
// tensor printed, and the values where Poplar does not say what comes out.
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <poplar/Engine.hpp>
#include <poplar/IPUModel.hpp>
#include <popops/ElementWise.hpp>
#include <popops/Sort.hpp>
#include <popops/codelets.hpp>
#include <poputil/TileMapping.hpp>

using namespace poplar;
using poplar::program::Copy;
using poplar::program::Sequence;
namespace pe = popops::expr;

namespace {

template <typename T>
void show(const char* name, const std::vector<T>& values) {
  std::printf("%s:", name);
  for (const T value : values) std::printf(" %g", static_cast<double>(value));
  std::printf("\n");
}

void streams() {
  IPUModel model;
  model.numIPUs = 2;
  const Device device = model.createDevice();
  Graph graph(device.getTarget(), replication_factor(2));
  popops::addCodelets(graph);
  Tensor v = graph.addVariable(FLOAT, {4}, "v");
  for (unsigned i = 0; i < 4; ++i) graph.setTileMapping(v[i], i);
  Tensor shared = graph.addVariable(FLOAT, {2}, "shared");
  poputil::mapTensorLinearly(graph, shared);
  Tensor c = graph.addConstant<float>(FLOAT, {2}, {1.5, 2.5}, "c");
  graph.setTileMapping(c, 0);
  DataStream in = graph.addHostToDeviceFIFO("in", FLOAT, 2);
  DataStream both = graph.addHostToDeviceFIFO("both", FLOAT, 2, ReplicatedStreamMode::BROADCAST);
  graph.createHostWrite("v", v);
  graph.createHostRead("v", v);
  Sequence step{Copy(in, v.slice(0, 2)), Copy(both, shared)};
  popops::mapInPlace(graph, pe::_1 + pe::_2 * pe::_3, {v.slice(2, 4), shared, c}, step);
  step.add(poplar::program::PrintTensor("v", v));
  Engine engine(graph, step);
  engine.load(device);
  std::vector<float> start = {0, 0, 0, 0, 1, 1, 1, 1}, circle = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> same = {10, 20}, end(8);
  engine.writeTensor("v", start.data(), start.data() + start.size());
  engine.connectStream("in", circle.data(), circle.data() + circle.size());
  engine.connectStream("both", same.data());
  for (int i = 0; i < 3; ++i) {
    engine.run(0);
    engine.readTensor("v", end.data(), end.data() + end.size());
    show("v", end);
  }
}

// What comes out where Poplar leaves it open.
void open_questions() {
  const Device device = Device::createCPUDevice();
  Graph graph(device);
  popops::addCodelets(graph);
  const auto variable = [&](const Type& type, const char* name) {
    return graph.addVariable(type, {3}, VariableMappingMethod::LINEAR, name);
  };
  Tensor x = variable(FLOAT, "x"), y = variable(FLOAT, "y");
  Tensor a = variable(INT, "a"), b = variable(INT, "b"), order = variable(INT, "order");
  Sequence step;
  const auto result = [&](const char* name, const pe::Expr& expression,
                          const std::vector<Tensor>& tensors) {
    graph.createHostRead(name, popops::map(graph, expression, tensors, step, name));
  };
  result("maximum", pe::Max(pe::_1, pe::_2), {x, y});
  result("minimum", pe::Min(pe::_1, pe::_2), {x, y});
  result("divided", pe::_1 / pe::_2, {a, b});
  result("remainder", pe::_1 % pe::_2, {a, b});
  result("shifted", pe::_1 << pe::Const(33), {a});
  graph.createHostRead("order read", popops::sortKeyValue(graph, b, order, 0, step));
  for (const auto& each : std::map<std::string, Tensor>{
           {"x", x}, {"y", y}, {"a", a}, {"b", b}, {"order", order}}) {
    graph.createHostWrite(each.first, each.second);
  }
  Engine engine(graph, step);
  engine.load(device);
  std::vector<float> xs = {1, NAN, 3}, ys = {NAN, 2, -1}, reals(3);
  std::vector<int> as = {7, -7, -2147483647 - 1}, bs = {0, 0, -1}, orders = {0, 1, 2}, wholes(3);
  engine.writeTensor("x", xs.data(), xs.data() + 3);
  engine.writeTensor("y", ys.data(), ys.data() + 3);
  engine.writeTensor("a", as.data(), as.data() + 3);
  engine.writeTensor("b", bs.data(), bs.data() + 3);
  engine.writeTensor("order", orders.data(), orders.data() + 3);
  engine.run(0);
  for (const char* name : {"maximum", "minimum"}) {
    engine.readTensor(name, reals.data(), reals.data() + 3);
    show(name, reals);
  }
  for (const char* name : {"divided", "remainder", "shifted", "order read"}) {
    engine.readTensor(name, wholes.data(), wholes.data() + 3);
    show(name, wholes);
  }
}

}  // namespace

int main() {
  streams();
  open_questions();
  return 0;
}
