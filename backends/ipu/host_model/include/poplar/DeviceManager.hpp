// Finding devices. The model has one for every number of IPUs that real machines join: powers of 2.
#pragma once

#include <vector>

#include <poplar/Device.hpp>

namespace poplar {

class DeviceManager {
 public:
  static DeviceManager createDeviceManager() { return {}; }

  std::vector<Device> getDevices(TargetType type, unsigned ipus) const {
    if (ipus == 0 || (ipus & (ipus - 1)) != 0) return {};
    return {Device(Target(type, ipus, 1472, 638976))};
  }
};

}  // namespace poplar
