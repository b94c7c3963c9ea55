"""Parser of types, numbers, lists and constants in MLIR syntax."""

import re
from math import inf
from typing import Any

import numpy as np
from lark import Token

from shardir.errors import ParseError, count_noun
from shardir.ir.dtypes import DTYPE_INFO, KEYS
from shardir.ir.operation import Attr, Dense
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS, NUMPY_DTYPES, REAL_OF, TOKEN, TensorType
from shardir.stablehlo.reading.records import ListRecord, ListsRecord, NumberRecord, TypedRecord
from shardir.stablehlo.reading.syntax import MlirSource
from shardir.stablehlo.writing.attributes import MLIR_DTYPES
from shardir.text.number_text import ShapedElements, parse_natural_number, parse_number_list

DTYPE_OF_MLIR = {MLIR_DTYPES.get(name, name): name for name in NUMPY_DTYPES if name not in KEYS}
"""The IR's names of MLIR element types."""

_TENSOR = re.compile(r"tensor<((?:[0-9]+x)*)([a-z]\w*|complex<\w+>)(?:,[^<>]*(?:<.*>)?)?>")
_ARRAY = re.compile(r"array<\w+(?::(.*))?>", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-9A-Fa-f]{2})|(.))")
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}

_BIT_PATTERN = re.compile(r"0x[0-9A-Fa-f]*")
_JSON_ONLY_NUMBER = re.compile(r"(?:^|[^.\d])\d+[eE]")
"""A JSON number that MLIR does not accept: an exponent without a decimal point."""
_PAIRS = str.maketrans("()", "[]")
python_type = type
MAX_ATTRIBUTE_BYTES = 2**26
"""The maximum size in bytes of a constant in an attribute, such as a list of replica groups."""


class TypeParser:
    """Parses types, with a cache by text, and values of attributes."""

    def __init__(self, source: MlirSource) -> None:
        self.source = source
        self._known: dict[str, TensorType] = {}

    def type(self, token: Token) -> TensorType:
        cached = self._known.get(token)
        if cached is None:
            cached = self._known[str(token)] = self._read(token)
        return cached

    def _read(self, token: Token) -> TensorType:
        if token == "!stablehlo.token":
            return TensorType((), TOKEN)
        match = _TENSOR.fullmatch(re.sub(r"\s+", "", token))
        if match is None:
            if token.startswith("tensor<") and "?" in token:
                raise self.source.fail(
                    "this type has a size that is known only at run time, and shapes are static; "
                    "lower the program for each shape",
                    token,
                )
            if token.startswith("tensor<*"):
                raise self.source.fail(
                    "this type has no rank, and shapes are static; lower the program for each "
                    "shape",
                    token,
                )
            if "!quant." in token:
                raise self.source.fail(
                    "quantized types are not supported; use an integer or float8 type, with its "
                    "scale as an operand",
                    token,
                )
            raise self.source.fail("this is not the type of a value; values are tensors", token)
        sizes, element = match.groups()
        if element not in DTYPE_OF_MLIR:
            raise self.source.fail(
                f"there is no element type for {element!r}; there are {', '.join(DTYPE_OF_MLIR)}",
                token,
            )
        numbers = [part for part in sizes.split("x") if part]
        if any(len(number) > 18 for number in numbers):
            raise self.source.fail("this tensor is too large", token)
        return TensorType(tuple(map(int, numbers)), DTYPE_OF_MLIR[element])

    def integer(self, node: object, base: int = 0) -> int:
        """Return the integer of `3`, or `3 : i64`."""
        token = node.value if isinstance(node, TypedRecord) else node
        if not isinstance(token, Token) or token.type != "INT":
            raise self.make_expected_error("an integer", node)
        if len(token) > 19:
            raise self.source.fail("this integer is too large", token, base)
        return int(token)

    def flag(self, node: object) -> bool:
        """Return the bool of `true`, or `1 : i1`."""
        token = node.value if isinstance(node, TypedRecord) else node
        if token not in ("true", "false"):
            raise self.make_expected_error("true or false", node)
        return bool(token == "true")

    def string(self, token: Token, base: int = 0) -> str:
        """Return the string of a literal, or of a possibly quoted name after @."""
        literal = token.lstrip("@")
        if not literal.startswith('"'):
            return str(literal)
        data = _ESCAPE.sub(_unescape, literal[1:-1])
        try:
            return data.encode("latin-1").decode("utf-8")
        except (UnicodeDecodeError, UnicodeEncodeError):
            return data

    def items(self, node: object) -> list[Any]:
        """Return the items of a list."""
        if isinstance(node, ListsRecord) and len(node.lists) == 1:
            node = node.lists[0]
        if not isinstance(node, ListRecord):
            raise self.make_expected_error("a list", node)
        return node.items

    def integers(self, node: object) -> tuple[int, ...]:
        """Return the integers of `[1, 2]`, `array<i64: 1, 2>` or `dense<[1, 2]> : ...`."""
        token = node.value if isinstance(node, TypedRecord) else node
        if isinstance(token, Token) and token.type == "ARRAY":
            match = _ARRAY.fullmatch(token)
            words = [w.strip() for w in (match[1] or "").split(",")] if match else [""]
            try:
                return tuple(_parse_integer(word) for word in words if word)
            except ValueError:
                raise self.make_expected_error("a list of integers", node) from None
        if isinstance(token, Token) and token.type == "DENSE":
            return tuple(int(n) for n in self.array(node).reshape(-1))
        return tuple(map(self.integer, self.items(node)))

    def flags(self, node: object) -> tuple[bool, ...]:
        """Return the bools of `[true, false]` or `array<i1: true, false>`."""
        if isinstance(node, Token | TypedRecord):
            return tuple(map(bool, self.integers(node)))
        return tuple(map(self.flag, self.items(node)))

    def pairs(self, node: object) -> tuple[tuple[int, int], ...]:
        """Return the pairs of `[[0, 1], [2, 3]]` or `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`."""
        if isinstance(node, Token | TypedRecord):
            rows = [tuple(int(n) for n in row) for row in self.array(node).reshape(-1, 2)]
        else:
            rows = [self.integers(item) for item in self.items(node)]
        if any(len(row) != 2 for row in rows):
            raise self.make_expected_error("a list of pairs", node)
        return tuple((low, high) for low, high in rows)

    def array(self, node: object) -> Any:
        """Return a typed constant as a NumPy array."""
        if not isinstance(node, TypedRecord) or getattr(node.value, "type", "") != "DENSE":
            raise self.make_expected_error("a constant", node)
        type = self.type(node.type)
        if type.nbytes > MAX_ATTRIBUTE_BYTES:
            raise self.source.fail("this constant is too large for an attribute", node.type)
        value = self.constant(node.value, type)
        if isinstance(value, Dense):
            return value.array
        return np.full(type.shape, value, type.numpy)

    def constant(self, token: Token, type: TensorType) -> Attr:
        """Return the value of `dense<...>`: a number for a splat, else an array."""
        try:
            return self._constant(token, type)
        except ValueError as error:
            if isinstance(error, ParseError):
                raise
            # NumPy supports at most 64 dimensions.
            raise self.source.fail(f"no array is of type {type}: {error}", token) from None

    def _constant(self, token: Token, type: TensorType) -> Attr:
        inside = token.partition("<")[2][:-1]
        base = (token.start_pos or 0) + len(token) - len(inside) - 1
        if not token.startswith("dense<"):
            raise self.source.fail("constants are written as dense<...>", token)
        if not inside.strip():
            if type.size:
                raise self.source.fail(
                    f"{type} has {count_noun(type.size, 'element')}, not 0", token
                )
            return Dense(np.zeros(type.shape, type.numpy))
        literal = inside.strip()
        if literal.startswith('"'):
            return self._from_bytes(token, literal, type)
        plain = self._plain(literal, type)
        if plain is not None:
            return plain
        elements = self.source.parse("dense", inside, base)
        if isinstance(elements, NumberRecord):
            return self._number(elements, type.dtype, token, base)
        shape, flat = self._flat(elements, token)
        if shape != type.shape:
            raise self.source.fail(f"these are elements of shape {list(shape)}, not {type}", token)
        numbers = [self._number(number, type.dtype, token, base) for number in flat]
        with np.errstate(all="ignore"):
            return Dense(np.array(numbers, type.numpy).reshape(shape))

    def _plain(self, literal: str, type: TensorType) -> Dense | None:
        """Return the value of a list of plain numbers; `None` for other text.

        Bit patterns such as 0x7FC00000 may occur among floats.
        """
        dtype, numpy = type.dtype, type.numpy
        if dtype in COMPLEX:
            return _parse_complex_pairs(literal, type)
        bits: list[float] = []
        if dtype in FLOATS and "x" in literal:
            words = _BIT_PATTERN.findall(literal)
            if max(map(len, words), default=0) != 2 + 2 * numpy.itemsize:
                return None
            data = b"".join(bytes.fromhex(word[2:])[::-1] for word in words if len(word) > 2)
            if len(data) != numpy.itemsize * len(words):
                return None
            bits = np.frombuffer(data, numpy).astype(np.float64).tolist()
            # An infinite placeholder, which no number in a text equals.
            literal = _BIT_PATTERN.sub("0.25e9999", literal)
        parsed = _parse_plain_numbers(literal)
        if parsed is None or parsed[0] != type.shape:
            return None
        flat = parsed[1]
        kinds: set[object] = set(map(python_type, flat))
        try:
            if dtype in FLOATS and kinds <= {int, float}:
                if bits:
                    rest = iter(bits)
                    flat = [next(rest) if number == inf else number for number in flat]
                with np.errstate(all="ignore"):
                    return Dense(np.array(list(map(float, flat)), numpy).reshape(type.shape))
            if dtype == "bool" and (kinds == {bool} or set(flat) <= {0, 1, -1}):
                return Dense(np.array(flat, np.bool_).reshape(type.shape))
            if dtype in INTEGERS and kinds == {int}:
                return Dense(np.array(flat, numpy).reshape(type.shape))
        except (OverflowError, StopIteration):
            pass
        return None

    def _flat(self, elements: Any, token: Token) -> tuple[tuple[int, ...], list[NumberRecord]]:
        if isinstance(elements, NumberRecord):
            return (), [elements]
        rows = [self._flat(row, token) for row in elements[1:-1]]
        if len({shape for shape, _ in rows}) > 1:
            raise self.source.fail("the rows of a constant have one shape", token)
        inner = rows[0][0] if rows else ()
        return (len(rows), *inner), [number for _, row in rows for number in row]

    def _number(self, number: NumberRecord, dtype: str, token: Token, base: int) -> Any:
        if len(number.parts) == 2 or dtype in COMPLEX:
            if dtype not in COMPLEX:
                raise self.source.fail(f"{dtype} has no complex elements", token)
            parts = [float(self._scalar(p, REAL_OF[dtype], base)) for p in number.parts]
            return complex(*parts)
        return self._scalar(number.parts[0], dtype, base)

    def _scalar(self, token: Token, dtype: str, base: int) -> Any:
        numpy = NUMPY_DTYPES[dtype]
        if token.type == "HEX" and dtype in FLOATS:
            bits = int(token, 16)
            if bits >= 1 << DTYPE_INFO[dtype].bits:
                raise self.source.fail(f"{token} has more bits than {dtype}", token, base)
            return float(np.frombuffer(bits.to_bytes(numpy.itemsize, "little"), numpy)[0])
        if dtype in FLOATS and token.type in ("INT", "FLOAT"):
            return float(token)
        if dtype == "bool" and token in ("true", "false", "0", "1", "-1"):
            return token not in ("false", "0")
        if dtype in INTEGERS and token.type in ("INT", "HEX") and len(token) < 30:
            value, limits = int(token, 16 if token.type == "HEX" else 10), DTYPE_INFO[dtype]
            if limits.min_integer <= value <= limits.max_integer:
                return value
        raise self.source.fail(f"{str(token)!r} is not an element of {dtype}", token, base)

    def _from_bytes(self, token: Token, literal: str, type: TensorType) -> Attr:
        """Return the value of `dense<"0x...">`: the bytes of all elements, or of a splat."""
        try:
            data = bytes.fromhex(literal.strip('"').removeprefix("0x"))
        except ValueError:
            raise self.source.fail("the bytes of a constant are hexadecimal", token) from None
        if type.dtype == "bool":
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            if len(data) == -(-type.size // 8):
                return Dense(bits[: type.size].astype(np.bool_).reshape(type.shape))
            if len(data) == 1:
                return bool(bits[0])
        elif len(data) == type.nbytes:
            return Dense(np.frombuffer(data, type.numpy).reshape(type.shape))
        elif len(data) == type.numpy.itemsize:
            return np.frombuffer(data, type.numpy)[0].item()
        raise self.source.fail(
            f"these are {count_noun(len(data), 'byte')}, {type} has {type.nbytes}", token
        )

    def make_expected_error(self, expected: str, node: object) -> Exception:
        """Return an error about an unexpected record."""
        return self.source.fail(f"expected {expected}", first_token(node))


def _parse_plain_numbers(literal: str) -> ShapedElements | None:
    """Return the result of `parse_number_list` if MLIR has the same interpretation."""
    if any(zero in literal for zero in ("-0,", "-0]", "-0 ", "-0\n", "-0\t", "-0\r")):
        return None  # JSON reads -0 as an integer without a sign; MLIR keeps the sign of floats.
    result = parse_number_list(literal)
    if (
        result is None
        or not ("e" in literal or "E" in literal)
        or bool in map(python_type, result[1])
    ):
        return result
    points = literal.count(".")
    return result if points == len(result[1]) or not _JSON_ONLY_NUMBER.search(literal) else None


def _parse_complex_pairs(literal: str, type: TensorType) -> Dense | None:
    """Return the value of a list of complex numbers as pairs of plain numbers."""
    if not literal.startswith("[") or literal.count("(") != type.size:
        return None
    parsed = _parse_plain_numbers(literal.translate(_PAIRS))
    if parsed is None or parsed[0] != (*type.shape, 2) or bool in set(map(python_type, parsed[1])):
        return None
    try:
        parts = np.array(parsed[1], np.float64)
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        return Dense(parts.view(np.complex128).astype(type.numpy).reshape(type.shape))


def first_token(node: Any) -> Token:
    """Return the first token of a record."""
    while not isinstance(node, Token):
        node = next((part for part in node if part or isinstance(part, Token)), Token("NAME", ""))
    return node


def _parse_integer(word: str) -> int:
    if word in ("true", "false"):
        return int(word == "true")
    number = parse_natural_number(word.removeprefix("-"))
    if number is None:
        raise ValueError(word)
    return -number if word[0] == "-" else number


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _ESCAPED_CHARACTERS.get(match[2], match[2])
