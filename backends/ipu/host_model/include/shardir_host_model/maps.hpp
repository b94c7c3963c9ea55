// Expressions computed over whole tensors, one operation after another, each rounded to its type.
// See <popops/ElementWise.hpp>.
#pragma once

#include <popops/ElementWise.hpp>
#include <shardir_host_model/arithmetic.hpp>
#include <shardir_host_model/machine.hpp>
#include <shardir_host_model/tensors.hpp>

namespace shardir_host_model {

// The shape that all shapes are broadcast to.
Shape broadcast_shape(const std::vector<poplar::Tensor>& tensors, const std::string& call);

poplar::Tensor broadcast_to(const poplar::Tensor& tensor, const Shape& shape);

}  // namespace shardir_host_model

#if !defined(SHARDIR_HOST_MODEL_SEPARATE) || defined(SHARDIR_HOST_MODEL_IMPLEMENTATION)
namespace shardir_host_model {

SHARDIR_HOST_MODEL_FUNCTION Shape broadcast_shape(const std::vector<poplar::Tensor>& tensors,
                                                  const std::string& call) {
  Shape shape;
  for (const poplar::Tensor& tensor : tensors) {
    if (tensor.rank() > shape.size()) {
      shape.insert(shape.begin(), tensor.rank() - shape.size(), std::size_t(1));
    }
    for (std::size_t i = 0; i < tensor.rank(); ++i) {
      const std::size_t size = tensor.shape()[tensor.rank() - 1 - i];
      std::size_t& wanted = shape[shape.size() - 1 - i];
      if (wanted == 1) wanted = size;
      if (size != 1 && size != wanted) {
        refuse(call + ": " + described(tensor) + " does not broadcast with " +
               described(tensors[0]));
      }
    }
  }
  return shape;
}

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor broadcast_to(const poplar::Tensor& tensor,
                                                        const Shape& shape) {
  if (tensor.shape() == shape) return tensor;
  std::vector<std::ptrdiff_t> strides(shape.size());
  const std::vector<std::ptrdiff_t> own = row_major(tensor.shape());
  const std::size_t missing = shape.size() - own.size();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (tensor.shape()[i] != 1) strides[missing + i] = own[i];
  }
  return strided(tensor, shape, strides, 0);
}

struct Column {
  poplar::Type type;
  std::vector<Number> numbers;
};

inline Column computed(const ExpressionNode& node, const std::vector<Column>& inputs,
                       std::size_t count) {
  using popops::expr::BinaryOpType;
  using popops::expr::TernaryOpType;
  using popops::expr::UnaryOpType;
  if (node.kind == ExpressionNode::Kind::placeholder) {
    return inputs[static_cast<std::size_t>(node.operation) - 1];
  }
  if (node.kind == ExpressionNode::Kind::constant) {
    return {node.type, std::vector<Number>(count, node.value)};
  }
  std::vector<Column> parts;
  for (const auto& child : node.children) parts.push_back(computed(*child, inputs, count));
  Column& result = parts[0];
  const poplar::Type type = result.type;
  if (node.kind == ExpressionNode::Kind::cast) {
    for (Number& number : result.numbers) number = converted(type, node.type, number);
    result.type = node.type;
  } else if (node.kind == ExpressionNode::Kind::unary) {
    const auto operation = static_cast<UnaryOpType>(node.operation);
    if (rule_of(operation).predicate) result.type = poplar::BOOL;
    for (Number& number : result.numbers) {
      number = fitted(result.type, unary(operation, type, number));
    }
  } else if (node.kind == ExpressionNode::Kind::binary) {
    const auto operation = static_cast<BinaryOpType>(node.operation);
    if (rule_of(operation).predicate) result.type = poplar::BOOL;
    for (std::size_t i = 0; i < count; ++i) {
      result.numbers[i] = fitted(
          result.type, binary(operation, type, result.numbers[i], parts[1].numbers[i]));
    }
  } else if (static_cast<TernaryOpType>(node.operation) == TernaryOpType::SELECT) {
    for (std::size_t i = 0; i < count; ++i) {
      if (parts[2].numbers[i].whole == 0) result.numbers[i] = parts[1].numbers[i];
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const Number raised =
          binary(BinaryOpType::MAXIMUM, type, result.numbers[i], parts[1].numbers[i]);
      result.numbers[i] = binary(BinaryOpType::MINIMUM, type, raised, parts[2].numbers[i]);
    }
  }
  return std::move(result);
}

// Adds the step; `out` has the type and shape of the expression.
inline void add_map(const popops::expr::Expr& expression, const std::vector<poplar::Tensor>& inputs,
                    const poplar::Tensor& out, poplar::program::Sequence& sequence) {
  std::vector<poplar::Tensor> whole;
  std::vector<poplar::Type> types;
  for (const poplar::Tensor& input : inputs) {
    whole.push_back(broadcast_to(input, out.shape()));
    types.push_back(input.elementType());
  }
  const auto node = expression.model();
  const poplar::Type type = out.elementType();
  add_compute(sequence, whole, out,
              [node, types, type, count = out.numElements()](
                  const std::vector<std::vector<Bits>>& bits) {
                std::vector<Column> columns(bits.size());
                for (std::size_t i = 0; i < bits.size(); ++i) {
                  columns[i].type = types[i];
                  columns[i].numbers.resize(count);
                  for (std::size_t j = 0; j < count; ++j) {
                    columns[i].numbers[j] = decode(types[i], bits[i][j]);
                  }
                }
                const Column result = computed(*node, columns, count);
                std::vector<Bits> made(count);
                for (std::size_t j = 0; j < count; ++j) made[j] = encode(type, result.numbers[j]);
                return made;
              });
}

// The result type of a map, after its checks.
inline poplar::Type check_map(const GraphState& graph, const popops::expr::Expr& expression,
                              const std::vector<poplar::Tensor>& tensors,
                              const std::string& call) {
  graph.need_codelets("popops", call);
  if (tensors.empty()) refuse(call + ": there is no tensor; use Graph::addConstant");
  std::vector<poplar::Type> types;
  for (const poplar::Tensor& tensor : tensors) {
    check_tensor(tensor, graph, call);
    types.push_back(tensor.elementType());
  }
  return check_expression(*expression.model(), types, call);
}

// A destination that no input overlaps, unless it is exactly the input.
inline void check_out(const std::vector<poplar::Tensor>& inputs, const poplar::Tensor& out,
                      const std::string& call) {
  check_destination(out, call);
  for (const poplar::Tensor& input : inputs) {
    if (input.shape() != out.shape() || addresses_of(input) != addresses_of(out)) {
      check_apart(input, out, call);
    }
  }
}

}  // namespace shardir_host_model

namespace popops {

SHARDIR_HOST_MODEL_FUNCTION poplar::Tensor map(poplar::Graph& graph, const expr::Expr& expression,
                                               const std::vector<poplar::Tensor>& tensors,
                                               poplar::program::Sequence& sequence,
                                               const poplar::DebugContext& name,
                                               const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  GraphState& state = *graph.model();
  const poplar::Type type = check_map(state, expression, tensors, "popops::map");
  poplar::Tensor out =
      state.result(type, broadcast_shape(tensors, "popops::map"), name.name);
  add_map(expression, tensors, out, sequence);
  return out;
}

SHARDIR_HOST_MODEL_FUNCTION void mapWithOutput(poplar::Graph& graph, const expr::Expr& expression,
                                               const std::vector<poplar::Tensor>& tensors,
                                               const poplar::Tensor& out,
                                               poplar::program::Sequence& sequence,
                                               const poplar::DebugContext&,
                                               const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "popops::mapWithOutput";
  const poplar::Type type = check_map(*graph.model(), expression, tensors, call);
  const Shape shape = broadcast_shape(tensors, call);
  check_tensor(out, *graph.model(), call);
  if (out.elementType() != type || out.shape() != shape) {
    refuse(call + ": the result is " + type.toString() + " " + text(shape) + ", not " +
           described(out));
  }
  check_out(tensors, out, call);
  add_map(expression, tensors, out, sequence);
}

SHARDIR_HOST_MODEL_FUNCTION void mapInPlace(poplar::Graph& graph, const expr::Expr& expression,
                                            const std::vector<poplar::Tensor>& tensors,
                                            poplar::program::Sequence& sequence,
                                            const poplar::DebugContext&,
                                            const poplar::OptionFlags&) {
  using namespace shardir_host_model;
  const std::string call = "popops::mapInPlace";
  const poplar::Type type = check_map(*graph.model(), expression, tensors, call);
  const Shape shape = broadcast_shape(tensors, call);
  if (tensors[0].elementType() != type || tensors[0].shape() != shape) {
    refuse(call + ": the result is " + type.toString() + " " + text(shape) +
           " and does not fit into " + described(tensors[0]) + "; use popops::map");
  }
  check_out(tensors, tensors[0], call);
  add_map(expression, tensors, tensors[0], sequence);
}

}  // namespace popops
#endif
