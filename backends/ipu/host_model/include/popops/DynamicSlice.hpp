// Slices that begin where a tensor says. Offsets are UNSIGNED_INT and stay within the tensor.
#pragma once

#include <cstddef>
#include <vector>

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>

namespace popops {

class SlicePlan {};

poplar::Tensor dynamicSlice(poplar::Graph& graph, const poplar::Tensor& tensor,
                            const poplar::Tensor& offset, const std::vector<std::size_t>& dims,
                            const std::vector<std::size_t>& sizes,
                            poplar::program::Sequence& sequence,
                            const poplar::DebugContext& name = {},
                            const poplar::OptionFlags& options = {});

void dynamicUpdate(poplar::Graph& graph, const poplar::Tensor& tensor, const poplar::Tensor& slice,
                   const poplar::Tensor& offset, const std::vector<std::size_t>& dims,
                   const std::vector<std::size_t>& sizes, poplar::program::Sequence& sequence,
                   const poplar::DebugContext& name = {}, const poplar::OptionFlags& options = {});

// Rows of a matrix: of tensor [rows, columns] and offsets [n, 1] with `dims` {0} and `sizes` {1}
// it makes [n, 1, columns].
poplar::Tensor multiSlice(poplar::Graph& graph, const poplar::Tensor& tensor,
                          const poplar::Tensor& offsets, const std::vector<std::size_t>& dims,
                          const std::vector<std::size_t>& sizes,
                          poplar::program::Sequence& sequence, const SlicePlan& plan,
                          const poplar::OptionFlags& options,
                          const poplar::DebugContext& name = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/slicing.hpp>
#endif
