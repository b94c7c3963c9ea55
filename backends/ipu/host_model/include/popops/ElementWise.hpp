// Expressions over whole tensors. Shapes are broadcast as NumPy does it: from the last dimension
// on, a size of 1 or a missing dimension fits any size.
#pragma once

#include <vector>

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>
#include <popops/Expr.hpp>

namespace popops {

poplar::Tensor map(poplar::Graph& graph, const expr::Expr& expression,
                   const std::vector<poplar::Tensor>& tensors, poplar::program::Sequence& sequence,
                   const poplar::DebugContext& name = {}, const poplar::OptionFlags& options = {});

// The result replaces the first tensor.
void mapInPlace(poplar::Graph& graph, const expr::Expr& expression,
                const std::vector<poplar::Tensor>& tensors, poplar::program::Sequence& sequence,
                const poplar::DebugContext& name = {}, const poplar::OptionFlags& options = {});

void mapWithOutput(poplar::Graph& graph, const expr::Expr& expression,
                   const std::vector<poplar::Tensor>& tensors, const poplar::Tensor& out,
                   poplar::program::Sequence& sequence, const poplar::DebugContext& name = {},
                   const poplar::OptionFlags& options = {});

}  // namespace popops

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/maps.hpp>
#endif
