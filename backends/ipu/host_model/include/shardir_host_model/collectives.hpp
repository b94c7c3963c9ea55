// Collectives between replicas; reductions go through the members in order, rounding each time. See
// <gcl/Collectives.hpp>.
#pragma once

#include <gcl/Collectives.hpp>
#include <shardir_host_model/machine.hpp>

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <cstdlib>

#include <shardir_host_model/programs.hpp>
#include <shardir_host_model/reductions.hpp>

namespace shardir_host_model {

// This environment variable allows strided groups, which not every machine supports.
constexpr const char* strided_option = "SHARDIR_HOST_MODEL_ALLOW_STRIDED";

struct Members {
  unsigned size = 1;
  unsigned stride = 1;

  unsigned first(unsigned replica) const {
    return replica / (size * stride) * (size * stride) + replica % stride;
  }
  unsigned number(unsigned replica) const { return replica / stride % size; }
  unsigned replica(unsigned first, unsigned number) const { return first + number * stride; }
};

inline Members members_of(const GraphState& graph, const gcl::CommGroup& group,
                          const std::string& call) {
  const std::string numbers = std::to_string(group.replicaGroupSize) + " replicas, " +
                              std::to_string(group.replicaGroupStride) + " apart";
  if (group.type == gcl::CommGroupType::ALL) {
    if (group.replicaGroupSize != 0 || group.replicaGroupStride != 1) {
      refuse(call + ": a group of ALL has no size and no stride, not " + numbers +
             "; use CommGroup()");
    }
    return {graph.replicas, 1};
  }
  if (group.type == gcl::CommGroupType::ORTHOGONAL) {
    refuse(call + ": what sizes of ORTHOGONAL groups mean is not certain; use CONSECUTIVE groups "
                  "with a stride");
  }
  const unsigned block = group.replicaGroupSize * group.replicaGroupStride;
  if (block == 0 || graph.replicas % block != 0) {
    refuse(call + ": " + std::to_string(graph.replicas) + " replicas make no groups of " + numbers);
  }
  if (group.replicaGroupStride != 1 && std::getenv(strided_option) == nullptr) {
    refuse(call + ": not every machine joins groups of " + numbers +
           "; use steps of CrossReplicaCopy, or set " + strided_option);
  }
  return {group.replicaGroupSize, group.replicaGroupStride};
}

inline popops::Operation operation_of(gcl::CollectiveOperator op) {
  using popops::Operation;
  static const Operation operations[] = {
      Operation::ADD, Operation::ADD,         Operation::MUL,        Operation::MIN,
      Operation::MAX, Operation::LOGICAL_AND, Operation::LOGICAL_OR, Operation::SQUARE_ADD};
  return operations[static_cast<int>(op)];
}

inline void check_collective(gcl::CollectiveOperator op, const poplar::Type& type,
                             const std::string& call) {
  using gcl::CollectiveOperator;
  const bool logical =
      op == CollectiveOperator::LOGICAL_AND || op == CollectiveOperator::LOGICAL_OR;
  const bool floating_only =
      op == CollectiveOperator::MEAN || op == CollectiveOperator::SQUARE_ADD;
  const bool whole = type == poplar::INT || type == poplar::UNSIGNED_INT;
  const bool fits =
      logical ? type == poplar::BOOL : is_floating(type) || (whole && !floating_only);
  if (op != CollectiveOperator::LOCAL && !fits) {
    static const char* const names[] = {"ADD",         "MEAN",       "MUL", "MIN", "MAX",
                                        "LOGICAL_AND", "LOGICAL_OR", "SQUARE_ADD"};
    refuse(call + ": there is no " + names[static_cast<int>(op)] + " of " + type.toString() +
           " between replicas; cast to a type that it has");
  }
}

// Reduces the `rows` of one group's members element by element.
inline std::vector<Bits> reduced_rows(gcl::CollectiveOperator op, const poplar::Type& type,
                                      const std::vector<std::vector<Bits>>& rows) {
  std::vector<Bits> made(rows[0].size());
  const popops::Operation operation = operation_of(op);
  for (std::size_t i = 0; i < made.size(); ++i) {
    Number sum{};
    for (std::size_t member = 0; member < rows.size(); ++member) {
      Number next = decode(type, rows[member][i]);
      if (op == gcl::CollectiveOperator::SQUARE_ADD) next = fitted(type, real(next.real * next.real));
      sum = member == 0 ? next : accumulated(operation, type, sum, next);
    }
    if (op == gcl::CollectiveOperator::MEAN) {
      sum = fitted(type, real(sum.real / static_cast<double>(rows.size())));
    }
    made[i] = encode(type, sum);
  }
  return made;
}

// Computes each replica's result from the members' data and the replica's position among them.
using Exchange = std::function<std::vector<Bits>(const std::vector<std::vector<Bits>>&, unsigned)>;

inline void add_exchange(poplar::program::Sequence& sequence, const poplar::Tensor& data,
                         const poplar::Tensor& out, const Members& members, Exchange exchange) {
  sequence.add(step([=](Machine& machine) {
    std::vector<std::vector<Bits>> made(machine.count());
    for (unsigned replica = 0; replica < machine.count(); ++replica) {
      std::vector<std::vector<Bits>> rows;
      for (unsigned number = 0; number < members.size; ++number) {
        rows.push_back(machine.read(members.replica(members.first(replica), number), data));
      }
      made[replica] = exchange(rows, members.number(replica));
    }
    for (unsigned replica = 0; replica < machine.count(); ++replica) {
      machine.write(replica, out, made[replica]);
    }
  }));
}

// The checks of all collectives; returns the groups.
inline Members check_exchange(const poplar::Graph& graph, const poplar::Tensor& data,
                              const gcl::CommGroup& group, const std::string& call) {
  const GraphState& state = *graph.model();
  state.need_codelets("popops", call);
  check_tensor(data, state, call);
  check_mapped(data, call);
  return members_of(state, group, call);
}

inline void add_all_reduce(poplar::Graph& graph, const poplar::Tensor& data,
                           const poplar::Tensor& out, gcl::CollectiveOperator op,
                           poplar::program::Sequence& sequence, const gcl::CommGroup& group,
                           const std::string& call) {
  const Members members = check_exchange(graph, data, group, call);
  check_collective(op, data.elementType(), call);
  if (op == gcl::CollectiveOperator::LOCAL) {
    refuse(call + ": LOCAL reduces nothing; use it with reduceScatterCrossReplica, or a Copy");
  }
  add_exchange(sequence, data, out, members,
               [op, type = data.elementType()](const std::vector<std::vector<Bits>>& rows,
                                               unsigned) { return reduced_rows(op, type, rows); });
}

}  // namespace shardir_host_model

namespace gcl {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor allReduceCrossReplica(
    poplar::Graph& graph, const poplar::Tensor& data, CollectiveOperator op,
    poplar::program::Sequence& sequence, const CommGroup& group, const poplar::DebugContext& name,
    const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "gcl::allReduceCrossReplica";
  check_tensor(data, *graph.model(), call);
  const poplar::Tensor out =
      graph.model()->result(data.elementType(), data.shape(), name.name);
  add_all_reduce(graph, data, out, op, sequence, group, call);
  return out;
}

SHARDIR_HOST_MODEL_FUNCTION void allReduceInPlaceCrossReplica(
    poplar::Graph& graph, poplar::Tensor& data, CollectiveOperator op,
    poplar::program::Sequence& sequence, const CommGroup& group, const poplar::DebugContext&,
    const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "gcl::allReduceInPlaceCrossReplica";
  check_destination(data, call);
  add_all_reduce(graph, data, data, op, sequence, group, call);
}

SHARDIR_HOST_MODEL_FUNCTION void allReduceToDestinationCrossReplica(
    poplar::Graph& graph, const poplar::Tensor& data, poplar::Tensor& output, CollectiveOperator op,
    poplar::program::Sequence& sequence, const CommGroup& group, const poplar::DebugContext&,
    const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "gcl::allReduceToDestinationCrossReplica";
  check_tensor(data, *graph.model(), call);
  check_copy(data, output, call);
  add_all_reduce(graph, data, output, op, sequence, group, call);
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor allGatherCrossReplica(
    poplar::Graph& graph, const poplar::Tensor& data, poplar::program::Sequence& sequence,
    const CommGroup& group, const poplar::DebugContext& name, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const Members members =
      check_exchange(graph, data, group, "gcl::allGatherCrossReplica");
  Shape shape = data.shape();
  shape.insert(shape.begin(), members.size);
  const poplar::Tensor out = graph.model()->result(data.elementType(), shape, name.name);
  add_exchange(sequence, data, out, members,
               [](const std::vector<std::vector<Bits>>& rows, unsigned) {
                 std::vector<Bits> made;
                 for (const auto& row : rows) made.insert(made.end(), row.begin(), row.end());
                 return made;
               });
  return out;
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor reduceScatterCrossReplica(
    poplar::Graph& graph, const poplar::Tensor& data, CollectiveOperator op,
    poplar::program::Sequence& sequence, const CommGroup& group, const poplar::DebugContext& name,
    const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "gcl::reduceScatterCrossReplica";
  const Members members = check_exchange(graph, data, group, call);
  check_collective(op, data.elementType(), call);
  if (data.rank() != 1) {
    refuse(call + ": " + described(data) + " has not one dimension; flatten it");
  }
  const std::size_t piece = (data.numElements() + members.size - 1) / members.size;
  const poplar::Tensor out = graph.model()->result(data.elementType(), {piece}, name.name);
  add_exchange(sequence, data, out, members,
               [op, piece, type = data.elementType()](const std::vector<std::vector<Bits>>& rows,
                                                      unsigned number) {
                 std::vector<Bits> all = op == CollectiveOperator::LOCAL
                                             ? rows[number]
                                             : reduced_rows(op, type, rows);
                 all.resize(piece * rows.size());
                 const auto begin = all.begin() + static_cast<std::ptrdiff_t>(number * piece);
                 return std::vector<Bits>(begin, begin + static_cast<std::ptrdiff_t>(piece));
               });
  return out;
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor allToAllCrossReplica(
    poplar::Graph& graph, const poplar::Tensor& data, poplar::program::Sequence& sequence,
    const CommGroup& group, const poplar::DebugContext& name, const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "gcl::allToAllCrossReplica";
  const Members members = check_exchange(graph, data, group, call);
  if (data.rank() == 0 || data.shape()[0] != members.size) {
    refuse(call + ": " + described(data) + " has not one row for each of " +
           std::to_string(members.size) + " members");
  }
  const std::size_t row = data.numElements() / members.size;
  const poplar::Tensor out =
      graph.model()->result(data.elementType(), data.shape(), name.name);
  add_exchange(sequence, data, out, members,
               [row](const std::vector<std::vector<Bits>>& rows, unsigned number) {
                 std::vector<Bits> made;
                 for (const auto& from : rows) {
                   const auto begin = from.begin() + static_cast<std::ptrdiff_t>(number * row);
                   made.insert(made.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
                 }
                 return made;
               });
  return out;
}

}  // namespace gcl
#endif
