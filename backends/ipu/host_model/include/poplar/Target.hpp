// What a graph is built for: tiles and their memory.
#pragma once

#include <cstddef>

#include <poplar/Type.hpp>

namespace poplar {

enum class TargetType { CPU, IPU, IPU_MODEL };

class Target {
 public:
  Target() = default;
  Target(TargetType type, unsigned ipus, unsigned tiles, std::size_t bytes)
      : type(type), ipus(ipus), tiles(tiles), bytes(bytes) {}

  TargetType getTargetType() const { return type; }
  unsigned getNumIPUs() const { return ipus; }
  unsigned getTilesPerIPU() const { return tiles; }
  unsigned getNumTiles() const { return ipus * tiles; }
  std::size_t getBytesPerTile() const { return bytes; }
  std::size_t getTypeSize(const Type& type) const;

 private:
  TargetType type = TargetType::IPU;
  unsigned ipus = 0;
  unsigned tiles = 0;
  std::size_t bytes = 0;
};

}  // namespace poplar
