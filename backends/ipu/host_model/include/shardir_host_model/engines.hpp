// Checking a whole graph, and running its programs. See <poplar/Engine.hpp>.
#pragma once

#include <poplar/Engine.hpp>
#include <shardir_host_model/machine.hpp>

namespace shardir_host_model {

// Checks that every element is mapped to a tile, and that no tile's memory is exceeded. Every
// variable is counted for the whole program, as if memory were never reused.
void check_memory(const GraphState& graph);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <shardir_host_model/transfers.hpp>

namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION void check_memory(const GraphState& graph) {
  std::vector<std::size_t> used(graph.replica.getNumTiles());
  for (const Variable& variable : graph.variables) {
    const std::size_t size = size_of(variable.type);
    for (std::uint32_t i = 0; i < variable.count; ++i) {
      const std::int32_t tile = graph.tiles[variable.first + i];
      if (tile == unmapped) {
        refuse("poplar::Engine: " + quoted(variable.name) + " " + variable.type.toString() +
               " is not mapped to tiles; call setTileMapping or poputil::mapTensorLinearly");
      }
      used[static_cast<std::size_t>(tile)] += size;
    }
  }
  for (std::size_t tile = 0; tile < used.size(); ++tile) {
    if (used[tile] > graph.replica.getBytesPerTile()) {
      refuse("poplar::Engine: tile " + std::to_string(tile) + " holds " +
             std::to_string(used[tile]) + " bytes, more than its " +
             std::to_string(graph.replica.getBytesPerTile()) + "; map variables to more tiles");
    }
  }
}

// The buffer for `shares` times `bytes`, checked.
inline void check_buffer(const std::string& call, const std::string& handle, std::size_t given,
                         std::size_t wanted) {
  if (given != wanted) {
    refuse(call + ": the buffer of " + quoted(handle) + " has " + std::to_string(given) +
           " bytes, not " + std::to_string(wanted) + "; it holds the shards of all replicas");
  }
}

inline const poplar::DataStream& stream_called(const Machine& machine, const std::string& handle) {
  auto found = machine.graph->streams.find(handle);
  if (found == machine.graph->streams.end()) {
    refuse("Engine::connectStream: no stream is called " + quoted(handle));
  }
  return found->second;
}

inline const poplar::Tensor& host_tensor(const std::map<std::string, poplar::Tensor>& tensors,
                                         const std::string& handle, const std::string& call,
                                         const std::string& fix) {
  auto found = tensors.find(handle);
  if (found == tensors.end()) {
    refuse(call + ": no tensor is called " + quoted(handle) + "; call " + fix + " before");
  }
  return found->second;
}

inline void check_loaded(const Machine& machine, const std::string& call) {
  if (!machine.loaded) refuse(call + ": the engine is on no device; call load before");
}

}  // namespace shardir_host_model

namespace poplar {

SHARDIR_HOST_MODEL_FUNCTION Engine::Engine(const Graph& graph, const program::Program& program,
                                           const OptionFlags& options)
    : Engine(graph, ArrayRef<program::Program>(&program, 1), options) {}

SHARDIR_HOST_MODEL_FUNCTION Engine::Engine(const Graph& graph, ArrayRef<program::Program> programs,
                                           const OptionFlags&)
    : machine(std::make_shared<shardir_host_model::Machine>()) {
  shardir_host_model::check_memory(*graph.model());
  machine->graph = graph.model();
  machine->programs.assign(programs.begin(), programs.end());
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::load(const Device& device) {
  using namespace shardir_host_model;
  const GraphState& graph = *machine->graph;
  if (device.getTarget().getNumIPUs() != graph.device.getNumIPUs() ||
      device.getTarget().getTilesPerIPU() != graph.device.getTilesPerIPU()) {
    refuse("Engine::load: the graph is for " + std::to_string(graph.device.getNumIPUs()) +
           " IPUs, the device has " + std::to_string(device.getTarget().getNumIPUs()));
  }
  const std::size_t elements = graph.tiles.size();
  machine->replicas.assign(graph.replicas, {std::vector<Bits>(elements),
                                            std::vector<bool>(elements)});
  for (unsigned number = 0; number < graph.replicas; ++number) {
    Replica& replica = machine->replicas[number];
    for (const Variable& variable : graph.variables) {
      for (std::uint32_t i = 0; variable.constant && i < variable.count; ++i) {
        replica.memory[variable.first + i] = variable.replica_index ? number : variable.values[i];
        replica.written[variable.first + i] = true;
      }
    }
  }
  machine->loaded = true;
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::run(unsigned program) {
  using namespace shardir_host_model;
  check_loaded(*machine, "Engine::run");
  if (program >= machine->programs.size()) {
    refuse("Engine::run: there is no program " + std::to_string(program) + "; the engine has " +
           std::to_string(machine->programs.size()));
  }
  shardir_host_model::run(machine->programs[program], *machine);
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::loadAndRun(const Device& device, unsigned program) {
  load(device);
  run(program);
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::connectStream(const std::string& handle, void* begin) {
  shardir_host_model::stream_called(*machine, handle);
  machine->connections[handle] = {static_cast<char*>(begin), nullptr, 0};
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::connectStream(const std::string& handle, void* begin,
                                                       void* end) {
  using namespace shardir_host_model;
  const DataStream& stream = stream_called(*machine, handle);
  const unsigned shares = stream.broadcast ? 1 : machine->graph->replicas;
  const std::size_t bytes = shares * stream.count * size_of(stream.type);
  const std::size_t given =
      static_cast<std::size_t>(static_cast<char*>(end) - static_cast<char*>(begin));
  if (given == 0 || given % bytes != 0) {
    refuse("Engine::connectStream: the buffer of " + quoted(handle) + " has " +
           std::to_string(given) + " bytes, no multiple of the " + std::to_string(bytes) +
           " of one transfer; it holds the shards of all replicas");
  }
  machine->connections[handle] = {static_cast<char*>(begin), static_cast<char*>(end), 0};
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::writeTensor(const std::string& handle, const void* begin,
                                                     const void* end) {
  using namespace shardir_host_model;
  const std::string call = "Engine::writeTensor";
  check_loaded(*machine, call);
  const Tensor& tensor =
      host_tensor(machine->graph->host_writes, handle, call, "Graph::createHostWrite");
  const char* bytes = static_cast<const char*>(begin);
  const std::size_t share = tensor.numElements() * size_of(tensor.elementType());
  check_buffer(call, handle, static_cast<std::size_t>(static_cast<const char*>(end) - bytes),
               share * machine->count());
  for (unsigned replica = 0; replica < machine->count(); ++replica) {
    receive(*machine, replica, tensor, bytes + replica * share);
  }
}

SHARDIR_HOST_MODEL_FUNCTION void Engine::readTensor(const std::string& handle, void* begin,
                                                    void* end) {
  using namespace shardir_host_model;
  const std::string call = "Engine::readTensor";
  check_loaded(*machine, call);
  const Tensor& tensor =
      host_tensor(machine->graph->host_reads, handle, call, "Graph::createHostRead");
  char* bytes = static_cast<char*>(begin);
  const std::size_t share = tensor.numElements() * size_of(tensor.elementType());
  check_buffer(call, handle, static_cast<std::size_t>(static_cast<char*>(end) - bytes),
               share * machine->count());
  for (unsigned replica = 0; replica < machine->count(); ++replica) {
    send(*machine, replica, tensor, bytes + replica * share);
  }
}

}  // namespace poplar
#endif
