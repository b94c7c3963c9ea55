"""Checks of the blocks of an operation, with their error messages.

The messages continue the operation's name, as those of `shardir.ops.type_checks`.
"""

from collections.abc import Sequence

from shardir.ir.module import Block, Value
from shardir.ir.types import TensorType

Types = tuple[TensorType, ...]


def only_block(blocks: Sequence[Block]) -> Block:
    """Return the block of an operation with one block; raise `TypeError` for another number."""
    if len(blocks) != 1:
        raise TypeError(f"has one block, got {len(blocks)}")
    return blocks[0]


def types_of(values: Sequence[Value]) -> Types:
    """Return the types of values."""
    return tuple(value.type for value in values)


def check_types(what: str, values: Sequence[Value], expected: Sequence[TensorType]) -> None:
    """Raise `TypeError` if values have other types; `what` begins the message."""
    types = types_of(values)
    if types != tuple(expected):
        raise TypeError(f"{what} ({format_types(types)}), expected ({format_types(expected)})")


def format_types(types: Sequence[TensorType]) -> str:
    """Return types as text, separated by commas."""
    return ", ".join(map(str, types))
