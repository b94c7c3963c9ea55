// Files of NumPy arrays (.npy), for the element types that an IPU has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <poplar/Type.hpp>

#include "shardir_ipu_host.hpp"

namespace shardir_ipu {

// An element type with its names in Poplar, NumPy and .npy files.
struct Element {
  poplar::Type type;
  const char* numpy;
  const char* file;
  std::size_t size;
};

inline const std::vector<Element>& elements() {
  static const std::vector<Element> all = {
      {poplar::BOOL, "bool", "|b1", 1},           {poplar::SIGNED_CHAR, "int8", "|i1", 1},
      {poplar::UNSIGNED_CHAR, "uint8", "|u1", 1}, {poplar::SHORT, "int16", "<i2", 2},
      {poplar::UNSIGNED_SHORT, "uint16", "<u2", 2}, {poplar::INT, "int32", "<i4", 4},
      {poplar::UNSIGNED_INT, "uint32", "<u4", 4}, {poplar::HALF, "float16", "<f2", 2},
      {poplar::FLOAT, "float32", "<f4", 4},
  };
  return all;
}

inline const Element& element_of(const poplar::Type& type) {
  for (const Element& element : elements()) {
    if (element.type == type) return element;
  }
  throw Error("elements of type " + std::string(type.toString()) + " are in no .npy file");
}

inline std::size_t product(const Shape& shape) {
  std::size_t count = 1;
  for (std::size_t size : shape) count *= size;
  return count;
}

// "(2, 3)", as NumPy writes it.
inline std::string text(const Shape& shape) {
  std::string written = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    written += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return written + (shape.size() == 1 ? ",)" : ")");
}

// A file that its destructor closes.
class File {
 public:
  File(std::string path, const char* mode)
      : path(std::move(path)), file(std::fopen(this->path.c_str(), mode)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (file != nullptr) std::fclose(file);
  }

  bool open() const { return file != nullptr; }

  void read(void* bytes, std::size_t count) {
    if (std::fread(bytes, 1, count, file) != count) {
      throw Error("'" + path + "' ends too early; save the array again");
    }
  }
  void write(const void* bytes, std::size_t count) {
    if (std::fwrite(bytes, 1, count, file) != count) {
      throw Error("'" + path + "' cannot be written; is the disk full?");
    }
  }

 private:
  std::string path;
  std::FILE* file;
};

struct Array {
  std::string file_type;  // as in Element
  Shape shape;
  std::vector<char> bytes;
};

// The text after `key` in the header's dictionary.
inline std::string value_after(const std::string& header, const std::string& key,
                               const std::string& path) {
  const std::size_t found = header.find("'" + key + "':");
  if (found == std::string::npos) {
    throw Error("'" + path + "' has no '" + key + "' in its header; save it with numpy.save");
  }
  const std::size_t begin = header.find_first_not_of(' ', found + key.size() + 3);
  return begin == std::string::npos ? "" : header.substr(begin);
}

inline Shape read_shape(const std::string& written) {
  Shape shape;
  for (std::size_t i = 1; i < written.size() && written[i] != ')';) {
    if (written[i] < '0' || written[i] > '9') {
      ++i;
      continue;
    }
    std::size_t size = 0;
    for (; written[i] >= '0' && written[i] <= '9'; ++i) {
      size = 10 * size + static_cast<std::size_t>(written[i] - '0');
    }
    shape.push_back(size);
  }
  return shape;
}

inline std::string type_after(const std::string& written) {
  if (written.empty() || written[0] != '\'') return "a structure";
  return written.substr(1, written.find('\'', 1) - 1);
}

// Reads an array; the file exists.
inline Array read_npy(const std::string& path) {
  File file(path, "rb");
  unsigned char start[8], length[4] = {};
  file.read(start, sizeof start);
  if (std::string(reinterpret_cast<char*>(start), 6) != "\x93NUMPY") {
    throw Error("'" + path + "' is no .npy file; save it with numpy.save");
  }
  file.read(length, start[6] == 1 ? 2 : 4);
  std::string header(length[0] + (length[1] << 8) + (length[2] << 16), ' ');
  file.read(&header[0], header.size());
  Array array;
  array.file_type = type_after(value_after(header, "descr", path));
  array.shape = read_shape(value_after(header, "shape", path));
  if (value_after(header, "fortran_order", path)[0] == 'T' && array.shape.size() > 1) {
    throw Error("'" + path + "' is in Fortran order; save numpy.ascontiguousarray of it");
  }
  for (const Element& element : elements()) {
    if (array.file_type == element.file) array.bytes.resize(product(array.shape) * element.size);
  }
  if (!array.bytes.empty()) file.read(array.bytes.data(), array.bytes.size());
  return array;
}

inline void write_npy(const std::string& path, const Element& element, const Shape& shape,
                      const std::vector<char>& bytes) {
  File file(path, "wb");
  if (!file.open()) throw Error("'" + path + "' cannot be written; is it write-protected?");
  std::string header = "{'descr': '" + std::string(element.file) +
                       "', 'fortran_order': False, 'shape': " + text(shape) + ", }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10, ' ');
  header.back() = '\n';
  const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0,
                                   static_cast<unsigned char>(header.size() & 255),
                                   static_cast<unsigned char>(header.size() >> 8)};
  file.write(start, sizeof start);
  file.write(header.data(), header.size());
  file.write(bytes.data(), bytes.size());
}

}  // namespace shardir_ipu
