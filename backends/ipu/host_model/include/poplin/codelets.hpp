// What has to be in a graph before functions of poplin are used with it.
#pragma once

#include <poplar/Graph.hpp>
#include <shardir_host_model/configuration.hpp>

namespace poplin {

void addCodelets(poplar::Graph& graph);

}  // namespace poplin

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <shardir_host_model/state.hpp>

namespace poplin {

SHARDIR_HOST_MODEL_FUNCTION void addCodelets(poplar::Graph& graph) {
  graph.model()->codelets.insert("poplin");
}

}  // namespace poplin
#endif
