"""C++ helper functions that create variables and constants, and rearrange data."""

from shardir.backends.ipu.helpers.cpp_helper import CppHelper

DATA_HELPERS = {
    "Shape": CppHelper("using Shape = std::vector<std::size_t>;"),
    "Groups": CppHelper(
        """
// Groups of replicas that communicate, each in order of position.
using Groups = std::vector<std::vector<unsigned>>;
"""
    ),
    "variable": CppHelper(
        """
// A variable mapped linearly over the tiles.
Tensor variable(Graph &graph, const poplar::Type &type, const Shape &shape,
                const std::string &name) {
  Tensor made = graph.addVariable(type, shape, name);
  poputil::mapTensorLinearly(graph, made);
  return made;
}
""",
        ("Shape",),
    ),
    "number": CppHelper(
        """
// A scalar constant.
template <typename T>
Tensor number(Graph &graph, const poplar::Type &type, T value) {
  Tensor made = graph.addConstant<T>(type, {}, value);
  graph.setTileMapping(made, 0);
  return made;
}
"""
    ),
    "half_number": CppHelper(
        """
// A scalar constant in half precision, given by its bits.
Tensor half_number(Graph &graph, std::uint16_t bits) {
  Tensor made = graph.addConstantHalf(poplar::HALF, {}, bits);
  graph.setTileMapping(made, 0);
  return made;
}
"""
    ),
    "constant": CppHelper(
        """
// A constant mapped linearly over the tiles; `numbers` has its elements in row-major order.
template <typename T>
Tensor constant(Graph &graph, const poplar::Type &type, const Shape &shape,
                const std::initializer_list<T> &numbers) {
  Tensor made = graph.addConstant<T>(type, shape, numbers.begin());
  poputil::mapTensorLinearly(graph, made);
  return made;
}
""",
        ("Shape",),
    ),
    "half_constant": CppHelper(
        """
// A constant in half precision mapped over the tiles; `bits` has its elements in row-major order.
Tensor half_constant(Graph &graph, const Shape &shape,
                     const std::initializer_list<std::uint16_t> &bits) {
  Tensor made = graph.addConstantHalf(poplar::HALF, shape, bits.begin());
  poputil::mapTensorLinearly(graph, made);
  return made;
}
""",
        ("Shape",),
    ),
    "count": CppHelper(
        """
// The numbers 0, 1, ..., size - 1.
template <typename T>
Tensor count(Graph &graph, const poplar::Type &type, std::size_t size) {
  std::vector<T> numbers(size);
  for (std::size_t i = 0; i < size; ++i) numbers[i] = static_cast<T>(i);
  Tensor made = graph.addConstant<T>(type, {size}, numbers.data());
  poputil::mapTensorLinearly(graph, made);
  return made;
}
"""
    ),
    "replica_index": CppHelper(
        """
// The index of this replica.
Tensor replica_index(Graph &graph) {
  Tensor made = graph.addReplicationIndexConstant("replica");
  graph.setTileMapping(made, 0);
  return made.reshape({});
}
"""
    ),
    "for_replica": CppHelper(
        """
// The row of this replica in a table with one row per replica.
Tensor for_replica(Graph &graph, const Tensor &replica, const std::initializer_list<bool> &table,
                   Sequence &step) {
  Tensor rows = constant<bool>(graph, poplar::BOOL, {table.size()}, table);
  return popops::dynamicSlice(graph, rows, replica.reshape({1}), {0}, {1}, step, "takes")
      .reshape({});
}
""",
        ("constant",),
    ),
    "padded": CppHelper(
        """
// `t` padded along a dimension with `between` copies of `fill` between its elements, `low` before
// and `high` after them; negative numbers crop.
Tensor padded(Tensor t, const Tensor &fill, unsigned dim, long low, long high, long between) {
  const auto filling = [&](std::size_t size) {
    Shape shape = t.shape(), ones(shape.size(), 1);
    shape[dim] = size;
    if (fill.rank() == 1) ones.back() = fill.dim(0);  // both words of a key
    Tensor made = fill.reshape(ones);
    for (unsigned i = 0; i < shape.size(); ++i) made = made.broadcast(shape[i] / ones[i], i);
    return made;
  };
  if (between > 0 && t.dim(dim) > 1) {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < t.dim(dim); ++i) {
      if (i > 0) parts.push_back(filling(between));
      parts.push_back(t.slice(i, i + 1, dim));
    }
    t = poplar::concat(parts, dim);
  }
  // Cropping at one end may also remove padding of the other end.
  std::vector<Tensor> parts;
  const long size = t.dim(dim), first = std::max(-low, 0L), last = size + std::min(high, 0L);
  if (low > 0) parts.push_back(filling(std::min(low, low + size + high)));
  if (first < last) parts.push_back(t.slice(first, last, dim));
  if (high > 0) parts.push_back(filling(std::min(high, high + size + low)));
  return poplar::concat(parts, dim);
}
""",
        ("Shape",),
    ),
    "scattered": CppHelper(
        """
// A copy of `matrix` in which the rows of `updates` replace the rows `places`; the index one past
// the last row is ignored.
Tensor scattered(Graph &graph, const Tensor &matrix, const Tensor &places, const Tensor &updates,
                 Sequence &step, const std::string &name) {
  const std::size_t rows = matrix.dim(0);
  Tensor made = variable(graph, matrix.elementType(), {rows + 1, matrix.dim(1)}, name);
  step.add(Copy(poplar::concat(matrix, matrix.slice(0, 1)), made));
  popops::scatter(graph, made, places, updates, 1, {1}, {0}, {0}, step, name);
  return made.slice(0, rows);
}
""",
        ("variable",),
    ),
    "scattered_with": CppHelper(
        """
// A copy of `matrix` whose rows `places` are combined with those of `updates`; the index one past
// the last row is ignored.
Tensor scattered_with(Graph &graph, const Tensor &matrix, const Tensor &places,
                      const Tensor &updates, const pe::Expr &combine, Sequence &step,
                      const std::string &name) {
  const std::size_t rows = matrix.dim(0);
  Tensor made = variable(graph, matrix.elementType(), {rows + 1, matrix.dim(1)}, name);
  step.add(Copy(poplar::concat(matrix, matrix.slice(0, 1)), made));
  popops::UpdateComputationFunc combination = [&](Graph &g, Tensor &old, Tensor &update,
                                                  Sequence &prog) {
    return popops::map(g, combine, {old, update}, prog, name);
  };
  popops::scatter(graph, made, places, updates, 1, {1}, {0}, {0}, combination, step, name);
  return made.slice(0, rows);
}
""",
        ("variable",),
    ),
    "windows": CppHelper(
        """
// The `places` windows of `size` elements with a dilation, which start every `stride` elements
// along a dimension; the window is a new last dimension.
Tensor windows(const Tensor &t, unsigned dim, std::size_t places, std::size_t size,
               std::size_t stride, std::size_t dilation) {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t begin = i * dilation;
    Tensor part = t.slice(begin, begin + (places - 1) * stride + 1, dim);
    if (stride > 1) part = part.subSample(stride, dim);
    Shape shape = part.shape();
    shape.push_back(1);
    parts.push_back(part.reshape(shape));
  }
  return poplar::concat(parts, t.rank());
}
""",
        ("Shape",),
    ),
}
