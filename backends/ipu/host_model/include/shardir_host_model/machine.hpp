// The steps of programs, and the memory of all replicas on which they run. Every step is executed
// for every replica before the next one begins (lock step).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <poplar/Program.hpp>
#include <shardir_host_model/state.hpp>

namespace shardir_host_model {

// The host's end of a stream.
struct Connection {
  char* begin = nullptr;
  char* end = nullptr;  // none: every transfer begins at `begin`
  std::size_t next = 0;
};

struct Replica {
  std::vector<Bits> memory;
  std::vector<bool> written;
};

struct Machine {
  std::shared_ptr<GraphState> graph;
  std::vector<poplar::program::Program> programs;
  std::vector<Replica> replicas;
  std::map<std::string, Connection> connections;
  bool loaded = false;

  unsigned count() const { return static_cast<unsigned>(replicas.size()); }

  // The elements of a tensor on one replica. Nothing is read before it is written.
  std::vector<Bits> read(unsigned replica, const poplar::Tensor& tensor) const;
  void write(unsigned replica, const poplar::Tensor& tensor, const std::vector<Bits>& bits);

  // A single element that controls a branch: it must be equal on all replicas.
  std::int64_t decision(const poplar::Tensor& tensor, const std::string& call) const;
};

struct Step {
  virtual ~Step() = default;
  virtual void run(Machine& machine) const = 0;
};

struct SequenceStep : Step {
  std::vector<poplar::program::Program> programs;
  bool used = false;
  void run(Machine& machine) const override;
};

// The program as a part of another one. A sequence is complete by then: whether what is added to it
// later would be run is not said anywhere.
const poplar::program::Program& used(const poplar::program::Program& program);

// A step given by a function.
poplar::program::Program step(std::function<void(Machine&)> action);

inline void run(const poplar::program::Program& program, Machine& machine) {
  if (program.step) program.step->run(machine);
}

// Adds a step that computes `out` from `inputs` on every replica separately: `compute` takes the bits of
// each input and returns those of the result.
using Compute = std::function<std::vector<Bits>(const std::vector<std::vector<Bits>>&)>;
void add_compute(poplar::program::Sequence& sequence, std::vector<poplar::Tensor> inputs,
                 poplar::Tensor out, Compute compute);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION std::vector<Bits> Machine::read(unsigned replica,
                                                            const poplar::Tensor& tensor) const {
  check_tensor(tensor, *graph, "Engine::run");
  const Replica& from = replicas[replica];
  const Addresses& addresses = addresses_of(tensor);
  std::vector<Bits> bits(addresses.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    if (!from.written[addresses[i]]) {
      refuse(quoted(graph->variable_at(addresses[i]).name) +
             " is read before it is written on replica " + std::to_string(replica) +
             "; write all of it first");
    }
    bits[i] = from.memory[addresses[i]];
  }
  return bits;
}

SHARDIR_HOST_MODEL_FUNCTION void Machine::write(unsigned replica, const poplar::Tensor& tensor,
                                                const std::vector<Bits>& bits) {
  check_tensor(tensor, *graph, "Engine::run");
  Replica& to = replicas[replica];
  const Addresses& addresses = addresses_of(tensor);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    to.memory[addresses[i]] = bits[i];
    to.written[addresses[i]] = true;
  }
}

SHARDIR_HOST_MODEL_FUNCTION std::int64_t Machine::decision(const poplar::Tensor& tensor,
                                                           const std::string& call) const {
  const Bits bits = read(0, tensor)[0];
  for (unsigned replica = 1; replica < count(); ++replica) {
    if (read(replica, tensor)[0] != bits) {
      refuse(call + ": " + described(tensor) + " differs between replicas 0 and " +
             std::to_string(replica) + "; compute both ways and select");
    }
  }
  return decode(tensor.elementType(), bits).whole;
}

SHARDIR_HOST_MODEL_FUNCTION void SequenceStep::run(Machine& machine) const {
  for (const poplar::program::Program& program : programs) {
    shardir_host_model::run(program, machine);
  }
}

SHARDIR_HOST_MODEL_FUNCTION const poplar::program::Program& used(
    const poplar::program::Program& program) {
  if (auto* sequence = dynamic_cast<SequenceStep*>(program.step.get())) sequence->used = true;
  return program;
}

struct ActionStep : Step {
  explicit ActionStep(std::function<void(Machine&)> action) : action(std::move(action)) {}
  void run(Machine& machine) const override { action(machine); }
  std::function<void(Machine&)> action;
};

SHARDIR_HOST_MODEL_FUNCTION poplar::program::Program step(std::function<void(Machine&)> action) {
  return poplar::program::Program(std::make_shared<ActionStep>(std::move(action)));
}

SHARDIR_HOST_MODEL_FUNCTION void add_compute(poplar::program::Sequence& sequence,
                                             std::vector<poplar::Tensor> inputs,
                                             poplar::Tensor out, Compute compute) {
  for (const poplar::Tensor& input : inputs) check_mapped(input, "poplibs");
  check_mapped(out, "poplibs");
  sequence.add(step([inputs = std::move(inputs), out = std::move(out),
                     compute = std::move(compute)](Machine& machine) {
    std::vector<std::vector<Bits>> bits(inputs.size());
    for (unsigned replica = 0; replica < machine.count(); ++replica) {
      for (std::size_t i = 0; i < inputs.size(); ++i) bits[i] = machine.read(replica, inputs[i]);
      machine.write(replica, out, compute(bits));
    }
  }));
}

}  // namespace shardir_host_model
#endif
