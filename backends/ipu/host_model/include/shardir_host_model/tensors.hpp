// Views: every one is a new list of addresses. See <poplar/Tensor.hpp>.
#pragma once

#include <shardir_host_model/state.hpp>

namespace shardir_host_model {

// The addresses of `tensor` in the order that `places` gives: for each new position its old one.
// `sizes` are the new shape; `strides` say how far a step in each new dimension goes in the old
// row-major order, from `first`.
poplar::Tensor strided(const poplar::Tensor& tensor, const Shape& sizes,
                       const std::vector<std::ptrdiff_t>& strides, std::size_t first);

// How far a step in each dimension goes in row-major order.
std::vector<std::ptrdiff_t> row_major(const Shape& shape);

void check_dimension(const poplar::Tensor& tensor, std::size_t dimension, const std::string& call);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION std::vector<std::ptrdiff_t> row_major(const Shape& shape) {
  std::vector<std::ptrdiff_t> strides(shape.size());
  std::ptrdiff_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= static_cast<std::ptrdiff_t>(shape[i]);
  }
  return strides;
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor strided(const poplar::Tensor& tensor, const Shape& sizes,
                                                   const std::vector<std::ptrdiff_t>& strides,
                                                   std::size_t first) {
  const Addresses& old = addresses_of(tensor);
  Addresses taken(product(sizes));
  Shape index(sizes.size());
  std::ptrdiff_t place = static_cast<std::ptrdiff_t>(first);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    taken[i] = old[static_cast<std::size_t>(place)];
    for (std::size_t d = sizes.size(); d-- > 0;) {
      place += strides[d];
      if (++index[d] < sizes[d]) break;
      place -= strides[d] * static_cast<std::ptrdiff_t>(sizes[d]);
      index[d] = 0;
    }
  }
  return TensorAccess::view(tensor, sizes, std::move(taken));
}

SHARDIR_HOST_MODEL_FUNCTION void check_dimension(const poplar::Tensor& tensor,
                                                 std::size_t dimension, const std::string& call) {
  if (!tensor.valid()) refuse(call + ": " + described(tensor) + " has no elements to view");
  if (dimension >= tensor.rank()) {
    refuse(call + ": " + described(tensor) + " has no dimension " + std::to_string(dimension));
  }
}

}  // namespace shardir_host_model

namespace poplar {

SHARDIR_HOST_MODEL_FUNCTION std::size_t Tensor::dim(unsigned dimension) const {
  shardir_host_model::check_dimension(*this, dimension, "Tensor::dim");
  return sizes[dimension];
}

SHARDIR_HOST_MODEL_FUNCTION std::size_t Tensor::numElements() const {
  return shardir_host_model::product(sizes);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::slice(std::size_t begin, std::size_t end,
                                                 unsigned dimension) const {
  using namespace shardir_host_model;
  check_dimension(*this, dimension, "Tensor::slice");
  if (begin > end || end > sizes[dimension]) {
    refuse("Tensor::slice: " + described(*this) + " has no elements " + std::to_string(begin) +
           " to " + std::to_string(end) + " in dimension " + std::to_string(dimension));
  }
  const std::vector<std::ptrdiff_t> strides = row_major(sizes);
  Shape shape = sizes;
  shape[dimension] = end - begin;
  return strided(*this, shape, strides, begin * static_cast<std::size_t>(strides[dimension]));
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::slice(ArrayRef<std::size_t> begin,
                                                 ArrayRef<std::size_t> end) const {
  using namespace shardir_host_model;
  if (!valid() || begin.size() != sizes.size() || end.size() != sizes.size()) {
    refuse("Tensor::slice: " + described(*this) + " is cut in " + std::to_string(begin.size()) +
           " and " + std::to_string(end.size()) + " dimensions; give a begin and an end for each");
  }
  Tensor cut = *this;
  for (unsigned i = 0; i < begin.size(); ++i) {
    if (begin[i] != 0 || end[i] != sizes[i]) cut = cut.slice(begin[i], end[i], i);
  }
  return cut;
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::operator[](std::size_t index) const {
  using namespace shardir_host_model;
  check_dimension(*this, 0, "Tensor::operator[]");
  if (index >= sizes[0]) {
    refuse("Tensor::operator[]: " + described(*this) + " has no element " + std::to_string(index));
  }
  return TensorAccess::view(slice(index, index + 1, 0), Shape(sizes.begin() + 1, sizes.end()));
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::reshape(ArrayRef<std::size_t> shape) const {
  using namespace shardir_host_model;
  const Shape wanted(shape.begin(), shape.end());
  if (!valid() || product(wanted) != numElements()) {
    refuse("Tensor::reshape: " + described(*this) + " has not the elements of " + text(wanted));
  }
  return TensorAccess::view(*this, wanted);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::flatten() const {
  return reshape({numElements()});
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::dimShuffle(ArrayRef<unsigned> permutation) const {
  using namespace shardir_host_model;
  std::vector<bool> seen(sizes.size());
  bool permutes = valid() && permutation.size() == sizes.size();
  for (unsigned dimension : permutation) {
    permutes = permutes && dimension < sizes.size() && !seen[dimension];
    if (permutes) seen[dimension] = true;
  }
  if (!permutes) {
    refuse("Tensor::dimShuffle: " + text(Shape(permutation.begin(), permutation.end())) +
           " names not each dimension of " + described(*this) + " once");
  }
  const std::vector<std::ptrdiff_t> old = row_major(sizes);
  Shape shape;
  std::vector<std::ptrdiff_t> strides;
  for (unsigned dimension : permutation) {
    shape.push_back(sizes[dimension]);
    strides.push_back(old[dimension]);
  }
  return strided(*this, shape, strides, 0);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::transpose() const {
  if (rank() != 2) {
    shardir_host_model::refuse("Tensor::transpose: " + shardir_host_model::described(*this) +
                               " is no matrix; use dimShuffle");
  }
  return dimShuffle({1, 0});
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::expand(ArrayRef<std::size_t> dimensions) const {
  using namespace shardir_host_model;
  if (!valid() || dimensions.size() != 1 || dimensions[0] > sizes.size()) {
    refuse("Tensor::expand: " + described(*this) +
           " gets one new dimension at a time, at most after its last; call expand again for more");
  }
  Shape shape = sizes;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dimensions[0]), 1);
  return TensorAccess::view(*this, shape);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::squeeze(ArrayRef<std::size_t> dimensions) const {
  using namespace shardir_host_model;
  std::vector<bool> dropped(sizes.size());
  for (std::size_t dimension : dimensions) {
    check_dimension(*this, dimension, "Tensor::squeeze");
    if (sizes[dimension] != 1 || dropped[dimension]) {
      refuse("Tensor::squeeze: dimension " + std::to_string(dimension) + " of " +
             described(*this) + " cannot be dropped; drop dimensions of size 1, each once");
    }
    dropped[dimension] = true;
  }
  Shape shape;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!dropped[i]) shape.push_back(sizes[i]);
  }
  return TensorAccess::view(*this, shape);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::broadcast(unsigned times, unsigned dimension) const {
  using namespace shardir_host_model;
  check_dimension(*this, dimension, "Tensor::broadcast");
  if (times == 0) refuse("Tensor::broadcast: 0 times leaves nothing of " + described(*this));
  // The dimension as two, the outer one without a stride.
  Shape shape = sizes;
  std::vector<std::ptrdiff_t> strides = row_major(sizes);
  shape.insert(shape.begin() + dimension, times);
  strides.insert(strides.begin() + dimension, 0);
  Shape joined = sizes;
  joined[dimension] *= times;
  return TensorAccess::view(strided(*this, shape, strides, 0), joined);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::reverse(unsigned dimension) const {
  using namespace shardir_host_model;
  check_dimension(*this, dimension, "Tensor::reverse");
  std::vector<std::ptrdiff_t> strides = row_major(sizes);
  const std::ptrdiff_t stride = strides[dimension];
  strides[dimension] = -stride;
  if (numElements() == 0) return *this;
  return strided(*this, sizes, strides,
                 (sizes[dimension] - 1) * static_cast<std::size_t>(stride));
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::subSample(unsigned stride, unsigned dimension) const {
  using namespace shardir_host_model;
  check_dimension(*this, dimension, "Tensor::subSample");
  if (stride == 0) refuse("Tensor::subSample: every 0th element of " + described(*this));
  Shape shape = sizes;
  shape[dimension] = (sizes[dimension] + stride - 1) / stride;
  std::vector<std::ptrdiff_t> strides = row_major(sizes);
  strides[dimension] *= stride;
  return strided(*this, shape, strides, 0);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor Tensor::reinterpret(const Type& as) const {
  using namespace shardir_host_model;
  check_type(as, "Tensor::reinterpret");
  if (!valid() || size_of(as) != size_of(type)) {
    refuse("Tensor::reinterpret: " + described(*this) + " has not the element size of " +
           as.toString());
  }
  return TensorAccess::make(graph, as, sizes, elements);
}

SHARDIR_HOST_MODEL_FUNCTION Tensor concat(const std::vector<Tensor>& tensors, unsigned dimension) {
  using namespace shardir_host_model;
  if (tensors.empty()) refuse("poplar::concat: there is nothing to join");
  Shape joined = tensors[0].shape();
  check_dimension(tensors[0], dimension, "poplar::concat");
  joined[dimension] = 0;
  for (const Tensor& tensor : tensors) {
    Shape shape = tensor.shape();
    const bool fits = shape.size() == joined.size();
    if (fits) {
      joined[dimension] += shape[dimension];
      shape[dimension] = joined[dimension];
    }
    if (!fits || shape != joined || tensor.elementType() != tensors[0].elementType() ||
        TensorAccess::graph(tensor) != TensorAccess::graph(tensors[0])) {
      refuse("poplar::concat: " + described(tensor) + " does not join " + described(tensors[0]) +
             " in dimension " + std::to_string(dimension));
    }
  }
  std::size_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < joined.size(); ++i) {
    if (i < dimension) outer *= joined[i];
    if (i > dimension) inner *= joined[i];
  }
  Addresses addresses;
  addresses.reserve(product(joined));
  for (std::size_t i = 0; i < outer; ++i) {
    for (const Tensor& tensor : tensors) {
      const std::size_t run = tensor.shape()[dimension] * inner;
      const auto begin = addresses_of(tensor).begin() + static_cast<std::ptrdiff_t>(i * run);
      addresses.insert(addresses.end(), begin, begin + static_cast<std::ptrdiff_t>(run));
    }
  }
  return TensorAccess::view(tensors[0], joined, std::move(addresses));
}

SHARDIR_HOST_MODEL_FUNCTION Tensor concat(const Tensor& first, const Tensor& second,
                                          unsigned dimension) {
  return concat(std::vector<Tensor>{first, second}, dimension);
}

}  // namespace poplar
#endif
