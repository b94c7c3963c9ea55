// Reductions and products of matrices.
#include "shardir_ipu_host.hpp"

#include <poplin/MatMul.hpp>
#include <poplin/codelets.hpp>
#include <popops/Reduce.hpp>
#include <popops/codelets.hpp>

using poplar::FLOAT;
using poplar::HALF;
using poplar::Tensor;
using popops::Operation;

namespace {

shardir_ipu::Port port(const std::string& name, const poplar::Type& type,
                       const std::vector<std::size_t>& shape) {
  return {name, name, type, shape, shape, std::vector<std::vector<shardir_ipu::Split>>(shape.size())};
}

shardir_ipu::Contract contract() {
  return {"products", 1,
          {port("a", FLOAT, {3, 5}), port("b", FLOAT, {5, 4}), port("ha", HALF, {3, 5}),
           port("hb", HALF, {5, 4}), port("ga", FLOAT, {2, 3, 5}), port("gb", FLOAT, {2, 5, 4}),
           port("t", FLOAT, {7, 6, 9}), port("ht", HALF, {7, 300}), port("i", poplar::INT, {6, 7}),
           port("c", poplar::BOOL, {6, 7})},
          {port("ab", FLOAT, {3, 4}), port("hab", HALF, {3, 4}), port("wide", FLOAT, {3, 4}),
           port("grouped", FLOAT, {2, 3, 4}), port("sum", FLOAT, {6}), port("all", FLOAT, {}),
           port("none", FLOAT, {7, 6, 9}), port("product", FLOAT, {7, 9}),
           port("lowest", FLOAT, {6, 9}), port("highest", FLOAT, {7, 6}),
           port("squares", FLOAT, {7}), port("logs", FLOAT, {9}), port("half", HALF, {7}),
           port("halves", FLOAT, {7}), port("whole", poplar::INT, {6}),
           port("every", poplar::BOOL, {7}), port("some", poplar::BOOL, {6})}};
}

void build(shardir_ipu::Program& program) {
  poplar::Graph& graph = program.graph;
  poplar::program::Sequence& step = program.step;
  popops::addCodelets(graph);
  poplin::addCodelets(graph);
  const Tensor a = program.argument(
      "a", poplin::createMatMulInputLHS(graph, FLOAT, {3, 5}, {5, 4}, "a"));
  const Tensor b = program.argument(
      "b", poplin::createMatMulInputRHS(graph, FLOAT, {3, 5}, {5, 4}, "b"));
  const Tensor ha = program.argument("ha"), hb = program.argument("hb");
  program.result("ab", poplin::matMul(graph, a, b, step, "ab"));
  program.result("hab", poplin::matMul(graph, ha, hb, step, HALF, "hab"));
  program.result("wide", poplin::matMul(graph, ha, hb, step, FLOAT, "wide"));
  program.result("grouped", poplin::matMulGrouped(graph, program.argument("ga"),
                                                  program.argument("gb"), step, FLOAT, "grouped"));
  const Tensor t = program.argument("t"), ht = program.argument("ht");
  const Tensor i = program.argument("i"), c = program.argument("c");
  program.result("sum", popops::reduce(graph, t, {0, 2}, Operation::ADD, step, "sum"));
  program.result("all", popops::reduce(graph, t, {0, 1, 2}, Operation::ADD, step, "all"));
  program.result("none", popops::reduce(graph, t, {}, Operation::ADD, step, "none"));
  program.result("product", popops::reduce(graph, t, {1}, Operation::MUL, step, "product"));
  program.result("lowest", popops::reduce(graph, t, {0}, Operation::MIN, step, "lowest"));
  program.result("highest", popops::reduce(graph, t, {2}, Operation::MAX, step, "highest"));
  program.result("squares", popops::reduce(graph, t, {1, 2}, Operation::SQUARE_ADD, step, "sq"));
  program.result("logs", popops::reduce(graph, t, {0, 1}, Operation::LOG_ADD, step, "logs"));
  program.result("half", popops::reduce(graph, ht, {1}, Operation::ADD, step, "half"));
  program.result("halves", popops::reduce(graph, ht, FLOAT, {1}, Operation::ADD, step, "halves"));
  program.result("whole", popops::reduce(graph, i, {1}, Operation::ADD, step, "whole"));
  program.result("every", popops::reduce(graph, c, {0}, Operation::LOGICAL_AND, step, "every"));
  program.result("some", popops::reduce(graph, c, {1}, Operation::LOGICAL_OR, step, "some"));
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
