// A view of a tensor with more elements around it, or, by a negative number of them, fewer.
#pragma once

#include <cstddef>
#include <vector>

#include <poplar/Graph.hpp>

namespace popops {

namespace padding {
enum class MappingMethod { NONE, ZERO, EDGE };
}

poplar::Tensor pad(poplar::Graph& graph, const poplar::Tensor& tensor,
                   const std::vector<std::ptrdiff_t>& lower,
                   const std::vector<std::ptrdiff_t>& upper, float value = 0.0F,
                   padding::MappingMethod mapping = padding::MappingMethod::ZERO);

poplar::Tensor pad(poplar::Graph& graph, const poplar::Tensor& tensor,
                   const std::vector<std::ptrdiff_t>& lower,
                   const std::vector<std::ptrdiff_t>& upper, int value,
                   padding::MappingMethod mapping = padding::MappingMethod::ZERO);

// `value` is a scalar of the tensor's type.
poplar::Tensor pad(poplar::Graph& graph, const poplar::Tensor& tensor,
                   const std::vector<std::ptrdiff_t>& lower,
                   const std::vector<std::ptrdiff_t>& upper, const poplar::Tensor& value,
                   padding::MappingMethod mapping = padding::MappingMethod::ZERO);

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/filling.hpp>
#endif
