// A view of values that lie one after another; it owns nothing.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

namespace poplar {

template <typename T>
class ArrayRef {
 public:
  ArrayRef() = default;
  ArrayRef(const T* values, std::size_t size) : values(values), count(size) {}
  ArrayRef(const std::vector<T>& values) : values(values.data()), count(values.size()) {}
  ArrayRef(const std::initializer_list<T>& given) : count(given.size()) { values = given.begin(); }

  const T* data() const { return values; }
  std::size_t size() const { return count; }
  bool empty() const { return count == 0; }
  const T* begin() const { return values; }
  const T* end() const { return values + count; }
  const T& operator[](std::size_t index) const { return values[index]; }

 private:
  const T* values = nullptr;
  std::size_t count = 0;
};

}  // namespace poplar
