// Variables, constants and streams of one program, the same on every replica.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <poplar/ArrayRef.hpp>
#include <poplar/DataStream.hpp>
#include <poplar/DebugContext.hpp>
#include <poplar/Device.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Target.hpp>
#include <poplar/Tensor.hpp>
#include <poplar/Type.hpp>

namespace poplar {

struct replication_factor {
  constexpr explicit replication_factor(unsigned value) : value(value) {}
  unsigned value;
};

enum class VariableMappingMethod { NONE, LINEAR };

class Graph {
 public:
  explicit Graph(const Target& target, replication_factor replicas = replication_factor(1));
  explicit Graph(const Device& device, replication_factor replicas = replication_factor(1));
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // The tiles of one replica.
  const Target& getTarget() const;
  unsigned getReplicationFactor() const;

  Tensor addVariable(const Type& type, ArrayRef<std::size_t> shape, const DebugContext& name = {});
  Tensor addVariable(const Type& type, ArrayRef<std::size_t> shape, VariableMappingMethod mapping,
                     const DebugContext& name = {});
  Tensor clone(const Tensor& tensor, const DebugContext& name = {});

  template <typename T>
  Tensor addConstant(const Type& type, ArrayRef<std::size_t> shape, ArrayRef<T> values,
                     const DebugContext& name = {"<const>"}) {
    return constant(type, shape, values.data(), values.size(), name);
  }
  template <typename T>
  Tensor addConstant(const Type& type, ArrayRef<std::size_t> shape, const T* values,
                     const DebugContext& name = {"<const>"}) {
    return constant(type, shape, values, elements_of(shape), name);
  }
  template <typename T>
  Tensor addConstant(const Type& type, ArrayRef<std::size_t> shape, T value,
                     const DebugContext& name = {"<const>"}) {
    return constant(type, shape, &value, one_for_all, name);
  }
  Tensor addConstantHalf(const Type& type, ArrayRef<std::size_t> shape, std::uint16_t value,
                         const DebugContext& name = {"<const>"});
  Tensor addConstantHalf(const Type& type, ArrayRef<std::size_t> shape, const std::uint16_t* values,
                         const DebugContext& name = {"<const>"});

  // Which replica this is: a scalar of type UNSIGNED_INT, to be mapped as any constant.
  Tensor addReplicationIndexConstant(const DebugContext& name = {});

  void setTileMapping(const Tensor& tensor, unsigned tile);

  DataStream addHostToDeviceFIFO(const std::string& handle, const Type& type, std::size_t elements,
                                 ReplicatedStreamMode mode = ReplicatedStreamMode::REPLICATE,
                                 const OptionFlags& options = {});
  DataStream addDeviceToHostFIFO(const std::string& handle, const Type& type, std::size_t elements,
                                 const OptionFlags& options = {});
  void createHostWrite(const std::string& handle, const Tensor& tensor);
  void createHostRead(const std::string& handle, const Tensor& tensor);

  const std::shared_ptr<shardir_host_model::GraphState>& model() const { return state; }

 private:
  static std::size_t elements_of(ArrayRef<std::size_t> shape);
  static constexpr std::size_t one_for_all = ~std::size_t(0);

  // A C++ type without an overload is no constant's.
  Tensor constant(const Type&, ArrayRef<std::size_t>, const float*, std::size_t count,
                  const DebugContext&);
  Tensor constant(const Type&, ArrayRef<std::size_t>, const int*, std::size_t count,
                  const DebugContext&);
  Tensor constant(const Type&, ArrayRef<std::size_t>, const unsigned*, std::size_t count,
                  const DebugContext&);
  Tensor constant(const Type&, ArrayRef<std::size_t>, const bool*, std::size_t count,
                  const DebugContext&);
  Tensor constant(const Type&, ArrayRef<std::size_t>, const double*, std::size_t count,
                  const DebugContext&) = delete;
  Tensor constant(const Type&, ArrayRef<std::size_t>, const long*, std::size_t count,
                  const DebugContext&) = delete;

  std::shared_ptr<shardir_host_model::GraphState> state;
};

}  // namespace poplar

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/graphs.hpp>
#endif
