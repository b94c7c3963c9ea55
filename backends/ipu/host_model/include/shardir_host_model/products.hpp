// Products of matrices, added up as FLOAT in the order of the shared dimension. See
// <poplin/MatMul.hpp>.
#pragma once

#include <poplin/MatMul.hpp>
#include <shardir_host_model/machine.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

inline void check_product(const poplar::Type& type, const Shape& a, const Shape& b,
                          std::size_t rank, const std::string& call) {
  if (!is_floating(type)) {
    refuse(call + ": there is no product of " + type.toString() +
           "; cast to FLOAT, or multiply and reduce");
  }
  if (a.size() != rank || b.size() != rank || a[rank - 1] != b[rank - 2] ||
      (rank == 3 && a[0] != b[0])) {
    refuse(call + ": matrices of shapes " + text(a) + " and " + text(b) + " have no product");
  }
  if (product(a) == 0 || product(b) == 0) {
    refuse(call + ": matrices of shapes " + text(a) + " and " + text(b) +
           " have nothing to multiply; use a constant");
  }
}

// Of [g, m, k] and [g, k, n], given row-major.
inline std::vector<Bits> multiplied(const std::vector<Bits>& a, const std::vector<Bits>& b,
                                    const Shape& shape, std::size_t columns,
                                    const poplar::Type& type, const poplar::Type& out) {
  const std::size_t groups = shape[0], rows = shape[1], depth = shape[2];
  std::vector<float> left(a.size()), right(b.size()), sums(columns);
  for (std::size_t i = 0; i < a.size(); ++i) left[i] = static_cast<float>(decode(type, a[i]).real);
  for (std::size_t i = 0; i < b.size(); ++i) right[i] = static_cast<float>(decode(type, b[i]).real);
  std::vector<Bits> made;
  made.reserve(groups * rows * columns);
  for (std::size_t row = 0; row < groups * rows; ++row) {
    const float* matrix = &right[row / rows * depth * columns];
    for (float& sum : sums) sum = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      for (std::size_t column = 0; column < columns; ++column) {
        const float term = left[row * depth + k] * matrix[k * columns + column];
        sums[column] += term;
      }
    }
    for (float sum : sums) {
      Number number;
      number.real = sum;
      made.push_back(encode(out, number));
    }
  }
  return made;
}

inline poplar::Tensor add_product(poplar::Graph& graph, const poplar::Tensor& a,
                                  const poplar::Tensor& b, poplar::program::Sequence& sequence,
                                  const poplar::Type& out_type, std::size_t rank,
                                  const std::string& name, const std::string& call) {
  GraphState& state = *graph.model();
  state.need_codelets("poplin", call);
  check_tensor(a, state, call);
  check_tensor(b, state, call);
  if (a.elementType() != b.elementType()) {
    refuse(call + ": " + described(a) + " and " + described(b) +
           " have different types; cast one of them");
  }
  check_product(a.elementType(), a.shape(), b.shape(), rank, call);
  if (!is_floating(out_type)) {
    refuse(call + ": a product does not become " + out_type.toString() + "; cast afterwards");
  }
  if (a.elementType() == poplar::FLOAT && out_type == poplar::HALF) {
    refuse(call + ": a product of FLOAT does not become HALF; cast afterwards");
  }
  Shape shape = a.shape(), out_shape = a.shape();
  const std::size_t columns = b.shape()[rank - 1];
  out_shape[rank - 1] = columns;
  if (rank == 2) shape.insert(shape.begin(), 1);
  const poplar::Tensor out = state.result(out_type, out_shape, name);
  add_compute(sequence, {a, b}, out,
              [=, type = a.elementType()](const std::vector<std::vector<Bits>>& bits) {
                return multiplied(bits[0], bits[1], shape, columns, type, out_type);
              });
  return out;
}

inline poplar::Tensor add_operand(poplar::Graph& graph, const poplar::Type& type, const Shape& a,
                                  const Shape& b, bool left, std::size_t rank,
                                  const std::string& name, const std::string& call) {
  graph.model()->need_codelets("poplin", call);
  check_product(type, a, b, rank, call);
  return graph.model()->result(type, left ? a : b, name);
}

}  // namespace shardir_host_model

namespace poplin {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor matMul(poplar::Graph& graph, const poplar::Tensor& A,
                                                  const poplar::Tensor& B,
                                                  poplar::program::Sequence& sequence,
                                                  const poplar::Type& outType,
                                                  const poplar::DebugContext& name,
                                                  const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_product(graph, A, B, sequence, outType, 2, name.name,
                                         "poplin::matMul");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor matMul(poplar::Graph& graph, const poplar::Tensor& A,
                                                  const poplar::Tensor& B,
                                                  poplar::program::Sequence& sequence,
                                                  const poplar::DebugContext& name,
                                                  const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_product(graph, A, B, sequence, A.elementType(), 2, name.name,
                                         "poplin::matMul");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor matMulGrouped(
    poplar::Graph& graph, const poplar::Tensor& A, const poplar::Tensor& B,
    poplar::program::Sequence& sequence, const poplar::Type& outType,
    const poplar::DebugContext& name, const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_product(graph, A, B, sequence, outType, 3, name.name,
                                         "poplin::matMulGrouped");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor createMatMulInputLHS(
    poplar::Graph& graph, const poplar::Type& type, const std::vector<std::size_t>& aShape,
    const std::vector<std::size_t>& bShape, const poplar::DebugContext& name,
    const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_operand(graph, type, aShape, bShape, true, 2, name.name,
                                         "poplin::createMatMulInputLHS");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor createMatMulInputRHS(
    poplar::Graph& graph, const poplar::Type& type, const std::vector<std::size_t>& aShape,
    const std::vector<std::size_t>& bShape, const poplar::DebugContext& name,
    const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_operand(graph, type, aShape, bShape, false, 2, name.name,
                                         "poplin::createMatMulInputRHS");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor createMatMulGroupedInputLHS(
    poplar::Graph& graph, const poplar::Type& inputType, const poplar::Type&,
    const std::vector<std::size_t>& aShape, const std::vector<std::size_t>& bShape,
    const poplar::DebugContext& name, const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_operand(graph, inputType, aShape, bShape, true, 3, name.name,
                                         "poplin::createMatMulGroupedInputLHS");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor createMatMulGroupedInputRHS(
    poplar::Graph& graph, const poplar::Type& inputType, const poplar::Type&,
    const std::vector<std::size_t>& aShape, const std::vector<std::size_t>& bShape,
    const poplar::DebugContext& name, const poplar::OptionFlags&, PlanningCache*) {
  return shardir_host_model::add_operand(graph, inputType, aShape, bShape, false, 3, name.name,
                                         "poplin::createMatMulGroupedInputRHS");
}

}  // namespace poplin
#endif
