// Copies and control flow. See <poplar/Program.hpp>.
#pragma once

#include <shardir_host_model/machine.hpp>

namespace shardir_host_model {

void check_copy(const poplar::Tensor& source, const poplar::Tensor& destination,
                const std::string& call);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
#include <cstdio>

#include <shardir_host_model/transfers.hpp>

namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION void check_copy(const poplar::Tensor& source,
                                            const poplar::Tensor& destination,
                                            const std::string& call) {
  if (!source.valid() || TensorAccess::graph(source) != TensorAccess::graph(destination) ||
      source.elementType() != destination.elementType() ||
      source.shape() != destination.shape()) {
    refuse(call + ": " + described(source) + " does not fit into " + described(destination) +
           "; give both one shape and type");
  }
  check_destination(destination, call);
  check_apart(source, destination, call);
}

inline void check_stream_copy(const poplar::DataStream& stream, const poplar::Tensor& tensor,
                              bool to_device) {
  const std::string call = "program::Copy";
  if (!tensor.valid() || stream.graph != TensorAccess::graph(tensor) ||
      stream.type != tensor.elementType() || stream.count != tensor.numElements()) {
    refuse(call + ": the stream " + quoted(stream.name) + " of " + std::to_string(stream.count) +
           " " + stream.type.toString() + " does not fit " + described(tensor));
  }
  if (stream.to_device != to_device) {
    refuse(call + ": the stream " + quoted(stream.name) + " goes " +
           (to_device ? "to the host; use one from addHostToDeviceFIFO"
                      : "to the device; use one from addDeviceToHostFIFO"));
  }
  if (to_device) check_destination(tensor, call);
}

inline void check_scalar(const poplar::Tensor& tensor, const poplar::Type& type,
                         const std::string& call) {
  if (!tensor.valid() || tensor.elementType() != type || tensor.numElements() != 1) {
    refuse(call + ": " + described(tensor) + " is not one element of type " + type.toString());
  }
}

inline poplar::program::Program while_program(const poplar::program::Program& condition,
                                              const poplar::Tensor& predicate,
                                              const poplar::program::Program& body, bool expected,
                                              const std::string& call) {
  check_scalar(predicate, poplar::BOOL, call);
  used(condition);
  used(body);
  return step([=](Machine& machine) {
    for (;;) {
      run(condition, machine);
      if ((machine.decision(predicate, call) != 0) != expected) return;
      run(body, machine);
    }
  });
}

inline void print(const Machine& machine, const std::string& title, const poplar::Tensor& tensor) {
  const bool real = is_floating(tensor.elementType());
  for (unsigned replica = 0; replica < machine.count(); ++replica) {
    if (machine.count() == 1) {
      std::fprintf(stderr, "%s:", title.c_str());
    } else {
      std::fprintf(stderr, "%s[%u]:", title.c_str(), replica);
    }
    for (Bits bits : machine.read(replica, tensor)) {
      const Number value = decode(tensor.elementType(), bits);
      if (real) {
        std::fprintf(stderr, " %g", value.real);
      } else {
        std::fprintf(stderr, " %lld", static_cast<long long>(value.whole));
      }
    }
    std::fputc('\n', stderr);
  }
}

}  // namespace shardir_host_model

namespace poplar::program {

SHARDIR_HOST_MODEL_FUNCTION Sequence::Sequence(const DebugContext&) {
  step = std::make_shared<shardir_host_model::SequenceStep>();
}

SHARDIR_HOST_MODEL_FUNCTION Sequence::Sequence(std::initializer_list<Program> programs,
                                               const DebugContext& name)
    : Sequence(name) {
  for (const Program& program : programs) add(program);
}

SHARDIR_HOST_MODEL_FUNCTION void Sequence::add(const Program& program) {
  using namespace shardir_host_model;
  auto& sequence = static_cast<SequenceStep&>(*step);
  if (sequence.used) {
    refuse("Sequence::add: the sequence is a part of another program already; complete it before");
  }
  if (program.step == step) {
    refuse("Sequence::add: a sequence is no part of itself; make another one");
  }
  sequence.programs.push_back(used(program));
}

SHARDIR_HOST_MODEL_FUNCTION Copy::Copy(const Tensor& source, const Tensor& destination, bool,
                                       const DebugContext&) {
  using namespace shardir_host_model;
  check_copy(source, destination, "program::Copy");
  step = shardir_host_model::step([source, destination](Machine& machine) {
           for (unsigned replica = 0; replica < machine.count(); ++replica) {
             machine.write(replica, destination, machine.read(replica, source));
           }
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION Copy::Copy(const DataStream& stream, const Tensor& destination, bool,
                                       const DebugContext&) {
  using namespace shardir_host_model;
  check_stream_copy(stream, destination, true);
  step = shardir_host_model::step([stream, destination](Machine& machine) {
           const char* place = next_place(machine, stream);
           const std::size_t share = stream.count * size_of(stream.type);
           for (unsigned replica = 0; replica < machine.count(); ++replica) {
             receive(machine, replica, destination,
                     place + (stream.broadcast ? 0 : replica * share));
           }
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION Copy::Copy(const Tensor& source, const DataStream& stream, bool,
                                       const DebugContext&) {
  using namespace shardir_host_model;
  check_stream_copy(stream, source, false);
  step = shardir_host_model::step([stream, source](Machine& machine) {
           char* place = next_place(machine, stream);
           const std::size_t share = stream.count * size_of(stream.type);
           for (unsigned replica = 0; replica < machine.count(); ++replica) {
             send(machine, replica, source, place + replica * share);
           }
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION CrossReplicaCopy::CrossReplicaCopy(
    const Tensor& source, const Tensor& destination,
    const std::map<unsigned, unsigned>& sourceToDestination, const DebugContext&) {
  using namespace shardir_host_model;
  const std::string call = "program::CrossReplicaCopy";
  check_copy(source, destination, call);
  const unsigned replicas = TensorAccess::graph(source)->replicas;
  std::vector<bool> receives(replicas);
  for (const auto& pair : sourceToDestination) {
    const std::string sends = call + ": replica " + std::to_string(pair.first) + " sends to ";
    if (pair.first >= replicas || pair.second >= replicas) {
      refuse(sends + std::to_string(pair.second) + ", but there are " + std::to_string(replicas) +
             " replicas");
    }
    if (pair.first == pair.second) {
      refuse(sends + "itself; let it send elsewhere and keep its own value by a select");
    }
    if (receives[pair.second]) {
      refuse(sends + std::to_string(pair.second) +
             ", which receives from another already; complete the map to a permutation");
    }
    receives[pair.second] = true;
  }
  if (sourceToDestination.size() != replicas) {
    refuse(call + ": " + std::to_string(sourceToDestination.size()) + " of " +
           std::to_string(replicas) + " replicas send; complete the map to a permutation");
  }
  step = shardir_host_model::step([source, destination, sourceToDestination](Machine& machine) {
           for (const auto& pair : sourceToDestination) {
             machine.write(pair.second, destination, machine.read(pair.first, source));
           }
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION Repeat::Repeat(unsigned count, const Program& body,
                                           const DebugContext&) {
  using namespace shardir_host_model;
  used(body);
  step = shardir_host_model::step([count, body](Machine& machine) {
           for (unsigned i = 0; i < count; ++i) shardir_host_model::run(body, machine);
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION RepeatWhileTrue::RepeatWhileTrue(const Program& condition,
                                                             const Tensor& predicate,
                                                             const Program& body,
                                                             const DebugContext&) {
  step = shardir_host_model::while_program(condition, predicate, body, true,
                                           "program::RepeatWhileTrue")
             .step;
}

SHARDIR_HOST_MODEL_FUNCTION RepeatWhileFalse::RepeatWhileFalse(const Program& condition,
                                                               const Tensor& predicate,
                                                               const Program& body,
                                                               const DebugContext&) {
  step = shardir_host_model::while_program(condition, predicate, body, false,
                                           "program::RepeatWhileFalse")
             .step;
}

SHARDIR_HOST_MODEL_FUNCTION If::If(const Tensor& predicate, const Program& trueBody,
                                   const Program& falseBody, const DebugContext&) {
  using namespace shardir_host_model;
  check_scalar(predicate, BOOL, "program::If");
  used(trueBody);
  used(falseBody);
  step = shardir_host_model::step([=](Machine& machine) {
           const bool holds = machine.decision(predicate, "program::If") != 0;
           shardir_host_model::run(holds ? trueBody : falseBody, machine);
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION Switch::Switch(
    const Tensor& control, const std::vector<std::pair<std::int32_t, Program>>& cases,
    const Program& defaultCase, const DebugContext&) {
  using namespace shardir_host_model;
  if (control.elementType() != UNSIGNED_INT) check_scalar(control, INT, "program::Switch");
  check_scalar(control, control.elementType(), "program::Switch");
  std::map<std::int32_t, Program> bodies;
  for (const auto& each : cases) {
    if (!bodies.emplace(each.first, used(each.second)).second) {
      refuse("program::Switch: there are two programs for " + std::to_string(each.first));
    }
  }
  used(defaultCase);
  step = shardir_host_model::step([=](Machine& machine) {
           const auto value = machine.decision(control, "program::Switch");
           const auto found = bodies.find(static_cast<std::int32_t>(value));
           shardir_host_model::run(found == bodies.end() ? defaultCase : found->second, machine);
         }).step;
}

SHARDIR_HOST_MODEL_FUNCTION PrintTensor::PrintTensor(const Tensor& tensor, const DebugContext&)
    : PrintTensor(shardir_host_model::described(tensor), tensor) {}

SHARDIR_HOST_MODEL_FUNCTION PrintTensor::PrintTensor(const std::string& title, const Tensor& tensor,
                                                     const DebugContext&) {
  using namespace shardir_host_model;
  if (!tensor.valid()) refuse("program::PrintTensor: " + quoted(title) + " is of no graph");
  step = shardir_host_model::step([=](Machine& machine) { print(machine, title, tensor); }).step;
}

SHARDIR_HOST_MODEL_FUNCTION WriteUndef::WriteUndef(const Tensor& tensor, const DebugContext&) {
  using namespace shardir_host_model;
  check_destination(tensor, "program::WriteUndef");
  step = shardir_host_model::step([=](Machine& machine) {
           for (Replica& replica : machine.replicas) {
             for (std::uint32_t address : addresses_of(tensor)) replica.written[address] = false;
           }
         }).step;
}

}  // namespace poplar::program
#endif
