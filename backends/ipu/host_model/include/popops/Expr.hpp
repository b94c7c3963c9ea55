// Expressions of elements, for popops::map. `_1` is the first tensor, `_2` the second, up to 20.
// All parts of an expression have one element type; only Cast changes it.
#pragma once

#include <memory>

#include <poplar/Type.hpp>
#include <popops/ExprOp.hpp>

namespace shardir_host_model {
struct ExpressionNode;
}

namespace popops::expr {

class Expr {
 public:
  const std::shared_ptr<const shardir_host_model::ExpressionNode>& model() const { return node; }

 protected:
  using Node = std::shared_ptr<const shardir_host_model::ExpressionNode>;
  explicit Expr(Node node) : node(std::move(node)) {}
  Expr(const Expr&) = default;
  Expr& operator=(const Expr&) = default;
  ~Expr() = default;

 private:
  Node node;
};

// Any expression, to be kept in a variable.
class Any : public Expr {
 public:
  Any(const Expr& expression) : Expr(expression) {}
};

class PlaceHolder : public Expr {
 public:
  explicit PlaceHolder(unsigned index);
};

// Of the type that goes with the C++ type: float, int, unsigned or bool.
class Const : public Expr {
 public:
  explicit Const(float value);
  explicit Const(int value);
  explicit Const(unsigned value);
  explicit Const(bool value);
  explicit Const(double) = delete;
  explicit Const(long) = delete;
};

class ConstHalf : public Expr {
 public:
  explicit ConstHalf(float value);
};

class Cast : public Expr {
 public:
  Cast(const Expr& value, const poplar::Type& type);
};

class UnaryOp : public Expr {
 public:
  UnaryOp(UnaryOpType operation, const Expr& value);
};

class BinaryOp : public Expr {
 public:
  BinaryOp(BinaryOpType operation, const Expr& first, const Expr& second);
};

class TernaryOp : public Expr {
 public:
  TernaryOp(TernaryOpType operation, const Expr& first, const Expr& second, const Expr& third);
};

// The first where the third is true, else the second.
class Select : public TernaryOp {
 public:
  Select(const Expr& first, const Expr& second, const Expr& condition)
      : TernaryOp(TernaryOpType::SELECT, first, second, condition) {}
};

class Clamp : public TernaryOp {
 public:
  Clamp(const Expr& value, const Expr& lowest, const Expr& highest)
      : TernaryOp(TernaryOpType::CLAMP, value, lowest, highest) {}
};

#define SHARDIR_HOST_MODEL_UNARY(Name, operation)                          \
  class Name : public UnaryOp {                                            \
   public:                                                                 \
    explicit Name(const Expr& a) : UnaryOp(UnaryOpType::operation, a) {}   \
  };
#define SHARDIR_HOST_MODEL_BINARY(Name, operation)                                          \
  class Name : public BinaryOp {                                                            \
   public:                                                                                  \
    Name(const Expr& a, const Expr& b) : BinaryOp(BinaryOpType::operation, a, b) {}         \
  };
#define SHARDIR_HOST_MODEL_SYMBOL(Name, symbol) \
  inline Name operator symbol(const Expr& a, const Expr& b) { return Name(a, b); }

SHARDIR_HOST_MODEL_UNARY(Abs, ABSOLUTE)
SHARDIR_HOST_MODEL_UNARY(Asin, ASIN)
SHARDIR_HOST_MODEL_UNARY(BitwiseNot, BITWISE_NOT)
SHARDIR_HOST_MODEL_UNARY(Cbrt, CBRT)
SHARDIR_HOST_MODEL_UNARY(Ceil, CEIL)
SHARDIR_HOST_MODEL_UNARY(Cos, COS)
SHARDIR_HOST_MODEL_UNARY(Erf, ERF)
SHARDIR_HOST_MODEL_UNARY(Exp, EXPONENT)
SHARDIR_HOST_MODEL_UNARY(Exp2, EXPONENT2)
SHARDIR_HOST_MODEL_UNARY(Expm1, EXPONENT_MINUS_ONE)
SHARDIR_HOST_MODEL_UNARY(Floor, FLOOR)
SHARDIR_HOST_MODEL_UNARY(GeluErf, GELU_ERF)
SHARDIR_HOST_MODEL_UNARY(Inv, INVERSE)
SHARDIR_HOST_MODEL_UNARY(IsFinite, IS_FINITE)
SHARDIR_HOST_MODEL_UNARY(IsInf, IS_INF)
SHARDIR_HOST_MODEL_UNARY(IsNaN, IS_NAN)
SHARDIR_HOST_MODEL_UNARY(Log, LOGARITHM)
SHARDIR_HOST_MODEL_UNARY(Log1p, LOGARITHM_ONE_PLUS)
SHARDIR_HOST_MODEL_UNARY(NearbyInt, NEARBY_INT)
SHARDIR_HOST_MODEL_UNARY(Neg, NEGATE)
SHARDIR_HOST_MODEL_UNARY(Not, LOGICAL_NOT)
SHARDIR_HOST_MODEL_UNARY(Round, ROUND)
SHARDIR_HOST_MODEL_UNARY(Rsqrt, RSQRT)
SHARDIR_HOST_MODEL_UNARY(Sigmoid, SIGMOID)
SHARDIR_HOST_MODEL_UNARY(Signum, SIGNUM)
SHARDIR_HOST_MODEL_UNARY(Sin, SIN)
SHARDIR_HOST_MODEL_UNARY(Sqrt, SQRT)
SHARDIR_HOST_MODEL_UNARY(Square, SQUARE)
SHARDIR_HOST_MODEL_UNARY(Tan, TAN)
SHARDIR_HOST_MODEL_UNARY(Tanh, TANH)
SHARDIR_HOST_MODEL_UNARY(Trunc, TRUNC)
SHARDIR_HOST_MODEL_BINARY(Add, ADD)
SHARDIR_HOST_MODEL_BINARY(And, LOGICAL_AND)
SHARDIR_HOST_MODEL_BINARY(Atan2, ATAN2)
SHARDIR_HOST_MODEL_BINARY(BitwiseAnd, BITWISE_AND)
SHARDIR_HOST_MODEL_BINARY(BitwiseOr, BITWISE_OR)
SHARDIR_HOST_MODEL_BINARY(BitwiseXnor, BITWISE_XNOR)
SHARDIR_HOST_MODEL_BINARY(BitwiseXor, BITWISE_XOR)
SHARDIR_HOST_MODEL_BINARY(Divide, DIVIDE)
SHARDIR_HOST_MODEL_BINARY(Equal, EQUAL)
SHARDIR_HOST_MODEL_BINARY(Gt, GREATER_THAN)
SHARDIR_HOST_MODEL_BINARY(Gte, GREATER_THAN_EQUAL)
SHARDIR_HOST_MODEL_BINARY(Lt, LESS_THAN)
SHARDIR_HOST_MODEL_BINARY(Lte, LESS_THAN_EQUAL)
SHARDIR_HOST_MODEL_BINARY(Max, MAXIMUM)
SHARDIR_HOST_MODEL_BINARY(Min, MINIMUM)
SHARDIR_HOST_MODEL_BINARY(Mul, MULTIPLY)
SHARDIR_HOST_MODEL_BINARY(NotEqual, NOT_EQUAL)
SHARDIR_HOST_MODEL_BINARY(Or, LOGICAL_OR)
SHARDIR_HOST_MODEL_BINARY(Pow, POWER)
SHARDIR_HOST_MODEL_BINARY(Rem, REMAINDER)
SHARDIR_HOST_MODEL_BINARY(Shl, SHIFT_LEFT)
SHARDIR_HOST_MODEL_BINARY(Shr, SHIFT_RIGHT)
SHARDIR_HOST_MODEL_BINARY(ShrSE, SHIFT_RIGHT_SIGN_EXTEND)
SHARDIR_HOST_MODEL_BINARY(Sub, SUBTRACT)
SHARDIR_HOST_MODEL_SYMBOL(Add, +)
SHARDIR_HOST_MODEL_SYMBOL(Sub, -)
SHARDIR_HOST_MODEL_SYMBOL(Mul, *)
SHARDIR_HOST_MODEL_SYMBOL(Divide, /)
SHARDIR_HOST_MODEL_SYMBOL(Rem, %)
SHARDIR_HOST_MODEL_SYMBOL(BitwiseAnd, &)
SHARDIR_HOST_MODEL_SYMBOL(BitwiseOr, |)
SHARDIR_HOST_MODEL_SYMBOL(BitwiseXor, ^)
SHARDIR_HOST_MODEL_SYMBOL(Shl, <<)
SHARDIR_HOST_MODEL_SYMBOL(Shr, >>)
SHARDIR_HOST_MODEL_SYMBOL(And, &&)
SHARDIR_HOST_MODEL_SYMBOL(Or, ||)
SHARDIR_HOST_MODEL_SYMBOL(Equal, ==)
SHARDIR_HOST_MODEL_SYMBOL(NotEqual, !=)
SHARDIR_HOST_MODEL_SYMBOL(Lt, <)
SHARDIR_HOST_MODEL_SYMBOL(Lte, <=)
SHARDIR_HOST_MODEL_SYMBOL(Gt, >)
SHARDIR_HOST_MODEL_SYMBOL(Gte, >=)
inline Neg operator-(const Expr& a) { return Neg(a); }
inline Not operator!(const Expr& a) { return Not(a); }
inline BitwiseNot operator~(const Expr& a) { return BitwiseNot(a); }

#undef SHARDIR_HOST_MODEL_UNARY
#undef SHARDIR_HOST_MODEL_BINARY
#undef SHARDIR_HOST_MODEL_SYMBOL

inline const PlaceHolder _1(1), _2(2), _3(3), _4(4), _5(5), _6(6), _7(7), _8(8), _9(9), _10(10),
    _11(11), _12(12), _13(13), _14(14), _15(15), _16(16), _17(17), _18(18), _19(19), _20(20);

}  // namespace popops::expr

#if !defined(SHARDIR_HOST_MODEL_SEPARATE)
#include <shardir_host_model/expressions.hpp>
#endif
