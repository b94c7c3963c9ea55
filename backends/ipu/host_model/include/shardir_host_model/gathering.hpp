// Gather and scatter with XLA's semantics. See <popops/Gather.hpp> and <popops/Scatter.hpp>.
#pragma once

#include <popops/Gather.hpp>
#include <popops/Scatter.hpp>
#include <shardir_host_model/slicing.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

// The layout of index vectors in a tensor of indices, and the dimensions they index.
struct Positions {
  Shape batch;                    // how many positions there are, by dimension
  Shape places;                   // row-major in `batch`, then by component: where in the indices
  std::vector<unsigned> mapped;   // the operand's dimension of each component

  std::size_t count() const { return product(batch); }

  Shape begin(const std::vector<Bits>& indices, std::size_t number, std::size_t rank) const {
    Shape start(rank);
    for (std::size_t i = 0; i < mapped.size(); ++i) {
      start[mapped[i]] = indices[places[number * mapped.size() + i]];
    }
    return start;
  }
};

inline Positions positions_of(const poplar::Tensor& indices, std::size_t vector_dim,
                              const std::vector<unsigned>& mapped, unsigned rank,
                              const std::string& call) {
  if (indices.elementType() != poplar::UNSIGNED_INT || vector_dim > indices.rank()) {
    refuse(call + ": " + described(indices) +
           " holds no positions; indices are UNSIGNED_INT, and one of their dimensions, or the "
           "next, goes over a position's components");
  }
  Shape shape = indices.shape();
  if (vector_dim == shape.size()) shape.push_back(1);
  std::vector<bool> seen(rank);
  bool fits = mapped.size() == shape[vector_dim];
  for (unsigned dimension : mapped) {
    fits = fits && dimension < rank && !seen[dimension];
    if (fits) seen[dimension] = true;
  }
  if (!fits) {
    refuse(call + ": positions of " + std::to_string(shape[vector_dim]) +
           " components are mapped to dimensions " + text(Shape(mapped.begin(), mapped.end())) +
           "; name one dimension for each, and none twice");
  }
  Positions positions;
  positions.mapped = mapped;
  positions.batch = shape;
  positions.batch.erase(positions.batch.begin() + static_cast<std::ptrdiff_t>(vector_dim));
  std::size_t inner = 1;
  for (std::size_t i = vector_dim + 1; i < shape.size(); ++i) inner *= shape[i];
  const std::size_t components = shape[vector_dim];
  for (std::size_t number = 0; number < positions.count(); ++number) {
    for (std::size_t i = 0; i < components; ++i) {
      positions.places.push_back((number / inner * components + i) * inner + number % inner);
    }
  }
  return positions;
}

// The dimensions of `rank` that are not among `taken`.
template <typename Dimensions>
inline std::vector<unsigned> others(const Dimensions& taken, std::size_t rank,
                                    const std::string& call) {
  std::vector<bool> seen(rank);
  for (std::size_t dimension : taken) {
    if (dimension >= rank || seen[dimension]) {
      refuse(call + ": dimension " + std::to_string(dimension) + " of " + std::to_string(rank) +
             " is named twice or does not exist");
    }
    seen[dimension] = true;
  }
  std::vector<unsigned> rest;
  for (unsigned i = 0; i < rank; ++i) {
    if (!seen[i]) rest.push_back(i);
  }
  return rest;
}

// A scatter after its checks: the updates as [position, window...].
struct Scattering {
  Positions positions;
  poplar::Tensor updates;
  Shape window;  // in the operand's dimensions
};

inline Scattering scattering_of(const GraphState& graph, const poplar::Tensor& operand,
                                const poplar::Tensor& indices, const poplar::Tensor& updates,
                                std::size_t vector_dim, const std::vector<unsigned>& window_dims,
                                const std::vector<std::size_t>& inserted,
                                const std::vector<unsigned>& mapped) {
  const std::string call = "popops::scatter";
  graph.need_codelets("popops", call);
  for (const poplar::Tensor* tensor : {&operand, &indices, &updates}) {
    check_tensor(*tensor, graph, call);
  }
  check_destination(operand, call);
  check_apart(updates, operand, call);
  Scattering made;
  made.positions = positions_of(indices, vector_dim, mapped, operand.rank(), call);
  std::vector<unsigned> order = others(window_dims, updates.rank(), call);
  Shape batch;
  for (unsigned dimension : order) batch.push_back(updates.shape()[dimension]);
  order.insert(order.end(), window_dims.begin(), window_dims.end());
  const std::vector<unsigned> kept = others(inserted, operand.rank(), call);
  made.window.assign(operand.rank(), 1);
  if (kept.size() != window_dims.size() || batch != made.positions.batch ||
      updates.elementType() != operand.elementType()) {
    refuse(call + ": the updates " + described(updates) + " do not go with the operand " +
           described(operand) + " and the indices " + described(indices));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    made.window[kept[i]] = updates.shape()[window_dims[i]];
  }
  made.updates = updates.dimShuffle(order).reshape(
      {made.positions.count(), product(made.window)});
  return made;
}

inline poplar::Tensor window_of(const poplar::Tensor& operand, const Scattering& scattering,
                                const std::vector<Bits>& indices, std::size_t number) {
  Addresses addresses;
  for (std::size_t place : window(operand.shape(),
                                  scattering.positions.begin(indices, number, operand.rank()),
                                  scattering.window, "popops::scatter")) {
    addresses.push_back(addresses_of(operand)[place]);
  }
  const std::size_t count = addresses.size();
  return TensorAccess::view(operand, {count}, std::move(addresses));
}

}  // namespace shardir_host_model

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor gather(
    poplar::Graph& graph, const poplar::Tensor& input, const poplar::Tensor& indices, unsigned axis,
    poplar::program::Sequence& sequence, GatherParams, const poplar::DebugContext& name,
    const poplar::OptionFlags& options) {
  using namespace shardir_host_model;
  check_dimension(input, axis, "popops::gather");
  if (indices.rank() != 1) {
    refuse("popops::gather: " + described(indices) + " has not one dimension; flatten it");
  }
  std::vector<std::size_t> sizes = input.shape(), offsets;
  sizes[axis] = 1;
  for (std::size_t i = 0; i < input.rank(); ++i) {
    if (i != axis) offsets.push_back(i);
  }
  return gather(graph, input, indices, 1, offsets, sizes, {axis}, {axis}, sequence, name, options);
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor gather(
    poplar::Graph& graph, const poplar::Tensor& input, const poplar::Tensor& indices,
    std::size_t indexVectorDim, const std::vector<std::size_t>& offsetDims,
    const std::vector<std::size_t>& sliceSizes, const std::vector<std::size_t>& collapsedSliceDims,
    const std::vector<unsigned>& startIndexMap, poplar::program::Sequence& sequence,
    const poplar::DebugContext& name, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "popops::gather";
  GraphState& state = *graph.model();
  state.need_codelets("popops", call);
  check_tensor(input, state, call);
  check_tensor(indices, state, call);
  const Positions positions =
      positions_of(indices, indexVectorDim, startIndexMap, input.rank(), call);
  const std::vector<unsigned> kept = others(collapsedSliceDims, input.rank(), call);
  bool fits = sliceSizes.size() == input.rank() && offsetDims.size() == kept.size();
  for (std::size_t dimension : collapsedSliceDims) fits = fits && sliceSizes[dimension] == 1;
  if (!fits) {
    refuse(call + ": slices of " + text(sliceSizes) + " of " + described(input) +
           " do not give " + std::to_string(offsetDims.size()) +
           " dimensions; those that are dropped have size 1");
  }
  const std::size_t rank = positions.batch.size() + kept.size();
  const std::vector<unsigned> batch_dims = others(offsetDims, rank, call);
  // The result is written as [batch..., kept...]; `order` says where each dimension belongs.
  Shape shape = positions.batch, ordered(rank);
  std::vector<unsigned> order(rank);
  for (unsigned dimension : kept) shape.push_back(sliceSizes[dimension]);
  for (unsigned i = 0; i < rank; ++i) {
    const bool batch = i < positions.batch.size();
    const std::size_t place = batch ? batch_dims[i] : offsetDims[i - positions.batch.size()];
    order[place] = i;
    ordered[place] = shape[i];
  }
  const poplar::Tensor out = state.result(input.elementType(), shape, name.name);
  add_compute(sequence, {input, indices}, out,
              [=, whole = input.shape()](const std::vector<std::vector<Bits>>& bits) {
                std::vector<Bits> made;
                for (std::size_t number = 0; number < positions.count(); ++number) {
                  const Shape begin = positions.begin(bits[1], number, whole.size());
                  for (std::size_t place : window(whole, begin, sliceSizes, call)) {
                    made.push_back(bits[0][place]);
                  }
                }
                return made;
              });
  return out.dimShuffle(order);
}

SHARDIR_HOST_MODEL_FUNCTION void scatter(
    poplar::Graph& graph, const poplar::Tensor& operand, const poplar::Tensor& indices,
    const poplar::Tensor& updates, std::size_t indexVectorDim,
    std::vector<unsigned> updateWindowDims, std::vector<std::size_t> insertWindowDims,
    std::vector<unsigned> scatterDimsToOperandDims, poplar::program::Sequence& sequence,
    const poplar::DebugContext&, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const Scattering scattering =
      scattering_of(*graph.model(), operand, indices, updates, indexVectorDim, updateWindowDims,
                    insertWindowDims, scatterDimsToOperandDims);
  sequence.add(step([=](Machine& machine) {
    for (unsigned replica = 0; replica < machine.count(); ++replica) {
      const std::vector<Bits> places = machine.read(replica, indices);
      for (std::size_t i = 0; i < scattering.positions.count(); ++i) {
        machine.write(replica, window_of(operand, scattering, places, i),
                      machine.read(replica, scattering.updates[i]));
      }
    }
  }));
}

SHARDIR_HOST_MODEL_FUNCTION void scatter(
    poplar::Graph& graph, const poplar::Tensor& operand, const poplar::Tensor& indices,
    const poplar::Tensor& updates, std::size_t indexVectorDim,
    std::vector<unsigned> updateWindowDims, std::vector<std::size_t> insertWindowDims,
    std::vector<unsigned> scatterDimsToOperandDims, UpdateComputationFunc& updateComputation,
    poplar::program::Sequence& sequence, const poplar::DebugContext&, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  GraphState& state = *graph.model();
  const Scattering scattering =
      scattering_of(state, operand, indices, updates, indexVectorDim, updateWindowDims,
                    insertWindowDims, scatterDimsToOperandDims);
  const Shape flat{product(scattering.window)};
  poplar::Tensor old = state.result(operand.elementType(), flat, "popops::scatter/old");
  poplar::Tensor update = state.result(operand.elementType(), flat, "popops::scatter/update");
  poplar::program::Sequence body;
  const poplar::Tensor made = updateComputation(graph, old, update, body);
  if (made.elementType() != operand.elementType() || made.shape() != flat) {
    refuse("popops::scatter: the computation makes " + described(made) + ", not " +
           operand.elementType().toString() + " " + text(flat));
  }
  used(body);
  sequence.add(step([=](Machine& machine) {
    for (std::size_t i = 0; i < scattering.positions.count(); ++i) {
      std::vector<poplar::Tensor> windows;
      for (unsigned replica = 0; replica < machine.count(); ++replica) {
        windows.push_back(window_of(operand, scattering, machine.read(replica, indices), i));
        machine.write(replica, old, machine.read(replica, windows[replica]));
        machine.write(replica, update, machine.read(replica, scattering.updates[i]));
      }
      run(body, machine);
      for (unsigned replica = 0; replica < machine.count(); ++replica) {
        machine.write(replica, windows[replica], machine.read(replica, made));
      }
    }
  }));
}

}  // namespace popops
#endif
