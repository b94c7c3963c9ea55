// The error that everything refused is thrown as.
#pragma once

#include <stdexcept>

namespace poplar {

struct poplar_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace poplar
