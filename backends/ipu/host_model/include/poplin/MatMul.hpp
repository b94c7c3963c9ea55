// Products of matrices, and variables laid out for them.
#pragma once

#include <cstddef>
#include <vector>

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>

namespace poplin {

class PlanningCache {};

// [m, k] times [k, n].
poplar::Tensor matMul(poplar::Graph& graph, const poplar::Tensor& A, const poplar::Tensor& B,
                      poplar::program::Sequence& sequence, const poplar::Type& outType,
                      const poplar::DebugContext& name = {}, const poplar::OptionFlags& options = {},
                      PlanningCache* cache = nullptr);
poplar::Tensor matMul(poplar::Graph& graph, const poplar::Tensor& A, const poplar::Tensor& B,
                      poplar::program::Sequence& sequence, const poplar::DebugContext& name = {},
                      const poplar::OptionFlags& options = {}, PlanningCache* cache = nullptr);

// [g, m, k] times [g, k, n].
poplar::Tensor matMulGrouped(poplar::Graph& graph, const poplar::Tensor& A, const poplar::Tensor& B,
                             poplar::program::Sequence& sequence, const poplar::Type& outType,
                             const poplar::DebugContext& name = {},
                             const poplar::OptionFlags& options = {},
                             PlanningCache* cache = nullptr);

poplar::Tensor createMatMulInputLHS(poplar::Graph& graph, const poplar::Type& type,
                                    const std::vector<std::size_t>& aShape,
                                    const std::vector<std::size_t>& bShape,
                                    const poplar::DebugContext& name,
                                    const poplar::OptionFlags& options = {},
                                    PlanningCache* cache = nullptr);
poplar::Tensor createMatMulInputRHS(poplar::Graph& graph, const poplar::Type& type,
                                    const std::vector<std::size_t>& aShape,
                                    const std::vector<std::size_t>& bShape,
                                    const poplar::DebugContext& name,
                                    const poplar::OptionFlags& options = {},
                                    PlanningCache* cache = nullptr);
poplar::Tensor createMatMulGroupedInputLHS(poplar::Graph& graph, const poplar::Type& inputType,
                                           const poplar::Type& outputType,
                                           const std::vector<std::size_t>& aShape,
                                           const std::vector<std::size_t>& bShape,
                                           const poplar::DebugContext& name,
                                           const poplar::OptionFlags& options = {},
                                           PlanningCache* cache = nullptr);
poplar::Tensor createMatMulGroupedInputRHS(poplar::Graph& graph, const poplar::Type& inputType,
                                           const poplar::Type& outputType,
                                           const std::vector<std::size_t>& aShape,
                                           const std::vector<std::size_t>& bShape,
                                           const poplar::DebugContext& name,
                                           const poplar::OptionFlags& options = {},
                                           PlanningCache* cache = nullptr);

}  // namespace poplin

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/products.hpp>
#endif
