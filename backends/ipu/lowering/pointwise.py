"""Pointwise operations as expressions of `popops::map`.

A rule takes the expressions of the operands and returns that of the result. `repeats` lists the
operands that occur more than once in it: they are stored first, so that nothing is evaluated twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardir import ops
from shardir.backends.ipu.codegen.expressions import (
    ApplyNode,
    Node,
    NumberNode,
    apply,
    cast,
    number,
    wrap_narrow,
)
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import FLOATS, UNSIGNED

Rule = Callable[..., Node]


@dataclass(frozen=True, slots=True)
class PointwiseRule:
    """The rule of an operation; `repeats(dtype)` are the operands that it uses more than once.

    A rule with `stores` also takes a function that stores an expression in a tensor, and a rule
    with `attributes` takes the operation's attributes by name.
    """

    rule: Rule
    repeats: Callable[[str], Sequence[int]]
    stores: bool = False
    attributes: bool = False


POINTWISE: dict[str, PointwiseRule] = {}


def pointwise(
    name: str,
    *repeats: int,
    of: Sequence[str] | None = None,
    stores: bool = False,
    attributes: bool = False,
) -> Callable[[Rule], Rule]:
    """Register the rule of an operation, which repeats these operands (only for the types `of`)."""

    def operands_to_repeat(dtype: str) -> Sequence[int]:
        return repeats if of is None or dtype in of else ()

    def register(rule: Rule) -> Rule:
        POINTWISE[name] = PointwiseRule(rule, operands_to_repeat, stores, attributes)
        return rule

    return register


def _simple(name: str, constructor: str) -> None:
    @pointwise(name)
    def rule(x: Node) -> Node:
        return apply(constructor, x)


for _name, _constructor in {
    "floor": "Floor", "ceil": "Ceil", "round": "NearbyInt", "exp": "Exp", "exp2": "Exp2",
    "expm1": "Expm1", "log": "Log", "log1p": "Log1p", "sqrt": "Sqrt", "rsqrt": "Rsqrt",
    "cbrt": "Cbrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "tanh": "Tanh",
    "logistic": "Sigmoid", "erf": "Erf",
}.items():  # fmt: skip
    _simple(_name, _constructor)


def constant_like(value: float, x: Node) -> NumberNode:
    """Return a number of the type of an expression."""
    return number(value, x.dtype)


def where(condition: Node, yes: Node, no: Node) -> Node:
    """Return `condition ? yes : no`, simplified if both are boolean constants."""
    if yes.dtype == "bool" and isinstance(yes, NumberNode) and isinstance(no, NumberNode):
        if yes.value == no.value:
            return yes
        return condition if yes.value else apply("!", condition)
    return ApplyNode("Select", (yes, no, condition), yes.dtype)


EXTREME_OPERATIONS = (ops.maximum, ops.minimum, ops.clamp)


def propagate_nan(made: Node, operands: Sequence[Node]) -> Node:
    """Return a maximum or minimum that is NaN if one of its operands is."""
    for x in operands:
        if not isinstance(x, NumberNode):
            made = where(apply("IsNaN", x, dtype="bool"), x, made)
    return made


def compare(operator: str, x: Node, y: Node) -> ApplyNode:
    """Return a comparison."""
    return ApplyNode(operator, (x, y), "bool")


@pointwise("neg")
def _neg(x: Node) -> Node:
    if x.dtype == "u32":
        return apply("-", number(0, "u32"), x)
    return wrap_narrow(apply("-", x))


@pointwise("abs")
def _abs(x: Node) -> Node:
    return x if x.dtype in UNSIGNED else wrap_narrow(apply("Abs", x))


@pointwise("sign", 0)
def _sign(x: Node) -> Node:
    """Return the sign; zeros keep theirs and NaN stays NaN, which `Signum` does not guarantee."""
    if x.dtype in UNSIGNED:
        return cast(compare("!=", x, constant_like(0, x)), x.dtype)
    if x.dtype not in FLOATS:
        return apply("Signum", x)
    return where(compare(">", apply("Abs", x), constant_like(0, x)), apply("Signum", x), x)


@pointwise("log2")
def _log2(x: Node) -> Node:
    return apply("*", apply("Log", x), constant_like(1 / np.log(2), x))


@pointwise("is_finite")
def _is_finite(x: Node) -> Node:
    return apply("IsFinite", x, dtype="bool")


@pointwise("not")
def _not(x: Node) -> Node:
    if x.dtype == "bool":
        return apply("!", x)
    return wrap_narrow(apply("~", x))


@pointwise("stop_gradient")
def _same(x: Node) -> Node:
    return x


for _name in (
    "sharding_constraint", "reshard", "propagation_barrier",
    "checkpoint-name", "pipeline-stage", "vary",
):  # fmt: skip
    pointwise(_name)(_same)


def _binary(name: str, operator: str, boolean: str = "") -> None:
    @pointwise(name)
    def rule(x: Node, y: Node) -> Node:
        if x.dtype == "bool":
            return apply(boolean, x, y)
        return wrap_narrow(apply(operator, x, y))


_binary("add", "+", "||")
_binary("sub", "-")


@pointwise("mul")
def _mul(x: Node, y: Node) -> Node:
    if x.dtype == "bool":
        return apply("&&", x, y)
    if x == y and not isinstance(x, NumberNode) and x.dtype in FLOATS:
        return apply("Square", x)
    return wrap_narrow(apply("*", x, y))


def _bitwise(name: str, operator: str, boolean: str) -> None:
    @pointwise(name)
    def rule(x: Node, y: Node) -> Node:
        return apply(boolean if x.dtype == "bool" else operator, x, y)


_bitwise("and", "&", "&&")
_bitwise("or", "|", "||")
_bitwise("xor", "^", "!=")
_bitwise("maximum", "Max", "||")
_bitwise("minimum", "Min", "&&")


def bit_width(dtype: str) -> int:
    """Return the number of bits of an integer type."""
    return DTYPE_INFO[dtype].bits


class NotExpressible(Exception):
    """Raised for an operation without an expression, with the reason and an alternative."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason, fix)
        self.reason, self.fix = reason, fix


@pointwise("atan2")
def _atan2(y: Node, x: Node) -> Node:
    return apply("Atan2", y, x)


def _comparison(name: str, operator: str) -> None:
    @pointwise(name)
    def rule(x: Node, y: Node) -> Node:
        if x.dtype != "bool" or operator in ("==", "!="):
            return compare(operator, x, y)
        low, high = (x, y) if operator in ("<", "<=") else (y, x)
        if operator in ("<", ">"):
            return apply("&&", apply("!", low), high)
        return apply("||", apply("!", low), high)


for _name, _operator in {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}.items():  # fmt: skip
    _comparison(_name, _operator)


@pointwise("select")
def _select(condition: Node, x: Node, y: Node) -> Node:
    return where(condition, x, y)


@pointwise("clamp")
def _clamp(low: Node, x: Node, high: Node) -> Node:
    if x.dtype == "bool":
        return apply("&&", apply("||", x, low), high)
    return apply("Min", apply("Max", x, low), high)
