"""Expressions of `popops::map`: trees over tensors and constants, and their text.

One compute set evaluates a tree for each element. Tensors are placeholders in it, numbers
literals; a tree without tensors is evaluated to a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardir.backends.ipu.codegen.device_types import ELEMENTS, NARROW_INTEGERS, literal_text
from shardir.ir.types import FLOATS

MAX_PLACEHOLDERS = 20
"""Maximum number of tensors in an expression: `pe::_1` to `pe::_20`."""

_INFIX_PRECEDENCE = {
    "*": 5, "/": 5, "%": 5, "+": 6, "-": 6, "<<": 7, ">>": 7, "<": 9, "<=": 9, ">": 9, ">=": 9,
    "==": 10, "!=": 10, "&": 11, "^": 12, "|": 13, "&&": 14, "||": 15,
}  # fmt: skip
"""C++ operators that are overloaded for expressions, with their C++ precedence level."""

_ASSOCIATIVE_LEFT = {"+": ("+",), "*": ("*",)}
"""Operators of equal precedence that need no parentheses as left operand of an operator."""


@dataclass(frozen=True)
class TensorNode:
    """A tensor of the expression's shape, given by its text."""

    text: str
    dtype: str


@dataclass(frozen=True)
class NumberNode:
    """A number, equal for all elements."""

    value: bool | int | float
    dtype: str


@dataclass(frozen=True)
class ApplyNode:
    """A constructor of `popops::expr`, or an operator, applied to expressions.

    `dtype` is the type in the program; integers narrower than 32 bits are computed as
    `poplar::INT`, which is the expression's type on the device.
    """

    name: str
    arguments: tuple["Node", ...]
    dtype: str

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return 1 + sum(map(count_operations, self.arguments))


@dataclass(frozen=True)
class PolynomialNode:
    """A polynomial of an expression in single precision; coefficients from the highest power."""

    argument: "Node"
    coefficients: tuple[float, ...]
    dtype: str = "f32"

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return 2 * (len(self.coefficients) - 1) + count_operations(self.argument)


Node = TensorNode | NumberNode | ApplyNode | PolynomialNode


def count_operations(node: Node) -> int:
    """Return the number of operations of an expression."""
    return 0 if isinstance(node, TensorNode | NumberNode) else node.size


def collect_tensors(node: Node) -> dict[str, TensorNode]:
    """Return the tensors of an expression, keyed by text, in order."""
    if isinstance(node, TensorNode):
        return {node.text: node}
    if isinstance(node, PolynomialNode):
        return collect_tensors(node.argument)
    found: dict[str, TensorNode] = {}
    if isinstance(node, ApplyNode):
        for argument in node.arguments:
            found.update(collect_tensors(argument))
    return found


def has_polynomial(node: Node) -> bool:
    """Return whether an expression contains a polynomial."""
    if isinstance(node, PolynomialNode):
        return True
    return isinstance(node, ApplyNode) and any(map(has_polynomial, node.arguments))


def number(value: float, dtype: str) -> NumberNode:
    """Return a number of an element type."""
    if dtype == "bool":
        return NumberNode(bool(value), dtype)
    return NumberNode(float(value) if dtype in FLOATS else int(value), dtype)


def apply(name: str, *arguments: Node, dtype: str = "") -> ApplyNode:
    """Return an operation on expressions; its type defaults to that of the first."""
    return ApplyNode(name, arguments, dtype or arguments[0].dtype)


def cast(node: Node, dtype: str) -> ApplyNode:
    """Return a conversion by the device."""
    return ApplyNode("Cast", (node,), dtype)


def wrap_narrow(node: Node) -> Node:
    """Wrap an integer expression into its narrow type, whose range it may exceed."""
    if node.dtype not in NARROW_INTEGERS:
        return node
    return ApplyNode("Wrap", (node,), node.dtype)


def expression_text(node: Node, stored: str) -> tuple[str, list[str]]:
    """Return the text of an expression whose elements are stored as `stored`, and its tensors in
    order.
    """
    places = {text: i + 1 for i, text in enumerate(collect_tensors(node))}
    text = _node_text(node, places)
    if stored in NARROW_INTEGERS and not isinstance(node, TensorNode):
        text = f"pe::Cast({text}, {ELEMENTS[stored].poplar})"
    return text, list(places)


def _node_text(node: Node, places: Mapping[str, int]) -> str:
    match node:
        case TensorNode():
            held = f"pe::_{places[node.text]}"
            return f"pe::Cast({held}, poplar::INT)" if node.dtype in NARROW_INTEGERS else held
        case NumberNode():
            kind = "ConstHalf" if node.dtype == "f16" else "Const"
            return f"pe::{kind}({literal_text(node.value, node.dtype)})"
        case PolynomialNode():
            numbers = ", ".join(literal_text(c, "f32") for c in node.coefficients)
            return f"polynomial({_node_text(node.argument, places)}, {{{numbers}}})"
    parts = [_node_text(argument, places) for argument in node.arguments]
    head, to = node.name, node.dtype
    if head == "Cast":
        return (
            parts[0]
            if _is_identity_cast(node)
            else f"pe::Cast({parts[0]}, {ELEMENTS[_compute_type(to)].poplar})"
        )
    if head == "Wrap":
        return f"pe::Cast(pe::Cast({parts[0]}, {ELEMENTS[to].poplar}), poplar::INT)"
    if head in ("~", "!"):
        return f"{head}{_parenthesize(parts[0], node.arguments[0])}"
    if len(parts) == 1 and head == "-":
        held = _parenthesize(parts[0], node.arguments[0])
        return f"-({held})" if held.startswith("-") else f"-{held}"
    if head in _INFIX_PRECEDENCE:
        left = _operand_text(parts[0], node.arguments[0], head, 0)
        right = _operand_text(parts[1], node.arguments[1], head, 1)
        return f"{left} {head} {right}"
    if head in ("POPCOUNT", "COUNT_LEADING_ZEROS"):
        return f"pe::UnaryOp(pe::UnaryOpType::{head}, {parts[0]})"
    return f"pe::{head}({', '.join(parts)})"


def _operator(node: Node) -> str | None:
    """Return the operator at the top of an expression's text, or `None`."""
    if not isinstance(node, ApplyNode):
        return None
    if node.name == "Cast":
        return _operator(node.arguments[0]) if _is_identity_cast(node) else None
    return node.name if node.name in _INFIX_PRECEDENCE and len(node.arguments) == 2 else None


def _compute_type(dtype: str) -> str:
    """Return the type in which a value is computed."""
    return "i32" if dtype in NARROW_INTEGERS else dtype


def _is_identity_cast(cast: ApplyNode) -> bool:
    """Return whether a conversion is the identity on the device."""
    return _compute_type(cast.arguments[0].dtype) == _compute_type(cast.dtype)


def _parenthesize(text: str, node: Node) -> str:
    return f"({text})" if _operator(node) is not None else text


def _operand_text(text: str, node: Node, operator: str, side: int) -> str:
    """Return an operand's text, with parentheses if needed or helpful to readers."""
    inner = _operator(node)
    if inner is None:
        return text
    arithmetic = _INFIX_PRECEDENCE[inner] <= 6 and _INFIX_PRECEDENCE[operator] <= 10
    looser = _INFIX_PRECEDENCE[inner] < _INFIX_PRECEDENCE[operator]
    plain = inner in "+-*/" and operator in ("+", "-", "<", "<=", ">", ">=", "==", "!=")
    if arithmetic and looser and plain:
        return text
    if side == 0 and inner in _ASSOCIATIVE_LEFT.get(operator, ()):
        return text
    return f"({text})"
