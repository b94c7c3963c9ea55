// Options as pairs of strings.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>

namespace poplar {

class OptionFlags {
 public:
  OptionFlags() = default;
  OptionFlags(std::initializer_list<std::pair<std::string, std::string>> options) {
    for (const auto& option : options) values[option.first] = option.second;
  }

  void set(const std::string& name, const std::string& value) { values[name] = value; }
  std::string get(const std::string& name, const std::string& otherwise) const {
    auto found = values.find(name);
    return found == values.end() ? otherwise : found->second;
  }

 private:
  std::map<std::string, std::string> values;
};

}  // namespace poplar
