// What an engine runs: copies, transfers, control flow, one after another.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <poplar/DataStream.hpp>
#include <poplar/DebugContext.hpp>
#include <poplar/Tensor.hpp>

namespace shardir_host_model {
struct Step;
struct SequenceStep;
struct SwitchStep;
}  // namespace shardir_host_model

namespace poplar::program {

class Program {
 public:
  Program() = default;
  explicit Program(std::shared_ptr<shardir_host_model::Step> step) : step(std::move(step)) {}

  std::shared_ptr<shardir_host_model::Step> step;  // none: nothing happens
};

class Sequence : public Program {
 public:
  explicit Sequence(const DebugContext& name = {});
  Sequence(std::initializer_list<Program> programs, const DebugContext& name = {});
  void add(const Program& program);
};

// Between tensors, from a stream, to a stream. Source and destination do not overlap.
class Copy : public Program {
 public:
  Copy(const Tensor& source, const Tensor& destination, bool dontOutline = false,
       const DebugContext& name = {});
  Copy(const DataStream& stream, const Tensor& destination, bool optimiseMemory = false,
       const DebugContext& name = {});
  Copy(const Tensor& source, const DataStream& stream, bool optimiseMemory = false,
       const DebugContext& name = {});
};

// Replica `from` sends its source to the destination of replica `sourceToDestination[from]`. Every
// replica sends once and receives once, and none to itself.
class CrossReplicaCopy : public Program {
 public:
  CrossReplicaCopy(const Tensor& source, const Tensor& destination,
                   const std::map<unsigned, unsigned>& sourceToDestination,
                   const DebugContext& name = {});
};

class Repeat : public Program {
 public:
  Repeat(unsigned count, const Program& body, const DebugContext& name = {});
};

// Runs `condition`, then `body` as long as the predicate is true; and the same for false.
class RepeatWhileTrue : public Program {
 public:
  RepeatWhileTrue(const Program& condition, const Tensor& predicate, const Program& body,
                  const DebugContext& name = {});
};

class RepeatWhileFalse : public Program {
 public:
  RepeatWhileFalse(const Program& condition, const Tensor& predicate, const Program& body,
                   const DebugContext& name = {});
};

class If : public Program {
 public:
  If(const Tensor& predicate, const Program& trueBody, const Program& falseBody,
     const DebugContext& name = {});
};

// Runs the program of the control's value, or the default.
class Switch : public Program {
 public:
  Switch(const Tensor& control, const std::vector<std::pair<std::int32_t, Program>>& cases,
         const Program& defaultCase, const DebugContext& name = {});
};

// Prints a tensor of every replica on the standard error.
class PrintTensor : public Program {
 public:
  explicit PrintTensor(const Tensor& tensor, const DebugContext& name = {});
  PrintTensor(const std::string& title, const Tensor& tensor, const DebugContext& name = {});
};

// Says that what the tensor holds is not needed: it is not to be read before it is written.
class WriteUndef : public Program {
 public:
  explicit WriteUndef(const Tensor& tensor, const DebugContext& name = {});
};

}  // namespace poplar::program

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/programs.hpp>
#endif
