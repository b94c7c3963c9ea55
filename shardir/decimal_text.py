"""Whole numbers in the texts that users write."""

MOST_DIGITS = 18
"""Of a number that fits into 64 bits whatever its digits are."""


def whole_number(text: str) -> int | None:
    """The number that decimal digits state; `None` for other text and for more than 18 digits.

    `str.isdecimal` and `int` also take digits of other scripts, and `int` takes signs, blanks and
    underscores, and raises for thousands of digits.
    """
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= MOST_DIGITS else None
