// Spreading tensors over tiles.
#pragma once

#include <poplar/Graph.hpp>
#include <shardir_host_model/configuration.hpp>

namespace poputil {

// In order, each tile as many elements as the others.
void mapTensorLinearly(poplar::Graph& graph, const poplar::Tensor& tensor);
void mapTensorLinearly(poplar::Graph& graph, const poplar::Tensor& tensor,
                       unsigned minElementsPerTile, unsigned grainSize);

}  // namespace poputil

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <shardir_host_model/state.hpp>

namespace poputil {

SHARDIR_HOST_MODEL_FUNCTION void mapTensorLinearly(poplar::Graph& graph,
                                                   const poplar::Tensor& tensor) {
  mapTensorLinearly(graph, tensor, 1, 1);
}

SHARDIR_HOST_MODEL_FUNCTION void mapTensorLinearly(poplar::Graph& graph,
                                                   const poplar::Tensor& tensor,
                                                   unsigned minElementsPerTile,
                                                   unsigned grainSize) {
  using namespace shardir_host_model;
  check_tensor(tensor, *graph.model(), "poputil::mapTensorLinearly");
  if (grainSize == 0) refuse("poputil::mapTensorLinearly: grains of 0 elements");
  graph.model()->map_linearly(addresses_of(tensor), minElementsPerTile, grainSize);
}

}  // namespace poputil
#endif
