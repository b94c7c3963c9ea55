"""Elementwise functions of one operand, and shifts."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import as_word, back
from shardir.backends.gpu.spelling import TORCH
from shardir.backends.gpu.writer import Writer
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, INTEGERS, UNSIGNED
from shardir.ops.elementwise.numerics import HALF_PRECISION_DTYPES

PLAIN = {
    "floor": "floor",
    "ceil": "ceil",
    "round": "round",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "logistic": "sigmoid",
    "erf": "erf",
    "erfc": "erfc",
    "erf_inv": "erfinv",
    "lgamma": "lgamma",
    "is_finite": "isfinite",
    "imag": "imag",
    "real": "real",
}
"""torch's name of each function whose special cases (NaN, infinity, zero) agree with the IR's."""
OF_COMPLEX = {"exp2": "exp2_of_complex", "expm1": "expm1_of_complex"}
LIBRARY = {
    "cbrt": "cube_root",
    "digamma": "digamma_of",
    "erfc": "complementary_error",
    "erf_inv": "inverse_error",
}
EXACT = ("floor", "ceil", "round", "is_finite", "sqrt")
"""Functions that torch computes exactly for 16-bit floats, without widening."""


@lowers(*dict.fromkeys([*PLAIN, *LIBRARY]))
def _function(w: Writer, op: Op, x: str) -> str:
    dtype = op.operands[0].type.dtype
    if dtype in COMPLEX and op.name in OF_COMPLEX:
        return w.call(OF_COMPLEX[op.name], x)
    narrow = dtype in HALF_PRECISION_DTYPES and op.name not in EXACT
    wide = f"{x}.float()" if narrow else x
    if op.name in LIBRARY:
        as_xla = op.attrs.get("as_xla") and dtype != "f64"
        made = w.call("inverse_error_as_xla" if as_xla else LIBRARY[op.name], wide)
    else:
        made = f"torch.{PLAIN[op.name]}({wide})"
    return f"{made}.to({TORCH[dtype]})" if narrow else made


@lowers("conj")
def _conj(w: Writer, op: Op, x: str) -> str:
    return f"torch.conj_physical({x})"


@lowers("neg")
def _neg(w: Writer, op: Op, x: str) -> str:
    return back(f"-{as_word(w, op.operands[0])}", op.result.type.dtype)


@lowers("abs")
def _abs(w: Writer, op: Op, x: str) -> str:
    return x if op.operands[0].type.dtype in UNSIGNED else f"torch.abs({x})"


@lowers("sign")
def _sign(w: Writer, op: Op, x: str) -> str:
    return f"torch.sgn({x})" if op.result.type.dtype in COMPLEX else w.call("sign_of", x)


INTEGER = {"popcnt": "count_set_bits", "clz": "count_leading_zeros"}
SHIFTS = {
    "shift_left": "shift_bits_left",
    "shift_right_logical": "shift_bits_right",
    "shift_right_arithmetic": "shift_sign_right",
}


@lowers(*INTEGER)
def _integer(w: Writer, op: Op, x: str) -> str:
    return w.call(INTEGER[op.name], x)


@lowers(*SHIFTS, lazy=True)
def _shift(w: Writer, op: Op) -> str:
    """Lower a shift; a known amount less than the bit width needs no range check."""
    x = w.name(op.operands[0])
    dtype = op.result.type.dtype
    number = w.number(op.operands[1])
    width = op.result.type.numpy.itemsize * 8
    plain = op.name != "shift_right_logical" and dtype in INTEGERS[:4]
    if number is not None and 0 <= int(number) < width and plain:
        return f"{x} {'<<' if op.name == 'shift_left' else '>>'} {int(number)}"
    return w.call(SHIFTS[op.name], x, w.name(op.operands[1]))
