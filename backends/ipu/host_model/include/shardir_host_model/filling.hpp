// Casts, fills and padding. See <popops/Cast.hpp>, <popops/Fill.hpp>, <popops/Zero.hpp> and
// <popops/Pad.hpp>.
#pragma once

#include <popops/Cast.hpp>
#include <popops/Fill.hpp>
#include <popops/Pad.hpp>
#include <popops/Zero.hpp>
#include <shardir_host_model/machine.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

// A constant scalar on tile 0, broadcast to `shape`.
template <typename Value>
inline poplar::Tensor repeated(poplar::Graph& graph, const poplar::Type& type, const Shape& shape,
                               Value value, const std::string& name) {
  poplar::Tensor constant = graph.addConstant<Value>(type, {}, value, name);
  graph.setTileMapping(constant, 0);
  return TensorAccess::view(constant, shape,
                            Addresses(product(shape), addresses_of(constant)[0]));
}

template <typename Value>
inline void fill_with(poplar::Graph& graph, const poplar::Tensor& tensor,
                      poplar::program::Sequence& sequence, Value value) {
  check_tensor(tensor, *graph.model(), "popops::fill");
  sequence.add(poplar::program::Copy(
      repeated(graph, tensor.elementType(), tensor.shape(), value, "popops::fill"), tensor));
}

// `more` times the value along a dimension, elsewhere as large as the tensor.
inline poplar::Tensor border(const poplar::Tensor& tensor, const poplar::Tensor& value,
                             unsigned dimension, std::ptrdiff_t more) {
  Shape shape = tensor.shape();
  shape[dimension] = static_cast<std::size_t>(more);
  return TensorAccess::view(value, shape, Addresses(product(shape), addresses_of(value)[0]));
}

inline poplar::Tensor padded(const poplar::Tensor& tensor, const std::vector<std::ptrdiff_t>& lower,
                             const std::vector<std::ptrdiff_t>& upper,
                             const poplar::Tensor& value) {
  const std::string call = "popops::pad";
  if (lower.size() != tensor.rank() || upper.size() != tensor.rank()) {
    refuse(call + ": " + described(tensor) + " is padded in " + std::to_string(lower.size()) +
           " and " + std::to_string(upper.size()) + " dimensions; give two numbers for each");
  }
  if (value.elementType() != tensor.elementType() || value.numElements() != 1) {
    refuse(call + ": " + described(value) + " is not one element of type " +
           tensor.elementType().toString());
  }
  poplar::Tensor made = tensor;
  for (unsigned i = 0; i < tensor.rank(); ++i) {
    const auto size = static_cast<std::ptrdiff_t>(tensor.shape()[i]);
    const std::ptrdiff_t begin = lower[i] < 0 ? -lower[i] : 0;
    const std::ptrdiff_t end = size + (upper[i] < 0 ? upper[i] : 0);
    if (begin > end) {
      refuse(call + ": nothing is left of dimension " + std::to_string(i) + " of " +
             described(tensor));
    }
    made = made.slice(static_cast<std::size_t>(begin), static_cast<std::size_t>(end), i);
    if (lower[i] > 0) made = poplar::concat(border(made, value, i, lower[i]), made, i);
    if (upper[i] > 0) made = poplar::concat(made, border(made, value, i, upper[i]), i);
  }
  return made;
}

}  // namespace shardir_host_model

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor cast(poplar::Graph& graph, const poplar::Tensor& tensor,
                                                const poplar::Type& type,
                                                poplar::program::Sequence& sequence,
                                                const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  GraphState& state = *graph.model();
  state.need_codelets("popops", "popops::cast");
  check_tensor(tensor, state, "popops::cast");
  check_type(type, "popops::cast");
  poplar::Tensor out = state.result(type, tensor.shape(), name.name);
  add_compute(sequence, {tensor}, out,
              [from = tensor.elementType(), type](const std::vector<std::vector<Bits>>& bits) {
                std::vector<Bits> made = bits[0];
                for (Bits& each : made) {
                  each = encode(type, converted(from, type, decode(from, each)));
                }
                return made;
              });
  return out;
}

template <>
SHARDIR_HOST_MODEL_FUNCTION void fill(poplar::Graph& graph, const poplar::Tensor& tensor,
                                      poplar::program::Sequence& sequence, float value,
                                      const poplar::DebugContext&) {
  shardir_host_model::fill_with(graph, tensor, sequence, value);
}

template <>
SHARDIR_HOST_MODEL_FUNCTION void fill(poplar::Graph& graph, const poplar::Tensor& tensor,
                                      poplar::program::Sequence& sequence, int value,
                                      const poplar::DebugContext&) {
  shardir_host_model::fill_with(graph, tensor, sequence, value);
}

template <>
SHARDIR_HOST_MODEL_FUNCTION void fill(poplar::Graph& graph, const poplar::Tensor& tensor,
                                      poplar::program::Sequence& sequence, unsigned value,
                                      const poplar::DebugContext&) {
  shardir_host_model::fill_with(graph, tensor, sequence, value);
}

SHARDIR_HOST_MODEL_FUNCTION void zero(poplar::Graph& graph, const poplar::Tensor& tensor,
                                      poplar::program::Sequence& sequence,
                                      const poplar::DebugContext&) {
  using namespace shardir_host_model;
  check_tensor(tensor, *graph.model(), "popops::zero");
  check_destination(tensor, "popops::zero");
  add_compute(sequence, {}, tensor,
              [count = tensor.numElements()](const std::vector<std::vector<Bits>>&) {
                return std::vector<Bits>(count);
              });
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor pad(poplar::Graph& graph, const poplar::Tensor& tensor,
                                               const std::vector<std::ptrdiff_t>& lower,
                                               const std::vector<std::ptrdiff_t>& upper,
                                               float value, padding::MappingMethod mapping) {
  using namespace shardir_host_model;
  check_tensor(tensor, *graph.model(), "popops::pad");
  return pad(graph, tensor, lower, upper,
             repeated(graph, tensor.elementType(), {}, value, "popops::pad"), mapping);
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor pad(poplar::Graph& graph, const poplar::Tensor& tensor,
                                               const std::vector<std::ptrdiff_t>& lower,
                                               const std::vector<std::ptrdiff_t>& upper, int value,
                                               padding::MappingMethod mapping) {
  using namespace shardir_host_model;
  check_tensor(tensor, *graph.model(), "popops::pad");
  return pad(graph, tensor, lower, upper,
             repeated(graph, tensor.elementType(), {}, value, "popops::pad"), mapping);
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor pad(poplar::Graph& graph, const poplar::Tensor& tensor,
                                               const std::vector<std::ptrdiff_t>& lower,
                                               const std::vector<std::ptrdiff_t>& upper,
                                               const poplar::Tensor& value,
                                               padding::MappingMethod mapping) {
  using namespace shardir_host_model;
  check_tensor(tensor, *graph.model(), "popops::pad");
  check_tensor(value, *graph.model(), "popops::pad");
  if (mapping != padding::MappingMethod::ZERO) {
    refuse("popops::pad: the model maps padding to tile 0; use MappingMethod::ZERO");
  }
  return padded(tensor, lower, upper, value);
}

}  // namespace popops
#endif
