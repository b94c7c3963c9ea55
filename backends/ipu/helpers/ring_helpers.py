"""C++ helper functions for collectives around rings of replicas."""

from shardir.backends.ipu.helpers.cpp_helper import CppHelper

RING_HELPERS = {
    "onward": CppHelper(
        """
// For each replica the one `places` positions further in its group, cyclically.
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
    "turned": CppHelper(
        """
// Row i of the result is row `first` + i of `t`, cyclically.
Tensor turned(Graph &graph, const Tensor &t, const Tensor &first, Sequence &step,
              const std::string &name) {
  return popops::dynamicSlice(graph, poplar::concat(t, t), first.reshape({1}), {0}, {t.dim(0)},
                              step, name);
}
"""
    ),
    "in_order": CppHelper(
        """
// Rows in order of position, from rows that start after the replica's own position.
Tensor in_order(Graph &graph, const std::vector<Tensor> &rows, const Tensor &position,
                Sequence &step, const std::string &name) {
  const pe::Const last(static_cast<unsigned>(rows.size() - 1));
  Tensor first = popops::map(graph, last - pe::_1, {position}, step, name);
  return turned(graph, poplar::concat(rows), first, step, name);
}
""",
        ("turned",),
    ),
    "ring_gather": CppHelper(
        """
// All-gather: one row per member of the replica's group, in order of position. In each step, a
// replica sends the row it received last to the next one.
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
    "ring_reduce_scatter": CppHelper(
        """
// Reduce-scatter: the replica's row of the combined rows. A row starts at the replica after its
// owner, and each replica on the way to the owner combines it with its own row. So each row is
// combined in one fixed order.
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
    "ring_all_reduce": CppHelper(
        """
// All-reduce: a reduce-scatter of shards, one per member of the replica's group, and an all-gather.
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
    "ring_all_to_all": CppHelper(
        """
// Row i is sent to the member at position i of the group; row i of the result is received from it.
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
