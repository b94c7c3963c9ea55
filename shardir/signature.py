"""What an operation takes, read off its type rule.

The parameters of a type rule are the operands and attributes of the operation, so the rule's
signature says how many operands there are and which attributes must and may be given.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from inspect import Parameter, signature

from shardir.errors import OperationTypeError, suggestion
from shardir.opset import OpSpec

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_OF_BUILDER = ("result", "blocks")


@dataclass(frozen=True, slots=True)
class Signature:
    """`most` is `None` where any number of operands goes; `attrs` where any attribute does."""

    name: str
    least: int
    most: int | None
    required: tuple[str, ...]
    attrs: tuple[str, ...] | None

    def check_operands(self, number: int) -> None:
        """Raises `TypeError` when the operation does not take that many operands."""
        if number < self.least or (self.most is not None and number > self.most):
            wants = f"{self.least}" if self.least == self.most else f"at least {self.least}"
            if self.most is not None and self.least != self.most:
                wants = f"{self.least} to {self.most}"
            noun = "operand" if wants in ("1", "at least 1") else "operands"
            raise TypeError(f"takes {wants} {noun}, got {number}")

    def unknown(self, attrs: Iterable[str]) -> list[str]:
        """Those of the attributes that the operation does not have."""
        return [a for a in attrs if self.attrs is not None and a not in self.attrs]

    def missing(self, attrs: Iterable[str]) -> list[str]:
        """The attributes that must be given and are not."""
        given = set(attrs)
        return [a for a in self.required if a not in given]

    def explain_unknown(self, attr: str) -> str:
        """A sentence about an attribute that the operation does not have."""
        known = self.attrs or ()
        has = f"it has {', '.join(known)}" if known else "it has none"
        return f"{self.name} has no attribute {attr!r}; {suggestion(attr, known) or has}"


@cache
def signature_of(spec: OpSpec) -> Signature:
    least, most, required, attrs = 0, 0, [], []
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
            attrs.append(parameter.name)
            required += [] if optional else [parameter.name]
    return Signature(
        spec.name,
        least,
        None if any_operands else most,
        tuple(required),
        None if any_attrs else tuple(attrs),
    )


def check_call(spec: OpSpec, operands: int, attrs: Iterable[str], blocks: int) -> None:
    """Raises `OperationTypeError` when an operation takes other numbers or attributes."""
    signature = signature_of(spec)
    try:
        signature.check_operands(operands)
    except TypeError as error:
        raise OperationTypeError(f"{spec.name}: {error}") from None
    for attr in signature.unknown(attrs):
        raise OperationTypeError(signature.explain_unknown(attr))
    for attr in signature.missing(attrs):
        raise OperationTypeError(f"{spec.name} lacks its attribute {attr!r}")
    if blocks != spec.blocks if spec.blocks >= 0 else blocks == 0:
        wants = spec.blocks if spec.blocks >= 0 else "at least 1"
        noun = "block" if wants in (1, "at least 1") else "blocks"
        raise OperationTypeError(f"{spec.name}: takes {wants} {noun}, got {blocks}")
