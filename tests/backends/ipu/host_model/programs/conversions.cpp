// Casts between all types, called `<from>_<to>`, and reinterpretation of bits.
#include "shardir_ipu_host.hpp"

#include <popops/Cast.hpp>
#include <popops/codelets.hpp>

namespace {

constexpr std::size_t count = 65536;

const std::map<std::string, poplar::Type>& types() {
  static const std::map<std::string, poplar::Type> all = {
      {"bool", poplar::BOOL},           {"int8", poplar::SIGNED_CHAR},
      {"uint8", poplar::UNSIGNED_CHAR}, {"int16", poplar::SHORT},
      {"uint16", poplar::UNSIGNED_SHORT}, {"int32", poplar::INT},
      {"uint32", poplar::UNSIGNED_INT}, {"float16", poplar::HALF},
      {"float32", poplar::FLOAT},
  };
  return all;
}

shardir_ipu::Contract contract() {
  shardir_ipu::Contract contract{"conversions", 1, {}, {}};
  for (const auto& from : types()) {
    contract.arguments.push_back({from.first, from.first, from.second, {count}, {count}, {{}}});
    for (const auto& to : types()) {
      const std::string name = from.first + "_" + to.first;
      contract.results.push_back({name, name, to.second, {count}, {count}, {{}}});
    }
  }
  contract.results.push_back({"bits", "bits", poplar::UNSIGNED_INT, {count}, {count}, {{}}});
  return contract;
}

void build(shardir_ipu::Program& program) {
  popops::addCodelets(program.graph);
  for (const auto& from : types()) {
    const poplar::Tensor value = program.argument(from.first);
    for (const auto& to : types()) {
      program.result(from.first + "_" + to.first,
                     popops::cast(program.graph, value, to.second, program.step));
    }
    if (from.first == "float32") {
      program.result("bits", value.reinterpret(poplar::UNSIGNED_INT));
    }
  }
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
