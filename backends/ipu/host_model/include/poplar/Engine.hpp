// A graph and its programs, ready to run on a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <poplar/ArrayRef.hpp>
#include <poplar/Device.hpp>
#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>
#include <poplar/exceptions.hpp>

namespace shardir_host_model {
struct Machine;
}

namespace poplar {

class Engine {
 public:
  Engine(const Graph& graph, const program::Program& program, const OptionFlags& options = {});
  Engine(const Graph& graph, ArrayRef<program::Program> programs, const OptionFlags& options = {});

  void load(const Device& device);
  void run(unsigned program = 0);
  void loadAndRun(const Device& device, unsigned program = 0);

  // With replicas a buffer is that of replica 0, then that of replica 1, and so on. Without an end
  // every transfer begins at `begin`; with one it goes on where the last one ended, in a circle.
  void connectStream(const std::string& handle, void* begin);
  void connectStream(const std::string& handle, void* begin, void* end);
  void writeTensor(const std::string& handle, const void* begin, const void* end);
  void readTensor(const std::string& handle, void* begin, void* end);

 private:
  std::shared_ptr<shardir_host_model::Machine> machine;
};

}  // namespace poplar

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/engines.hpp>
#endif
