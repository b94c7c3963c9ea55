// A device is what an engine is loaded onto. The model's is the host, whatever it is called.
#pragma once

#include <poplar/Target.hpp>

namespace poplar {

class Device {
 public:
  Device() = default;
  explicit Device(const Target& target) : target(target) {}

  static Device createCPUDevice(unsigned ipus = 1) {
    return Device(Target(TargetType::CPU, ipus, 1, std::size_t(1) << 40));
  }

  bool attach() const { return true; }
  void detach() const {}
  const Target& getTarget() const { return target; }

 private:
  Target target;
};

}  // namespace poplar
