// Elements as bits, and as numbers to compute with. Memory holds 32 bits per element, whatever its
// type. To compute, floating types become doubles and integers 64-bit integers; each result is
// rounded (to nearest, ties to even) or wrapped to its type before it is used again. With + - * /
// and sqrt that gives the very bits that arithmetic of the type would give.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include <poplar/Target.hpp>
#include <poplar/Type.hpp>
#include <shardir_host_model/refusals.hpp>

namespace shardir_host_model {

using Kind = poplar::Type::Kind;
using Bits = std::uint32_t;

union Number {
  double real;
  std::int64_t whole;  // of integers, and 0 or 1 of booleans
};

inline bool is_floating(const poplar::Type& type) {
  return type == poplar::HALF || type == poplar::FLOAT;
}

// Half precision from and to double, which holds every half.
std::uint16_t half_from(double value);
double half_to(std::uint16_t bits);

// The bytes of an element, in an IPU's memory and on the host.
std::size_t size_of(const poplar::Type& type);

// The nearest value of the type; integers wrap.
Number fitted(const poplar::Type& type, Number value);

Bits encode(const poplar::Type& type, Number value);
Number decode(const poplar::Type& type, Bits bits);

// A number of one type as the nearest of another. A float becomes an integer by truncation; what
// does not fit becomes the nearest integer that does, and NaN becomes 0.
Number converted(const poplar::Type& from, const poplar::Type& to, Number value);

// Refuses types that an IPU does not have.
void check_type(const poplar::Type& type, const std::string& call);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION double half_to(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double size;
  if (exponent == 31) {
    size = fraction == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    size = std::ldexp(fraction, -24);
  } else {
    size = std::ldexp(1024 + fraction, exponent - 25);
  }
  return std::copysign(size, (bits & 0x8000) != 0 ? -1.0 : 1.0);
}

SHARDIR_HOST_MODEL_FUNCTION std::uint16_t half_from(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::fabs(value);
  if (std::isnan(size)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;  // what rounds past the largest, 65504
  if (size == 0) return sign;
  int exponent = 0;
  std::frexp(size, &exponent);
  if (exponent < -13) exponent = -13;  // subnormal: the steps are those of the smallest exponent
  // The steps between halves of this size are 2^(exponent - 11); nearbyint rounds ties to even.
  const double steps = std::nearbyint(std::ldexp(size, 11 - exponent));
  return static_cast<std::uint16_t>(sign + ((exponent + 13) << 10) + static_cast<int>(steps));
}

SHARDIR_HOST_MODEL_FUNCTION std::size_t size_of(const poplar::Type& type) {
  switch (type.kind) {
    case Kind::boolean:
    case Kind::signed_char:
    case Kind::unsigned_char:
      return 1;
    case Kind::signed_short:
    case Kind::unsigned_short:
    case Kind::half:
      return 2;
    case Kind::signed_int:
    case Kind::unsigned_int:
    case Kind::single:
      return 4;
    default:
      refuse("an element of type " + type.toString() + " has no size on an IPU");
  }
}

SHARDIR_HOST_MODEL_FUNCTION Number fitted(const poplar::Type& type, Number value) {
  Number result;
  switch (type.kind) {
    case Kind::boolean:
      result.whole = value.whole != 0;
      break;
    case Kind::signed_char:
      result.whole = static_cast<std::int8_t>(value.whole);
      break;
    case Kind::unsigned_char:
      result.whole = static_cast<std::uint8_t>(value.whole);
      break;
    case Kind::signed_short:
      result.whole = static_cast<std::int16_t>(value.whole);
      break;
    case Kind::unsigned_short:
      result.whole = static_cast<std::uint16_t>(value.whole);
      break;
    case Kind::signed_int:
      result.whole = static_cast<std::int32_t>(value.whole);
      break;
    case Kind::unsigned_int:
      result.whole = static_cast<std::uint32_t>(value.whole);
      break;
    case Kind::half:
      result.real = half_to(half_from(value.real));
      break;
    default:
      result.real = static_cast<float>(value.real);
  }
  return result;
}

SHARDIR_HOST_MODEL_FUNCTION Bits encode(const poplar::Type& type, Number value) {
  switch (type.kind) {
    case Kind::half:
      return half_from(value.real);
    case Kind::single: {
      const float single = static_cast<float>(value.real);
      Bits bits;
      std::memcpy(&bits, &single, sizeof bits);
      return bits;
    }
    default: {
      const Bits mask = size_of(type) == 4 ? ~Bits(0) : (Bits(1) << (8 * size_of(type))) - 1;
      return static_cast<Bits>(fitted(type, value).whole) & mask;
    }
  }
}

SHARDIR_HOST_MODEL_FUNCTION Number decode(const poplar::Type& type, Bits bits) {
  Number value;
  if (type == poplar::HALF) {
    value.real = half_to(static_cast<std::uint16_t>(bits));
  } else if (type == poplar::FLOAT) {
    float single;
    std::memcpy(&single, &bits, sizeof single);
    value.real = single;
  } else {
    value.whole = bits;
    value = fitted(type, value);
  }
  return value;
}

SHARDIR_HOST_MODEL_FUNCTION Number converted(const poplar::Type& from, const poplar::Type& to,
                                             Number value) {
  const bool real = is_floating(from);
  Number result;
  if (is_floating(to)) {
    result.real = real ? value.real : static_cast<double>(value.whole);
  } else if (!real) {
    result = value;
  } else if (to == poplar::BOOL) {
    result.whole = value.real != 0;
  } else {
    const int bits = static_cast<int>(8 * size_of(to));
    const bool is_signed = to == poplar::SIGNED_CHAR || to == poplar::SHORT || to == poplar::INT;
    const double lowest = is_signed ? -std::ldexp(1.0, bits - 1) : 0.0;
    const double highest = std::ldexp(1.0, is_signed ? bits - 1 : bits) - 1;
    const double whole = std::isnan(value.real) ? 0.0 : std::trunc(value.real);
    result.whole = static_cast<std::int64_t>(std::fmin(std::fmax(whole, lowest), highest));
  }
  return fitted(to, result);
}

SHARDIR_HOST_MODEL_FUNCTION void check_type(const poplar::Type& type, const std::string& call) {
  if (type == poplar::LONGLONG || type == poplar::UNSIGNED_LONGLONG || type == poplar::DOUBLE ||
      type == poplar::Type()) {
    refuse(call + ": an IPU computes with no " + type.toString() +
           "; use INT, UNSIGNED_INT or FLOAT");
  }
}

}  // namespace shardir_host_model

namespace poplar {

SHARDIR_HOST_MODEL_FUNCTION std::string Type::toString() const {
  static const char* const names[] = {
      "no type",      "BOOL", "SIGNED_CHAR", "UNSIGNED_CHAR", "SHORT",    "UNSIGNED_SHORT",    "INT",
      "UNSIGNED_INT", "HALF", "FLOAT",       "LONGLONG",      "UNSIGNED_LONGLONG", "DOUBLE"};
  return names[static_cast<unsigned>(kind)];
}

SHARDIR_HOST_MODEL_FUNCTION std::size_t Target::getTypeSize(const Type& type) const {
  return shardir_host_model::size_of(type);
}

}  // namespace poplar
#endif
