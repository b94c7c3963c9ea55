// Sorting and the largest elements. Where Poplar leaves the order of equal elements open, the model
// reverses it, so that a program relying on it is wrong. See <popops/Sort.hpp>, <popops/TopK.hpp>.
#pragma once

#include <popops/Sort.hpp>
#include <popops/TopK.hpp>
#include <shardir_host_model/machine.hpp>
#include <shardir_host_model/tensors.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

inline bool below(const poplar::Type& type, Number a, Number b) {
  return is_floating(type) ? a.real < b.real : a.whole < b.whole;
}

// Merges two sorted halves of `order`; the first half goes first where neither is before the other.
template <typename Before>
inline void merge_sort(std::vector<std::size_t>& order, std::size_t begin, std::size_t end,
                       const Before& before) {
  if (end - begin < 2) return;
  const std::size_t middle = (begin + end) / 2;
  merge_sort(order, begin, middle, before);
  merge_sort(order, middle, end, before);
  std::vector<std::size_t> merged;
  std::size_t i = begin, j = middle;
  while (i < middle || j < end) {
    const bool second = i == middle || (j < end && before(order[j], order[i]));
    merged.push_back(order[second ? j++ : i++]);
  }
  for (std::size_t k = 0; k < merged.size(); ++k) order[begin + k] = merged[k];
}

// The places of `count` keys in ascending or descending order.
inline std::vector<std::size_t> ordered(const poplar::Type& type, const Bits* keys,
                                        std::size_t count, bool descending, bool stable,
                                        const std::string& call) {
  std::vector<Number> numbers(count);
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    numbers[i] = decode(type, keys[i]);
    if (is_floating(type) && std::isnan(numbers[i].real)) {
      refuse(call + ": there is a NaN among the keys, whose place is not said; sort integers");
    }
    order[i] = stable ? i : count - 1 - i;
  }
  merge_sort(order, 0, count, [&](std::size_t i, std::size_t j) {
    return descending ? below(type, numbers[j], numbers[i]) : below(type, numbers[i], numbers[j]);
  });
  return order;
}

inline void check_keys(const GraphState& graph, const poplar::Tensor& tensor, bool unsigned_too,
                       const std::string& call) {
  graph.need_codelets("popops", call);
  check_tensor(tensor, graph, call);
  const poplar::Type type = tensor.elementType();
  if (!is_floating(type) && type != poplar::INT &&
      !(unsigned_too && type == poplar::UNSIGNED_INT)) {
    refuse(call + ": there is no codelet for keys of " + type.toString() +
           "; cast to a type that it has");
  }
}

inline void check_values(const GraphState& graph, const poplar::Tensor& keys,
                         const poplar::Tensor& values, const std::string& call) {
  check_tensor(values, graph, call);
  const poplar::Type type = values.elementType();
  if (values.shape() != keys.shape() ||
      (!is_floating(type) && type != poplar::INT && type != poplar::UNSIGNED_INT)) {
    refuse(call + ": " + described(values) + " does not go with the keys " + described(keys));
  }
}

// Both with the dimension last.
inline poplar::Tensor with_last(const poplar::Tensor& tensor, unsigned dimension) {
  std::vector<unsigned> order;
  for (unsigned i = 0; i < tensor.rank(); ++i) {
    if (i != dimension) order.push_back(i);
  }
  order.push_back(dimension);
  return tensor.dimShuffle(order);
}

// Adds a step that puts `values` into the order of `keys`, both along their last dimension, and
// keeps the first `kept` of each row.
inline void add_sort(poplar::program::Sequence& sequence, const poplar::Tensor& keys,
                     const poplar::Tensor& values, const poplar::Tensor& out, bool descending,
                     bool stable, bool reversed, const std::string& call) {
  const std::size_t row = keys.shape().back(), kept = out.shape().back();
  const std::size_t rows = row == 0 ? 0 : keys.numElements() / row;
  add_compute(sequence, {keys, values}, out,
              [=, type = keys.elementType()](const std::vector<std::vector<Bits>>& bits) {
                std::vector<Bits> made(rows * kept);
                for (std::size_t i = 0; i < rows; ++i) {
                  const std::vector<std::size_t> order =
                      ordered(type, &bits[0][i * row], row, descending, stable, call);
                  for (std::size_t j = 0; j < kept; ++j) {
                    made[i * kept + (reversed ? kept - 1 - j : j)] = bits[1][i * row + order[j]];
                  }
                }
                return made;
              });
}

inline poplar::Tensor sorted_along(poplar::Graph& graph, const poplar::Tensor& keys,
                                   const poplar::Tensor& values, unsigned dim,
                                   poplar::program::Sequence& sequence, const std::string& name,
                                   const std::string& call) {
  check_dimension(keys, dim, call);
  const poplar::Tensor out =
      graph.model()->result(values.elementType(), values.shape(), name);
  add_sort(sequence, with_last(keys, dim), with_last(values, dim), with_last(out, dim), false,
           false, false, call);
  return out;
}

// The `k` first of each row in the order that the parameters ask for.
inline poplar::Tensor top(poplar::Graph& graph, poplar::program::Sequence& sequence,
                          const poplar::Tensor& keys, const poplar::Tensor& values,
                          const popops::TopKParams& params, bool stable, const std::string& name,
                          const std::string& call) {
  if (keys.rank() == 0 || params.k > keys.shape().back() || params.k == 0) {
    refuse(call + ": " + described(keys) + " has not " + std::to_string(params.k) +
           " elements to take in its last dimension");
  }
  Shape shape = values.shape();
  shape.back() = params.k;
  const poplar::Tensor out = graph.model()->result(values.elementType(), shape, name);
  const bool ascending = params.sortOrder == popops::SortOrder::ASCENDING;
  if (stable && ascending == params.largest && params.k != keys.shape().back()) {
    refuse(call + ": a stable order of the " + (params.largest ? "largest" : "smallest") +
           " elements, turned round, is not said; sort them the other way and reverse");
  }
  // All of a row can be sorted either way; of a part, the best come first and are turned round.
  const bool turned = ascending == params.largest;
  const bool at_once = turned && params.k == keys.shape().back();
  add_sort(sequence, keys, values, out, at_once ? !params.largest : params.largest, stable,
           turned && !at_once, call);
  return out;
}

}  // namespace shardir_host_model

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor sort(poplar::Graph& graph, const poplar::Tensor& tensor,
                                                unsigned dim, poplar::program::Sequence& sequence,
                                                const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  check_keys(*graph.model(), tensor, false, "popops::sort");
  return sorted_along(graph, tensor, tensor, dim, sequence, name.name, "popops::sort");
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor sortKeyValue(poplar::Graph& graph,
                                                        const poplar::Tensor& keys,
                                                        const poplar::Tensor& values, unsigned dim,
                                                        poplar::program::Sequence& sequence,
                                                        const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  const std::string call = "popops::sortKeyValue";
  check_keys(*graph.model(), keys, true, call);
  check_values(*graph.model(), keys, values, call);
  return sorted_along(graph, keys, values, dim, sequence, name.name, call);
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor topK(poplar::Graph& graph,
                                                poplar::program::Sequence& sequence,
                                                const poplar::Tensor& tensor,
                                                const TopKParams& params,
                                                const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  check_keys(*graph.model(), tensor, true, "popops::topK");
  return top(graph, sequence, tensor, tensor, params, false, name.name, "popops::topK");
}

SHARDIR_HOST_MODEL_FUNCTION std::pair<poplar::Tensor, poplar::Tensor> topKKeyValue(
    poplar::Graph& graph, poplar::program::Sequence& sequence, const poplar::Tensor& keys,
    const poplar::Tensor& values, const TopKParams& params, const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  const std::string call = "popops::topKKeyValue";
  check_keys(*graph.model(), keys, true, call);
  check_values(*graph.model(), keys, values, call);
  if (params.stableSort) {
    refuse(call + ": it has no stable order; use topKWithPermutation and gather");
  }
  return {top(graph, sequence, keys, keys, params, false, name.name, call),
          top(graph, sequence, keys, values, params, false, name.name, call)};
}

SHARDIR_HOST_MODEL_FUNCTION std::pair<poplar::Tensor, poplar::Tensor> topKWithPermutation(
    poplar::Graph& graph, poplar::program::Sequence& sequence, const poplar::Tensor& tensor,
    const TopKParams& params, const poplar::DebugContext& name) {
  using namespace shardir_host_model;
  const std::string call = "popops::topKWithPermutation";
  check_keys(*graph.model(), tensor, true, call);
  if (params.stableSort && params.sortOrder == SortOrder::NONE) {
    refuse(call + ": a stable order is an order; use SortOrder::ASCENDING or DESCENDING");
  }
  const poplar::Tensor places =
      graph.model()->result(poplar::UNSIGNED_INT, tensor.shape(), name.name);
  const std::size_t row = tensor.rank() == 0 ? 1 : tensor.shape().back();
  add_compute(sequence, {}, places,
              [row, count = tensor.numElements()](const std::vector<std::vector<Bits>>&) {
                std::vector<Bits> made(count);
                for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<Bits>(i % row);
                return made;
              });
  return {top(graph, sequence, tensor, tensor, params, params.stableSort, name.name, call),
          top(graph, sequence, tensor, places, params, params.stableSort, name.name, call)};
}

}  // namespace popops
#endif
