// Collectives between replicas. The members of a group are in the order of their replicas.
#pragma once

#include <poplar/Graph.hpp>
#include <poplar/OptionFlags.hpp>
#include <poplar/Program.hpp>

namespace gcl {

enum class CommGroupType { ALL, CONSECUTIVE, ORTHOGONAL };

// ALL replicas; or CONSECUTIVE groups of `replicaGroupSize` replicas, `replicaGroupStride` apart.
class CommGroup {
 public:
  CommGroup() = default;
  CommGroup(CommGroupType type, unsigned groupSize, unsigned replicaStride = 1)
      : type(type), replicaGroupSize(groupSize), replicaGroupStride(replicaStride) {}

  CommGroupType type = CommGroupType::ALL;
  unsigned replicaGroupSize = 0;
  unsigned replicaGroupStride = 1;
};

// LOCAL keeps each replica's own. LOGICAL_AND and LOGICAL_OR are of BOOL.
enum class CollectiveOperator {
  ADD,
  MEAN,
  MUL,
  MIN,
  MAX,
  LOGICAL_AND,
  LOGICAL_OR,
  SQUARE_ADD,
  LOCAL,
};

poplar::Tensor allReduceCrossReplica(poplar::Graph& graph, const poplar::Tensor& data,
                                     CollectiveOperator op, poplar::program::Sequence& sequence,
                                     const CommGroup& group, const poplar::DebugContext& name = {},
                                     const poplar::OptionFlags& options = {});

void allReduceInPlaceCrossReplica(poplar::Graph& graph, poplar::Tensor& data, CollectiveOperator op,
                                  poplar::program::Sequence& sequence, const CommGroup& group,
                                  const poplar::DebugContext& name = {},
                                  const poplar::OptionFlags& options = {});

void allReduceToDestinationCrossReplica(poplar::Graph& graph, const poplar::Tensor& data,
                                        poplar::Tensor& output, CollectiveOperator op,
                                        poplar::program::Sequence& sequence, const CommGroup& group,
                                        const poplar::DebugContext& name = {},
                                        const poplar::OptionFlags& options = {});

// [group size, ...shape of data].
poplar::Tensor allGatherCrossReplica(poplar::Graph& graph, const poplar::Tensor& data,
                                     poplar::program::Sequence& sequence, const CommGroup& group,
                                     const poplar::DebugContext& name = {},
                                     const poplar::OptionFlags& options = {});

// Of one dimension, each member its piece of ceil(size / group size) elements, zeros past the end.
poplar::Tensor reduceScatterCrossReplica(poplar::Graph& graph, const poplar::Tensor& data,
                                         CollectiveOperator op, poplar::program::Sequence& sequence,
                                         const CommGroup& group,
                                         const poplar::DebugContext& name = {},
                                         const poplar::OptionFlags& options = {});

// Row i goes to member i, and comes from member i.
poplar::Tensor allToAllCrossReplica(poplar::Graph& graph, const poplar::Tensor& data,
                                    poplar::program::Sequence& sequence, const CommGroup& group,
                                    const poplar::DebugContext& name = {},
                                    const poplar::OptionFlags& options = {});

}  // namespace gcl

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/collectives.hpp>
#endif
