// A stream between the host and the replicas, known by its handle.
#pragma once

#include <cstddef>
#include <string>

#include <poplar/Type.hpp>

namespace shardir_host_model {
struct GraphState;
}

namespace poplar {

// Whether each replica has its own part of the host's memory, or all get the same.
enum class ReplicatedStreamMode { REPLICATE, BROADCAST };

class DataStream {
 public:
  DataStream() = default;
  const std::string& handle() const { return name; }
  std::size_t numElements() const { return count; }
  Type elementType() const { return type; }

  shardir_host_model::GraphState* graph = nullptr;
  std::string name;
  Type type;
  std::size_t count = 0;
  bool to_device = false;
  bool broadcast = false;
};

}  // namespace poplar
