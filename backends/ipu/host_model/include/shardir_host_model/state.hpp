// The contents of a graph, and access to the elements of tensors. All variables are consecutive in
// one address space per replica, one element per address; a tensor is a list of addresses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <poplar/DataStream.hpp>
#include <poplar/Target.hpp>
#include <poplar/Tensor.hpp>
#include <shardir_host_model/numbers.hpp>

namespace shardir_host_model {

using Shape = std::vector<std::size_t>;
using Addresses = std::vector<std::uint32_t>;

constexpr std::int32_t unmapped = -1;

struct Variable {
  std::string name;
  poplar::Type type;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool constant = false;
  bool replica_index = false;    // its value is the number of the replica
  std::vector<Bits> values;      // of a constant
};

struct GraphState {
  poplar::Target device;
  poplar::Target replica;  // one replica's share of the device
  unsigned replicas = 1;
  std::vector<Variable> variables;
  std::vector<std::int32_t> tiles;  // by address
  std::map<std::string, poplar::DataStream> streams;
  std::map<std::string, poplar::Tensor> host_writes, host_reads;
  std::set<std::string> codelets;

  const Variable& variable_at(std::uint32_t address) const;
  poplar::Tensor add(Variable variable, const Shape& shape, bool mapped);
  // A variable for a result of the libraries: spread over the tiles.
  poplar::Tensor result(const poplar::Type& type, const Shape& shape, const std::string& name);
  // Whole grains of elements, and no fewer than `least` on a tile that has any.
  void map_linearly(const Addresses& addresses, std::size_t least = 1, std::size_t grain = 1);
  void need_codelets(const std::string& library, const std::string& call) const;
};

struct TensorAccess {
  static poplar::Tensor make(GraphState* graph, const poplar::Type& type, Shape shape,
                             std::shared_ptr<const Addresses> addresses) {
    poplar::Tensor tensor;
    tensor.graph = graph;
    tensor.type = type;
    tensor.sizes = std::move(shape);
    tensor.elements = std::move(addresses);
    return tensor;
  }
  static poplar::Tensor view(const poplar::Tensor& of, Shape shape, Addresses addresses) {
    return make(of.graph, of.type, std::move(shape),
                std::make_shared<const Addresses>(std::move(addresses)));
  }
  static poplar::Tensor view(const poplar::Tensor& of, Shape shape) {
    return make(of.graph, of.type, std::move(shape), of.elements);
  }
  static GraphState* graph(const poplar::Tensor& tensor) { return tensor.graph; }
  static const Addresses& addresses(const poplar::Tensor& tensor) { return *tensor.elements; }
  static std::shared_ptr<const Addresses> shared(const poplar::Tensor& tensor) {
    return tensor.elements;
  }
};

inline const Addresses& addresses_of(const poplar::Tensor& tensor) {
  return TensorAccess::addresses(tensor);
}

std::size_t product(const Shape& shape);

// "'x' FLOAT [2, 3]"
std::string described(const poplar::Tensor& tensor);

// Checks that the tensor exists and belongs to the graph.
void check_tensor(const poplar::Tensor& tensor, const GraphState& graph, const std::string& call);

// Checks that the tensor has a tile mapping: the libraries map their results like it.
void check_mapped(const poplar::Tensor& tensor, const std::string& call);

// Checks that the tensor can be written: it has no constant and no element twice.
void check_destination(const poplar::Tensor& tensor, const std::string& call);

// Checks that the tensors share no element.
void check_apart(const poplar::Tensor& first, const poplar::Tensor& second,
                 const std::string& call);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION std::size_t product(const Shape& shape) {
  std::size_t count = 1;
  for (std::size_t size : shape) count *= size;
  return count;
}

SHARDIR_HOST_MODEL_FUNCTION const Variable& GraphState::variable_at(std::uint32_t address) const {
  std::size_t low = 0, high = variables.size();
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (variables[middle].first <= address ? low : high) = middle;
  }
  return variables[low];
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor GraphState::add(Variable variable, const Shape& shape,
                                                           bool mapped) {
  const std::size_t count = product(shape);
  if (tiles.size() + count > UINT32_MAX) refuse("the host model has no room for 2^32 elements");
  variable.first = static_cast<std::uint32_t>(tiles.size());
  variable.count = static_cast<std::uint32_t>(count);
  Addresses addresses(count);
  for (std::size_t i = 0; i < count; ++i) addresses[i] = variable.first + static_cast<Bits>(i);
  tiles.resize(tiles.size() + count, unmapped);
  const poplar::Type type = variable.type;
  // A variable without elements has no address that could be mistaken for another's.
  if (count != 0) variables.push_back(std::move(variable));
  if (mapped) map_linearly(addresses);
  return TensorAccess::make(this, type, shape,
                            std::make_shared<const Addresses>(std::move(addresses)));
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor GraphState::result(const poplar::Type& type,
                                                              const Shape& shape,
                                                              const std::string& name) {
  Variable variable;
  variable.name = name;
  variable.type = type;
  return add(std::move(variable), shape, true);
}

SHARDIR_HOST_MODEL_FUNCTION void GraphState::map_linearly(const Addresses& addresses,
                                                         std::size_t least, std::size_t grain) {
  const std::size_t count = replica.getNumTiles();
  std::size_t each = (addresses.size() + count - 1) / count;
  if (each < least) each = least;
  each = (each + grain - 1) / grain * grain;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    tiles[addresses[i]] = static_cast<std::int32_t>(i / each);
  }
}

SHARDIR_HOST_MODEL_FUNCTION void GraphState::need_codelets(const std::string& library,
                                                           const std::string& call) const {
  if (codelets.count(library) == 0) {
    refuse(call + ": the codelets of " + library + " are missing; call " + library +
           "::addCodelets(graph) before");
  }
}

SHARDIR_HOST_MODEL_FUNCTION std::string described(const poplar::Tensor& tensor) {
  if (!tensor.valid()) return "a tensor of no graph";
  std::string name;
  if (!addresses_of(tensor).empty()) {
    name = quoted(TensorAccess::graph(tensor)->variable_at(addresses_of(tensor)[0]).name) + " ";
  }
  return name + tensor.elementType().toString() + " " + text(tensor.shape());
}

SHARDIR_HOST_MODEL_FUNCTION void check_tensor(const poplar::Tensor& tensor,
                                              const GraphState& graph, const std::string& call) {
  if (TensorAccess::graph(tensor) != &graph) {
    refuse(call + ": " + described(tensor) + " is no tensor of this graph; make it with this graph");
  }
}

SHARDIR_HOST_MODEL_FUNCTION void check_mapped(const poplar::Tensor& tensor,
                                              const std::string& call) {
  const GraphState& graph = *TensorAccess::graph(tensor);
  for (std::uint32_t address : addresses_of(tensor)) {
    if (graph.tiles[address] == unmapped) {
      refuse(call + ": " + described(tensor) +
             " is not mapped to tiles yet; map it before it is used");
    }
  }
}

SHARDIR_HOST_MODEL_FUNCTION void check_destination(const poplar::Tensor& tensor,
                                                   const std::string& call) {
  if (!tensor.valid()) refuse(call + ": the destination is a tensor of no graph");
  const GraphState& graph = *TensorAccess::graph(tensor);
  std::vector<bool> seen(graph.tiles.size());
  const Variable* variable = nullptr;
  for (std::uint32_t address : addresses_of(tensor)) {
    if (variable == nullptr || address - variable->first >= variable->count) {
      variable = &graph.variable_at(address);
      if (variable->constant) {
        refuse(call + ": " + quoted(variable->name) +
               " is a constant and cannot be written; copy it to a variable first");
      }
    }
    if (seen[address]) {
      refuse(call + ": an element of " + quoted(variable->name) +
             " is in the destination twice; write to a variable that is not broadcast");
    }
    seen[address] = true;
  }
}

SHARDIR_HOST_MODEL_FUNCTION void check_apart(const poplar::Tensor& first,
                                             const poplar::Tensor& second,
                                             const std::string& call) {
  const GraphState& graph = *TensorAccess::graph(first);
  std::vector<bool> seen(graph.tiles.size());
  for (std::uint32_t address : addresses_of(first)) seen[address] = true;
  for (std::uint32_t address : addresses_of(second)) {
    if (seen[address]) {
      refuse(call + ": source and destination share an element of " +
             quoted(graph.variable_at(address).name) + "; copy through a variable between them");
    }
  }
}

}  // namespace shardir_host_model
#endif
