// Random numbers of the hardware are refused: no other machine, and no model, gives the same.
#pragma once

#include <cstdint>

#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

namespace poprand {

poplar::Tensor uniform(poplar::Graph& graph, const poplar::Tensor* seed, std::uint32_t seedModifier,
                       const poplar::Tensor& reference, const poplar::Type& outType, double minVal,
                       double maxVal, poplar::program::Sequence& sequence,
                       const poplar::DebugContext& name = {});
poplar::Tensor normal(poplar::Graph& graph, const poplar::Tensor* seed, std::uint32_t seedModifier,
                      const poplar::Tensor& reference, const poplar::Type& outType, double mean,
                      double stdDev, poplar::program::Sequence& sequence,
                      const poplar::DebugContext& name = {});
poplar::Tensor bernoulli(poplar::Graph& graph, const poplar::Tensor* seed,
                         std::uint32_t seedModifier, const poplar::Tensor& reference,
                         const poplar::Type& outType, double probability,
                         poplar::program::Sequence& sequence,
                         const poplar::DebugContext& name = {});

}  // namespace poprand

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <shardir_host_model/refusals.hpp>

namespace shardir_host_model {

[[noreturn]] inline void refuse_random(const std::string& call) {
  refuse(call + ": random numbers of the hardware are not the same anywhere else; compute them "
                "with popops::map from a counter");
}

}  // namespace shardir_host_model

namespace poprand {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor uniform(poplar::Graph&, const poplar::Tensor*,
                                                   std::uint32_t, const poplar::Tensor&,
                                                   const poplar::Type&, double, double,
                                                   poplar::program::Sequence&,
                                                   const poplar::DebugContext&) {
  shardir_host_model::refuse_random("poprand::uniform");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor normal(poplar::Graph&, const poplar::Tensor*,
                                                  std::uint32_t, const poplar::Tensor&,
                                                  const poplar::Type&, double, double,
                                                  poplar::program::Sequence&,
                                                  const poplar::DebugContext&) {
  shardir_host_model::refuse_random("poprand::normal");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor bernoulli(poplar::Graph&, const poplar::Tensor*,
                                                     std::uint32_t, const poplar::Tensor&,
                                                     const poplar::Type&, double,
                                                     poplar::program::Sequence&,
                                                     const poplar::DebugContext&) {
  shardir_host_model::refuse_random("poprand::bernoulli");
}

}  // namespace poprand
#endif
