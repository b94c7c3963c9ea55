// Host code of an emitted program: it copies arguments to the replicas, runs steps, and copies
// results back. It is written beside every emitted program, and is the same with the Poplar SDK and
// with shardir's host model of it.
//
// A program states its contract, builds its graph, and names both in one last line:
//
//     #include "shardir_ipu_host.hpp"
//     #include <popops/ElementWise.hpp>
//     #include <popops/codelets.hpp>
//
//     // Arguments and results with their shardings: 8 replicas, a mesh [data=4, model=2].
//     shardir_ipu::Contract contract() {
//       return {"mlp", 8,
//               {// name, the user's name, type, whole, part, cuts by dimension
//                {"x", "x", poplar::FLOAT, {64, 128}, {16, 128}, {{{4, 2}}, {}}},
//                {"w1", "params['w1']", poplar::FLOAT, {128, 256}, {128, 128}, {{}, {{2, 1}}}}},
//               {{"y", "result", poplar::FLOAT, {64, 256}, {16, 128}, {{{4, 2}}, {{2, 1}}}}}};
//     }
//
//     void build(shardir_ipu::Program& program) {
//       poplar::Graph& graph = program.graph;
//       poplar::program::Sequence& step = program.step;
//       popops::addCodelets(graph);
//       poplar::Tensor x = program.argument("x");
//       ...
//       program.result("y", y);
//     }
//
//     SHARDIR_IPU_ENTRY(contract, build)
//
// That line defines `main` (unless SHARDIR_IPU_LIBRARY is defined) and the C functions `run` and
// `describe`, or the names that SHARDIR_IPU_RUN and SHARDIR_IPU_DESCRIBE define.
//
// Command line of the program:
//
//     ./mlp [--arguments DIR] [--results DIR] [--steps N] [--sharded] [--device ipu|model|cpu]
//     ./mlp --describe
//
// reads DIR/<name>.npy for each argument: the global array, or, with one more dimension, the shards
// of all replicas in order (`[replicas, ...part]`); writes DIR/<name>.npy for each result, global
// or with --sharded the shards of all replicas. The default folders are `arguments` and `results`.
#pragma once

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <poplar/Engine.hpp>
#include <poplar/Graph.hpp>
#include <poplar/Program.hpp>

// With SHARDIR_IPU_SEPARATE the runner's functions are only declared, and linked from an object
// that is compiled once.
#if defined(SHARDIR_IPU_SEPARATE)
#define SHARDIR_IPU_FUNCTION
#else
#define SHARDIR_IPU_FUNCTION inline
#endif

namespace shardir_ipu {

// An error of the user, or in a file.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Shape = std::vector<std::size_t>;

// The replicas along one mesh axis or sub-axis: `size` of them, with a stride of `stride` replicas.
struct Split {
  unsigned size;
  unsigned stride;
};

// One argument or result. `cuts` has for each dimension the axes that shard it, major to minor. All
// shards have the shape `part`, with padding past the end of the global array: it is zero in
// arguments and ignored in results.
struct Port {
  std::string name;   // of its stream and its file
  std::string label;  // the user's name
  poplar::Type type;
  std::vector<std::size_t> whole;
  std::vector<std::size_t> part;
  std::vector<std::vector<Split>> cuts;
};

// The arguments and results of a program. Replica i is device i of the mesh, row-major.
struct Contract {
  std::string title;
  unsigned replicas;
  std::vector<Port> arguments;
  std::vector<Port> results;
};

// A program being built: three programs of one engine. `upload` takes the arguments from their
// streams, `step` computes, `download` sends the results to theirs. The function that builds it
// adds to `step`, and must call `argument` and `result` once for each argument and result.
class Program {
 public:
  Program(poplar::Graph& graph, const Contract& contract) : graph(graph), contract(contract) {}

  poplar::Graph& graph;
  const Contract& contract;
  poplar::program::Sequence upload, step, download;

  // A variable with the argument's shard, mapped over the tiles, which `upload` fills.
  poplar::Tensor argument(const std::string& name);

  // The same for a variable with a tile mapping (for example of poplin::createMatMulInputLHS).
  poplar::Tensor argument(const std::string& name, const poplar::Tensor& variable);

  // `value` is the result after a step; `download` sends it.
  void result(const std::string& name, const poplar::Tensor& value);

  // Checks that every argument and result was used.
  void check_complete() const;

 private:
  std::vector<std::string> taken, given;
};

// The parameters of one call: for each argument a C-contiguous array, global, or if
// `arguments_sharded` is not 0 the shards of all replicas; for each result the memory for such an
// array. `steps` runs of `step` happen between upload and download. An error is written to
// `message`, of `room` bytes.
struct Call {
  const void* const* arguments;
  const int* arguments_sharded;  // one for each argument
  void* const* results;
  unsigned steps;
  int results_sharded;
  char* message;
  std::size_t room;
};

// An engine with its program on a device. `device` is "ipu", "model" or "cpu".
class Session {
 public:
  Session(const Contract& contract, void (*build)(Program&), const std::string& device);

  void run(const Call& call);

 private:
  Contract contract;
  std::vector<std::vector<char>> uploaded, downloaded;  // the shards of all replicas
  std::unique_ptr<poplar::Engine> engine;
};

// Runs a Session that the first call creates. Returns 0, or 1 with a message.
int run(Contract (*contract)(), void (*build)(Program&), std::unique_ptr<Session>& session,
        const Call& call);

// The contract as JSON.
std::string describe(const Contract& contract);

// The command line.
int main(Contract (*contract)(), void (*build)(Program&), int count, char** words);

}  // namespace shardir_ipu

#if !defined(SHARDIR_IPU_RUN)
#define SHARDIR_IPU_RUN run
#endif
#if !defined(SHARDIR_IPU_DESCRIBE)
#define SHARDIR_IPU_DESCRIBE describe
#endif

#if defined(__GNUC__)
#define SHARDIR_IPU_EXPORT __attribute__((visibility("default")))
#else
#define SHARDIR_IPU_EXPORT
#endif

#if defined(SHARDIR_IPU_LIBRARY)
#define SHARDIR_IPU_MAIN(contract, build)
#else
#define SHARDIR_IPU_MAIN(contract, build) \
  int main(int count, char** words) { return shardir_ipu::main(contract, build, count, words); }
#endif

#if !defined(SHARDIR_IPU_SEPARATE)
#include "shardir_ipu_files.hpp"
#include "shardir_ipu_session.hpp"
#endif

#define SHARDIR_IPU_ENTRY(contract, build)                                            \
  extern "C" SHARDIR_IPU_EXPORT int SHARDIR_IPU_RUN(const shardir_ipu::Call* call) {  \
    static std::unique_ptr<shardir_ipu::Session> session;                             \
    return shardir_ipu::run(contract, build, session, *call);                         \
  }                                                                                   \
  extern "C" SHARDIR_IPU_EXPORT const char* SHARDIR_IPU_DESCRIBE() {                  \
    static const std::string text = shardir_ipu::describe(contract());                \
    return text.c_str();                                                              \
  }                                                                                   \
  SHARDIR_IPU_MAIN(contract, build)
