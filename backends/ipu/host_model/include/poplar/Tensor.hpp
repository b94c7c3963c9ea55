// A view of elements of variables, in row-major order of its shape. Slicing, reshaping and joining
// make other views; nothing moves until a program runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <poplar/ArrayRef.hpp>
#include <poplar/Type.hpp>

namespace shardir_host_model {
struct GraphState;
struct TensorAccess;
}  // namespace shardir_host_model

namespace poplar {

class Tensor {
 public:
  Tensor() = default;

  bool valid() const { return elements != nullptr; }
  Type elementType() const { return type; }
  const std::vector<std::size_t>& shape() const { return sizes; }
  unsigned rank() const { return static_cast<unsigned>(sizes.size()); }
  std::size_t dim(unsigned dimension) const;
  std::size_t numElements() const;

  Tensor operator[](std::size_t index) const;
  Tensor slice(std::size_t begin, std::size_t end, unsigned dimension = 0) const;
  Tensor slice(ArrayRef<std::size_t> begin, ArrayRef<std::size_t> end) const;
  Tensor reshape(ArrayRef<std::size_t> shape) const;
  Tensor flatten() const;
  Tensor dimShuffle(ArrayRef<unsigned> permutation) const;
  Tensor transpose() const;
  Tensor expand(ArrayRef<std::size_t> dimensions) const;
  Tensor squeeze(ArrayRef<std::size_t> dimensions) const;
  Tensor broadcast(unsigned times, unsigned dimension) const;
  Tensor reverse(unsigned dimension) const;
  Tensor subSample(unsigned stride, unsigned dimension) const;
  Tensor reinterpret(const Type& type) const;

 private:
  friend struct shardir_host_model::TensorAccess;

  shardir_host_model::GraphState* graph = nullptr;
  Type type;
  std::vector<std::size_t> sizes;
  std::shared_ptr<const std::vector<std::uint32_t>> elements;  // where each element lies
};

Tensor concat(const std::vector<Tensor>& tensors, unsigned dimension = 0);
Tensor concat(const Tensor& first, const Tensor& second, unsigned dimension = 0);

}  // namespace poplar

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/tensors.hpp>
#endif
