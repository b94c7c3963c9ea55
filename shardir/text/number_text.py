"""Parsers of numbers: decimal integers, and long lists of plain numbers.

A constant with a million elements is one token. Its text is nearly always valid JSON, which Python
parses in C. Other texts, including all errors, are left to the grammar, which tracks positions.
"""

import json
import re
from itertools import chain
from typing import Any

MAX_DIGITS = 18
"""The maximum number of significant digits, so that every number fits into 64 bits."""
_PLAIN = re.compile(r"[\[\]\d+\-.,eE\s]*", re.ASCII)
_BRACKETS = re.compile(r"[\[\],\s]*")

ShapedElements = tuple[tuple[int, ...], list[Any]]


def parse_natural_number(text: str) -> int | None:
    """Return the number that decimal digits represent; `None` for other text or more than 18
    digits.

    In contrast to `str.isdecimal` and `int`, digits of other scripts, signs, blanks and underscores
    are rejected, and long text does not raise.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= MAX_DIGITS else None


def parse_number_list(text: str, *, words: bool = False) -> ShapedElements | None:
    """Return the shape of nested lists and their elements in row-major order; `None` for other
    text.

    The elements are `int` or `float`, or all `bool`, in JSON syntax. With `words`, `inf`, `-inf`
    and `nan` are accepted as well.
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
