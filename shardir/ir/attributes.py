"""Typed attributes: one frozen dataclass for the attributes of an operation.

    @dataclass(frozen=True, slots=True)
    class SortAttributes(Attributes):
        dim: int
        keys: int = 1

A declaration that names such a class (`define_op("sort", attributes=SortAttributes, ...)`) states
the names, the kinds and the defaults of the attributes once. All rules of the operation receive one
object of the class as the keyword argument `attributes`. An operation stores only the attributes
that its text states (`Op.attrs`); the class adds the defaults of the others.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Protocol, Self


class _HasAttrs(Protocol):
    @property
    def attrs(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Attributes:
    """The base class of the attribute classes, which are frozen dataclasses with slots.

    Fields without a default are required attributes. The annotation of a field states the kind of
    attribute that the text accepts (see `shardir.ir.signature`).
    """

    @classmethod
    def of(cls, op: _HasAttrs) -> Self:
        """Return the attributes of an operation that is declared with this class."""
        return cls(**op.attrs)

    def to_attrs(self) -> dict[str, Any]:
        """Return the attributes by name for `Builder.emit`.

        Optional attributes that equal their default are omitted.
        """
        chosen = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                chosen[field.name] = value
        return chosen
