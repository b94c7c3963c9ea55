// Variables, constants, mapping and streams. See <poplar/Graph.hpp>.
#pragma once

#include <poplar/Graph.hpp>
#include <shardir_host_model/state.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

// Poplar refuses larger streams.
constexpr std::size_t largest_stream = std::size_t(128) << 20;

// A constant of a shape, from a value for each element or from one for all.
inline poplar::Tensor add_constant(GraphState& graph, const poplar::Type& type,
                                   poplar::ArrayRef<std::size_t> sizes, std::vector<Bits> values,
                                   std::size_t count, const std::string& name) {
  const Shape shape(sizes.begin(), sizes.end());
  const bool one_for_all = count == ~std::size_t(0);
  if (!one_for_all && count != product(shape)) {
    refuse("Graph::addConstant: " + quoted(name) + " of shape " + text(shape) + " is given " +
           std::to_string(count) + " values; give one, or one for each element");
  }
  if (one_for_all) values.assign(product(shape), Bits(values[0]));
  Variable variable;
  variable.name = name;
  variable.type = type;
  variable.constant = true;
  variable.values = std::move(values);
  return graph.add(std::move(variable), shape, false);
}

// Bits of values of one C++ type, `from` being its own element type.
template <typename T>
inline std::vector<Bits> constant_bits(const poplar::Type& type, const poplar::Type& from,
                                       const T* values, std::size_t count,
                                       const std::string& name) {
  check_type(type, "Graph::addConstant");
  const bool fits = from == poplar::FLOAT  ? is_floating(type)
                    : from == poplar::BOOL ? type == poplar::BOOL
                                           : !is_floating(type) && type != poplar::BOOL;
  if (!fits) {
    refuse("Graph::addConstant: " + quoted(name) + " of type " + type.toString() + " is given " +
           from.toString() + " values; give values of its own kind");
  }
  std::vector<Bits> bits(count == ~std::size_t(0) ? 1 : count);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    Number value;
    if (is_floating(from)) {
      value.real = static_cast<double>(values[i]);
    } else {
      value.whole = static_cast<std::int64_t>(values[i]);
      if (fitted(type, value).whole != value.whole) {
        refuse("Graph::addConstant: " + quoted(name) + " of type " + type.toString() +
               " cannot hold " + std::to_string(value.whole));
      }
    }
    bits[i] = encode(type, value);
  }
  return bits;
}

inline Variable new_variable(const poplar::Type& type, const std::string& name,
                             const std::string& call) {
  check_type(type, call);
  Variable variable;
  variable.name = name;
  variable.type = type;
  return variable;
}

inline poplar::DataStream add_stream(GraphState& graph, const std::string& handle,
                                     const poplar::Type& type, std::size_t elements,
                                     bool to_device, bool broadcast) {
  const std::string call =
      to_device ? "Graph::addHostToDeviceFIFO" : "Graph::addDeviceToHostFIFO";
  check_type(type, call);
  if (graph.streams.count(handle) != 0) {
    refuse(call + ": a stream is called " + quoted(handle) + " already; call this one otherwise");
  }
  if (elements == 0) refuse(call + ": the stream " + quoted(handle) + " carries nothing");
  if (elements * size_of(type) > largest_stream) {
    refuse(call + ": the stream " + quoted(handle) + " carries " +
           std::to_string(elements * size_of(type)) + " bytes, more than " +
           std::to_string(largest_stream) + "; carry it in several streams");
  }
  poplar::DataStream stream;
  stream.graph = &graph;
  stream.name = handle;
  stream.type = type;
  stream.count = elements;
  stream.to_device = to_device;
  stream.broadcast = broadcast;
  graph.streams[handle] = stream;
  return stream;
}

}  // namespace shardir_host_model

namespace poplar {

SHARDIR_HOST_MODEL_FUNCTION Graph::Graph(const Target& target, replication_factor replicas)
    : state(std::make_shared<shardir_host_model::GraphState>()) {
  if (replicas.value == 0 || target.getNumTiles() == 0 ||
      target.getNumIPUs() % replicas.value != 0) {
    shardir_host_model::refuse("poplar::Graph: " + std::to_string(target.getNumIPUs()) +
                               " IPUs cannot be shared by " + std::to_string(replicas.value) +
                               " replicas; ask for a multiple of the replicas");
  }
  state->device = target;
  state->replicas = replicas.value;
  state->replica = Target(target.getTargetType(), target.getNumIPUs() / replicas.value,
                          target.getTilesPerIPU(), target.getBytesPerTile());
}

SHARDIR_HOST_MODEL_FUNCTION Graph::Graph(const Device& device, replication_factor replicas)
    : Graph(device.getTarget(), replicas) {}

SHARDIR_HOST_MODEL_FUNCTION const Target& Graph::getTarget() const { return state->replica; }

SHARDIR_HOST_MODEL_FUNCTION unsigned Graph::getReplicationFactor() const {
  return state->replicas;
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::addVariable(const Type& type, ArrayRef<std::size_t> shape,
                                                      const DebugContext& name) {
  return addVariable(type, shape, VariableMappingMethod::NONE, name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::addVariable(const Type& type, ArrayRef<std::size_t> shape,
                                                      VariableMappingMethod mapping,
                                                      const DebugContext& name) {
  using namespace shardir_host_model;
  return state->add(new_variable(type, name.name, "Graph::addVariable"),
                    Shape(shape.begin(), shape.end()), mapping == VariableMappingMethod::LINEAR);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::clone(const Tensor& tensor, const DebugContext& name) {
  using namespace shardir_host_model;
  check_tensor(tensor, *state, "Graph::clone");
  Tensor copy = addVariable(tensor.elementType(), tensor.shape(), name);
  for (std::size_t i = 0; i < copy.numElements(); ++i) {
    state->tiles[addresses_of(copy)[i]] = state->tiles[addresses_of(tensor)[i]];
  }
  return copy;
}

SHARDIR_HOST_MODEL_FUNCTION std::size_t Graph::elements_of(ArrayRef<std::size_t> shape) {
  return shardir_host_model::product(shardir_host_model::Shape(shape.begin(), shape.end()));
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::constant(const Type& type, ArrayRef<std::size_t> shape,
                                                   const float* values, std::size_t count,
                                                   const DebugContext& name) {
  using namespace shardir_host_model;
  return add_constant(*state, type, shape, constant_bits(type, FLOAT, values, count, name.name),
                      count, name.name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::constant(const Type& type, ArrayRef<std::size_t> shape,
                                                   const int* values, std::size_t count,
                                                   const DebugContext& name) {
  using namespace shardir_host_model;
  return add_constant(*state, type, shape, constant_bits(type, INT, values, count, name.name),
                      count, name.name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::constant(const Type& type, ArrayRef<std::size_t> shape,
                                                   const unsigned* values, std::size_t count,
                                                   const DebugContext& name) {
  using namespace shardir_host_model;
  return add_constant(*state, type, shape,
                      constant_bits(type, UNSIGNED_INT, values, count, name.name), count,
                      name.name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::constant(const Type& type, ArrayRef<std::size_t> shape,
                                                   const bool* values, std::size_t count,
                                                   const DebugContext& name) {
  using namespace shardir_host_model;
  return add_constant(*state, type, shape, constant_bits(type, BOOL, values, count, name.name),
                      count, name.name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::addConstantHalf(const Type& type,
                                                          ArrayRef<std::size_t> shape,
                                                          const std::uint16_t* values,
                                                          const DebugContext& name) {
  using namespace shardir_host_model;
  if (type != HALF) refuse("Graph::addConstantHalf: its type is HALF, not " + type.toString());
  const std::size_t count = elements_of(shape);
  return add_constant(*state, type, shape, std::vector<Bits>(values, values + count), count,
                      name.name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::addConstantHalf(const Type& type,
                                                          ArrayRef<std::size_t> shape,
                                                          std::uint16_t value,
                                                          const DebugContext& name) {
  return addConstantHalf(type, shape, std::vector<std::uint16_t>(elements_of(shape), value).data(),
                         name);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Graph::addReplicationIndexConstant(const DebugContext& name) {
  using namespace shardir_host_model;
  Variable variable = new_variable(UNSIGNED_INT, name.name, "Graph::addReplicationIndexConstant");
  variable.constant = true;
  variable.replica_index = true;
  return state->add(std::move(variable), {}, false);
}

SHARDIR_HOST_MODEL_FUNCTION void Graph::setTileMapping(const Tensor& tensor, unsigned tile) {
  using namespace shardir_host_model;
  check_tensor(tensor, *state, "Graph::setTileMapping");
  if (tile >= state->replica.getNumTiles()) {
    refuse("Graph::setTileMapping: there is no tile " + std::to_string(tile) + " for " +
           described(tensor) + "; a replica has " + std::to_string(state->replica.getNumTiles()) +
           " tiles");
  }
  for (std::uint32_t address : addresses_of(tensor)) {
    state->tiles[address] = static_cast<std::int32_t>(tile);
  }
}

SHARDIR_HOST_MODEL_FUNCTION DataStream Graph::addHostToDeviceFIFO(const std::string& handle,
                                                                  const Type& type,
                                                                  std::size_t elements,
                                                                  ReplicatedStreamMode mode,
                                                                  const OptionFlags&) {
  return shardir_host_model::add_stream(*state, handle, type, elements, true,
                                        mode == ReplicatedStreamMode::BROADCAST);
}

SHARDIR_HOST_MODEL_FUNCTION DataStream Graph::addDeviceToHostFIFO(const std::string& handle,
                                                                  const Type& type,
                                                                  std::size_t elements,
                                                                  const OptionFlags&) {
  return shardir_host_model::add_stream(*state, handle, type, elements, false, false);
}

SHARDIR_HOST_MODEL_FUNCTION void Graph::createHostWrite(const std::string& handle,
                                                        const Tensor& tensor) {
  shardir_host_model::check_tensor(tensor, *state, "Graph::createHostWrite");
  shardir_host_model::check_destination(tensor, "Graph::createHostWrite");
  state->host_writes[handle] = tensor;
}

SHARDIR_HOST_MODEL_FUNCTION void Graph::createHostRead(const std::string& handle,
                                                       const Tensor& tensor) {
  shardir_host_model::check_tensor(tensor, *state, "Graph::createHostRead");
  state->host_reads[handle] = tensor;
}

}  // namespace poplar
#endif
