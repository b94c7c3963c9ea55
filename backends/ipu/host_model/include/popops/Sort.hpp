// Sorting along a dimension, in ascending order. Equal elements come in any order.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace popops {

poplar::Tensor sort(poplar::Graph& graph, const poplar::Tensor& tensor, unsigned dim,
                    poplar::program::Sequence& sequence, const poplar::DebugContext& name = {});

poplar::Tensor sortKeyValue(poplar::Graph& graph, const poplar::Tensor& keys,
                            const poplar::Tensor& values, unsigned dim,
                            poplar::program::Sequence& sequence,
                            const poplar::DebugContext& name = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/sorting.hpp>
#endif
