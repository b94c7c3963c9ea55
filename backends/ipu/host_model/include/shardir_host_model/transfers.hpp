// Bytes between the host's buffers and the replicas' memory.
#pragma once

#include <shardir_host_model/machine.hpp>

namespace shardir_host_model {

// Copies one replica's part of a buffer from and to a tensor.
void receive(Machine& machine, unsigned replica, const poplar::Tensor& tensor, const char* bytes);
void send(const Machine& machine, unsigned replica, const poplar::Tensor& tensor, char* bytes);

// Where the next transfer of a stream begins on the host.
char* next_place(Machine& machine, const poplar::DataStream& stream);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION void receive(Machine& machine, unsigned replica,
                                         const poplar::Tensor& tensor, const char* bytes) {
  const std::size_t size = size_of(tensor.elementType());
  std::vector<Bits> bits(tensor.numElements());
  for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(&bits[i], bytes + i * size, size);
  machine.write(replica, tensor, bits);
}

SHARDIR_HOST_MODEL_FUNCTION void send(const Machine& machine, unsigned replica,
                                      const poplar::Tensor& tensor, char* bytes) {
  const std::size_t size = size_of(tensor.elementType());
  const std::vector<Bits> bits = machine.read(replica, tensor);
  for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(bytes + i * size, &bits[i], size);
}

SHARDIR_HOST_MODEL_FUNCTION char* next_place(Machine& machine, const poplar::DataStream& stream) {
  auto found = machine.connections.find(stream.name);
  if (found == machine.connections.end()) {
    refuse("the stream " + quoted(stream.name) +
           " is not connected; call Engine::connectStream before running");
  }
  Connection& connection = found->second;
  if (connection.end == nullptr) return connection.begin;
  char* place = connection.begin + connection.next;
  const unsigned shares = stream.broadcast ? 1 : machine.count();
  connection.next += shares * stream.count * size_of(stream.type);
  if (connection.begin + connection.next == connection.end) connection.next = 0;
  return place;
}

}  // namespace shardir_host_model
#endif
