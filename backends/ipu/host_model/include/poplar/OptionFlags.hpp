// Options as pairs of strings. Poplar refuses options that a call does not define; the model defines
// none.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include <shardir_host_model/refusals.hpp>

namespace poplar {

class OptionFlags {
 public:
  OptionFlags() = default;
  OptionFlags(std::initializer_list<std::pair<std::string, std::string>> options) {
    for (const auto& option : options) set(option.first, option.second);
  }

  void set(const std::string& name, const std::string& value) {
    shardir_host_model::refuse("poplar::OptionFlags: " + shardir_host_model::quoted(name) + "=" +
                               value + " is not modelled; leave options as they are");
  }
};

}  // namespace poplar
