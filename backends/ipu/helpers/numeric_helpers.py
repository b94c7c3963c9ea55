"""C++ helper functions that compute: order-preserving keys, cumulative operations, random bits."""

from shardir.backends.ipu.helpers.cpp_helper import CppHelper

NUMERIC_HELPERS = {
    "polynomial": CppHelper(
        """
// A polynomial of an expression; `coefficients` start with the highest power.
pe::Any polynomial(const pe::Expr &x, const std::vector<float> &coefficients) {
  pe::Any value = pe::Const(coefficients[0]);
  for (std::size_t i = 1; i < coefficients.size(); ++i) {
    value = pe::Any(pe::Add(pe::Mul(value, x), pe::Const(coefficients[i])));
  }
  return value;
}
"""
    ),
    "ordered": CppHelper(
        """
// Integers in the order of the floats: both zeros are equal, NaN is the largest or the smallest.
Tensor ordered(Graph &graph, const Tensor &t, bool nan_last, Sequence &step,
               const std::string &name) {
  // Adding 0 turns -0 into +0.
  Tensor bits = popops::map(graph, pe::_1 + pe::Const(0.0f), {t}, step, name)
                    .reinterpret(poplar::INT);
  const int most = std::numeric_limits<int>::max();
  const pe::Select rising(pe::_1 ^ pe::Const(most), pe::_1, pe::_1 < pe::Const(0));
  return popops::map(graph,
                     pe::Select(pe::Const(nan_last ? most : -most), rising, pe::IsNaN(pe::_2)),
                     {bits, t}, step, name);
}
"""
    ),
    "unordered": CppHelper(
        """
// The inverse of `ordered`.
Tensor unordered(Graph &graph, const Tensor &keys, Sequence &step, const std::string &name) {
  const int most = std::numeric_limits<int>::max();
  return popops::map(graph, pe::Select(pe::_1 ^ pe::Const(most), pe::_1, pe::_1 < pe::Const(0)),
                     {keys}, step, name)
      .reinterpret(poplar::FLOAT);
}
"""
    ),
    "extreme": CppHelper(
        """
// The maximum or minimum along dimensions; NaN if an element is NaN, which popops::reduce
// ignores.
Tensor extreme(Graph &graph, const Tensor &t, const Shape &dims, popops::Operation which,
               Sequence &step, const std::string &name) {
  Tensor keys = ordered(graph, t, which == popops::Operation::MAX, step, name);
  return unordered(graph, popops::reduce(graph, keys, dims, which, step, name), step, name);
}
""",
        ("Shape", "ordered", "unordered"),
    ),
    "total_order": CppHelper(
        """
// Integers in the total order of IEEE 754: -NaN, -infinity, ..., -0, +0, ..., infinity, NaN.
Tensor total_order(Graph &graph, const Tensor &t, Sequence &step, const std::string &name) {
  const int most = std::numeric_limits<int>::max();
  return popops::map(graph, pe::Select(pe::_1 ^ pe::Const(most), pe::_1, pe::_1 < pe::Const(0)),
                     {t.reinterpret(poplar::INT)}, step, name);
}
"""
    ),
    "next_after": CppHelper(
        """
// The float next to `x` in the direction of `y`: its bits plus or minus one.
Tensor next_after(Graph &graph, const Tensor &x, const Tensor &y, Sequence &step,
                  const std::string &name) {
  const pe::Const zero(0.0f), one(1), least(std::numeric_limits<int>::min() + 1);
  Tensor moved = popops::map(
      graph,
      pe::Select(pe::Select(one, least, pe::_3 > zero),
                 pe::Select(pe::_1 - one, pe::_1 + one, (pe::_3 > pe::_2) != (pe::_2 > zero)),
                 pe::_2 == zero),
      {x.reinterpret(poplar::INT), x, y}, step, name);
  return popops::map(
      graph,
      pe::Select(pe::_2 + pe::_3, pe::Select(pe::_3, pe::_1, pe::_2 == pe::_3),
                 pe::IsNaN(pe::_2) || pe::IsNaN(pe::_3)),
      {moved.reinterpret(poplar::FLOAT), x, y}, step, name);
}
"""
    ),
    "multiply_add": CppHelper(
        """
// a * b + c, rounded once: the rounding errors of the product and of the sum are added at the end.
Tensor multiply_add(Graph &graph, const Tensor &a, const Tensor &b, const Tensor &c,
                    Sequence &step, const std::string &name) {
  // The upper half of the significand; the rest is the lower half.
  const auto upper = [&](const Tensor &t) {
    Tensor scaled = popops::map(graph, pe::_1 * pe::Const(4097.0f), {t}, step, name);
    return popops::map(graph, pe::_1 - (pe::_1 - pe::_2), {scaled, t}, step, name);
  };
  Tensor product = popops::map(graph, pe::_1 * pe::_2, {a, b}, step, name);
  Tensor lost = popops::map(
      graph,
      (((pe::_3 * pe::_4 - pe::_5) + pe::_3 * (pe::_2 - pe::_4)) + (pe::_1 - pe::_3) * pe::_4) +
          (pe::_1 - pe::_3) * (pe::_2 - pe::_4),
      {a, b, upper(a), upper(b), product}, step, name);
  Tensor sum = popops::map(graph, pe::_1 + pe::_2, {product, c}, step, name);
  Tensor share = popops::map(graph, pe::_1 - pe::_2, {sum, product}, step, name);
  Tensor rest = popops::map(
      graph, pe::_1 + (((pe::_2 - (pe::_3 - pe::_4)) + (pe::_5 - pe::_4)) + pe::_6),
      {sum, product, sum, share, c, lost}, step, name);
  return popops::map(graph, pe::Select(pe::_1, pe::_2, pe::IsFinite(pe::_1)), {rest, sum}, step,
                     name);
}
"""
    ),
    "running": CppHelper(
        """
// Cumulative combination along a dimension, by doubling: after an iteration with `step` each
// element combines itself and the 2 * step - 1 elements before it.
Tensor running(Graph &graph, Tensor t, unsigned dim, const pe::Expr &combine, Sequence &prog,
               const std::string &name) {
  const std::size_t size = t.dim(dim);
  for (std::size_t step = 1; step < size; step *= 2) {
    Tensor later = t.slice(step, size, dim), earlier = t.slice(0, size - step, dim);
    Tensor combined = popops::map(graph, combine, {later, earlier}, prog, name);
    t = poplar::concat(t.slice(0, step, dim), combined, dim);
  }
  return t;
}
"""
    ),
    "taken": CppHelper(
        """
// The elements of `t` along the last dimension at the indices `order`.
Tensor taken(Graph &graph, const Tensor &t, const Tensor &order, Sequence &step,
             const std::string &name) {
  const unsigned last = t.rank() - 1;
  const std::size_t size = t.dim(last), rows = t.numElements() / size;
  Tensor places = order.reshape({rows, order.dim(last)});
  if (rows > 1) {
    Tensor row = count<unsigned>(graph, poplar::UNSIGNED_INT, rows)
                     .reshape({rows, 1})
                     .broadcast(order.dim(last), 1);
    places = popops::map(graph, pe::_1 + pe::_2 * pe::Const(static_cast<unsigned>(size)),
                         {places, row}, step, name);
  }
  return popops::gather(graph, t.flatten(), places.reshape({places.numElements(), 1}), 1, {}, {1},
                        {0}, {0}, step, name)
      .reshape(order.shape());
}
""",
        ("count",),
    ),
    "selected": CppHelper(
        """
// Each element of `source` added to the element of `t` that its window selects: the last one, in
// row-major order, that is `better` than the best before it.
Tensor selected(Graph &graph, const Tensor &t, const Tensor &source, const Tensor &zero,
                const Shape &window, const Shape &strides, const Shape &dilation,
                const pe::Expr &better, Sequence &step, const std::string &name) {
  Tensor all = t;
  std::size_t places = 1;
  for (unsigned dim = 0; dim < window.size(); ++dim) {
    all = windows(all, dim, source.dim(dim), window[dim], strides[dim], dilation[dim]);
    places *= window[dim];
  }
  Shape shape = source.shape();
  shape.push_back(places);
  all = all.reshape(shape);
  const unsigned last = source.rank();
  Tensor best = all.slice(0, 1, last), choice = variable(graph, poplar::INT, best.shape(), name);
  popops::zero(graph, choice, step, name);
  for (std::size_t i = 1; i < places; ++i) {
    Tensor here = all.slice(i, i + 1, last);
    Tensor wins = popops::map(graph, better, {here, best}, step, name);
    best = popops::map(graph, pe::Select(pe::_1, pe::_2, pe::_3), {here, best, wins}, step, name);
    choice = popops::map(graph, pe::Select(pe::Const(static_cast<int>(i)), pe::_1, pe::_2),
                         {choice, wins}, step, name);
  }
  choice = choice.reshape(source.shape());
  Tensor total;
  for (std::size_t i = 0; i < places; ++i) {
    Tensor part = popops::map(
        graph, pe::Select(pe::_1, pe::_3, pe::_2 == pe::Const(static_cast<int>(i))),
        {source, choice, zero.reshape(Shape(source.rank(), 1))}, step, name);
    std::size_t rest = i;
    for (unsigned dim = source.rank(); dim-- > 0; rest /= window[dim]) {
      const long low = (rest % window[dim]) * dilation[dim];
      const long spread = (source.dim(dim) - 1) * strides[dim] + 1;
      part = padded(part, zero, dim, low, t.dim(dim) - low - spread, strides[dim] - 1);
    }
    total = i == 0 ? part : popops::map(graph, pe::_1 + pe::_2, {total, part}, step, name);
  }
  return total;
}
""",
        ("Shape", "windows", "variable", "padded"),
    ),
    "threefry": CppHelper(
        """
// Threefry-2x32 with 20 rounds: pairs of counters hashed with pairs of keys. The first row of the
// result has the first words of the hashes, the second row the second ones.
Tensor threefry(Graph &graph, const Tensor &key0, const Tensor &key1, const Tensor &counter0,
                const Tensor &counter1, Sequence &step, const std::string &name) {
  const unsigned rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const pe::Const parity(0x1BD11BDAu);
  Tensor key2 = popops::map(graph, pe::_1 ^ pe::_2 ^ parity, {key0, key1}, step, name);
  const Tensor keys[3] = {key0, key1, key2};
  Tensor x = popops::map(graph, pe::_1 + pe::_2, {counter0, key0}, step, name);
  Tensor y = popops::map(graph, pe::_1 + pe::_2, {counter1, key1}, step, name);
  for (unsigned group = 0; group < 5; ++group) {
    for (const unsigned rotation : rotations[group % 2]) {
      const pe::Const left(rotation), right(32 - rotation);
      x = popops::map(graph, pe::_1 + pe::_2, {x, y}, step, name);
      y = popops::map(graph, ((pe::_2 << left) | (pe::_2 >> right)) ^ pe::_1, {x, y}, step, name);
    }
    x = popops::map(graph, pe::_1 + pe::_2, {x, keys[(group + 1) % 3]}, step, name);
    y = popops::map(graph, pe::_1 + pe::_2 + pe::Const(group + 1), {y, keys[(group + 2) % 3]},
                    step, name);
  }
  Shape row = x.shape();
  row.insert(row.begin(), 1);
  return poplar::concat(x.reshape(row), y.reshape(row));
}
""",
        ("Shape",),
    ),
}
