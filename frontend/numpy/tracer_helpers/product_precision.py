"""`precision=` of products: all products have the full precision of their element type."""

from enum import Enum
from typing import TypeAlias

from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location


class Precision(Enum):
    """The precision of products; accepted for compatibility, without effect."""

    DEFAULT = 0
    """The lowest precision of JAX."""
    HIGH = 1
    """The intermediate precision of JAX."""
    HIGHEST = 2
    """The highest precision of JAX."""


PrecisionLike: TypeAlias = str | Precision | tuple[str, str] | tuple[Precision, Precision] | None
"""The precision of a product, of both operands or of each; it does not change results here."""

_NAMES = (
    "highest", "float32", "high", "bfloat16_3x", "tensorfloat32", "default", "bfloat16", "fastest",
)  # fmt: skip


def check_precision(precision: object) -> None:
    """Raise `ArgumentError` for an object that states no precision."""
    parts = precision if isinstance(precision, (tuple, list)) else (precision, precision)
    if len(parts) == 2 and all(map(_is_precision, parts)):
        return
    raise ArgumentError(
        with_location(
            f"precision is {brief(precision)}; it is None, a lax.Precision, one of "
            f"{', '.join(_NAMES)}, or a pair of these. Products have the full precision of their "
            "element type: leave precision out"
        )
    )


def _is_precision(part: object) -> bool:
    return part is None or isinstance(part, Precision) or (isinstance(part, str) and part in _NAMES)
