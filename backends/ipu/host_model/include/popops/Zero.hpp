// Zero for all elements of a tensor.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace popops {

void zero(poplar::Graph& graph, const poplar::Tensor& tensor, poplar::program::Sequence& sequence,
          const poplar::DebugContext& name = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/filling.hpp>
#endif
