// One value for all elements of a tensor.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace popops {

// The value's C++ type goes with the tensor's: float, int or unsigned.
template <typename Value>
void fill(poplar::Graph& graph, const poplar::Tensor& tensor, poplar::program::Sequence& sequence,
          Value value, const poplar::DebugContext& name = {}) = delete;
template <>
void fill(poplar::Graph& graph, const poplar::Tensor& tensor, poplar::program::Sequence& sequence,
          float value, const poplar::DebugContext& name);
template <>
void fill(poplar::Graph& graph, const poplar::Tensor& tensor, poplar::program::Sequence& sequence,
          int value, const poplar::DebugContext& name);
template <>
void fill(poplar::Graph& graph, const poplar::Tensor& tensor, poplar::program::Sequence& sequence,
          unsigned value, const poplar::DebugContext& name);

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/filling.hpp>
#endif
