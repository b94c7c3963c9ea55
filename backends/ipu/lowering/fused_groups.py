"""Lowering rules of fused groups and single pointwise operations: calls of `popops::map`.

Within a group the expression of an operation becomes part of the expression that uses it. A value
is stored in a tensor if the group yields it, if several operations use it and it takes more than
one operation, if it is broadcast afterwards, or if an expression would grow too large.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from shardir import ops
from shardir.backends.ipu.codegen.device_types import ELEMENTS, physical_type
from shardir.backends.ipu.codegen.emitter import ProgramEmitter, broadcast_view, reshape_view
from shardir.backends.ipu.codegen.expressions import (
    MAX_PLACEHOLDERS,
    ApplyNode,
    Node,
    NumberNode,
    TensorNode,
    collect_tensors,
    count_operations,
    expression_text,
    has_polynomial,
    number,
)
from shardir.backends.ipu.lowering import integers as integers, special as special
from shardir.backends.ipu.lowering.conversion import convert, repeats_operand
from shardir.backends.ipu.lowering.lowering_table import (
    REFUSED_OPERATIONS,
    lowers,
    no_rule_error,
)
from shardir.backends.ipu.lowering.pointwise import (
    EXTREME_OPERATIONS,
    POINTWISE,
    NotExpressible,
    Rule,
    pointwise,
    propagate_nan,
)
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import FLOATS, TensorType
from shardir.op_rules.rule_table import find_rule

MAX_EXPRESSION_OPERATIONS = 32
"""Maximum number of operations in one expression."""
MAX_REPEATED_OPERATIONS = 1
"""Maximum number of operations that are evaluated repeatedly instead of stored."""


class ExpressionGroup:
    """The expressions of a block's values, and the statements that store some of them."""

    def __init__(
        self, e: ProgramEmitter, uses: Counter[Value], yielded: Mapping[Value, Value]
    ) -> None:
        self.e = e
        self.uses = uses
        self.yielded = yielded
        """For each yielded value the group's result, whose name the tensor gets."""
        self.nodes: dict[Value, Node] = {}
        self.origins: dict[str, Value] = {}
        """For the text of a view, the operand of the group that it is a view of."""

    def bind_param(self, value: Value, operand: Value) -> None:
        """Bind a parameter of the group to an operand."""
        if operand in self.e.scalars:
            self.nodes[value] = number(self.e.scalars[operand], value.type.dtype)
            return
        text = self.e.text(operand)
        self.nodes[value] = TensorNode(text, value.type.dtype)
        self.origins[text] = operand

    def bind_result(self, value: Value, result: Value) -> None:
        """Bind a result of the group to the value that the group yields."""
        node = self.nodes[value]
        if isinstance(node, NumberNode):
            self.e.scalars[result] = node.value
            return
        text = self.store(value)
        self.e.alias(result, text, self.origins.get(text))

    def lower(self, op: Op) -> None:
        """Build the expression of an operation's result, and store it if needed."""
        if op.name in REFUSED_OPERATIONS:
            refusal = REFUSED_OPERATIONS[op.name]
            raise self.e.refusal_error(op, refusal.reason, refusal.fix)
        if op.result in self.e.multiply_adds.between:
            return
        if op.spec is ops.constant:
            node: Node = fold_constants(op, ())
        elif op.spec is ops.iota:
            node = TensorNode(iota_view(self.e, op), op.result.type.dtype)
        elif op.spec in (ops.broadcast, ops.reshape):
            node = self._broadcast_or_reshape(op)
        elif op.result in self.e.multiply_adds.operands:
            node = self._multiply_add(op)
        elif op.spec is ops.nextafter:
            node = self._next_after(op)
        elif op.operands[0].type.dtype == "key" and op.spec in (ops.eq, ops.ne):
            node = self._compare_keys(op)
        else:
            node = self._expression(op)
        self.nodes[op.result] = node
        used = self.uses[op.result]
        if isinstance(node, NumberNode):
            return
        if op.result in self.yielded or (
            used > 1 and count_operations(node) > MAX_REPEATED_OPERATIONS
        ):
            self.store(op.result)

    def _broadcast_or_reshape(self, op: Op) -> Node:
        x, y = op.operands[0], op.result
        node = self.nodes[x]
        if isinstance(node, NumberNode):
            return node
        text = self.store(x)
        have, to = physical_type(x.type).shape, physical_type(y.type).shape
        if op.spec is ops.reshape:
            view = reshape_view(text, have, to)
        else:
            within = (y.type.rank,) if len(to) > y.type.rank else ()
            view = broadcast_view(text, have, (*op.attrs["dims"], *within), to)
        if text in self.origins:
            self.origins[view] = self.origins[text]
        return TensorNode(view, y.type.dtype)

    def _multiply_add(self, op: Op) -> Node:
        """Return a multiply-add with one rounding; its f64 intermediates have no other use."""
        e, y = self.e, self._naming_value(op.result)
        parts = ", ".join(self.store(value) for value in e.multiply_adds.operands[op.result])
        arguments = f"graph, {parts}, {e.sequence}, {e.label(y)}"
        made = e.temporary(y.name, f"{e.use_helper('multiply_add')}({arguments})")
        return TensorNode(made, op.result.type.dtype)

    def _next_after(self, op: Op) -> Node:
        """Return the next float in a direction (`nextafter`), computed on its bits."""
        e, y = self.e, self._naming_value(op.result)
        if op.result.type.dtype != "f32":
            raise e.refusal_error(
                op, f"steps through the bits of {op.result.type.dtype}", "convert to f32"
            )
        parts = ", ".join(map(self.store, op.operands))
        arguments = f"graph, {parts}, {e.sequence}, {e.label(y)}"
        made = e.temporary(y.name, f"{e.use_helper('next_after')}({arguments})")
        return TensorNode(made, "f32")

    def _compare_keys(self, op: Op) -> Node:
        """Compare keys: both words must be equal."""
        e, y = self.e, op.result
        x, other = (self.store(value) for value in op.operands)
        words = e.map_text("pe::_1 == pe::_2", [x, other], e.label(y))
        both = f"{{{y.type.rank}}}, popops::Operation::LOGICAL_AND, {e.sequence}, {e.label(y)}"
        node = TensorNode(e.temporary(y.name, f"popops::reduce(graph, {words}, {both})"), "bool")
        return node if op.spec is ops.eq else ApplyNode("!", (node,), "bool")

    def _expression(self, op: Op) -> Node:
        result = op.result.type
        operands = [self._operand(value, result) for value in op.operands]
        if all(isinstance(node, NumberNode) for node in operands):
            return fold_constants(op, operands)
        repeats = self._repeats(op, result)
        for i in repeats:
            if count_operations(operands[i]):
                operands[i] = TensorNode(self.store(op.operands[i]), operands[i].dtype)
        while self._is_too_large(operands):
            largest = max(range(len(operands)), key=lambda i: count_operations(operands[i]))
            if not count_operations(operands[largest]):
                break
            operands[largest] = TensorNode(
                self.store(op.operands[largest]), operands[largest].dtype
            )
        if op.spec is ops.convert:
            return convert(operands[0], result.dtype)
        rule = POINTWISE[op.name]
        try:
            store = [self._make_store(op)] if rule.stores else []
            made = rule.rule(*operands, *store, **(op.attrs if rule.attributes else {}))
        except NotExpressible as error:
            raise self.e.refusal_error(op, error.reason, error.fix) from None
        return propagate_nan(made, operands) if self._propagates_nan(op) else made

    def _propagates_nan(self, op: Op) -> bool:
        return self.e.keeps_nan and op.spec in EXTREME_OPERATIONS and op.result.type.dtype in FLOATS

    def _make_store(self, op: Op) -> Callable[[Node], Node]:
        """Return a function that stores a part of an operation's expression."""

        def store(node: Node) -> Node:
            if not count_operations(node):
                return node
            if has_polynomial(node):
                self.e.use_helper("polynomial")
            y = self._naming_value(op.result)
            text, listed = expression_text(node, node.dtype)
            made = self.e.temporary(
                f"{y.name}_part", self.e.map_text(text, listed, self.e.label(y))
            )
            return TensorNode(made, node.dtype)

        return store

    def _repeats(self, op: Op, result: TensorType) -> Sequence[int]:
        source = op.operands[0].type.dtype
        if op.spec is ops.convert:
            return (0,) if repeats_operand(source, result.dtype) else ()
        if op.spec is ops.mul and op.operands[0] is op.operands[1]:
            return (
                (0,)
                if count_operations(self.nodes[op.operands[0]]) > MAX_REPEATED_OPERATIONS
                else ()
            )
        if self._propagates_nan(op):
            return range(len(op.operands))
        rule = find_rule(POINTWISE, op.name, "ipu")
        if rule is None:
            raise no_rule_error(op)
        return rule.repeats(source)

    def _operand(self, value: Value, result: TensorType) -> Node:
        """Return the expression of an operand, broadcast to the result's shape."""
        node = self.nodes[value]
        have, to = physical_type(value.type).shape, physical_type(result).shape
        if have == to or isinstance(node, NumberNode):
            return node
        text = self.store(value)
        return TensorNode(broadcast_view(text, have, range(len(have)), to), value.type.dtype)

    @staticmethod
    def _is_too_large(operands: Sequence[Node]) -> bool:
        used = {text for node in operands for text in collect_tensors(node)}
        return (
            sum(map(count_operations, operands)) > MAX_EXPRESSION_OPERATIONS
            or len(used) > MAX_PLACEHOLDERS
        )

    def _naming_value(self, value: Value) -> Value:
        return self.yielded.get(value, value)

    def store(self, value: Value) -> str:
        """Return the text of a value's tensor; compute the tensor if it is not stored yet."""
        node = self.nodes[value]
        if isinstance(node, TensorNode):
            return node.text
        if isinstance(node, NumberNode):
            made = self.e.constant(node.value, node.dtype)
            return broadcast_view(made, (), (), value.type.shape)
        text, listed = expression_text(node, value.type.dtype)
        if has_polynomial(node):
            self.e.use_helper("polynomial")
        y = self._naming_value(value)
        made = self.e.temporary(y.name, self.e.map_text(text, listed, self.e.label(y)))
        self.nodes[value] = TensorNode(made, value.type.dtype)
        return made


def fold_constants(op: Op, operands: Sequence[Node]) -> NumberNode:
    """Evaluate an operation whose operands are all numbers."""
    assert op.spec.reference is not None
    values = [
        np.asarray(node.value, value.type.numpy)
        for node, value in zip(operands, op.operands, strict=True)
        if isinstance(node, NumberNode)
    ]
    scalar = op.result.type.with_shape(())
    made = np.asarray(op.spec.reference(*values, **op.rule_arguments, result=scalar))
    return NumberNode(made.item(), scalar.dtype)


def iota_view(e: ProgramEmitter, op: Op) -> str:
    """Return the view of an index range along a dimension of the result of `iota`."""
    y, dim = op.result.type, op.attrs["dim"]
    held = physical_type(y)
    line = index_range(e, y.shape[dim], y.dtype)
    return broadcast_view(line, (y.shape[dim],), (dim,), held.shape)


def index_range(e: ProgramEmitter, size: int, dtype: str) -> str:
    """Return the name of a constant with the numbers 0, 1, ..., size - 1."""
    if dtype in ("i32", "u32", "f32"):
        element = ELEMENTS[dtype]
        made = f"{e.use_helper('count')}<{element.cpp}>(graph, {element.poplar}, {size})"
    else:
        whole = index_range(e, size, "i32")
        made = f"popops::cast(graph, {whole}, {ELEMENTS[dtype].poplar}, step)"
    name = f"count_to_{size}" if dtype == "i32" else f"count_to_{size}_{dtype}"
    return e.define_once(f"count {size} {dtype}", name, made)


@lowers("fused")
def _lower_fused(e: ProgramEmitter, op: Op) -> None:
    (block,) = op.blocks
    results = dict(zip(reversed(block.returns), reversed(op.results), strict=True))
    group = ExpressionGroup(e, _count_uses(block), results)
    for param, operand in zip(block.params, op.operands, strict=True):
        group.bind_param(param, operand)
    for inner in block.ops:
        group.lower(inner)
    for value, result in zip(block.returns, op.results, strict=True):
        group.bind_result(value, result)


def _count_uses(block: Block) -> Counter[Value]:
    """Return the number of uses of each value of a group."""
    return Counter(value for op in block.ops for value in op.operands)


def _lower_pointwise(e: ProgramEmitter, op: Op) -> None:
    """Lower a pointwise operation outside of groups."""
    if op.result in e.multiply_adds.between:
        return
    group = ExpressionGroup(e, Counter(), {op.result: op.result})
    for value in e.multiply_adds.operands.get(op.result, op.operands):
        group.bind_param(value, value)
    group.lower(op)
    group.bind_result(op.result, op.result)


def ipu_rule(name: str, *repeats: int) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of a pointwise operation from outside of shardir.

    The rule takes the expressions of the operands and returns that of the result. `repeats` lists
    the operands that occur more than once in it.
    """
    lowers(name)(_lower_pointwise)
    return pointwise(name, *repeats)


for _name in (*POINTWISE, "convert", "nextafter"):
    lowers(_name)(_lower_pointwise)
