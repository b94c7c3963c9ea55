// Reductions, element after element in row-major order of what is reduced, from the first one on.
// HALF is added up as FLOAT and rounded at the end. See <popops/Reduce.hpp>.
#pragma once

#include <popops/Reduce.hpp>
#include <shardir_host_model/arithmetic.hpp>
#include <shardir_host_model/machine.hpp>
#include <shardir_host_model/tensors.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

inline const char* name_of(popops::Operation operation) {
  static const char* const names[] = {"ADD",         "MUL",        "MIN",        "MAX",
                                      "LOGICAL_AND", "LOGICAL_OR", "SQUARE_ADD", "LOG_ADD"};
  return names[static_cast<int>(operation)];
}

inline void check_reduction(popops::Operation operation, const poplar::Type& in,
                            const poplar::Type& out, const std::string& call) {
  using popops::Operation;
  const bool logical = operation == Operation::LOGICAL_AND || operation == Operation::LOGICAL_OR;
  const bool extreme = operation == Operation::MIN || operation == Operation::MAX;
  const bool sum = operation == Operation::ADD || operation == Operation::MUL;
  const bool fits = logical ? in == poplar::BOOL
                            : is_floating(in) || (in == poplar::INT && (sum || extreme)) ||
                                  (in == poplar::UNSIGNED_INT && extreme);
  if (!fits) {
    refuse(call + ": " + name_of(operation) + " has no codelet for " + in.toString() +
           "; cast to a type that it has");
  }
  if (out != in && (extreme || !is_floating(in) || !is_floating(out))) {
    refuse(call + ": " + name_of(operation) + " of " + in.toString() + " does not become " +
           out.toString() + "; cast afterwards");
  }
}

// The next value of a reduction; `type` is that of the accumulator.
inline Number accumulated(popops::Operation operation, const poplar::Type& type, Number sum,
                          Number next) {
  using popops::Operation;
  using popops::expr::BinaryOpType;
  switch (operation) {
    case Operation::ADD:
    case Operation::SQUARE_ADD:
      return fitted(type, binary(BinaryOpType::ADD, type, sum, next));
    case Operation::MUL:
      return fitted(type, binary(BinaryOpType::MULTIPLY, type, sum, next));
    case Operation::MIN:
      return binary(BinaryOpType::MINIMUM, type, sum, next);
    case Operation::MAX:
      return binary(BinaryOpType::MAXIMUM, type, sum, next);
    case Operation::LOGICAL_AND:
      return binary(BinaryOpType::LOGICAL_AND, type, sum, next);
    case Operation::LOGICAL_OR:
      return binary(BinaryOpType::LOGICAL_OR, type, sum, next);
    default: {
      const double high = std::fmax(sum.real, next.real), low = std::fmin(sum.real, next.real);
      return fitted(type, real(high == low && std::isinf(high)
                                   ? high
                                   : high + std::log1p(std::exp(low - high))));
    }
  }
}

// One result from `count` elements, `step` apart from `first` on.
inline Number reduced(popops::Operation operation, const poplar::Type& type, const Bits* first,
                      std::size_t count) {
  const poplar::Type accumulator = type == poplar::HALF ? poplar::FLOAT : type;
  Number sum{};
  for (std::size_t i = 0; i < count; ++i) {
    Number next = decode(type, first[i]);
    if (operation == popops::Operation::SQUARE_ADD) {
      next = fitted(accumulator, real(next.real * next.real));
    }
    sum = i == 0 ? next : accumulated(operation, accumulator, sum, next);
  }
  return sum;
}

}  // namespace shardir_host_model

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor reduce(
    poplar::Graph& graph, const poplar::Tensor& in, const poplar::Type& outType,
    const std::vector<std::size_t>& dims, ReduceParams params, poplar::program::Sequence& sequence,
    const poplar::DebugContext& name, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "popops::reduce";
  GraphState& state = *graph.model();
  state.need_codelets("popops", call);
  check_tensor(in, state, call);
  check_reduction(params.op, in.elementType(), outType, call);
  std::vector<bool> gone(in.rank());
  for (std::size_t dimension : dims) {
    check_dimension(in, dimension, call);
    if (gone[dimension]) {
      refuse(call + ": dimension " + std::to_string(dimension) + " of " + described(in) +
             " is named twice");
    }
    gone[dimension] = true;
  }
  if (in.numElements() == 0) {
    refuse(call + ": " + described(in) + " has nothing to reduce; use a constant");
  }
  std::vector<unsigned> order;
  Shape kept;
  for (unsigned i = 0; i < in.rank(); ++i) {
    if (!gone[i]) {
      order.push_back(i);
      kept.push_back(in.shape()[i]);
    }
  }
  for (unsigned i = 0; i < in.rank(); ++i) {
    if (gone[i]) order.push_back(i);
  }
  poplar::Tensor out = state.result(outType, kept, name.name);
  const std::size_t results = product(kept), count = in.numElements() / results;
  add_compute(sequence, {in.dimShuffle(order)}, out,
              [op = params.op, type = in.elementType(), outType, results,
               count](const std::vector<std::vector<Bits>>& bits) {
                std::vector<Bits> made(results);
                for (std::size_t i = 0; i < results; ++i) {
                  made[i] = encode(outType, reduced(op, type, &bits[0][i * count], count));
                }
                return made;
              });
  return out;
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor reduce(poplar::Graph& graph, const poplar::Tensor& in,
                                                  const std::vector<std::size_t>& dims,
                                                  ReduceParams params,
                                                  poplar::program::Sequence& sequence,
                                                  const poplar::DebugContext& name,
                                                  const poplar::OptionFlags& options) {
  return reduce(graph, in, in.elementType(), dims, params, sequence, name, options);
}

}  // namespace popops
#endif
