// The largest or smallest elements of the last dimension.
#pragma once

#include <utility>

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>
#include <popops/SortOrder.hpp>

namespace popops {

struct TopKParams {
  TopKParams(unsigned k, bool largest, SortOrder sortOrder, bool stableSort = false) noexcept
      : k(k), largest(largest), sortOrder(sortOrder), stableSort(stableSort) {}

  unsigned k;
  bool largest;
  SortOrder sortOrder;
  bool stableSort;  // equal elements stay in their order; for topKWithPermutation only
};

poplar::Tensor topK(poplar::Graph& graph, poplar::program::Sequence& sequence,
                    const poplar::Tensor& tensor, const TopKParams& params,
                    const poplar::DebugContext& name = {});

std::pair<poplar::Tensor, poplar::Tensor> topKKeyValue(poplar::Graph& graph,
                                                       poplar::program::Sequence& sequence,
                                                       const poplar::Tensor& keys,
                                                       const poplar::Tensor& values,
                                                       const TopKParams& params,
                                                       const poplar::DebugContext& name = {});

// The elements, and where they were, as UNSIGNED_INT.
std::pair<poplar::Tensor, poplar::Tensor> topKWithPermutation(
    poplar::Graph& graph, poplar::program::Sequence& sequence, const poplar::Tensor& tensor,
    const TopKParams& params, const poplar::DebugContext& name = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/sorting.hpp>
#endif
