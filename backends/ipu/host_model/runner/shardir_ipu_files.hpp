// The command line of emitted programs: arguments from files, results into files.
#pragma once

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>

#include "shardir_ipu_host.hpp"
#include "shardir_ipu_npy.hpp"
#include "shardir_ipu_session.hpp"

namespace shardir_ipu {

inline std::string describe(const std::string& text) {
  std::string written = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') written += '\\';
    written += letter;
  }
  return written + "\"";
}

inline std::string describe(const Shape& shape) {
  std::string written = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    written += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return written + "]";
}

inline std::string describe(const std::vector<Port>& ports) {
  std::string written = "[";
  for (const Port& port : ports) {
    written += std::string(written.size() == 1 ? "" : ",") + "\n  {\"name\": " +
               describe(port.name) + ", \"label\": " + describe(port.label) + ", \"dtype\": \"" +
               element_of(port.type).numpy + "\", \"whole\": " + describe(port.whole) +
               ", \"part\": " + describe(port.part) + "}";
  }
  return written + "]";
}

SHARDIR_IPU_FUNCTION std::string describe(const Contract& contract) {
  return "{\"title\": " + describe(contract.title) + ", \"replicas\": " +
         std::to_string(contract.replicas) + ", \"arguments\": " + describe(contract.arguments) +
         ", \"results\": " + describe(contract.results) + "}";
}

// The options of the command line.
struct Options {
  std::string arguments = "arguments", results = "results", device = "ipu";
  unsigned steps = 1;
  bool sharded = false, describe = false;
};

inline Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--sharded" || word == "--describe") {
      (word == "--sharded" ? options.sharded : options.describe) = true;
      continue;
    }
    const bool known =
        word == "--arguments" || word == "--results" || word == "--device" || word == "--steps";
    if (!known || i + 1 == count) {
      throw Error((known ? "nothing follows " : "there is no option ") + word +
                  "; the options are --arguments DIR, --results DIR, --steps N, --sharded, "
                  "--device ipu|model|cpu and --describe");
    }
    const std::string value = words[++i];
    if (word == "--arguments") options.arguments = value;
    if (word == "--results") options.results = value;
    if (word == "--device") options.device = value;
    if (word == "--steps") {
      char* end = nullptr;
      options.steps = static_cast<unsigned>(std::strtoul(value.c_str(), &end, 10));
      if (value.empty() || *end != '\0' || value[0] == '-') {
        throw Error("--steps takes a number, not '" + value + "'");
      }
    }
  }
  return options;
}

// The shards of all replicas, from a file with the global array or with the shards.
inline std::vector<char> read_argument(const Port& port, unsigned replicas,
                                       const std::string& folder) {
  const std::string path = folder + "/" + port.name + ".npy";
  const std::string argument = "the argument " + port.label;
  const Element& element = element_of(port.type);
  if (!File(path, "rb").open()) {
    throw Error("'" + path + "' does not exist; save " + argument + " there with numpy.save");
  }
  Array array = read_npy(path);
  if (array.file_type != element.file) {
    std::string type = array.file_type;
    for (const Element& other : elements()) {
      if (type == other.file) type = other.numpy;
    }
    throw Error("'" + path + "' holds " + type + ", but " + argument + " is " + element.numpy +
                "; convert it with astype");
  }
  Shape parts = port.part;
  parts.insert(parts.begin(), replicas);
  if (array.shape == parts) return std::move(array.bytes);
  if (array.shape != port.whole) {
    throw Error("'" + path + "' has shape " + text(array.shape) + ", but " + argument + " has " +
                text(port.whole) + ", or " + text(parts) + " as the shards of all replicas");
  }
  const std::size_t share = product(port.part) * element.size;
  std::vector<char> bytes(replicas * share);
  for (unsigned replica = 0; replica < replicas; ++replica) {
    exchange(port, replica, array.bytes.data(), bytes.data() + replica * share, true);
  }
  return bytes;
}

// Creates a folder and its parents if they do not exist.
inline void make_folder(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    ::mkdir(path.substr(0, end).c_str(), 0777);
    if (end == std::string::npos) break;
  }
  struct stat found;
  if (::stat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    throw Error("the folder '" + path + "' cannot be made; name another one with --results");
  }
}

inline void run_with_files(const Contract& contract, void (*build)(Program&),
                           const Options& options) {
  make_folder(options.results);
  std::vector<std::vector<char>> arguments, results;
  std::vector<const void*> given;
  std::vector<void*> wanted;
  const std::vector<int> sharded(contract.arguments.size(), 1);
  for (const Port& port : contract.arguments) {
    arguments.push_back(read_argument(port, contract.replicas, options.arguments));
  }
  for (const std::vector<char>& bytes : arguments) given.push_back(bytes.data());
  std::vector<Shape> shapes;
  for (const Port& port : contract.results) {
    shapes.push_back(options.sharded ? port.part : port.whole);
    if (options.sharded) shapes.back().insert(shapes.back().begin(), contract.replicas);
    results.emplace_back(product(shapes.back()) * element_of(port.type).size);
  }
  for (std::vector<char>& bytes : results) wanted.push_back(bytes.data());
  Session(contract, build, options.device)
      .run({given.data(), sharded.data(), wanted.data(), options.steps, options.sharded ? 1 : 0,
            nullptr, 0});
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Port& port = contract.results[i];
    write_npy(options.results + "/" + port.name + ".npy", element_of(port.type), shapes[i],
              results[i]);
  }
}

SHARDIR_IPU_FUNCTION int main(Contract (*contract)(), void (*build)(Program&), int count, char** words) {
  const Contract made = contract();
  try {
    const Options options = read_options(count, words);
    if (options.describe) {
      std::printf("%s\n", describe(made).c_str());
    } else {
      run_with_files(made, build, options);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", made.title.c_str(), error.what());
    return 1;
  }
}

}  // namespace shardir_ipu
