"""Unclosed brackets and quotes, which often cause a syntax error at a later position."""

import re
from collections import Counter
from collections.abc import Collection
from types import MappingProxyType

CLOSING = MappingProxyType({"(": ")", "[": "]", "{": "}", '"': '"'})
"""The character that closes each opening one."""

_TERMINALS = MappingProxyType({"(": "RPAR", "[": "RSQB", "{": "RBRACE"})
"""The name in lark of the terminal that closes each bracket."""

_OPENING = MappingProxyType({CLOSING[opening]: opening for opening in _TERMINALS})
_LEXEME = re.compile(r'//[^\n]*|"(?>[^"\\\n]++|\\.)*+"|(?P<quote>")[^\n]*|(?P<bracket>[()\[\]{}])')


def find_unclosed(text: str, position: int, expected: Collection[str]) -> tuple[int, int] | None:
    """Return the unclosed bracket or quote that explains a syntax error, and where it must close.

    The error is at `position`, where the parser expected one of the terminals `expected`. The
    result is two positions, of which the second follows the missing character.
    """
    quote = _unclosed_quote(text, position)
    if quote is not None:
        return quote, len(text[quote:].split("\n", 1)[0]) + quote
    still_open, _ = _scan_brackets(text[:position])
    if not still_open:
        return None
    innermost = still_open[-1]
    before = text[:position].rstrip()
    end = len(before) - 1 if before.endswith(",") else position
    if end == position and _TERMINALS[text[innermost]] not in expected:
        return None
    unclosed = {at for brackets in _scan_brackets(text) for at in brackets}
    # A bracket that is not closed takes the closing one of a bracket of its kind around it, which
    # the scan then finds unclosed instead.
    if any(at in unclosed and text[at] == text[innermost] for at in still_open):
        return innermost, end
    return None


def _unclosed_quote(text: str, position: int) -> int | None:
    """Return the position of the unclosed quote of a line, if a string starts before the error."""
    start = text.rfind("\n", 0, position) + 1
    # The names %"x" and @"x" start with another character.
    if '"' not in text[start : position + 2]:
        return None
    line = text[start:].split("\n", 1)[0]
    quotes = [m.start() for m in _LEXEME.finditer(line) if m["quote"]]
    return start + quotes[0] if quotes else None


def _scan_brackets(text: str) -> tuple[list[int], list[int]]:
    """Return the brackets that are open at the end, and those that another bracket cuts off."""
    still_open: list[int] = []
    abandoned: list[int] = []
    count = Counter[str]()
    for match in _LEXEME.finditer(text):
        bracket = match["bracket"]
        if bracket in _TERMINALS:
            still_open.append(match.start())
            count[bracket] += 1
        elif bracket and count[opening := _OPENING[bracket]]:
            while True:
                at = still_open.pop()
                count[text[at]] -= 1
                if text[at] == opening:
                    break
                abandoned.append(at)
    return still_open, abandoned
