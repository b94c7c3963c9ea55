// Every operation of expressions, one result each, called `<type>_<operation>`.
#include "shardir_ipu_host.hpp"

#include <popops/ElementWise.hpp>
#include <popops/codelets.hpp>

namespace pe = popops::expr;
using pe::_1;
using pe::_2;
using pe::_3;

namespace {

constexpr std::size_t count = 64;

struct Case {
  std::string name;
  std::vector<std::string> inputs;
  pe::Any expression;
  poplar::Type type;
};

// Of floating numbers: `x` and `y` any, `p` positive, `t` within [-1, 1], `c` whether.
void add_floating(std::vector<Case>& cases, const std::string& prefix, const poplar::Type& type) {
  const auto add = [&](const std::string& name, std::vector<std::string> inputs,
                       const pe::Any& expression, const poplar::Type& made) {
    for (std::string& input : inputs) input = input == "c" ? input : prefix + "_" + input;
    cases.push_back({prefix + "_" + name, inputs, expression, made});
  };
  add("abs", {"x"}, pe::Abs(_1), type);
  add("asin", {"t"}, pe::Asin(_1), type);
  add("cbrt", {"x"}, pe::Cbrt(_1), type);
  add("ceil", {"x"}, pe::Ceil(_1), type);
  add("cos", {"x"}, pe::Cos(_1), type);
  add("erf", {"x"}, pe::Erf(_1), type);
  add("exp", {"x"}, pe::Exp(_1), type);
  add("exp2", {"x"}, pe::Exp2(_1), type);
  add("expm1", {"x"}, pe::Expm1(_1), type);
  add("floor", {"x"}, pe::Floor(_1), type);
  add("gelu", {"x"}, pe::GeluErf(_1), type);
  add("inv", {"p"}, pe::Inv(_1), type);
  add("isfinite", {"s"}, pe::IsFinite(_1), poplar::BOOL);
  add("isinf", {"s"}, pe::IsInf(_1), poplar::BOOL);
  add("isnan", {"s"}, pe::IsNaN(_1), poplar::BOOL);
  add("log", {"p"}, pe::Log(_1), type);
  add("log1p", {"p"}, pe::Log1p(_1), type);
  add("nearby", {"x"}, pe::NearbyInt(_1), type);
  add("neg", {"x"}, -_1, type);
  add("relu", {"x"}, pe::UnaryOp(pe::UnaryOpType::RELU, _1), type);
  add("round", {"x"}, pe::Round(_1), type);
  add("rsqrt", {"p"}, pe::Rsqrt(_1), type);
  add("sigmoid", {"x"}, pe::Sigmoid(_1), type);
  add("signum", {"x"}, pe::Signum(_1), type);
  add("sin", {"x"}, pe::Sin(_1), type);
  add("sqrt", {"p"}, pe::Sqrt(_1), type);
  add("square", {"x"}, pe::Square(_1), type);
  add("tan", {"t"}, pe::Tan(_1), type);
  add("tanh", {"x"}, pe::Tanh(_1), type);
  add("trunc", {"x"}, pe::Trunc(_1), type);
  add("add", {"x", "y"}, _1 + _2, type);
  add("atan2", {"x", "y"}, pe::Atan2(_1, _2), type);
  add("divide", {"x", "p"}, _1 / _2, type);
  add("equal", {"x", "y"}, _1 == _2, poplar::BOOL);
  add("greater", {"x", "y"}, _1 > _2, poplar::BOOL);
  add("greater_equal", {"x", "y"}, _1 >= _2, poplar::BOOL);
  add("less", {"x", "y"}, _1 < _2, poplar::BOOL);
  add("less_equal", {"x", "y"}, _1 <= _2, poplar::BOOL);
  add("maximum", {"x", "y"}, pe::Max(_1, _2), type);
  add("minimum", {"x", "y"}, pe::Min(_1, _2), type);
  add("multiply", {"x", "y"}, _1 * _2, type);
  add("not_equal", {"x", "y"}, _1 != _2, poplar::BOOL);
  add("power", {"p", "t"}, pe::Pow(_1, _2), type);
  add("remainder", {"x", "p"}, _1 % _2, type);
  add("subtract", {"x", "y"}, _1 - _2, type);
  add("select", {"x", "y", "c"}, pe::Select(_1, _2, _3), type);
  add("clamp", {"x", "t", "p"}, pe::Clamp(_1, _2, _3), type);
}

// Of integers: `a` and `b` any, `n` not zero, `k` from 0 to 31.
void add_whole(std::vector<Case>& cases, const std::string& prefix, const poplar::Type& type) {
  const auto add = [&](const std::string& name, std::vector<std::string> inputs,
                       const pe::Any& expression, const poplar::Type& made) {
    for (std::string& input : inputs) input = input == "c" ? input : prefix + "_" + input;
    cases.push_back({prefix + "_" + name, inputs, expression, made});
  };
  add("bitwise_not", {"a"}, ~_1, type);
  add("square", {"a"}, pe::Square(_1), type);
  add("ones", {"a"}, pe::UnaryOp(pe::UnaryOpType::POPCOUNT, _1), type);
  add("leading", {"a"}, pe::UnaryOp(pe::UnaryOpType::COUNT_LEADING_ZEROS, _1), type);
  add("add", {"a", "b"}, _1 + _2, type);
  add("bitwise_and", {"a", "b"}, _1 & _2, type);
  add("bitwise_or", {"a", "b"}, _1 | _2, type);
  add("bitwise_xor", {"a", "b"}, _1 ^ _2, type);
  add("bitwise_xnor", {"a", "b"}, pe::BitwiseXnor(_1, _2), type);
  add("divide", {"a", "n"}, _1 / _2, type);
  add("remainder", {"a", "n"}, _1 % _2, type);
  add("equal", {"a", "b"}, _1 == _2, poplar::BOOL);
  add("greater", {"a", "b"}, _1 > _2, poplar::BOOL);
  add("less_equal", {"a", "b"}, _1 <= _2, poplar::BOOL);
  add("maximum", {"a", "b"}, pe::Max(_1, _2), type);
  add("minimum", {"a", "b"}, pe::Min(_1, _2), type);
  add("multiply", {"a", "b"}, _1 * _2, type);
  add("subtract", {"a", "b"}, _1 - _2, type);
  add("shift_left", {"a", "k"}, _1 << _2, type);
  add("shift_right", {"a", "k"}, _1 >> _2, type);
  add("select", {"a", "b", "c"}, pe::Select(_1, _2, _3), type);
  if (type != poplar::INT) return;
  add("abs", {"a"}, pe::Abs(_1), type);
  add("neg", {"a"}, -_1, type);
  add("signum", {"a"}, pe::Signum(_1), type);
  add("shift_sign", {"a", "k"}, pe::ShrSE(_1, _2), type);
  add("power", {"a", "k"}, pe::Pow(_1, _2), type);
  add("clamp", {"a", "k", "b"}, pe::Clamp(_1, _2, _3), type);
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_floating(cases, "f", poplar::FLOAT);
  add_floating(cases, "h", poplar::HALF);
  add_whole(cases, "i", poplar::INT);
  add_whole(cases, "u", poplar::UNSIGNED_INT);
  cases.push_back({"b_not", {"c"}, !_1, poplar::BOOL});
  cases.push_back({"b_and", {"c", "d"}, _1 && _2, poplar::BOOL});
  cases.push_back({"b_or", {"c", "d"}, _1 || _2, poplar::BOOL});
  cases.push_back({"b_equal", {"c", "d"}, _1 == _2, poplar::BOOL});
  cases.push_back({"b_less", {"c", "d"}, _1 < _2, poplar::BOOL});
  // Several types in one expression, joined by casts.
  cases.push_back({"mixed", {"f_x", "h_x", "i_a"},
                   pe::Cast(_2, poplar::FLOAT) * _1 +
                       pe::Cast(pe::Clamp(_3, pe::Const(-7), pe::Const(7)), poplar::FLOAT),
                   poplar::FLOAT});
  cases.push_back({"half_constant", {"h_x"}, _1 * pe::ConstHalf(0.1F), poplar::HALF});
  cases.push_back({"unsigned_constant", {"u_a"}, _1 ^ pe::Const(0x1bd11bdaU), poplar::UNSIGNED_INT});
  return cases;
}

std::vector<shardir_ipu::Port> all_arguments() {
  std::vector<shardir_ipu::Port> ports;
  const auto add = [&](const std::string& name, const poplar::Type& type) {
    ports.push_back({name, name, type, {count}, {count}, {{}}});
  };
  for (const char* name : {"x", "y", "p", "t", "s"}) {
    add(std::string("f_") + name, poplar::FLOAT);
    add(std::string("h_") + name, poplar::HALF);
  }
  for (const char* name : {"a", "b", "n", "k"}) {
    add(std::string("i_") + name, poplar::INT);
    add(std::string("u_") + name, poplar::UNSIGNED_INT);
  }
  add("c", poplar::BOOL);
  add("d", poplar::BOOL);
  return ports;
}

shardir_ipu::Contract contract() {
  shardir_ipu::Contract contract{"expressions", 1, all_arguments(), {}};
  for (const Case& each : all_cases()) {
    contract.results.push_back({each.name, each.name, each.type, {count}, {count}, {{}}});
  }
  return contract;
}

void build(shardir_ipu::Program& program) {
  popops::addCodelets(program.graph);
  std::map<std::string, poplar::Tensor> inputs;
  for (const shardir_ipu::Port& port : program.contract.arguments) {
    inputs[port.name] = program.argument(port.name);
  }
  for (const Case& each : all_cases()) {
    std::vector<poplar::Tensor> tensors;
    for (const std::string& name : each.inputs) tensors.push_back(inputs[name]);
    program.result(each.name, popops::map(program.graph, each.expression, tensors, program.step,
                                          each.name));
  }
}

}  // namespace

SHARDIR_IPU_ENTRY(contract, build)
