"""Opaque operations of other dialects, which are preserved as text.

A reader keeps the text of an operation that has no counterpart. Only its operands and result types
are known; shardings do not propagate through it unless it is declared pointwise or has a rule.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shardir.errors import OpaqueOperationError, count_noun
from shardir.ir.arithmetic import FIXED_DTYPES
from shardir.ir.attributes import Attributes
from shardir.ir.module import Loc, Module
from shardir.ir.operation import Attr, Result, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.factor_rule_text import parse_rule, show_shardy
from shardir.op_rules.factors import FactorRule, pointwise_rule


@dataclass(frozen=True, slots=True)
class OpaqueAttributes(Attributes):
    """The attributes of `opaque`."""

    operation: str
    head: str
    attributes: str
    types: str
    reason: str = ""
    pointwise: bool = False
    rule: str = ""


def _type(*xs: TensorType, result: Result, attributes: OpaqueAttributes) -> object:
    if attributes.rule:
        parse_rule(attributes.rule)
    if result is None:
        raise TypeError("its result types are not determined; state them with result=")
    return result


def _factors(*xs: TensorType, result: Result, attributes: OpaqueAttributes) -> FactorRule | None:
    if attributes.rule:
        return parse_rule(attributes.rule)
    results = (result,) if isinstance(result, TensorType) else tuple(result)
    shapes = {type.shape for type in (*xs, *results) if type.rank}
    if not attributes.pointwise or len(shapes) != 1 or not results:
        return None
    return pointwise_rule([x.shape for x in xs], [y.shape for y in results])


opaque = define_op(
    "opaque",
    attributes=OpaqueAttributes,
    type=_type,
    factors=_factors,
    arithmetic=FIXED_DTYPES,
    effect=True,
)
"""An operation of another dialect, named `operation`.

Its text is `head`, `attributes` (except its sharding, which the results have) and `types`; a single
% in them stands for the next operand. `reason` states why the operation has no counterpart. `rule`
is the text of its factor rule, if it has one.
"""


RULE_ATTRIBUTE = "sdy.sharding_rule"
"""The attribute that contains the factor rule in the text of an operation."""


def has_rule_in_text(attrs: Mapping[str, Attr]) -> bool:
    """Return whether the text of an operation contains its factor rule."""
    return RULE_ATTRIBUTE in attrs["attributes"]


def add_rule(attrs: Mapping[str, Attr], rule: FactorRule) -> dict[str, Attr]:
    """Return the attributes of an opaque operation with a rule that the user registered.

    The rule is also added to the operation's text, so that other tools use it.
    """
    custom = ", custom" if attrs["operation"].startswith("stablehlo.custom_call") else ""
    rule_text = f"{RULE_ATTRIBUTE} = #sdy.op_sharding_rule<{show_shardy(rule)}{custom}>"
    texts = [text for text in (attrs["attributes"], rule_text) if text]
    return {**attrs, "attributes": ", ".join(texts), "rule": str(rule)}


class OpaqueOperation(NamedTuple):
    """The description of an opaque operation."""

    operation: str
    reason: str
    loc: Loc | None
    pointwise: bool


def unknown_operations(module: Module) -> tuple[OpaqueOperation, ...]:
    """Return the opaque operations of a module in program order."""
    return tuple(_opaque_operations(module))


def _opaque_operations(module: Module) -> Iterator[OpaqueOperation]:
    for function in module.functions:
        for op in function.body.walk():
            if op.spec is opaque:
                attributes = OpaqueAttributes.of(op)
                yield OpaqueOperation(
                    attributes.operation, attributes.reason, op.loc, attributes.pointwise
                )


def check_no_opaque_operations(module: Module) -> None:
    """Raise `OpaqueOperationError` if a module has opaque operations, which cannot run."""
    unknown = unknown_operations(module)
    if not unknown:
        return
    first = unknown[0]
    where = f" at {first.loc}" if first.loc else ""
    why = f": {first.reason}" if first.reason else ""
    others = len(unknown) - 1
    more = f" (and {count_noun(others, 'other operation')} like it)" if others else ""
    raise OpaqueOperationError(
        f"{first.operation}{where} is not supported and cannot run{why}{more}; replace it with "
        "supported operations of StableHLO"
    )
