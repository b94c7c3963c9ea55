"""Elementwise operations in Triton: a table of rules by operation name.

A rule takes the operation and the terms of its operands, and returns an expression of the type in
which the kernel computes the result. Functions come from NVIDIA's libdevice for their accuracy:
Triton's `exp`, `/` and `sqrt` of f32 are approximations.
"""

from collections.abc import Callable, Mapping, Sequence

from shardir import ops
from shardir.backends.gpu.dtypes import TRITON_TYPES
from shardir.backends.gpu.kernels.conversion import convert
from shardir.backends.gpu.kernels.terms import KernelTerm, parenthesize
from shardir.ir.dtypes import DTYPE_INFO, NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import FLOATS, NUMPY_DTYPES, UNSIGNED

Rule = Callable[[Op, Sequence[KernelTerm]], str]
RULES: dict[str, Rule] = {}

REFUSAL_REASONS: Mapping[str, str] = {
    "real": "Triton has no complex numbers",
    "imag": "Triton has no complex numbers",
    "conj": "Triton has no complex numbers",
    "complex": "Triton has no complex numbers",
    "digamma": "libdevice has no digamma",
    "nextafter": "libdevice has none for 16 bits",
}
"""Elementwise operations that no kernel contains, and the reason."""
UNFUSED_OPERATIONS = "+".join(sorted((*REFUSAL_REASONS, "bitcast")))
"""The keys of `REFUSAL_REASONS`, and operations that cost nothing outside kernels.

The option `without` of the pass `fuse` takes this text.
"""
EXACT_NARROW_OPERATIONS = (
    *(ops.neg, ops.abs_, ops.sign, ops.floor, ops.ceil, ops.round_, ops.rem, ops.maximum),
    *(ops.minimum, ops.select, ops.clamp, ops.convert, ops.stop_gradient, ops.max_, ops.min_),
)
"""Operations whose results for 16-bit floats are exact and need no rounding."""


def triton_rule(*names: str) -> Callable[[Rule], Rule]:
    """Return a decorator that registers the rule of the named operations."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def expression(op: Op, args: Sequence[KernelTerm]) -> str:
    """Return the expression of an operation; for 16-bit floats before rounding."""
    if args and all(arg.is_number for arg in args):
        args = (KernelTerm(args[0].tensor, args[0].dtype), *args[1:])
    return RULES[op.name](op, args)


def round_text(text: str, dtype: str) -> str:
    """Round an f32 expression to a 16-bit float type, kept in f32."""
    return f"{parenthesize(text)}.to({TRITON_TYPES[dtype]}).to(tl.float32)"


def needs_rounding(op: Op) -> bool:
    """Return whether the operation is computed in more bits than its result has."""
    return op.result.type.dtype in NARROW_FLOATS and op.spec not in EXACT_NARROW_OPERATIONS


def _libdevice_rule(name: str) -> Rule:
    def rule(op: Op, args: Sequence[KernelTerm]) -> str:
        return f"libdevice.{name}({', '.join(arg.typed_text for arg in args)})"

    return rule


def _binary_rule(symbol: str) -> Rule:
    return lambda op, args: f"{args[0].text} {symbol} {args[1].text}"


for _name, _word in {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2",
    "log1p": "log1p", "rsqrt": "rsqrt", "cbrt": "cbrt", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "erfc": "erfc", "lgamma": "lgamma", "round": "rint", "atan2": "atan2",
}.items():  # fmt: skip
    RULES[_name] = _libdevice_rule(_word)
for _name, _symbol in {
    "sub": "-", "xor": "^", "and": "&", "or": "|", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=",
}.items():  # fmt: skip
    RULES[_name] = _binary_rule(_symbol)


@triton_rule("neg")
def _neg(op: Op, args: Sequence[KernelTerm]) -> str:
    return f"-{parenthesize(args[0].text)}"


@triton_rule("not")
def _not(op: Op, args: Sequence[KernelTerm]) -> str:
    return f"~{parenthesize(args[0].text)}"


@triton_rule("abs", "floor", "ceil")
def _triton(op: Op, args: Sequence[KernelTerm]) -> str:
    return f"tl.{op.name}({args[0].text})"


@triton_rule("stop_gradient")
def _same(op: Op, args: Sequence[KernelTerm]) -> str:
    return args[0].typed_text


@triton_rule("is_finite")
def _is_finite(op: Op, args: Sequence[KernelTerm]) -> str:
    return f'tl.abs({args[0].text}) < float("inf")'


@triton_rule("sign")
def _sign(op: Op, args: Sequence[KernelTerm]) -> str:
    if args[0].dtype in UNSIGNED:
        return f"({args[0].tensor} != 0).to({TRITON_TYPES[args[0].dtype]})"
    return f"sign({args[0].typed_text})"


@triton_rule("sqrt")
def _sqrt(op: Op, args: Sequence[KernelTerm]) -> str:
    where = "libdevice" if args[0].dtype == "f64" else "tl"
    return f"{where}.sqrt_rn({args[0].typed_text})"


@triton_rule("logistic")
def _logistic(op: Op, args: Sequence[KernelTerm]) -> str:
    name = "logistic" if args[0].dtype == "f64" else "logistic_f32"
    return f"{name}({args[0].typed_text})"


@triton_rule("erf_inv")
def _erf_inv(op: Op, args: Sequence[KernelTerm]) -> str:
    name = "erf_inv" if op.attrs.get("as_xla") and args[0].dtype != "f64" else "libdevice.erfinv"
    return f"{name}({args[0].typed_text})"


@triton_rule("popcnt", "clz")
def _count(op: Op, args: Sequence[KernelTerm]) -> str:
    """libdevice counts bits of signed words; narrower integers are extended to 32 bits."""
    dtype = args[0].dtype
    bits = NUMPY_DTYPES[dtype].itemsize * 8
    word = args[0].tensor
    if bits < 32 and dtype not in UNSIGNED:
        word = f"{parenthesize(word)}.to(tl.uint{bits}, bitcast=True)"
    if dtype not in ("i32", "i64"):
        word = f"{parenthesize(word)}.to(tl.int{max(bits, 32)})"
    text = f"libdevice.{ {'popcnt': 'popc', 'clz': 'clz'}[op.name] }({word})"
    if op.spec is ops.clz and bits < 32:
        text = f"({text} - {32 - bits})"
    return text if dtype == "i32" else f"{text}.to({TRITON_TYPES[dtype]})"


@triton_rule("add", "mul")
def _sum(op: Op, args: Sequence[KernelTerm]) -> str:
    if args[0].dtype == "bool":
        symbol = "|" if op.spec is ops.add else "&"
    else:
        symbol = "+" if op.spec is ops.add else "*"
    return f"{args[0].text} {symbol} {args[1].text}"


@triton_rule("div")
def _div(op: Op, args: Sequence[KernelTerm]) -> str:
    """Divide; `/` of f32 has an error of at most two ulp, which is enough to round correctly to
    significands of at most 8 bits.

    No normal quotient of 8-bit significands is halfway between two numbers with such significands,
    or within 2^-17 of it.
    """
    x, y = args
    if x.dtype == "f64" or (x.dtype in FLOATS and DTYPE_INFO[x.dtype].precision_bits <= 8):
        return f"{x.text} / {y.text}"
    if x.dtype in FLOATS:
        return f"tl.div_rn({x.text}, {y.text})"
    name = "quotient_unsigned" if x.dtype in UNSIGNED else "quotient"
    return f"{name}({x.tensor}, {y.tensor})"


@triton_rule("rem", "pow")
def _remainder_or_power(op: Op, args: Sequence[KernelTerm]) -> str:
    x, y = args
    of_floats, of_integers = ("fmod", "remainder") if op.spec is ops.rem else ("pow", "power")
    if x.dtype in FLOATS:
        return f"libdevice.{of_floats}({x.typed_text}, {y.typed_text})"
    name = f"{of_integers}_unsigned" if x.dtype in UNSIGNED else of_integers
    return f"{name}({x.tensor}, {y.tensor})"


@triton_rule("maximum", "minimum")
def _extreme(op: Op, args: Sequence[KernelTerm]) -> str:
    return f"{op.name}({args[0].typed_text}, {args[1].typed_text})"


@triton_rule("clamp")
def _clamp(op: Op, args: Sequence[KernelTerm]) -> str:
    low, x, high = args
    return f"minimum(maximum({x.typed_text}, {low.typed_text}), {high.typed_text})"


@triton_rule("select")
def _select(op: Op, args: Sequence[KernelTerm]) -> str:
    where, x, y = args
    first = x.typed_text if y.is_number else x.text
    return f"tl.where({where.tensor}, {first}, {y.text})"


@triton_rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(op: Op, args: Sequence[KernelTerm]) -> str:
    """Shift: Triton shifts unsigned integers logically and signed integers arithmetically."""
    x, amount = args
    dtype = x.dtype
    bits = NUMPY_DTYPES[dtype].itemsize * 8
    seen = dtype
    if op.spec is ops.shift_right_logical:
        seen = f"u{bits}"
    elif op.spec is ops.shift_right_arithmetic:
        seen = f"i{bits}"
    left = _bitcast_sign(x.tensor, dtype, seen)
    if amount.is_number and 0 <= int(amount.text) < bits:
        text = f"{left} {'<<' if op.spec is ops.shift_left else '>>'} {amount.text}"
    else:
        text = f"{op.name}({left}, {_bitcast_sign(amount.tensor, dtype, seen)})"
    return _bitcast_sign(text, seen, dtype)


def _bitcast_sign(text: str, dtype: str, to: str) -> str:
    """Bitcast an integer expression to the type of the other signedness."""
    return text if dtype == to else f"{parenthesize(text)}.to({TRITON_TYPES[to]}, bitcast=True)"


RULES["convert"] = lambda op, args: convert(args[0], op.result.type.dtype)
