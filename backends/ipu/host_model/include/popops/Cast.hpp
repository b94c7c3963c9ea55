// A tensor's elements as another type.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace popops {

poplar::Tensor cast(poplar::Graph& graph, const poplar::Tensor& tensor, const poplar::Type& type,
                    poplar::program::Sequence& sequence, const poplar::DebugContext& name = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/filling.hpp>
#endif
