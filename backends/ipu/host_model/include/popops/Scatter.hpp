// Slices written into a tensor at places that another tensor holds: XLA's scatter.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>

namespace popops {

void scatter(poplar::Graph& graph, const poplar::Tensor& operand, const poplar::Tensor& indices,
             const poplar::Tensor& updates, std::size_t indexVectorDim,
             std::vector<unsigned> updateWindowDims, std::vector<std::size_t> insertWindowDims,
             std::vector<unsigned> scatterDimsToOperandDims, poplar::program::Sequence& sequence,
             const poplar::DebugContext& name = {}, const poplar::OptionFlags& options = {});

// Makes what is written of what is there and the update.
using UpdateComputationFunc = std::function<poplar::Tensor(
    poplar::Graph&, poplar::Tensor&, poplar::Tensor&, poplar::program::Sequence&)>;

void scatter(poplar::Graph& graph, const poplar::Tensor& operand, const poplar::Tensor& indices,
             const poplar::Tensor& updates, std::size_t indexVectorDim,
             std::vector<unsigned> updateWindowDims, std::vector<std::size_t> insertWindowDims,
             std::vector<unsigned> scatterDimsToOperandDims,
             UpdateComputationFunc& updateComputation, poplar::program::Sequence& sequence,
             const poplar::DebugContext& name = {}, const poplar::OptionFlags& options = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/gathering.hpp>
#endif
