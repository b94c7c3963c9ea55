// Errors of the model. A message begins with the call, quotes its arguments, and ends with a fix.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <poplar/exceptions.hpp>
#include <shardir_host_model/configuration.hpp>

namespace shardir_host_model {

[[noreturn]] void refuse(const std::string& message);

// "[2, 3]"
std::string text(const std::vector<std::size_t>& shape);

// "'x'", or "unnamed" for an empty name.
std::string quoted(const std::string& name);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION void refuse(const std::string& message) {
  throw poplar::poplar_error(message);
}

SHARDIR_HOST_MODEL_FUNCTION std::string text(const std::vector<std::size_t>& shape) {
  std::string written = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) written += ", ";
    written += std::to_string(shape[i]);
  }
  return written + "]";
}

SHARDIR_HOST_MODEL_FUNCTION std::string quoted(const std::string& name) {
  return name.empty() ? "unnamed" : "'" + name + "'";
}

}  // namespace shardir_host_model
#endif
