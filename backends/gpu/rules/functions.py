"""Elementwise functions of one operand, and shifts."""

from shardir import ops
from shardir.backends.gpu.dtypes import TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import view_as_word, view_back
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import COMPLEX, SIGNED, UNSIGNED

TORCH_FUNCTIONS = {
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
COMPLEX_FUNCTIONS = {"exp2": "exp2_of_complex", "expm1": "expm1_of_complex"}
LIBRARY_FUNCTIONS = {
    "cbrt": "cube_root",
    "digamma": "digamma_of",
    "erfc": "complementary_error",
    "erf_inv": "inverse_error",
}
EXACT_NARROW_FUNCTIONS = (ops.floor, ops.ceil, ops.round_, ops.is_finite, ops.sqrt)
"""Functions that torch computes exactly for 16-bit floats, without widening."""


@lowers(*dict.fromkeys([*TORCH_FUNCTIONS, *LIBRARY_FUNCTIONS]))
def _function(w: FunctionWriter, op: Op, x: str) -> str:
    dtype = op.operands[0].type.dtype
    if dtype in COMPLEX and op.name in COMPLEX_FUNCTIONS:
        return w.call_library(COMPLEX_FUNCTIONS[op.name], x)
    narrow = dtype in NARROW_FLOATS and op.spec not in EXACT_NARROW_FUNCTIONS
    wide = f"{x}.float()" if narrow else x
    if op.name in LIBRARY_FUNCTIONS:
        as_xla = op.attrs.get("as_xla") and dtype != "f64"
        made = w.call_library(
            "inverse_error_as_xla" if as_xla else LIBRARY_FUNCTIONS[op.name], wide
        )
    else:
        made = f"torch.{TORCH_FUNCTIONS[op.name]}({wide})"
    return f"{made}.to({TORCH_DTYPES[dtype]})" if narrow else made


@lowers("conj")
def _conj(w: FunctionWriter, op: Op, x: str) -> str:
    return f"torch.conj_physical({x})"


@lowers("neg")
def _neg(w: FunctionWriter, op: Op, x: str) -> str:
    return view_back(f"-{view_as_word(w, op.operands[0])}", op.result.type.dtype)


@lowers("abs")
def _abs(w: FunctionWriter, op: Op, x: str) -> str:
    return x if op.operands[0].type.dtype in UNSIGNED else f"torch.abs({x})"


@lowers("sign")
def _sign(w: FunctionWriter, op: Op, x: str) -> str:
    return f"torch.sgn({x})" if op.result.type.dtype in COMPLEX else w.call_library("sign_of", x)


INTEGER_FUNCTIONS = {"popcnt": "count_set_bits", "clz": "count_leading_zeros"}
SHIFT_FUNCTIONS = {
    "shift_left": "shift_bits_left",
    "shift_right_logical": "shift_bits_right",
    "shift_right_arithmetic": "shift_sign_right",
}


@lowers(*INTEGER_FUNCTIONS)
def _integer(w: FunctionWriter, op: Op, x: str) -> str:
    return w.call_library(INTEGER_FUNCTIONS[op.name], x)


@lowers(*SHIFT_FUNCTIONS, lazy=True)
def _shift(w: FunctionWriter, op: Op) -> str:
    """Lower a shift; a known amount less than the bit width needs no range check."""
    x = w.name(op.operands[0])
    dtype = op.result.type.dtype
    number = w.uniform_number(op.operands[1])
    width = op.result.type.numpy.itemsize * 8
    plain = op.spec is not ops.shift_right_logical and dtype in SIGNED
    if number is not None and 0 <= int(number) < width and plain:
        return f"{x} {'<<' if op.spec is ops.shift_left else '>>'} {int(number)}"
    return w.call_library(SHIFT_FUNCTIONS[op.name], x, w.name(op.operands[1]))
