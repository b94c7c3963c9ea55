"""Literals: conversion of names, numbers, strings and arrays to text and back.

All values round-trip exactly. A float is the shortest text that parses to the same number. An array
is written as the base64 of its bytes if it is large or if a list would lose information (the bits
of a NaN, the shape of an empty array).
"""

import json
import re
from base64 import b64decode, b64encode
from functools import lru_cache
from typing import Any

import numpy as np

from shardir.errors import count_noun
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.operation import Dense, Symbol
from shardir.ir.types import (
    COMPLEX,
    FLOATS,
    NUMPY_DTYPES,
    REAL_OF,
    NumpyArray,
    TensorType,
    dtype_name,
)

MAX_LISTED_ELEMENTS = 64
"""The number of elements above which arrays are written in base64."""

_WORD = re.compile(r"[A-Za-z_][\w-]*")
_NAME = re.compile(r"[\w.]+")
STRING = r'"(?:[^"\\]|\\.)*"'
"""A regular expression for a string literal."""
VALUE_NAME = rf"%(?:[\w.]+|{STRING})"
"""A regular expression for the name of a value in a program, as `format_name` writes it."""
_RESERVED_WORDS = ("true", "false", "inf", "nan")


def quote_string(text: str) -> str:
    """Return a string literal without line breaks."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def unquote_string(literal: str) -> str:
    """Return the string of a literal; raise `ValueError` for an invalid escape."""
    text: str = json.loads(literal)
    return text


@lru_cache(maxsize=1 << 16)
def format_name(name: str) -> str:
    """Return a name as written after `%` or `@`, quoted if necessary."""
    return name if _NAME.fullmatch(name) else quote_string(name)


def format_word(word: str) -> str:
    """Return an axis name, quoted if necessary."""
    return word if _WORD.fullmatch(word) else quote_string(word)


def format_number(number: complex) -> str:
    """Return the text of a Python number, which parses to the same type and value."""
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        return int.__repr__(number)
    if isinstance(number, float):
        return float.__repr__(number)
    return f"complex({format_number(number.real)}, {format_number(number.imag)})"


def format_symbol(symbol: Symbol) -> str:
    """Return a bare word, quoted if it would not parse as one."""
    plain = _WORD.fullmatch(symbol) and symbol not in _RESERVED_WORDS
    return str(symbol) if plain else quote_string(symbol)


def format_dense(dense: Dense) -> str:
    """Return `dense(f32, [1.0, 2.0])`, or `dense(f32[100], "...")` with the bytes in base64."""
    array = dense.array
    dtype = dtype_name(array.dtype)
    if 0 < array.size <= MAX_LISTED_ELEMENTS:
        texts, numbers = _elements(array.ravel(), dtype)
        if np.array(numbers, array.dtype).tobytes() == array.tobytes():
            return f"dense({dtype}, {_nest_texts(texts, array.shape)})"
    data = b64encode(array.tobytes()).decode()
    return f'dense({TensorType(array.shape, dtype)}, "{data}")'


def _elements(flat: NumpyArray, dtype: str) -> tuple[list[str], list[Any]]:
    """Return the texts of the elements, and the Python numbers to which they parse."""
    if dtype in COMPLEX:
        reals, imags = (_elements(part, REAL_OF[dtype]) for part in (flat.real, flat.imag))
        pairs = zip(reals[0], imags[0], strict=True)
        return [f"complex({re}, {im})" for re, im in pairs], list(map(complex, reals[1], imags[1]))
    numbers: list[Any] = flat.tolist()
    if dtype not in FLOATS:
        return list(map(format_number, numbers)), numbers
    if dtype == "f64":
        texts = list(map(repr, numbers))
    else:
        texts = [_shortest_text(x, number) for x, number in zip(flat, numbers, strict=True)]
    return texts, list(map(float, texts))


def _shortest_text(x: Any, number: float) -> str:
    """Return the shortest text that parses to `x` in its own precision."""
    text = repr(number)
    if len(text) > 6:
        short = str(x)
        text = short if type(x)(float(short)) == x else text
    return text if any(c in text for c in ".en") else f"{text}.0"


def _nest_texts(texts: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return texts[0]
    for size in reversed(shape):
        texts = [f"[{', '.join(texts[i : i + size])}]" for i in range(0, len(texts), size)]
    return texts[0]


def make_dense(dtype: str, shape: tuple[int, ...], flat: list[Any]) -> Dense:
    """Return an array from a shape and elements; raise `ValueError` for an invalid element."""
    allowed = _ELEMENT_TYPES.get(dtype, (int,))
    if not set(map(type, flat)) <= set(allowed):
        wrong = next(number for number in flat if type(number) not in allowed)
        raise ValueError(f"{_format_any(wrong)} is not an element of {dtype}")
    if dtype in FLOATS:
        try:
            flat = list(map(float, flat))  # Extension dtypes do not accept long integers.
        except OverflowError:
            raise ValueError(f"an integer of this constant is too large for {dtype}") from None
    try:
        with np.errstate(all="ignore"):
            array = np.array(flat, NUMPY_DTYPES[dtype])
    except OverflowError:
        if dtype in COMPLEX:
            raise ValueError(f"an integer of this constant is too large for {dtype}") from None
        low, high = DTYPE_INFO[dtype].min_integer, DTYPE_INFO[dtype].max_integer
        wrong = next(n for n in flat if not low <= n <= high)
        raise ValueError(f"{wrong} does not fit in {dtype}") from None
    return Dense(array.reshape(shape))


_ELEMENT_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    **dict.fromkeys(FLOATS, (int, float)),
    **dict.fromkeys(COMPLEX, (int, float, complex)),
}


def _format_any(item: object) -> str:
    return format_number(item) if isinstance(item, (bool, int, float, complex)) else repr(item)


def flatten_lists(items: object) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape and the elements of nested lists; raise `ValueError` if they are ragged."""
    if not isinstance(items, tuple | list):
        return (), [items]
    rows = [flatten_lists(item) for item in items]
    if len({shape for shape, _ in rows}) > 1:
        raise ValueError("the rows of an array have one shape")
    inner = rows[0][0] if rows else ()
    return (len(rows), *inner), [number for _, row in rows for number in row]


def decode_dense(type: TensorType, data: str) -> Dense:
    """Return an array from the base64 of its bytes; raise `ValueError` for invalid data."""
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        raise ValueError("the data of an array is base64") from None
    if len(content) != type.nbytes:
        raise ValueError(
            f"{type} has {count_noun(type.nbytes, 'byte')}, but the data has {len(content)}"
        )
    if type.dtype == "bool" and content.strip(b"\0\1"):
        raise ValueError("the data of a bool array is bytes 0 and 1")
    array: NumpyArray = np.frombuffer(content, type.numpy).reshape(type.shape)
    return Dense(array)
