// Reductions over dimensions, which the result no longer has.
#pragma once

#include <cstddef>
#include <vector>

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>
#include <popops/Operation.hpp>

namespace popops {

struct ReduceParams {
  ReduceParams(Operation op) : op(op) {}
  Operation op;
};

poplar::Tensor reduce(poplar::Graph& graph, const poplar::Tensor& in, const poplar::Type& outType,
                      const std::vector<std::size_t>& dims, ReduceParams params,
                      poplar::program::Sequence& sequence, const poplar::DebugContext& name = {},
                      const poplar::OptionFlags& options = {});

poplar::Tensor reduce(poplar::Graph& graph, const poplar::Tensor& in,
                      const std::vector<std::size_t>& dims, ReduceParams params,
                      poplar::program::Sequence& sequence, const poplar::DebugContext& name = {},
                      const poplar::OptionFlags& options = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/reductions.hpp>
#endif
