"""Expressions of `popops::map`: trees over tensors and numbers, and their text.

A tree is what one compute set evaluates for each element. Tensors in it are placeholders, numbers
constants; what is made of numbers alone is a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardir.backends.ipu.types import ELEMENTS, NARROW_INTEGERS, literal
from shardir.ir.types import FLOATS

PLACEHOLDERS = 20
"""How many tensors an expression may speak of: `pe::_1` to `pe::_20`."""

_INFIX = {
    "*": 5, "/": 5, "%": 5, "+": 6, "-": 6, "<<": 7, ">>": 7, "<": 9, "<=": 9, ">": 9, ">=": 9,
    "==": 10, "!=": 10, "&": 11, "^": 12, "|": 13, "&&": 14, "||": 15,
}  # fmt: skip
"""The operators of C++ that stand for expressions, and how loosely each binds."""

_SAME = {"+": ("+",), "*": ("*",)}
"""What may stand to the left of an operator without parentheses, of those that bind alike."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the shape of the whole expression, by its text."""

    text: str
    dtype: str


@dataclass(frozen=True)
class Number:
    """The same number everywhere."""

    value: bool | int | float
    dtype: str


@dataclass(frozen=True)
class Apply:
    """A constructor of `popops::expr` or an operator on other expressions.

    `dtype` is the type that it has in the program; integers narrower than 32 bits are computed as
    `poplar::INT`, so that is what such an expression has on the device.
    """

    name: str
    arguments: tuple["Node", ...]
    dtype: str

    @property
    def size(self) -> int:
        """How many operations it takes."""
        return 1 + sum(map(size, self.arguments))


@dataclass(frozen=True)
class Polynomial:
    """A polynomial of an expression in single precision, the highest power first."""

    argument: "Node"
    coefficients: tuple[float, ...]
    dtype: str = "f32"

    @property
    def size(self) -> int:
        """How many operations it takes."""
        return 2 * (len(self.coefficients) - 1) + size(self.argument)


Node = Tensor | Number | Apply | Polynomial


def size(node: Node) -> int:
    """How many operations an expression takes."""
    return 0 if isinstance(node, Tensor | Number) else node.size


def tensors(node: Node) -> dict[str, Tensor]:
    """The tensors an expression speaks of, by their text, in order."""
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
    """Whether there is a polynomial in an expression."""
    if isinstance(node, Polynomial):
        return True
    return isinstance(node, Apply) and any(map(has_polynomial, node.arguments))


def number(value: float, dtype: str) -> Number:
    """A number of an element type of the device."""
    if dtype == "bool":
        return Number(bool(value), dtype)
    return Number(float(value) if dtype in FLOATS else int(value), dtype)


def apply(name: str, *arguments: Node, dtype: str = "") -> Apply:
    """An operation on expressions, of the type of the first of them unless said."""
    return Apply(name, arguments, dtype or arguments[0].dtype)


def cast(node: Node, dtype: str) -> Apply:
    """A conversion of the device."""
    return Apply("Cast", (node,), dtype)


def narrowed(node: Node) -> Node:
    """An integer expression that may have left its narrow type, brought back into it."""
    if node.dtype not in NARROW_INTEGERS:
        return node
    return Apply("Wrap", (node,), node.dtype)


def show(node: Node, stored: str) -> tuple[str, list[str]]:
    """The text of an expression whose elements are stored as `stored`, and its tensors in order."""
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
    """The operator at the top of the text of an expression."""
    if not isinstance(node, Apply):
        return None
    if node.name == "Cast":
        return _operator(node.arguments[0]) if _seen(node) else None
    return node.name if node.name in _INFIX and len(node.arguments) == 2 else None


def _wide(dtype: str) -> str:
    """The type that a value is computed in."""
    return "i32" if dtype in NARROW_INTEGERS else dtype


def _seen(cast: Apply) -> bool:
    """Whether a conversion changes nothing on the device."""
    return _wide(cast.arguments[0].dtype) == _wide(cast.dtype)


def _held(text: str, node: Node) -> str:
    return f"({text})" if _operator(node) is not None else text


def _beside(text: str, node: Node, operator: str, side: int) -> str:
    """An operand with the parentheses that it needs, or that a reader would want."""
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
