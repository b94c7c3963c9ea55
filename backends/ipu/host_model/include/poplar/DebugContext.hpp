// The name under which something is shown; the model uses it in its messages.
#pragma once

#include <string>
#include <utility>

namespace poplar {

class DebugContext {
 public:
  DebugContext() = default;
  DebugContext(const char* name) : name(name) {}
  DebugContext(std::string name) : name(std::move(name)) {}

  std::string name;
};

}  // namespace poplar
