"""Long lists of plain numbers, read many times faster than by a grammar.

A constant of a million numbers is one token of a text. What is in it is nearly always a list that
is JSON as well, and Python's reader of that is written in C. Anything else (and every fault) is
left to the grammar, which knows where it stands.
"""

import json
import re
from itertools import chain
from typing import Any

_PLAIN = re.compile(r"[\[\]\d+\-.,eE\s]*", re.ASCII)
_BRACKETS = re.compile(r"[\[\],\s]*")

Shaped = tuple[tuple[int, ...], list[Any]]


def numbers_of(text: str, *, words: bool = False) -> Shaped | None:
    """The shape of nested lists and their numbers in row-major order; `None` if it is not plain.

    Numbers are `int` or `float`, or all of them `bool`, as JSON writes them. With `words` they may
    be `inf`, `-inf` and `nan` as well.
    """
    if words and "n" in text and _PLAIN.fullmatch(text.replace("inf", "").replace("nan", "")):
        text = text.replace("inf", "Infinity").replace("nan", "NaN")
    elif not _PLAIN.fullmatch(text) and not _BRACKETS.fullmatch(
        text.replace("true", "").replace("false", "")
    ):
        return None
    try:
        level = json.loads(text)
    except ValueError:
        return None
    if type(level) is not list:
        return None
    shape = [len(level)]
    while level and type(level[0]) is list:
        if set(map(type, level)) != {list} or len(set(map(len, level))) > 1:
            return None
        shape.append(len(level[0]))
        level = list(chain.from_iterable(level))
    if list in set(map(type, level)):
        return None
    return tuple(shape), level
