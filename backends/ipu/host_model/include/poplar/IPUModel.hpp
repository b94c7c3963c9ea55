// A device described by the user: Mk2 unless said otherwise.
#pragma once

#include <poplar/Device.hpp>

namespace poplar {

struct IPUModel {
  unsigned numIPUs = 1;
  unsigned tilesPerIPU = 1472;

  Device createDevice() const {
    return Device(Target(TargetType::IPU_MODEL, numIPUs, tilesPerIPU, 638976));
  }
};

}  // namespace poplar
