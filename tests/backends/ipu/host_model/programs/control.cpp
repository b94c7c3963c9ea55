// Loops and branches, the same way on both replicas; `x` stays on the device between steps.
#include "shardir_ipu_host.hpp"

#include <popops/ElementWise.hpp>
#include <popops/Loop.hpp>
#include <popops/Zero.hpp>
#include <popops/codelets.hpp>

using poplar::INT;
using poplar::Tensor;
using poplar::VariableMappingMethod;
using poplar::program::Copy;
using poplar::program::Program;
using poplar::program::Sequence;
namespace pe = popops::expr;

namespace {

const std::vector<std::size_t> one = {1};

shardir_ipu::Contract contract() {
  const auto port = [](const char* name) {
    return shardir_ipu::Port{name, name, INT, one, one, {{}}};
  };
  return {"control", 2,
          {port("n"), port("state")},
          {port("collatz"), port("parity"), port("case"), port("doubled"), port("counted"),
           port("counted_by_3"), port("state_after")}};
}

void build(shardir_ipu::Program& program) {
  poplar::Graph& graph = program.graph;
  Sequence& step = program.step;
  popops::addCodelets(graph);
  const Tensor n = program.argument("n"), state = program.argument("state");
  const auto variable = [&](const char* name) {
    return graph.addVariable(INT, one, VariableMappingMethod::LINEAR, name);
  };
  // Steps of Collatz until 1.
  Tensor value = variable("value"), steps = variable("steps");
  step.add(Copy(n, value));
  popops::zero(graph, steps, step);
  Sequence condition, body, odd, even;
  Tensor goes_on = popops::map(graph, pe::_1 > pe::Const(1), {value}, condition);
  Tensor is_odd = popops::map(graph, (pe::_1 & pe::Const(1)) == pe::Const(1), {value}, body);
  popops::mapInPlace(graph, pe::_1 * pe::Const(3) + pe::Const(1), {value}, odd);
  popops::mapInPlace(graph, pe::_1 / pe::Const(2), {value}, even);
  body.add(poplar::program::If(is_odd, odd, even));
  popops::mapInPlace(graph, pe::_1 + pe::Const(1), {steps}, body);
  step.add(poplar::program::RepeatWhileTrue(condition, goes_on, body));
  program.result("collatz", steps);

  // Down by two until not positive.
  Tensor rest = variable("rest");
  step.add(Copy(n, rest));
  Sequence look, down;
  Tensor done = popops::map(graph, pe::_1 < pe::Const(2), {rest}, look);
  popops::mapInPlace(graph, pe::_1 - pe::Const(2), {rest}, down);
  step.add(poplar::program::RepeatWhileFalse(look, done, down));
  program.result("parity", rest);

  Tensor chosen = variable("chosen");
  std::vector<std::pair<std::int32_t, Program>> cases;
  for (int i = 0; i < 3; ++i) {
    Sequence each;
    popops::mapWithOutput(graph, pe::_1 * pe::Const(10 * i), {n}, chosen, each);
    cases.emplace_back(i + 6, each);
  }
  Sequence otherwise;
  popops::zero(graph, chosen, otherwise);
  step.add(poplar::program::Switch(n, cases, otherwise));
  program.result("case", chosen);

  Tensor doubled = variable("doubled");
  step.add(Copy(n, doubled));
  Sequence twice;
  popops::mapInPlace(graph, pe::_1 + pe::_1, {doubled}, twice);
  step.add(poplar::program::Repeat(5, twice));
  step.add(poplar::program::PrintTensor("doubled", doubled));
  program.result("doubled", doubled);

  const auto counted = [&](const char* name, const auto& loop) {
    Tensor sum = variable(name);
    popops::zero(graph, sum, step);
    step.add(loop([&graph, sum](const Tensor& count) {
      Sequence add;
      popops::mapInPlace(graph, pe::_1 + pe::Cast(pe::_2, INT), {sum, count}, add);
      return add;
    }));
    program.result(name, sum);
  };
  counted("counted", [&](const popops::CountedLoopBodyType& add) {
    return popops::countedLoop(graph, 5, add);
  });
  counted("counted_by_3", [&](const popops::CountedLoopBodyType& add) {
    return popops::countedLoop(graph, 1, 10, 3, add);
  });

  popops::mapInPlace(graph, pe::_1 * pe::Const(2) + pe::Const(1), {state}, step);
  program.result("state_after", state);
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
