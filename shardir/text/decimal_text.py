"""Parsing of decimal integers in user text."""

MAX_DIGITS = 18
"""The maximum number of significant digits, so that every number fits into 64 bits."""


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
