"""Signatures of operations, derived from their type rules and attribute classes.

The parameters of a type rule are the operands and attributes of the operation. The rule's Python
signature therefore states the number of operands, the required and optional attributes, and the
kind of each attribute. If the declaration names a class of attributes, its fields state the
attributes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from inspect import Parameter, signature
from typing import get_type_hints

from shardir.errors import OperationTypeError, count_noun, suggest_name
from shardir.ir.operation import Attr, OpSpec
from shardir.ir.sharding import Axes, Axis

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OF_BUILDER = ("result", "blocks")


def _is_int(attr: Attr) -> bool:
    return isinstance(attr, int) and not isinstance(attr, bool)


def _is_list(attr: Attr, of: Callable[[Attr], bool]) -> bool:
    return isinstance(attr, tuple) and all(map(of, attr))


def _is_pair(attr: Attr) -> bool:
    return _is_list(attr, _is_int) and len(attr) == 2


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """A kind of attribute: its description and a predicate for values of the kind."""

    description: str
    accepts: Callable[[Attr], bool]


_KINDS: dict[object, AttributeKind] = {
    int: AttributeKind("an integer", _is_int),
    bool: AttributeKind("true or false", lambda attr: isinstance(attr, bool)),
    str: AttributeKind("a word", lambda attr: isinstance(attr, str)),
    tuple[int, ...]: AttributeKind("a list of integers", lambda attr: _is_list(attr, _is_int)),
    tuple[tuple[int, int], ...]: AttributeKind(
        "a list of pairs of integers", lambda attr: _is_list(attr, _is_pair)
    ),
    Axes: AttributeKind(
        "a list of mesh axes", lambda attr: _is_list(attr, lambda axis: isinstance(axis, Axis))
    ),
}
"""The kind for each annotation in a type rule or an attribute class; others accept any value."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of an operation.

    `max_operands` is `None` if the number of operands is unlimited; `attrs` is `None` if any
    attribute is accepted.
    """

    name: str
    min_operands: int
    max_operands: int | None
    required: tuple[str, ...]
    attrs: Mapping[str, AttributeKind | None] | None
    blocks: int

    def check_operands(self, number: int) -> None:
        """Raise `OperationTypeError` if the operation does not accept that many operands."""
        least, most = self.min_operands, self.max_operands
        if number < least or (most is not None and number > most):
            wants = f"{least} or more operands" if most is None else f"{least} to {most} operands"
            if most == least:
                wants = count_noun(least, "operand")
            raise OperationTypeError(f"{self.name}: takes {wants}, got {number}")

    def check_name(self, name: str) -> None:
        """Raise `OperationTypeError` if the operation has no such attribute."""
        if self.attrs is not None and name not in self.attrs:
            names = tuple(self.attrs)
            has = suggest_name(name, names) or f"it has {', '.join(names) or 'none'}"
            raise OperationTypeError(f"{self.name}: has no attribute {name!r}; {has}")

    def check_attr(self, name: str, attr: Attr) -> None:
        """Raise `OperationTypeError` if an attribute is unknown or of the wrong kind."""
        self.check_name(name)
        kind = self.attrs[name] if self.attrs is not None else None
        if kind is not None and not kind.accepts(attr):
            raise OperationTypeError(f"{self.name}: {name} must be {kind.description}")

    def check_given(self, attrs: Iterable[str]) -> None:
        """Raise `OperationTypeError` if a required attribute is missing."""
        for name in self.required:
            if name not in attrs:
                raise OperationTypeError(f"{self.name}: needs the attribute {name!r}")

    def check_blocks(self, number: int) -> None:
        """Raise `OperationTypeError` if the operation does not have that many blocks."""
        if number == self.blocks or (self.blocks < 0 and number > 0):
            return
        wants = count_noun(self.blocks, "block") if self.blocks > 0 else "no blocks"
        if self.blocks < 0:
            wants = "1 or more blocks"
        raise OperationTypeError(f"{self.name}: takes {wants}, got {number}")


@cache
def signature_of(spec: OpSpec) -> Signature:
    """Return the signature of an operation."""
    hints = get_type_hints(spec.type)
    least, most, required = 0, 0, []
    attrs: dict[str, AttributeKind | None] = {}
    any_operands = any_attrs = False
    for parameter in signature(spec.type).parameters.values():
        optional = parameter.default is not Parameter.empty
        if parameter.kind in _POSITIONAL:
            least, most = least + (not optional), most + 1
        elif parameter.kind is Parameter.VAR_POSITIONAL:
            any_operands = True
        elif parameter.kind is Parameter.VAR_KEYWORD:
            any_attrs = True
        elif parameter.name not in _OF_BUILDER:
            attrs[parameter.name] = _KINDS.get(hints.get(parameter.name))
            required += [] if optional else [parameter.name]
    if spec.attributes is not None:
        hints, any_attrs = get_type_hints(spec.attributes), False
        attrs = {field.name: _KINDS.get(hints[field.name]) for field in fields(spec.attributes)}
        required = [f.name for f in fields(spec.attributes) if f.default is MISSING]
    return Signature(
        spec.name,
        least,
        None if any_operands else most,
        tuple(required),
        None if any_attrs else attrs,
        spec.blocks,
    )


def check_use(spec: OpSpec, operands: int, attrs: Iterable[str], blocks: int) -> None:
    """Raise `OperationTypeError` for invalid numbers of operands or blocks or attribute names.

    The type rule checks the types afterwards.
    """
    signature = signature_of(spec)
    for name in attrs:
        signature.check_name(name)
    signature.check_given(attrs)
    signature.check_operands(operands)
    signature.check_blocks(blocks)


def check_call(spec: OpSpec, operands: int, attrs: Mapping[str, Attr], blocks: int) -> None:
    """Check as `check_use`, and check that attributes have the kinds of the type rule's
    annotations.
    """
    check_use(spec, operands, attrs, blocks)
    for name, attr in attrs.items():
        signature_of(spec).check_attr(name, attr)
