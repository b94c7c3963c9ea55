// Expressions as trees, their types, and which element types each operation has on an IPU: those
// that its codelets are made for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <popops/Expr.hpp>
#include <shardir_host_model/numbers.hpp>

namespace shardir_host_model {

struct ExpressionNode {
  enum class Kind { placeholder, constant, cast, unary, binary, ternary };
  using Child = std::shared_ptr<const ExpressionNode>;

  Kind kind;
  int operation = 0;          // of UnaryOpType, BinaryOpType or TernaryOpType; of a placeholder its
                              // index
  poplar::Type type;          // of a constant, and what a cast makes
  Number value{};
  std::vector<Child> children;
};

// An operation's name, operand types and result type.
struct OperationRule {
  const char* name;
  const char* types;  // letters: f FLOAT and HALF, i INT, u UNSIGNED_INT, b BOOL, s both SHORTs
  bool predicate;     // whether it makes BOOL
};

const OperationRule& rule_of(popops::expr::UnaryOpType operation);
const OperationRule& rule_of(popops::expr::BinaryOpType operation);

// The type of the expression for tensors of `types`; an error if there is none.
poplar::Type check_expression(const ExpressionNode& node, const std::vector<poplar::Type>& types,
                              const std::string& call);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION const OperationRule& rule_of(popops::expr::UnaryOpType operation) {
  // In the order of UnaryOpType.
  static const OperationRule rules[] = {
      {"Abs", "fi", false},      {"Asin", "f", false},    {"BitwiseNot", "ius", false},
      {"Cbrt", "f", false},      {"Ceil", "f", false},    {"Cos", "f", false},
      {"COUNT_LEADING_ZEROS", "iu", false},               {"Erf", "f", false},
      {"Exp", "f", false},       {"Exp2", "f", false},    {"Expm1", "f", false},
      {"Floor", "f", false},     {"GeluErf", "f", false}, {"Inv", "f", false},
      {"IsFinite", "f", true},   {"IsInf", "f", true},    {"IsNaN", "f", true},
      {"Log", "f", false},       {"Log1p", "f", false},   {"Not", "b", true},
      {"NearbyInt", "f", false}, {"Neg", "fi", false},    {"POPCOUNT", "iu", false},
      {"RELU", "f", false},      {"Round", "f", false},   {"Rsqrt", "f", false},
      {"Sigmoid", "f", false},   {"Signum", "fi", false}, {"Sin", "f", false},
      {"Sqrt", "f", false},      {"Square", "fiu", false},{"Tan", "f", false},
      {"Tanh", "f", false},      {"Trunc", "f", false},
  };
  return rules[static_cast<int>(operation)];
}

SHARDIR_HOST_MODEL_FUNCTION const OperationRule& rule_of(popops::expr::BinaryOpType operation) {
  // In the order of BinaryOpType.
  static const OperationRule rules[] = {
      {"Add", "fiu", false},        {"Atan2", "f", false},       {"BitwiseAnd", "ius", false},
      {"BitwiseOr", "ius", false},  {"BitwiseXnor", "ius", false}, {"BitwiseXor", "ius", false},
      {"Divide", "fiu", false},     {"Equal", "fiubs", true},    {"Gt", "fiub", true},
      {"Gte", "fiub", true},        {"Lt", "fiub", true},        {"Lte", "fiub", true},
      {"And", "b", true},           {"Or", "b", true},           {"Max", "fiu", false},
      {"Min", "fiu", false},        {"Mul", "fiu", false},       {"NotEqual", "fiubs", true},
      {"Pow", "fi", false},         {"Rem", "fiu", false},       {"Shl", "iu", false},
      {"Shr", "iu", false},         {"ShrSE", "i", false},       {"Sub", "fiu", false},
  };
  return rules[static_cast<int>(operation)];
}

inline char letter_of(const poplar::Type& type) {
  switch (type.kind) {
    case Kind::half:
    case Kind::single:
      return 'f';
    case Kind::signed_int:
      return 'i';
    case Kind::unsigned_int:
      return 'u';
    case Kind::boolean:
      return 'b';
    case Kind::signed_short:
    case Kind::unsigned_short:
      return 's';
    default:
      return '-';
  }
}

inline void check_operand(const OperationRule& rule, const poplar::Type& type,
                          const std::string& call) {
  if (std::string(rule.types).find(letter_of(type)) == std::string::npos) {
    refuse(call + ": " + rule.name + " has no codelet for " + type.toString() +
           "; cast to a type that it has");
  }
}

inline void check_same(const char* name, const poplar::Type& first, const poplar::Type& second,
                       const std::string& call) {
  if (first != second) {
    refuse(call + ": " + name + " of " + first.toString() + " and " + second.toString() +
           "; cast one of them");
  }
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Type check_expression(const ExpressionNode& node,
                                                          const std::vector<poplar::Type>& types,
                                                          const std::string& call) {
  std::vector<poplar::Type> parts;
  for (const ExpressionNode::Child& child : node.children) {
    parts.push_back(check_expression(*child, types, call));
  }
  switch (node.kind) {
    case ExpressionNode::Kind::placeholder:
      if (node.operation < 1 || static_cast<std::size_t>(node.operation) > types.size()) {
        refuse(call + ": _" + std::to_string(node.operation) + " stands for no tensor; " +
               std::to_string(types.size()) + " are given");
      }
      return types[static_cast<std::size_t>(node.operation) - 1];
    case ExpressionNode::Kind::constant:
      return node.type;
    case ExpressionNode::Kind::cast:
      check_type(node.type, call);
      return node.type;
    case ExpressionNode::Kind::unary: {
      const OperationRule& rule = rule_of(static_cast<popops::expr::UnaryOpType>(node.operation));
      check_operand(rule, parts[0], call);
      return rule.predicate ? poplar::BOOL : parts[0];
    }
    case ExpressionNode::Kind::binary: {
      const OperationRule& rule = rule_of(static_cast<popops::expr::BinaryOpType>(node.operation));
      check_same(rule.name, parts[0], parts[1], call);
      check_operand(rule, parts[0], call);
      return rule.predicate ? poplar::BOOL : parts[0];
    }
    default:
      break;
  }
  if (static_cast<popops::expr::TernaryOpType>(node.operation) ==
      popops::expr::TernaryOpType::CLAMP) {
    check_same("Clamp", parts[0], parts[1], call);
    check_same("Clamp", parts[0], parts[2], call);
    check_operand({"Clamp", "fi", false}, parts[0], call);
  } else {
    check_same("Select", parts[0], parts[1], call);
    check_operand({"Select", "fiub", false}, parts[0], call);
    check_operand({"the condition of Select", "b", false}, parts[2], call);
  }
  return parts[0];
}

inline std::shared_ptr<const ExpressionNode> constant_node(const poplar::Type& type, Number value) {
  auto node = std::make_shared<ExpressionNode>();
  node->kind = ExpressionNode::Kind::constant;
  node->type = type;
  node->value = fitted(type, value);
  return node;
}

inline std::shared_ptr<const ExpressionNode> whole_node(const poplar::Type& type,
                                                        std::int64_t value) {
  Number number;
  number.whole = value;
  return constant_node(type, number);
}

inline std::shared_ptr<const ExpressionNode> real_node(const poplar::Type& type, double value) {
  Number number;
  number.real = value;
  return constant_node(type, number);
}

inline std::shared_ptr<const ExpressionNode> operation_node(
    ExpressionNode::Kind kind, int operation, std::vector<ExpressionNode::Child> children,
    const poplar::Type& type = {}) {
  auto node = std::make_shared<ExpressionNode>();
  node->kind = kind;
  node->operation = operation;
  node->type = type;
  node->children = std::move(children);
  return node;
}

}  // namespace shardir_host_model

namespace popops::expr {

SHARDIR_HOST_MODEL_FUNCTION PlaceHolder::PlaceHolder(unsigned index)
    : Expr(shardir_host_model::operation_node(
          shardir_host_model::ExpressionNode::Kind::placeholder, static_cast<int>(index), {})) {}

SHARDIR_HOST_MODEL_FUNCTION Const::Const(float value)
    : Expr(shardir_host_model::real_node(poplar::FLOAT, value)) {}

SHARDIR_HOST_MODEL_FUNCTION Const::Const(int value)
    : Expr(shardir_host_model::whole_node(poplar::INT, value)) {}

SHARDIR_HOST_MODEL_FUNCTION Const::Const(unsigned value)
    : Expr(shardir_host_model::whole_node(poplar::UNSIGNED_INT, value)) {}

SHARDIR_HOST_MODEL_FUNCTION Const::Const(bool value)
    : Expr(shardir_host_model::whole_node(poplar::BOOL, value)) {}

SHARDIR_HOST_MODEL_FUNCTION ConstHalf::ConstHalf(float value)
    : Expr(shardir_host_model::real_node(poplar::HALF, value)) {}

SHARDIR_HOST_MODEL_FUNCTION Cast::Cast(const Expr& value, const poplar::Type& type)
    : Expr(shardir_host_model::operation_node(
          shardir_host_model::ExpressionNode::Kind::cast, 0, {value.model()}, type)) {}

SHARDIR_HOST_MODEL_FUNCTION UnaryOp::UnaryOp(UnaryOpType operation, const Expr& value)
    : Expr(shardir_host_model::operation_node(
          shardir_host_model::ExpressionNode::Kind::unary, static_cast<int>(operation),
                                              {value.model()})) {}

SHARDIR_HOST_MODEL_FUNCTION BinaryOp::BinaryOp(BinaryOpType operation, const Expr& first,
                                               const Expr& second)
    : Expr(shardir_host_model::operation_node(
          shardir_host_model::ExpressionNode::Kind::binary, static_cast<int>(operation),
                                              {first.model(), second.model()})) {}

SHARDIR_HOST_MODEL_FUNCTION TernaryOp::TernaryOp(TernaryOpType operation, const Expr& first,
                                                 const Expr& second, const Expr& third)
    : Expr(shardir_host_model::operation_node(
          shardir_host_model::ExpressionNode::Kind::ternary, static_cast<int>(operation),
                                              {first.model(), second.model(), third.model()})) {}

}  // namespace popops::expr
#endif
