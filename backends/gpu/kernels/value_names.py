"""Names of values as Python identifiers."""

import keyword
import re
from collections.abc import Collection, Mapping

from shardir.ir.module import Op, Value

_COPY_SUFFIX = re.compile(r"\.\d+$")
"""Suffix that makes names inside a group unique in its function."""


def identifier(name: str) -> str:
    """Return a name of the IR as a Python identifier: `%h.1` becomes `h_1`, `%3` becomes `v3`.

    Suffixes that kernels append to the names of values (`_ptr`, `_acc`, `_parts`) are avoided.
    """
    legal = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not legal or legal[0].isdigit():
        legal = f"v{legal}"
    is_taken = keyword.iskeyword(legal) or legal.endswith(("_ptr", "_acc", "_parts"))
    return f"{legal}_" if is_taken else legal


def ir_names(op: Op) -> Mapping[Value, str]:
    """Return the names of a group's values: parameters after operands, yields after results.

    Other values keep their names, without the numeric suffix where that is unique.
    """
    (block,) = op.blocks
    proposed: dict[Value, str] = {}
    for param, operand in zip(block.params, op.operands, strict=True):
        proposed[param] = operand.name
    for inner, result in zip(block.returns, op.results, strict=True):
        proposed.setdefault(inner, result.name)
    for value in block.values():
        proposed.setdefault(value, _COPY_SUFFIX.sub("", value.name) or value.name)
    found: dict[Value, str] = {}
    taken: set[str] = set()
    for value, word in proposed.items():
        found[value] = make_unused_name(word, taken, ".")
        taken.add(found[value])
    return found


def make_identifiers(words: Mapping[Value, str], reserved: Collection[str]) -> Mapping[Value, str]:
    """Return a distinct identifier for each value; none is reserved."""
    taken = set(reserved)
    found = {}
    for value, word in words.items():
        found[value] = make_unused_name(identifier(word), taken, "_")
        taken.add(found[value])
    return found


def make_unused_name(word: str, taken: Collection[str], joint: str) -> str:
    """Return the word, with a number appended if it is taken."""
    likes = (f"{word}{joint}{number}" for number in range(1, len(taken) + 2))
    return word if word not in taken else next(like for like in likes if like not in taken)
