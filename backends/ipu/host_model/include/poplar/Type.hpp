// Element types. LONGLONG, UNSIGNED_LONGLONG and DOUBLE exist to be refused: an IPU computes with
// none of them.
#pragma once

#include <cstddef>
#include <string>

#include <shardir_host_model/configuration.hpp>

namespace poplar {

class Type {
 public:
  enum class Kind : unsigned char {
    none,
    boolean,
    signed_char,
    unsigned_char,
    signed_short,
    unsigned_short,
    signed_int,
    unsigned_int,
    half,
    single,
    signed_long,
    unsigned_long,
    double_precision,
  };

  constexpr Type() = default;
  constexpr explicit Type(Kind kind) : kind(kind) {}

  bool operator==(const Type& other) const { return kind == other.kind; }
  bool operator!=(const Type& other) const { return kind != other.kind; }
  bool operator<(const Type& other) const { return kind < other.kind; }
  std::string toString() const;

  Kind kind = Kind::none;
};

inline constexpr Type BOOL{Type::Kind::boolean};
inline constexpr Type SIGNED_CHAR{Type::Kind::signed_char};
inline constexpr Type UNSIGNED_CHAR{Type::Kind::unsigned_char};
inline constexpr Type SHORT{Type::Kind::signed_short};
inline constexpr Type UNSIGNED_SHORT{Type::Kind::unsigned_short};
inline constexpr Type INT{Type::Kind::signed_int};
inline constexpr Type UNSIGNED_INT{Type::Kind::unsigned_int};
inline constexpr Type HALF{Type::Kind::half};
inline constexpr Type FLOAT{Type::Kind::single};
inline constexpr Type LONGLONG{Type::Kind::signed_long};
inline constexpr Type UNSIGNED_LONGLONG{Type::Kind::unsigned_long};
inline constexpr Type DOUBLE{Type::Kind::double_precision};

}  // namespace poplar
