"""Expressions of `popops::map`: trees over tensors and numbers, and their text.

One compute set evaluates a tree for each element. Tensors are placeholders in it, numbers
constants; a tree of only numbers is a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardir.backends.ipu.types import ELEMENTS, NARROW_INTEGERS, literal
from shardir.ir.types import FLOATS

PLACEHOLDERS = 20
"""Maximum number of tensors in an expression: `pe::_1` to `pe::_20`."""

_INFIX = {
    "*": 5, "/": 5, "%": 5, "+": 6, "-": 6, "<<": 7, ">>": 7, "<": 9, "<=": 9, ">": 9, ">=": 9,
    "==": 10, "!=": 10, "&": 11, "^": 12, "|": 13, "&&": 14, "||": 15,
}  # fmt: skip
"""C++ operators that are overloaded for expressions, with their C++ precedence level."""

_SAME = {"+": ("+",), "*": ("*",)}
"""Operators of equal precedence that need no parentheses as left operand of an operator."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the expression's shape, given by its text."""

    text: str
    dtype: str


@dataclass(frozen=True)
class Number:
    """A number, equal for all elements."""

    value: bool | int | float
    dtype: str


@dataclass(frozen=True)
class Apply:
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
        return 1 + sum(map(size, self.arguments))


@dataclass(frozen=True)
class Polynomial:
    """A polynomial of an expression in single precision; coefficients from the highest power."""

    argument: "Node"
    coefficients: tuple[float, ...]
    dtype: str = "f32"

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return 2 * (len(self.coefficients) - 1) + size(self.argument)


Node = Tensor | Number | Apply | Polynomial


def size(node: Node) -> int:
    """Return the number of operations of an expression."""
    return 0 if isinstance(node, Tensor | Number) else node.size


def tensors(node: Node) -> dict[str, Tensor]:
    """Return the tensors of an expression, keyed by text, in order."""
    if isinstance(node, Tensor):
        return {node.text: node}
    if isinstance(node, Polynomial):
        return tensors(node.argument)
    found: dict[str, Tensor] = {}
    if isinstance(node, Apply):
        for argument in node.arguments:
            found.update(tensors(argument))
    return found


def has_polynomial(node: Node) -> bool:
    """Return whether an expression contains a polynomial."""
    if isinstance(node, Polynomial):
        return True
    return isinstance(node, Apply) and any(map(has_polynomial, node.arguments))


def number(value: float, dtype: str) -> Number:
    """Return a number of an element type."""
    if dtype == "bool":
        return Number(bool(value), dtype)
    return Number(float(value) if dtype in FLOATS else int(value), dtype)


def apply(name: str, *arguments: Node, dtype: str = "") -> Apply:
    """Return an operation on expressions; its type defaults to that of the first."""
    return Apply(name, arguments, dtype or arguments[0].dtype)


def cast(node: Node, dtype: str) -> Apply:
    """Return a conversion by the device."""
    return Apply("Cast", (node,), dtype)


def narrowed(node: Node) -> Node:
    """Wrap an integer expression into its narrow type, whose range it may exceed."""
    if node.dtype not in NARROW_INTEGERS:
        return node
    return Apply("Wrap", (node,), node.dtype)


def show(node: Node, stored: str) -> tuple[str, list[str]]:
    """Return the text of an expression whose elements are stored as `stored`, and its tensors in
    order.
    """
    places = {text: i + 1 for i, text in enumerate(tensors(node))}
    text = _show(node, places)
    if stored in NARROW_INTEGERS and not isinstance(node, Tensor):
        text = f"pe::Cast({text}, {ELEMENTS[stored].poplar})"
    return text, list(places)


def _show(node: Node, places: Mapping[str, int]) -> str:
    match node:
        case Tensor():
            held = f"pe::_{places[node.text]}"
            return f"pe::Cast({held}, poplar::INT)" if node.dtype in NARROW_INTEGERS else held
        case Number():
            kind = "ConstHalf" if node.dtype == "f16" else "Const"
            return f"pe::{kind}({literal(node.value, node.dtype)})"
        case Polynomial():
            numbers = ", ".join(literal(c, "f32") for c in node.coefficients)
            return f"polynomial({_show(node.argument, places)}, {{{numbers}}})"
    parts = [_show(argument, places) for argument in node.arguments]
    head, to = node.name, node.dtype
    if head == "Cast":
        return parts[0] if _seen(node) else f"pe::Cast({parts[0]}, {ELEMENTS[_wide(to)].poplar})"
    if head == "Wrap":
        return f"pe::Cast(pe::Cast({parts[0]}, {ELEMENTS[to].poplar}), poplar::INT)"
    if head in ("~", "!"):
        return f"{head}{_held(parts[0], node.arguments[0])}"
    if len(parts) == 1 and head == "-":
        held = _held(parts[0], node.arguments[0])
        return f"-({held})" if held.startswith("-") else f"-{held}"
    if head in _INFIX:
        left = _beside(parts[0], node.arguments[0], head, 0)
        right = _beside(parts[1], node.arguments[1], head, 1)
        return f"{left} {head} {right}"
    if head in ("POPCOUNT", "COUNT_LEADING_ZEROS"):
        return f"pe::UnaryOp(pe::UnaryOpType::{head}, {parts[0]})"
    return f"pe::{head}({', '.join(parts)})"


def _operator(node: Node) -> str | None:
    """Return the operator at the top of an expression's text, or `None`."""
    if not isinstance(node, Apply):
        return None
    if node.name == "Cast":
        return _operator(node.arguments[0]) if _seen(node) else None
    return node.name if node.name in _INFIX and len(node.arguments) == 2 else None


def _wide(dtype: str) -> str:
    """Return the type in which a value is computed."""
    return "i32" if dtype in NARROW_INTEGERS else dtype


def _seen(cast: Apply) -> bool:
    """Return whether a conversion is the identity on the device."""
    return _wide(cast.arguments[0].dtype) == _wide(cast.dtype)


def _held(text: str, node: Node) -> str:
    return f"({text})" if _operator(node) is not None else text


def _beside(text: str, node: Node, operator: str, side: int) -> str:
    """Return an operand's text, with parentheses if needed or helpful to readers."""
    inner = _operator(node)
    if inner is None:
        return text
    arithmetic = _INFIX[inner] <= 6 and _INFIX[operator] <= 10
    looser = _INFIX[inner] < _INFIX[operator]
    plain = inner in "+-*/" and operator in ("+", "-", "<", "<=", ">", ">=", "==", "!=")
    if arithmetic and looser and plain:
        return text
    if side == 0 and inner in _SAME.get(operator, ()):
        return text
    return f"({text})"
