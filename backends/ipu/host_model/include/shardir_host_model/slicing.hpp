// Slices at offsets known when the program runs. See <popops/DynamicSlice.hpp>.
#pragma once

#include <popops/DynamicSlice.hpp>
#include <shardir_host_model/machine.hpp>
#include <shardir_host_model/tensors.hpp>

namespace shardir_host_model {

// The row-major offsets of a window of `sizes` that begins at `begin` of `shape`; an error if it is
// out of bounds.
std::vector<std::size_t> window(const Shape& shape, const Shape& begin, const Shape& sizes,
                                const std::string& call);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION std::vector<std::size_t> window(const Shape& shape, const Shape& begin,
                                                            const Shape& sizes,
                                                            const std::string& call) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (begin[i] + sizes[i] > shape[i]) {
      refuse(call + ": elements " + std::to_string(begin[i]) + " to " +
             std::to_string(begin[i] + sizes[i]) + " of dimension " + std::to_string(i) +
             " lie outside of " + text(shape) + "; clamp the offsets");
    }
  }
  const std::vector<std::ptrdiff_t> strides = row_major(shape);
  std::vector<std::size_t> places(product(sizes));
  Shape index(shape.size());
  for (std::size_t& place : places) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      place += (begin[i] + index[i]) * static_cast<std::size_t>(strides[i]);
    }
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (++index[i] < sizes[i]) break;
      index[i] = 0;
    }
  }
  return places;
}

// The window's shape: `sizes` in the dimensions `dims`, the whole tensor in the others.
inline Shape check_slice(const GraphState& graph, const poplar::Tensor& tensor,
                         const poplar::Tensor& offset, const std::vector<std::size_t>& dims,
                         const std::vector<std::size_t>& sizes, const std::string& call) {
  graph.need_codelets("popops", call);
  check_tensor(tensor, graph, call);
  check_tensor(offset, graph, call);
  if (tensor.elementType() == poplar::SHORT || tensor.elementType() == poplar::UNSIGNED_SHORT) {
    refuse(call + ": there is no codelet for " + tensor.elementType().toString() +
           "; cast to a type that it has");
  }
  if (offset.elementType() != poplar::UNSIGNED_INT || offset.shape() != Shape{dims.size()} ||
      sizes.size() != dims.size() || dims.empty()) {
    refuse(call + ": " + described(offset) + " and " + std::to_string(sizes.size()) +
           " sizes do not place " + std::to_string(dims.size()) +
           " dimensions; offsets are UNSIGNED_INT, one for each dimension");
  }
  Shape shape = tensor.shape();
  std::vector<bool> seen(tensor.rank());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    check_dimension(tensor, dims[i], call);
    if (seen[dims[i]] || sizes[i] == 0 || sizes[i] > shape[dims[i]]) {
      refuse(call + ": " + described(tensor) + " has no slice of size " +
             std::to_string(sizes[i]) + " in dimension " + std::to_string(dims[i]) +
             ", or has it twice");
    }
    seen[dims[i]] = true;
    shape[dims[i]] = sizes[i];
  }
  return shape;
}

inline std::vector<std::size_t> placed(const Shape& whole, const Shape& part,
                                       const std::vector<std::size_t>& dims,
                                       const std::vector<Bits>& offset, const std::string& call) {
  Shape begin(whole.size());
  for (std::size_t i = 0; i < dims.size(); ++i) begin[dims[i]] = offset[i];
  return window(whole, begin, part, call);
}

}  // namespace shardir_host_model

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor dynamicSlice(
    poplar::Graph& graph, const poplar::Tensor& tensor, const poplar::Tensor& offset,
    const std::vector<std::size_t>& dims, const std::vector<std::size_t>& sizes,
    poplar::program::Sequence& sequence, const poplar::DebugContext& name,
    const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "popops::dynamicSlice";
  GraphState& state = *graph.model();
  const Shape part = check_slice(state, tensor, offset, dims, sizes, call);
  poplar::Tensor out = state.result(tensor.elementType(), part, name.name);
  add_compute(sequence, {tensor, offset}, out,
              [=, whole = tensor.shape()](const std::vector<std::vector<Bits>>& bits) {
                std::vector<Bits> made;
                for (std::size_t place : placed(whole, part, dims, bits[1], call)) {
                  made.push_back(bits[0][place]);
                }
                return made;
              });
  return out;
}

SHARDIR_HOST_MODEL_FUNCTION void dynamicUpdate(
    poplar::Graph& graph, const poplar::Tensor& tensor, const poplar::Tensor& slice,
    const poplar::Tensor& offset, const std::vector<std::size_t>& dims,
    const std::vector<std::size_t>& sizes, poplar::program::Sequence& sequence,
    const poplar::DebugContext&, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "popops::dynamicUpdate";
  const Shape part = check_slice(*graph.model(), tensor, offset, dims, sizes, call);
  check_tensor(slice, *graph.model(), call);
  if (slice.shape() != part || slice.elementType() != tensor.elementType()) {
    refuse(call + ": " + described(slice) + " is no slice " + text(part) + " of " +
           described(tensor));
  }
  check_destination(tensor, call);
  check_apart(slice, tensor, call);
  sequence.add(step([=](Machine& machine) {
    for (unsigned replica = 0; replica < machine.count(); ++replica) {
      Addresses addresses;
      for (std::size_t place :
           placed(tensor.shape(), part, dims, machine.read(replica, offset), call)) {
        addresses.push_back(addresses_of(tensor)[place]);
      }
      machine.write(replica, TensorAccess::view(tensor, part, std::move(addresses)),
                    machine.read(replica, slice));
    }
  }));
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor multiSlice(
    poplar::Graph& graph, const poplar::Tensor& tensor, const poplar::Tensor& offsets,
    const std::vector<std::size_t>& dims, const std::vector<std::size_t>& sizes,
    poplar::program::Sequence& sequence, const SlicePlan&, const poplar::OptionFlags&,
    const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  const std::string call = "popops::multiSlice";
  GraphState& state = *graph.model();
  state.need_codelets("popops", call);
  check_tensor(tensor, state, call);
  check_tensor(offsets, state, call);
  if (tensor.rank() != 2 || dims != std::vector<std::size_t>{0} ||
      sizes != std::vector<std::size_t>{1} || offsets.rank() != 2 || offsets.shape()[1] != 1 ||
      offsets.elementType() != poplar::UNSIGNED_INT) {
    refuse(call + ": " + described(offsets) + " takes no rows of " + described(tensor) +
           "; give a matrix, offsets UNSIGNED_INT [n, 1], dims {0} and sizes {1}");
  }
  if (tensor.elementType() == poplar::SHORT || tensor.elementType() == poplar::UNSIGNED_SHORT) {
    refuse(call + ": there is no codelet for " + tensor.elementType().toString() +
           "; cast to a type that it has");
  }
  const std::size_t columns = tensor.shape()[1];
  poplar::Tensor out =
      state.result(tensor.elementType(), {offsets.shape()[0], 1, columns}, name.name);
  add_compute(sequence, {tensor, offsets}, out,
              [=, whole = tensor.shape()](const std::vector<std::vector<Bits>>& bits) {
                std::vector<Bits> made;
                for (Bits row : bits[1]) {
                  for (std::size_t place : window(whole, {row, 0}, {1, columns}, call)) {
                    made.push_back(bits[0][place]);
                  }
                }
                return made;
              });
  return out;
}

}  // namespace popops
#endif
