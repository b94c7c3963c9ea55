"""Binary arithmetic, comparisons, select, conversions, and bitcasts.

An operand whose elements all equal one known number is written as that number. Unsigned integers of
more than 8 bits are computed as signed integers of the same width, which wrap alike.
"""

import math
from dataclasses import replace

from shardir import ops
from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.torch_text import word_text
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS
from shardir.ir.module import Op, Value
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS, UNSIGNED, NumpyArray

WRAPPING_OPERATORS = {"add": "+", "sub": "-", "mul": "*"}
BITWISE_OPERATORS = {"and": "&", "or": "|", "xor": "^"}
ORDER_OPERATORS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
EQUALITY_OPERATORS = {"eq": "==", "ne": "!="}


def view_as_word(w: FunctionWriter, value: Value) -> str:
    """Return a value as a tensor of a dtype in which torch computes."""
    dtype = value.type.dtype
    return (
        f"{w.name(value)}.view({SIGNED_WORD_DTYPES[dtype]})"
        if dtype in SIGNED_WORD_DTYPES
        else w.name(value)
    )


def view_back(expression: str, dtype: str) -> str:
    """Return an expression of the signed type of the same width, viewed as `dtype`."""
    return (
        f"({expression}).view({TORCH_DTYPES[dtype]})" if dtype in SIGNED_WORD_DTYPES else expression
    )


def operand_pair(w: FunctionWriter, op: Op) -> tuple[str, str]:
    """Return the expressions of both operands; one of them may be a number."""
    x, y = op.operands
    a, b = w.uniform_number(x), w.uniform_number(y)
    if b is not None:
        return view_as_word(w, x), word_text(b, y.type.dtype)
    if a is not None:
        return word_text(a, x.type.dtype), view_as_word(w, y)
    return view_as_word(w, x), view_as_word(w, y)


@lowers(*WRAPPING_OPERATORS, lazy=True)
def _wrapping(w: FunctionWriter, op: Op) -> str:
    x, y = operand_pair(w, op)
    sign = WRAPPING_OPERATORS[op.name]
    if op.result.type.dtype == "bool":
        sign = "|" if op.spec is ops.add else "&"
    return view_back(f"{x} {sign} {y}", op.result.type.dtype)


@lowers(*BITWISE_OPERATORS, lazy=True)
def _bitwise(w: FunctionWriter, op: Op) -> str:
    x, y = operand_pair(w, op)
    return view_back(f"{x} {BITWISE_OPERATORS[op.name]} {y}", op.result.type.dtype)


@lowers("not")
def _not(w: FunctionWriter, op: Op, x: str) -> str:
    dtype = op.result.type.dtype
    return view_back(f"~{view_as_word(w, op.operands[0])}", dtype)


@lowers(*EQUALITY_OPERATORS, lazy=True)
def _equal(w: FunctionWriter, op: Op) -> str:
    x, y = operand_pair(w, op)
    return f"{x} {EQUALITY_OPERATORS[op.name]} {y}"


@lowers(*ORDER_OPERATORS, lazy=True)
def _compare(w: FunctionWriter, op: Op) -> str:
    if op.operands[0].type.dtype in SIGNED_WORD_DTYPES:
        x, y = (w.call_library("in_order", w.name(value)) for value in op.operands)
    else:
        x, y = operand_pair(w, op)
    return f"{x} {ORDER_OPERATORS[op.name]} {y}"


@lowers("maximum", "minimum", lazy=True)
def _maximum_or_minimum(w: FunctionWriter, op: Op) -> str:
    """Lower to a maximum or minimum, which is NaN if either float operand is NaN."""
    (x, y), dtype = op.operands, op.result.type.dtype
    if dtype == "bool" or dtype in SIGNED_WORD_DTYPES:
        return w.call_library(
            "larger" if op.spec is ops.maximum else "smaller", w.name(x), w.name(y)
        )
    if _is_bound(w, x):
        x, y = y, x
    if _is_bound(w, y):
        bound = "min" if op.spec is ops.maximum else "max"
        return f"{w.name(x)}.clamp({bound}={w.operand_text(y)})"
    return f"torch.{op.name}({w.name(x)}, {w.name(y)})"


@lowers("clamp", lazy=True)
def _clamp(w: FunctionWriter, op: Op) -> str:
    (low, x, high), dtype = op.operands, op.result.type.dtype
    if dtype == "bool" or dtype in SIGNED_WORD_DTYPES:
        return w.call_library(
            "smaller", w.call_library("larger", w.name(x), w.name(low)), w.name(high)
        )
    if _is_bound(w, low) and _is_bound(w, high):
        return f"{w.name(x)}.clamp({w.operand_text(low)}, {w.operand_text(high)})"
    return f"torch.minimum(torch.maximum({w.name(x)}, {w.name(low)}), {w.name(high)})"


def _is_bound(w: FunctionWriter, value: Value) -> bool:
    """Return whether `clamp` accepts the value: a number, not NaN, which torch takes
    for no bound.
    """
    number = w.uniform_number(value)
    return number is not None and bool(number == number)


@lowers("div", lazy=True)
def _div(w: FunctionWriter, op: Op) -> str:
    """Divide by a number only if it is a power of two: for others torch on GPUs multiplies by the
    reciprocal, which rounds differently.
    """
    x, y = op.operands
    if op.result.type.dtype in INTEGERS:
        return w.call_library("divide_integers", w.name(x), w.name(y))
    number = w.uniform_number(y)
    exact = number is not None and op.result.type.dtype in FLOATS and _is_power_of_two(number)
    return f"{w.name(x)} / {w.operand_text(y) if exact else w.name(y)}"


def _is_power_of_two(number: NumpyArray) -> bool:
    wide = abs(float(number))
    return 2**-60 < wide < 2**60 and math.frexp(wide)[0] == 0.5


@lowers("rem")
def _rem(w: FunctionWriter, op: Op, x: str, y: str) -> str:
    if op.result.type.dtype in INTEGERS:
        return w.call_library("remainder_of_integers", x, y)
    return f"torch.fmod({x}, {y})"


@lowers("pow", lazy=True)
def _pow(w: FunctionWriter, op: Op) -> str:
    x, y = op.operands
    if op.result.type.dtype in INTEGERS:
        return w.call_library("power_of_integers", w.name(x), w.name(y))
    return f"torch.pow({w.name(x)}, {w.operand_text(y)})"


@lowers("atan2")
def _atan2(w: FunctionWriter, op: Op, y: str, x: str) -> str:
    return f"torch.atan2({y}, {x})"


@lowers("nextafter")
def _nextafter(w: FunctionWriter, op: Op, x: str, y: str) -> str:
    if op.result.type.dtype in NARROW_FLOATS:
        return w.call_library("next_after", x, y)
    return f"torch.nextafter({x}, {y})"


@lowers("complex")
def _complex(w: FunctionWriter, op: Op, x: str, y: str) -> str:
    return f"torch.complex({x}, {y})"


@lowers("select", lazy=True)
def _select(w: FunctionWriter, op: Op) -> str:
    pred, x, y = op.operands
    dtype = op.result.type.dtype
    pair_of = replace(op, operands=(x, y))
    a, b = operand_pair(w, pair_of)
    return view_back(f"torch.where({w.name(pred)}, {a}, {b})", dtype)


@lowers("convert")
def _convert(w: FunctionWriter, op: Op, x: str) -> str:
    """Convert: floats to integers saturate, nonzero is true, imaginary parts are dropped."""
    source, to = op.operands[0].type.dtype, op.result.type.dtype
    if source == to:
        return x
    if to == "bool":
        return f"{view_as_word(w, op.operands[0])} != 0"
    if source in COMPLEX and to not in COMPLEX:
        x, source = f"{x}.real", "f32" if source == "c64" else "f64"
        if source == to:
            return x
    if source in FLOATS and to in INTEGERS:
        return w.call_library("float_to_integer", x, TORCH_DTYPES[to])
    twice = source in ("f64", "i32", "i64", "u32", "u64")
    if to in NARROW_FLOATS and twice:
        return w.call_library("round_once", x, TORCH_DTYPES[to])
    if source in UNSIGNED and DTYPE_INFO[source].bits > 8 and to in COMPLEX:
        x = f"{x}.to(torch.float64)"
    return f"{x}.to({TORCH_DTYPES[to]})"


@lowers("bitcast")
def _bitcast(w: FunctionWriter, op: Op, x: str) -> str:
    """Lower `bitcast`; the first 32-bit word of a key is its high word."""
    source, to = op.operands[0].type, op.result.type
    if source == to:
        return x
    if source.rank < to.rank:
        made = w.call_library(
            "shrink_bits", x, SIGNED_WORD_DTYPES.get(to.dtype, TORCH_DTYPES[to.dtype])
        )
        made = f"{made}.flip(-1)" if source.dtype == "key" else made
        return view_back(made, to.dtype)
    if source.rank > to.rank:
        x = view_as_word(w, op.operands[0])
        return w.call_library(
            "grow_bits", f"{x}.flip(-1)" if to.dtype == "key" else x, TORCH_DTYPES[to.dtype]
        )
    return f"{x}.view({TORCH_DTYPES[to.dtype]})"
