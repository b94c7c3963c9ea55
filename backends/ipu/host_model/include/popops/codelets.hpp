// What has to be in a graph before functions of popops are used with it.
#pragma once

#include <poplar/Graph.hpp>
#include <shardir_host_model/configuration.hpp>

namespace popops {

void addCodelets(poplar::Graph& graph);

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <shardir_host_model/state.hpp>

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION void addCodelets(poplar::Graph& graph) {
  graph.model()->codelets.insert("popops");
}

}  // namespace popops
#endif
