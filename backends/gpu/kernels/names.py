"""Names of values as identifiers of Python."""

import keyword
import re
from collections.abc import Collection, Mapping

from shardir.ir.module import Op, Value

_AGAIN = re.compile(r"\.\d+$")
"""What makes a name of a group's inside unlike all others of its function."""


def identifier(name: str) -> str:
    """A name of the IR as Python writes it: `%h.1` is `h_1`, `%3` is `v3`.

    None ends as names do that kernels make of those of values.
    """
    legal = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not legal or legal[0].isdigit():
        legal = f"v{legal}"
    is_taken = keyword.iskeyword(legal) or legal.endswith(("_ptr", "_acc", "_parts"))
    return f"{legal}_" if is_taken else legal


def words_of(op: Op) -> Mapping[Value, str]:
    """What the values of a group are called: parameters as the operands, yields as the results.

    Others have their own names, without the number at their end where nothing else is called so.
    """
    (block,) = op.blocks
    wanted: dict[Value, str] = {}
    for param, operand in zip(block.params, op.operands, strict=True):
        wanted[param] = operand.name
    for inner, result in zip(block.returns, op.results, strict=True):
        wanted.setdefault(inner, result.name)
    for value in block.values():
        wanted.setdefault(value, _AGAIN.sub("", value.name) or value.name)
    found: dict[Value, str] = {}
    taken: set[str] = set()
    for value, word in wanted.items():
        found[value] = fresh(word, taken, ".")
        taken.add(found[value])
    return found


def identifiers(words: Mapping[Value, str], reserved: Collection[str]) -> Mapping[Value, str]:
    """An identifier for each value, none of them reserved."""
    taken = set(reserved)
    found = {}
    for value, word in words.items():
        found[value] = fresh(identifier(word), taken, "_")
        taken.add(found[value])
    return found


def fresh(word: str, taken: Collection[str], joint: str) -> str:
    """The word, or the first of its numbered likes that is not taken."""
    likes = (f"{word}{joint}{number}" for number in range(1, len(taken) + 2))
    return word if word not in taken else next(like for like in likes if like not in taken)
