// The operations of expressions on single numbers. Where Poplar does not define the result, the
// model returns a value with which a program that relies on it is wrong:
//
// - Max and Min of a number and NaN are the number;
// - an integer divided by 0 is all ones, and the remainder is the dividend;
// - a shift by 32 or more shifts by the remainder of 32.
#pragma once

#include <shardir_host_model/expressions.hpp>

namespace shardir_host_model {

// `type` is that of the operands. Results are not yet rounded or wrapped.
Number unary(popops::expr::UnaryOpType operation, const poplar::Type& type, Number a);
Number binary(popops::expr::BinaryOpType operation, const poplar::Type& type, Number a, Number b);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

inline Number whole(std::int64_t value) {
  Number number;
  number.whole = value;
  return number;
}

inline Number real(double value) {
  Number number;
  number.real = value;
  return number;
}

inline Number unary_real(popops::expr::UnaryOpType operation, double a) {
  using Operation = popops::expr::UnaryOpType;
  switch (operation) {
    case Operation::ABSOLUTE:
      return real(std::fabs(a));
    case Operation::ASIN:
      return real(std::asin(a));
    case Operation::CBRT:
      return real(std::cbrt(a));
    case Operation::CEIL:
      return real(std::ceil(a));
    case Operation::COS:
      return real(std::cos(a));
    case Operation::ERF:
      return real(std::erf(a));
    case Operation::EXPONENT:
      return real(std::exp(a));
    case Operation::EXPONENT2:
      return real(std::exp2(a));
    case Operation::EXPONENT_MINUS_ONE:
      return real(std::expm1(a));
    case Operation::FLOOR:
      return real(std::floor(a));
    case Operation::GELU_ERF:
      return real(0.5 * a * (1.0 + std::erf(a / std::sqrt(2.0))));
    case Operation::INVERSE:
      return real(1.0 / a);
    case Operation::IS_FINITE:
      return whole(std::isfinite(a));
    case Operation::IS_INF:
      return whole(std::isinf(a));
    case Operation::IS_NAN:
      return whole(std::isnan(a));
    case Operation::LOGARITHM:
      return real(std::log(a));
    case Operation::LOGARITHM_ONE_PLUS:
      return real(std::log1p(a));
    case Operation::NEARBY_INT:
      return real(std::nearbyint(a));
    case Operation::NEGATE:
      return real(-a);
    case Operation::RELU:
      return real(std::fmax(a, 0.0));
    case Operation::ROUND:
      return real(std::round(a));
    case Operation::RSQRT:
      return real(1.0 / std::sqrt(a));
    case Operation::SIGMOID:
      return real(1.0 / (1.0 + std::exp(-a)));
    case Operation::SIGNUM:
      return real((a > 0) - (a < 0));
    case Operation::SIN:
      return real(std::sin(a));
    case Operation::SQRT:
      return real(std::sqrt(a));
    case Operation::SQUARE:
      return real(a * a);
    case Operation::TAN:
      return real(std::tan(a));
    case Operation::TANH:
      return real(std::tanh(a));
    case Operation::TRUNC:
      return real(std::trunc(a));
    default:
      refuse("an operation of integers is given a floating number");
  }
}

SHARDIR_HOST_MODEL_FUNCTION Number unary(popops::expr::UnaryOpType operation,
                                         const poplar::Type& type, Number a) {
  using Operation = popops::expr::UnaryOpType;
  if (is_floating(type)) return unary_real(operation, a.real);
  const auto bits = static_cast<std::uint32_t>(a.whole);
  switch (operation) {
    case Operation::ABSOLUTE:
      return whole(a.whole < 0 ? -a.whole : a.whole);
    case Operation::BITWISE_NOT:
      return whole(~a.whole);
    case Operation::COUNT_LEADING_ZEROS: {
      int zeros = 32;
      for (std::uint32_t rest = bits; rest != 0; rest >>= 1) --zeros;
      return whole(zeros);
    }
    case Operation::LOGICAL_NOT:
      return whole(a.whole == 0);
    case Operation::NEGATE:
      return whole(-a.whole);
    case Operation::POPCOUNT: {
      int ones = 0;
      for (std::uint32_t rest = bits; rest != 0; rest &= rest - 1) ++ones;
      return whole(ones);
    }
    case Operation::SIGNUM:
      return whole((a.whole > 0) - (a.whole < 0));
    case Operation::SQUARE:
      return whole(static_cast<std::int64_t>(static_cast<std::uint64_t>(a.whole) *
                                             static_cast<std::uint64_t>(a.whole)));
    default:
      refuse("an operation of floating numbers is given an integer");
  }
}

inline std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  std::uint32_t result = 1, square = static_cast<std::uint32_t>(base);
  for (; exponent != 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return static_cast<std::int32_t>(result);
}

inline Number binary_real(popops::expr::BinaryOpType operation, double a, double b) {
  using Operation = popops::expr::BinaryOpType;
  switch (operation) {
    case Operation::ADD:
      return real(a + b);
    case Operation::ATAN2:
      return real(std::atan2(a, b));
    case Operation::DIVIDE:
      return real(a / b);
    case Operation::EQUAL:
      return whole(a == b);
    case Operation::GREATER_THAN:
      return whole(a > b);
    case Operation::GREATER_THAN_EQUAL:
      return whole(a >= b);
    case Operation::LESS_THAN:
      return whole(a < b);
    case Operation::LESS_THAN_EQUAL:
      return whole(a <= b);
    case Operation::MAXIMUM:
      return real(std::fmax(a, b));
    case Operation::MINIMUM:
      return real(std::fmin(a, b));
    case Operation::MULTIPLY:
      return real(a * b);
    case Operation::NOT_EQUAL:
      return whole(a != b);
    case Operation::POWER:
      return real(std::pow(a, b));
    case Operation::REMAINDER:
      return real(std::fmod(a, b));
    case Operation::SUBTRACT:
      return real(a - b);
    default:
      refuse("an operation of integers is given floating numbers");
  }
}

SHARDIR_HOST_MODEL_FUNCTION Number binary(popops::expr::BinaryOpType operation,
                                          const poplar::Type& type, Number first, Number second) {
  using Operation = popops::expr::BinaryOpType;
  if (is_floating(type)) return binary_real(operation, first.real, second.real);
  const std::int64_t a = first.whole, b = second.whole;
  const auto shift = static_cast<unsigned>(b & 31);
  switch (operation) {
    case Operation::ADD:
      return whole(a + b);
    case Operation::BITWISE_AND:
    case Operation::LOGICAL_AND:
      return whole(a & b);
    case Operation::BITWISE_OR:
    case Operation::LOGICAL_OR:
      return whole(a | b);
    case Operation::BITWISE_XNOR:
      return whole(~(a ^ b));
    case Operation::BITWISE_XOR:
      return whole(a ^ b);
    case Operation::DIVIDE:
      return whole(b == 0 ? -1 : a / b);
    case Operation::EQUAL:
      return whole(a == b);
    case Operation::GREATER_THAN:
      return whole(a > b);
    case Operation::GREATER_THAN_EQUAL:
      return whole(a >= b);
    case Operation::LESS_THAN:
      return whole(a < b);
    case Operation::LESS_THAN_EQUAL:
      return whole(a <= b);
    case Operation::MAXIMUM:
      return whole(a > b ? a : b);
    case Operation::MINIMUM:
      return whole(a < b ? a : b);
    case Operation::MULTIPLY:
      return whole(static_cast<std::int64_t>(static_cast<std::uint64_t>(a) *
                                             static_cast<std::uint64_t>(b)));
    case Operation::NOT_EQUAL:
      return whole(a != b);
    case Operation::POWER:
      return whole(power(a, b));
    case Operation::REMAINDER:
      return whole(b == 0 ? a : a % b);
    case Operation::SHIFT_LEFT:
      return whole(static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << shift));
    case Operation::SHIFT_RIGHT:
      return whole(static_cast<std::uint32_t>(a) >> shift);
    case Operation::SHIFT_RIGHT_SIGN_EXTEND:
      return whole(a >> shift);
    case Operation::SUBTRACT:
      return whole(a - b);
    default:
      refuse("an operation of floating numbers is given integers");
  }
}

}  // namespace shardir_host_model
#endif
