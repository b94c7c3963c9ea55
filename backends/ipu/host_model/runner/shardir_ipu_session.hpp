// Builds an emitted program, shards its arguments and joins its results.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <poplar/DeviceManager.hpp>
#include <poplar/IPUModel.hpp>
#include <poputil/TileMapping.hpp>

#include "shardir_ipu_host.hpp"
#include "shardir_ipu_npy.hpp"

namespace shardir_ipu {

inline const Port& port_called(const std::vector<Port>& ports, const std::string& name) {
  for (const Port& port : ports) {
    if (port.name == name) return port;
  }
  throw Error("the contract has no '" + name + "'");
}

inline void note_once(std::vector<std::string>& names, const std::string& name) {
  for (const std::string& other : names) {
    if (other == name) throw Error("'" + name + "' is taken or given twice");
  }
  names.push_back(name);
}

SHARDIR_IPU_FUNCTION poplar::Tensor Program::argument(const std::string& name) {
  const Port& port = port_called(contract.arguments, name);
  poplar::Tensor variable = graph.addVariable(port.type, port.part, name);
  poputil::mapTensorLinearly(graph, variable);
  return argument(name, variable);
}

SHARDIR_IPU_FUNCTION poplar::Tensor Program::argument(const std::string& name, const poplar::Tensor& variable) {
  const Port& port = port_called(contract.arguments, name);
  note_once(taken, name);
  if (product(port.part) != 0) {
    poplar::DataStream stream =
        graph.addHostToDeviceFIFO("argument " + name, port.type, product(port.part));
    upload.add(poplar::program::Copy(stream, variable.flatten()));
  }
  return variable;
}

SHARDIR_IPU_FUNCTION void Program::result(const std::string& name, const poplar::Tensor& value) {
  const Port& port = port_called(contract.results, name);
  note_once(given, name);
  if (Shape(value.shape()) != port.part || value.elementType() != port.type) {
    throw Error("the result '" + name + "' is " + std::string(value.elementType().toString()) +
                " " + text(value.shape()) + ", the contract says " +
                std::string(port.type.toString()) + " " + text(port.part));
  }
  if (product(port.part) != 0) {
    poplar::DataStream stream =
        graph.addDeviceToHostFIFO("result " + name, port.type, product(port.part));
    download.add(poplar::program::Copy(value.flatten(), stream));
  }
}

SHARDIR_IPU_FUNCTION void Program::check_complete() const {
  if (taken.size() != contract.arguments.size() || given.size() != contract.results.size()) {
    throw Error("the program takes " + std::to_string(taken.size()) + " of " +
                std::to_string(contract.arguments.size()) + " arguments and gives " +
                std::to_string(given.size()) + " of " + std::to_string(contract.results.size()) +
                " results");
  }
}

// Copies between the global array and one replica's shard.
inline void exchange(const Port& port, unsigned replica, char* whole, char* part, bool to_part) {
  const std::size_t size = element_of(port.type).size, rank = port.part.size();
  Shape start(rank), index(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    std::size_t piece = 0;
    for (const Split& split : port.cuts[d]) {
      piece = piece * split.size + replica / split.stride % split.size;
    }
    start[d] = piece * port.part[d];
  }
  // Contiguous runs along the last dimension, up to the end of the global array.
  const std::size_t row = rank == 0 ? 1 : port.part[rank - 1];
  const std::size_t last = rank == 0 ? 1 : port.whole[rank - 1];
  const std::size_t begin = rank == 0 ? 0 : start[rank - 1];
  const std::size_t run = begin >= last ? 0 : row < last - begin ? row : last - begin;
  const std::size_t rows = row == 0 ? 0 : product(port.part) / row;
  for (std::size_t i = 0; i < rows; ++i) {
    std::size_t place = 0;
    bool inside = run != 0;
    for (std::size_t d = 0; d + 1 < rank; ++d) {
      inside = inside && start[d] + index[d] < port.whole[d];
      place = (place + start[d] + index[d]) * port.whole[d + 1];
    }
    char* outer = whole + (place + begin) * size;
    char* inner = part + i * row * size;
    if (inside) std::memcpy(to_part ? inner : outer, to_part ? outer : inner, run * size);
    for (std::size_t d = rank; d-- > 1;) {
      if (++index[d - 1] < port.part[d - 1]) break;
      index[d - 1] = 0;
    }
  }
}

inline poplar::Device find_device(const std::string& kind, unsigned replicas) {
  if (kind == "model") {
    poplar::IPUModel model;
    model.numIPUs = replicas;
    return model.createDevice();
  }
  if (kind == "cpu") return poplar::Device::createCPUDevice(replicas);
  if (kind != "ipu") throw Error("no device is called '" + kind + "'; use ipu, model or cpu");
  for (poplar::Device& device :
       poplar::DeviceManager::createDeviceManager().getDevices(poplar::TargetType::IPU, replicas)) {
    if (device.attach()) return std::move(device);
  }
  throw Error("no " + std::to_string(replicas) +
              " IPUs are free together; they are joined in powers of 2");
}

SHARDIR_IPU_FUNCTION Session::Session(const Contract& given, void (*build)(Program&), const std::string& kind)
    : contract(given) {
  const poplar::Device device = find_device(kind, contract.replicas);
  poplar::Graph graph(device.getTarget(), poplar::replication_factor(contract.replicas));
  Program program(graph, contract);
  build(program);
  program.check_complete();
  const std::vector<poplar::program::Program> programs = {program.upload, program.step,
                                                          program.download};
  engine = std::make_unique<poplar::Engine>(graph, programs);
  for (const Port& port : contract.arguments) {
    uploaded.emplace_back(contract.replicas * product(port.part) * element_of(port.type).size);
    if (!uploaded.back().empty()) {
      engine->connectStream("argument " + port.name, uploaded.back().data());
    }
  }
  for (const Port& port : contract.results) {
    downloaded.emplace_back(contract.replicas * product(port.part) * element_of(port.type).size);
    if (!downloaded.back().empty()) {
      engine->connectStream("result " + port.name, downloaded.back().data());
    }
  }
  engine->load(device);
}

SHARDIR_IPU_FUNCTION void Session::run(const Call& call) {
  for (std::size_t i = 0; i < uploaded.size(); ++i) {
    std::vector<char>& parts = uploaded[i];
    char* given = static_cast<char*>(const_cast<void*>(call.arguments[i]));
    if (call.arguments_sharded[i] != 0) {
      if (!parts.empty()) std::memcpy(parts.data(), given, parts.size());
      continue;
    }
    parts.assign(parts.size(), 0);
    const std::size_t share = parts.size() / contract.replicas;
    for (unsigned replica = 0; replica < contract.replicas; ++replica) {
      exchange(contract.arguments[i], replica, given, parts.data() + replica * share, true);
    }
  }
  engine->run(0);
  for (unsigned i = 0; i < call.steps; ++i) engine->run(1);
  engine->run(2);
  for (std::size_t i = 0; i < downloaded.size(); ++i) {
    std::vector<char>& parts = downloaded[i];
    char* wanted = static_cast<char*>(call.results[i]);
    if (call.results_sharded != 0) {
      if (!parts.empty()) std::memcpy(wanted, parts.data(), parts.size());
      continue;
    }
    // Of replicated shards, the first replica's is kept.
    const std::size_t share = parts.size() / contract.replicas;
    for (unsigned replica = contract.replicas; replica-- > 0;) {
      exchange(contract.results[i], replica, wanted, parts.data() + replica * share, false);
    }
  }
}

SHARDIR_IPU_FUNCTION int run(Contract (*contract)(), void (*build)(Program&), std::unique_ptr<Session>& session,
               const Call& call) {
  try {
    if (!session) {
      const char* device = std::getenv("SHARDIR_IPU_DEVICE");
      session = std::make_unique<Session>(contract(), build, device == nullptr ? "ipu" : device);
    }
    session->run(call);
    return 0;
  } catch (const std::exception& error) {
    session.reset();
    std::snprintf(call.message, call.room, "%s", error.what());
    return 1;
  }
}

}  // namespace shardir_ipu
