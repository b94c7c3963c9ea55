"""Functions in C++ that an emitted program carries along where it uses them.

Each is a few lines around calls of Poplar and poplibs, so that what is said often is said once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Helper:
    """The text of a function, and the functions that it uses."""

    text: str
    uses: tuple[str, ...] = ()


def chosen(names: Iterable[str]) -> list[str]:
    """The texts of functions and of what they use, each after what it uses."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for used in HELPERS[name].uses:
            visit(used)
        found[name] = None

    wanted = set(names)
    for name in HELPERS:
        if name in wanted:
            visit(name)
    types = [name for name in found if name[0].isupper()]
    functions = [name for name in found if name not in types]
    return [HELPERS[name].text.strip("\n") for name in (*types, *functions)]


HELPERS: Mapping[str, Helper] = {
    "Shape": Helper("using Shape = std::vector<std::size_t>;"),
    "Groups": Helper(
        """
// Groups of replicas that exchange with one another, each in the order of their places.
using Groups = std::vector<std::vector<unsigned>>;
"""
    ),
    "polynomial": Helper(
        """
// A polynomial of an expression, the highest power first.
pe::Any polynomial(const pe::Expr &x, const std::vector<float> &coefficients) {
  pe::Any value = pe::Const(coefficients[0]);
  for (std::size_t i = 1; i < coefficients.size(); ++i) {
    value = pe::Any(pe::Add(pe::Mul(value, x), pe::Const(coefficients[i])));
  }
  return value;
}
"""
    ),
    "variable": Helper(
        """
// A variable spread over the tiles.
Tensor variable(Graph &graph, const poplar::Type &type, const Shape &shape,
                const std::string &name) {
  Tensor made = graph.addVariable(type, shape, name);
  poputil::mapTensorLinearly(graph, made);
  return made;
}
""",
        ("Shape",),
    ),
    "number": Helper(
        """
// A constant without dimensions.
template <typename T>
Tensor number(Graph &graph, const poplar::Type &type, T value) {
  Tensor made = graph.addConstant<T>(type, {}, value);
  graph.setTileMapping(made, 0);
  return made;
}
"""
    ),
    "half_number": Helper(
        """
// A constant of half precision without dimensions, by its bits.
Tensor half_number(Graph &graph, std::uint16_t bits) {
  Tensor made = graph.addConstantHalf(poplar::HALF, {}, bits);
  graph.setTileMapping(made, 0);
  return made;
}
"""
    ),
    "constant": Helper(
        """
// A constant spread over the tiles, a number for each element in row-major order.
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
    "half_constant": Helper(
        """
// A constant of half precision spread over the tiles, the bits of each element in row-major order.
Tensor half_constant(Graph &graph, const Shape &shape,
                     const std::initializer_list<std::uint16_t> &bits) {
  Tensor made = graph.addConstantHalf(poplar::HALF, shape, bits.begin());
  poputil::mapTensorLinearly(graph, made);
  return made;
}
""",
        ("Shape",),
    ),
    "count": Helper(
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
    "replica_index": Helper(
        """
// Which replica this is.
Tensor replica_index(Graph &graph) {
  Tensor made = graph.addReplicationIndexConstant("replica");
  graph.setTileMapping(made, 0);
  return made.reshape({});
}
"""
    ),
    "for_replica": Helper(
        """
// What a table, with a row for each replica, says of this one.
Tensor for_replica(Graph &graph, const Tensor &replica, const std::initializer_list<bool> &table,
                   Sequence &step) {
  Tensor rows = constant<bool>(graph, poplar::BOOL, {table.size()}, table);
  return popops::dynamicSlice(graph, rows, replica.reshape({1}), {0}, {1}, step, "takes")
      .reshape({});
}
""",
        ("constant",),
    ),
    "padded": Helper(
        """
// `t` along a dimension with `between` copies of `fill` between its elements, `low` before and
// `high` after them; negative numbers take elements away.
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
  // What is taken away at one end may be more than there was before the other end is widened.
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
    "ordered": Helper(
        """
// Integers in the order of numbers: both zeros are equal, NaN comes after all others or before.
Tensor ordered(Graph &graph, const Tensor &t, bool nan_last, Sequence &step,
               const std::string &name) {
  // Adding 0 makes the one zero of the other.
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
    "unordered": Helper(
        """
// The numbers whose order `ordered` tells.
Tensor unordered(Graph &graph, const Tensor &keys, Sequence &step, const std::string &name) {
  const int most = std::numeric_limits<int>::max();
  return popops::map(graph, pe::Select(pe::_1 ^ pe::Const(most), pe::_1, pe::_1 < pe::Const(0)),
                     {keys}, step, name)
      .reinterpret(poplar::FLOAT);
}
"""
    ),
    "extreme": Helper(
        """
// The largest or smallest elements along dimensions; NaN where an element is, which
// popops::reduce passes over.
Tensor extreme(Graph &graph, const Tensor &t, const Shape &dims, popops::Operation which,
               Sequence &step, const std::string &name) {
  Tensor keys = ordered(graph, t, which == popops::Operation::MAX, step, name);
  return unordered(graph, popops::reduce(graph, keys, dims, which, step, name), step, name);
}
""",
        ("Shape", "ordered", "unordered"),
    ),
    "total_order": Helper(
        """
// Integers in the total order of IEEE 754: -NaN, -infinity, ..., -0, +0, ..., infinity, NaN.
Tensor total_order(Graph &graph, const Tensor &t, Sequence &step, const std::string &name) {
  const int most = std::numeric_limits<int>::max();
  return popops::map(graph, pe::Select(pe::_1 ^ pe::Const(most), pe::_1, pe::_1 < pe::Const(0)),
                     {t.reinterpret(poplar::INT)}, step, name);
}
"""
    ),
    "multiply_add": Helper(
        """
// a * b + c, rounded once: what rounding loses of the product and of the sum is added in the end.
Tensor multiply_add(Graph &graph, const Tensor &a, const Tensor &b, const Tensor &c,
                    Sequence &step, const std::string &name) {
  // The upper half of a number's digits; the lower half is what is left.
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
    "running": Helper(
        """
// Running combinations along a dimension, by doubling: after a round with `step` each element
// stands for itself and the 2 * step - 1 before it.
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
    "taken": Helper(
        """
// What lies along the last dimension of `t` at the places of `order`.
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
    "scattered": Helper(
        """
// A copy of `matrix` whose rows `places` are those of `updates`; a place behind the last row is
// none.
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
    "scattered_with": Helper(
        """
// A copy of `matrix` whose rows `places` are combined with those of `updates`; a place behind the
// last row is none.
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
    "windows": Helper(
        """
// The windows of `size` elements, `dilation` apart, that start every `stride` elements along a
// dimension: `places` of them, their elements along a new last dimension.
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
    "selected": Helper(
        """
// For each window of `t` its element of `source`, added up where the window has the element that
// is `better` than those before it, in row-major order of places.
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
    "threefry": Helper(
        """
// Threefry-2x32 with 20 rounds: pairs of counters hashed by pairs of keys. The first row of the
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
    "onward": Helper(
        """
// For each replica the one so many places further on in its group, round and round.
std::map<unsigned, unsigned> onward(const Groups &groups, unsigned places) {
  std::map<unsigned, unsigned> partner;
  for (const std::vector<unsigned> &group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      partner[group[i]] = group[(i + places) % group.size()];
    }
  }
  return partner;
}
""",
        ("Groups",),
    ),
    "turned": Helper(
        """
// Row i of the result is row `first` + i of `t`, round and round.
Tensor turned(Graph &graph, const Tensor &t, const Tensor &first, Sequence &step,
              const std::string &name) {
  return popops::dynamicSlice(graph, poplar::concat(t, t), first.reshape({1}), {0}, {t.dim(0)},
                              step, name);
}
"""
    ),
    "in_order": Helper(
        """
// Rows that came from the places after the replica's own, its own last, in the order of places.
Tensor in_order(Graph &graph, const std::vector<Tensor> &rows, const Tensor &position,
                Sequence &step, const std::string &name) {
  const pe::Const last(static_cast<unsigned>(rows.size() - 1));
  Tensor first = popops::map(graph, last - pe::_1, {position}, step, name);
  return turned(graph, poplar::concat(rows), first, step, name);
}
""",
        ("turned",),
    ),
    "ring_gather": Helper(
        """
// A row from each member of the replica's group, in the order of their places: what a replica has
// received it hands on to the next one.
Tensor ring_gather(Graph &graph, const Tensor &t, const Groups &groups, const Tensor &position,
                   Sequence &step, const std::string &name) {
  const std::size_t size = groups[0].size();
  Shape row = t.shape();
  row.insert(row.begin(), 1);
  std::vector<Tensor> rows(size);
  rows[size - 1] = t.reshape(row);
  for (std::size_t i = size - 1; i > 0; --i) {
    rows[i - 1] = variable(graph, t.elementType(), row, name);
    step.add(CrossReplicaCopy(rows[i], rows[i - 1], onward(groups, 1)));
  }
  return in_order(graph, rows, position, step, name);
}
""",
        ("variable", "onward", "in_order"),
    ),
    "ring_reduce_scatter": Helper(
        """
// The replica's own row of what the groups' rows combine to: a row starts one place behind its
// owner and goes round to it, and everyone on the way adds their own. So each row is combined in
// one order, on one replica.
Tensor ring_reduce_scatter(Graph &graph, const Tensor &rows, const Groups &groups,
                           const Tensor &position, const pe::Expr &combine, Sequence &step,
                           const std::string &name) {
  const std::size_t size = groups[0].size();
  Tensor own = turned(graph, rows, position, step, name);
  Tensor row = own[size - 1];
  for (std::size_t i = size - 1; i > 0; --i) {
    Tensor arrived = variable(graph, row.elementType(), row.shape(), name);
    step.add(CrossReplicaCopy(row, arrived, onward(groups, 1)));
    row = popops::map(graph, combine, {arrived, own[i - 1]}, step, name);
  }
  return row;
}
""",
        ("variable", "onward", "turned"),
    ),
    "ring_all_reduce": Helper(
        """
// What all members of the replica's group combine to: in pieces, one for each member, that are
// combined first and gathered then.
Tensor ring_all_reduce(Graph &graph, const Tensor &t, const Groups &groups, const Tensor &position,
                       const pe::Expr &combine, Sequence &step, const std::string &name) {
  const std::size_t size = groups[0].size(), count = t.numElements();
  const std::size_t piece = (count + size - 1) / size, missing = piece * size - count;
  Tensor flat = t.flatten();
  if (missing > 0) flat = poplar::concat(flat, flat.slice(0, 1).broadcast(missing, 0));
  Tensor own = ring_reduce_scatter(graph, flat.reshape({size, piece}), groups, position, combine,
                                   step, name);
  return ring_gather(graph, own, groups, position, step, name)
      .flatten()
      .slice(0, count)
      .reshape(t.shape());
}
""",
        ("ring_gather", "ring_reduce_scatter"),
    ),
    "ring_all_to_all": Helper(
        """
// Row i goes to the member at place i of the replica's group; row i of the result came from there.
Tensor ring_all_to_all(Graph &graph, const Tensor &t, const Groups &groups, const Tensor &position,
                       Sequence &step, const std::string &name) {
  const std::size_t size = groups[0].size();
  Tensor own = turned(graph, t, position, step, name);
  std::vector<Tensor> rows(size);
  rows[size - 1] = own.slice(0, 1);
  for (std::size_t i = 1; i < size; ++i) {
    Tensor row = own.slice(i, i + 1);
    rows[size - 1 - i] = variable(graph, t.elementType(), row.shape(), name);
    step.add(CrossReplicaCopy(row, rows[size - 1 - i], onward(groups, i)));
  }
  return in_order(graph, rows, position, step, name);
}
""",
        ("variable", "onward", "turned", "in_order"),
    ),
}
