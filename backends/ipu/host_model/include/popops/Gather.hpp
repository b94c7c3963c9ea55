// Slices of a tensor at places that another tensor holds.
#pragma once

#include <cstddef>
#include <vector>

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>

namespace popops {

struct GatherParams {
  std::size_t maxElementsPerTile = 65535;
};

// Along one axis. The indices have one dimension and take the place of the axis.
poplar::Tensor gather(poplar::Graph& graph, const poplar::Tensor& input,
                      const poplar::Tensor& indices, unsigned axis,
                      poplar::program::Sequence& sequence, GatherParams params,
                      const poplar::DebugContext& name = {},
                      const poplar::OptionFlags& options = {});

// The gather of XLA: dimension `indexVectorDim` of the indices holds a position, `startIndexMap`
// says of which dimensions; a slice of `sliceSizes` begins there, loses its `collapsedSliceDims`
// and takes the places `offsetDims` of the result.
poplar::Tensor gather(poplar::Graph& graph, const poplar::Tensor& input,
                      const poplar::Tensor& indices, std::size_t indexVectorDim,
                      const std::vector<std::size_t>& offsetDims,
                      const std::vector<std::size_t>& sliceSizes,
                      const std::vector<std::size_t>& collapsedSliceDims,
                      const std::vector<unsigned>& startIndexMap,
                      poplar::program::Sequence& sequence, const poplar::DebugContext& name = {},
                      const poplar::OptionFlags& options = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/gathering.hpp>
#endif
