// Counted loops. See <popops/Loop.hpp>.
#pragma once

#include <popops/Loop.hpp>
#include <shardir_host_model/machine.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::program::Sequence countedLoop(
    poplar::Graph& graph, std::size_t begin, std::size_t end, std::size_t step,
    const CountedLoopBodyType& body, const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  const std::string call = "popops::countedLoop";
  GraphState& state = *graph.model();
  state.need_codelets("popops", call);
  if (step == 0 || begin > end || (end - begin) % step != 0) {
    refuse(call + ": from " + std::to_string(begin) + " to " + std::to_string(end) +
           " is not a number of steps of " + std::to_string(step));
  }
  const poplar::Tensor count = state.result(poplar::UNSIGNED_INT, {1}, name.name);
  const poplar::program::Program once = used(body(count));
  poplar::program::Sequence loop;
  loop.add(shardir_host_model::step([=](Machine& machine) {
    for (std::size_t i = begin; i < end; i += step) {
      for (unsigned replica = 0; replica < machine.count(); ++replica) {
        machine.write(replica, count, {static_cast<Bits>(i)});
      }
      run(once, machine);
    }
  }));
  return loop;
}

SHARDIR_HOST_MODEL_FUNCTION poplar::program::Sequence countedLoop(poplar::Graph& graph,
                                                                  std::size_t count,
                                                                  const CountedLoopBodyType& body,
                                                                  const poplar::DebugContext& name) {
  return countedLoop(graph, 0, count, 1, body, name);
}

}  // namespace popops
#endif
