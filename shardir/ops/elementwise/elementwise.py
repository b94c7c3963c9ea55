"""Elementwise operations, declared in tables.

Each row has the name, the accepted operands, the NumPy function, and the cotangents of the operands
as a formula over the cotangent, the operands and the result. Without a formula, an operation on
floating-point numbers has no derivative. Cotangents of complex values follow JAX: the cotangent g
of z pairs with dz as Re(g * dz), so that a holomorphic function multiplies by its derivative
without conjugation.
"""

from collections.abc import Callable
from math import log as log_of
from typing import Any

import numpy as np

from shardir.ir.arithmetic import ORDINARY, Arithmetic
from shardir.ir.builder import Builder
from shardir.ir.operation import (
    Attr,
    Cotangents,
    OpSpec,
    SelectionRule,
    TangentRule,
    Value,
    define_op,
)
from shardir.ir.rule_checks import check_declaration
from shardir.ir.types import COMPLEX, COMPLEX_OF, REAL_OF, NumpyArray, TensorType
from shardir.op_rules.factors import FactorRule, pointwise_rule
from shardir.op_rules.linearity import select_extremum
from shardir.op_rules.tangents import linear_tangent
from shardir.ops.elementwise import numerics, special
from shardir.ops.elementwise.term import Term, vjp_from_formula
from shardir.ops.type_checks import (
    ANY_DTYPE,
    ARITHMETIC,
    BITS,
    COMPLEX_ONLY,
    COMPLEX_PART,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMERIC,
    ORDERED,
    REAL,
    WIDE_FLOAT,
    DtypeDomain,
    common_type,
    require_result_type,
)
from shardir.plugins.entry_points import is_extension

LN2 = log_of(2)


def _same_type(x: TensorType) -> TensorType:
    return x


def _bool_type(x: TensorType) -> TensorType:
    return x.with_dtype("bool")


def _real_type(x: TensorType) -> TensorType:
    return x.with_dtype(REAL_OF.get(x.dtype, x.dtype))


def _complex_type(x: TensorType) -> TensorType:
    return x.with_dtype(COMPLEX_OF[x.dtype])


def elementwise_factors(*operands: TensorType, result: TensorType, **attrs: Attr) -> FactorRule:
    """Return the factors of an elementwise operation: one for each dimension of its result."""
    return pointwise_rule([x.shape for x in operands], [result.shape])


def zero_vjp(b: Builder, g: Value, *values: Value, **attrs: Attr) -> Cotangents:
    """Return no cotangents: the vjp of a piecewise constant operation."""
    return (None,) * (len(values) - 1)


def zero_cotangent(g: Term, *values: Term) -> tuple[None, ...]:
    """Return no cotangents: the formula of a piecewise constant operation."""
    return (None,) * (len(values) - 1)


def _define_elementwise(
    arity: int,
    name: str,
    takes: DtypeDomain,
    numpy: Callable[..., Any],
    cotangents: Callable[..., Any] | None = None,
    to: Callable[[TensorType], TensorType] = _same_type,
    jvp: TangentRule | None = None,
    linear: tuple[tuple[int, ...], ...] | None = None,
    divides: bool = False,
    selection: SelectionRule | None = None,
    holomorphic: bool = True,
    arithmetic: Arithmetic | None = ORDINARY,
) -> OpSpec:
    """Declare an operation on operands of one type, which determines the result type."""
    compute = numerics.compute_in_f32(numpy)

    def type(*operands: TensorType, result: TensorType | None) -> TensorType:
        if len(operands) != arity:
            raise TypeError(f"takes {arity} operand{'s' * (arity > 1)}, got {len(operands)}")
        takes.check(*operands)
        return to(common_type(*operands))

    def reference(*operands: NumpyArray, result: TensorType) -> NumpyArray:
        with np.errstate(all="ignore"):
            return numerics.round_to(compute(*operands), result.numpy)

    vjp = vjp_from_formula(cotangents) if cotangents else None
    if vjp is None and (to is _bool_type or set(takes.dtypes).isdisjoint(INEXACT.dtypes)):
        vjp = zero_vjp
    return define_op(
        name,
        type=type,
        factors=elementwise_factors,
        reference=reference,
        vjp=vjp,
        jvp=jvp,
        linear=linear,
        divides=divides,
        selection=selection,
        holomorphic=holomorphic,
        arithmetic=arithmetic,
        elementwise=True,
    )


_ELEMENTWISE_KINDS = {
    rule: kind
    for rule, kind in _define_elementwise.__annotations__.items()
    if rule not in ("arity", "name", "return")
}


def _declare(function: str, arity: int, name: str, **rules: Any) -> OpSpec:
    if is_extension():
        check_declaration(function, name, rules, _ELEMENTWISE_KINDS)
    return _define_elementwise(arity, name, **rules)


def define_unary(
    name: str,
    takes: DtypeDomain,
    numpy: Callable[..., Any],
    cotangents: Callable[..., Any] | None = None,
    to: Callable[[TensorType], TensorType] = _same_type,
    jvp: TangentRule | None = None,
    **more: Any,
) -> OpSpec:
    """Declare an elementwise operation with one operand.

    `takes` is the set of element types, `numpy` the function on arrays, `cotangents` a formula over
    the cotangent of the result, the operand and the result, `to` the function from the
    operand's type to the result's, `jvp` the tangent rule. Without a formula, an operation on
    floating-point numbers has no derivative.
    """
    return _declare(
        "define_unary",
        1,
        name,
        takes=takes,
        numpy=numpy,
        cotangents=cotangents,
        to=to,
        jvp=jvp,
        **more,
    )


def define_binary(
    name: str,
    takes: DtypeDomain,
    numpy: Callable[..., Any],
    cotangents: Callable[..., Any] | None = None,
    to: Callable[[TensorType], TensorType] = _same_type,
    jvp: TangentRule | None = None,
    **more: Any,
) -> OpSpec:
    """Declare an elementwise operation with two operands of one type.

    The parameters are those of `define_unary`; the formula `cotangents` receives both operands.
    """
    return _declare(
        "define_binary",
        2,
        name,
        takes=takes,
        numpy=numpy,
        cotangents=cotangents,
        to=to,
        jvp=jvp,
        **more,
    )


def _is_complex(x: Term) -> bool:
    return x.value.type.dtype in COMPLEX


def _abs(g: Term, x: Term, y: Term) -> Term:
    return g.complex(0) * x.sign().conj() if _is_complex(x) else g.where(x.ge(0), -g)


def _sign(g: Term, x: Term, y: Term) -> Any:
    if not _is_complex(x):
        return (None,)
    size = x.abs()
    # The phase does not change at 0, where the sign is 0.
    turn = (g * y).imag() / size.where(size.ne(0), 1)
    return turn.full(0).complex(turn) * y.conj()


def _pow(g: Term, x: Term, y: Term, z: Term) -> tuple[Term, Term]:
    """Return cotangents that are finite where possible: 0 for `x` if x = y = 0, and 0 for `y` if x
    = 0 (as in JAX).

    For y = 0 and any other x the cotangent of `x` is a product that equals 0 but has nonzero
    derivatives.
    """
    flat = y.eq(0).and_(x.eq(0))
    derivative = (y * x.pow((y - 1).where(flat.not_(), 1))).where(flat.not_(), 0)
    return g * derivative, g * (x.where(x.ne(0), 1).log() * z)


def _atan2(g: Term, y: Term, x: Term, z: Term) -> tuple[Term, Term]:
    part = g / (x * x + y * y)
    return part * x, -(part * y)


def _div(g: Term, x: Term, y: Term, z: Term) -> tuple[Term, Term]:
    part = g / y
    return part, -(part * z)


def _maximum(g: Term, x: Term, y: Term, z: Term) -> tuple[Term, Term]:
    """Return the cotangent for the larger operand; equal operands get half each."""
    draw = (g * 0.5).where(x.eq(y), 0)
    return g.where(x.gt(y), draw), g.where(y.gt(x), draw)


def _minimum(g: Term, x: Term, y: Term, z: Term) -> tuple[Term, Term]:
    draw = (g * 0.5).where(x.eq(y), 0)
    return g.where(x.lt(y), draw), g.where(y.lt(x), draw)


_WITH_ZEROS = Arithmetic("zero")

neg = define_unary("neg", NUMERIC, np.negative, lambda g, x, y: -g, linear=((0,),))
abs_ = define_unary("abs", NUMERIC, np.abs, _abs, _real_type)
sign = define_unary("sign", NUMERIC, numerics.sign, _sign, holomorphic=False)
floor = define_unary("floor", FLOAT, np.floor, zero_cotangent)
ceil = define_unary("ceil", FLOAT, np.ceil, zero_cotangent)
round_ = define_unary("round", FLOAT, np.rint, zero_cotangent)
exp = define_unary("exp", INEXACT, np.exp, lambda g, x, y: g * y)
exp2 = define_unary("exp2", INEXACT, np.exp2, lambda g, x, y: g * (y * LN2))
expm1 = define_unary("expm1", INEXACT, numerics.expm1, lambda g, x, y: g * (y + 1))
log = define_unary("log", INEXACT, np.log, lambda g, x, y: g / x)
log2 = define_unary("log2", INEXACT, np.log2, lambda g, x, y: g / (x * LN2))
log1p = define_unary("log1p", INEXACT, np.log1p, lambda g, x, y: g / (x + 1))
sqrt = define_unary("sqrt", INEXACT, np.sqrt, lambda g, x, y: g * 0.5 / y)
rsqrt = define_unary("rsqrt", INEXACT, numerics.rsqrt, lambda g, x, y: g * -0.5 * (y / x))
cbrt = define_unary("cbrt", FLOAT, np.cbrt, lambda g, x, y: g / (y * y * 3))
sin = define_unary("sin", INEXACT, np.sin, lambda g, x, y: g * x.cos())
cos = define_unary("cos", INEXACT, np.cos, lambda g, x, y: -(g * x.sin()))
tan = define_unary("tan", INEXACT, np.tan, lambda g, x, y: g * (y * y + 1))
asin = define_unary("asin", INEXACT, np.arcsin, lambda g, x, y: g * (1 - x * x).rsqrt())
acos = define_unary("acos", INEXACT, np.arccos, lambda g, x, y: -g * (1 - x * x).rsqrt())
atan = define_unary("atan", INEXACT, np.arctan, lambda g, x, y: g / (x * x + 1))
sinh = define_unary("sinh", INEXACT, np.sinh, lambda g, x, y: g * x.cosh())
cosh = define_unary("cosh", INEXACT, np.cosh, lambda g, x, y: g * x.sinh())
tanh = define_unary("tanh", INEXACT, np.tanh, lambda g, x, y: g * (1 - y * y))
asinh = define_unary("asinh", INEXACT, np.arcsinh, lambda g, x, y: g * (x * x + 1).rsqrt())
acosh = define_unary(
    "acosh", INEXACT, np.arccosh, lambda g, x, y: g * ((x - 1).rsqrt() * (x + 1).rsqrt())
)
atanh = define_unary("atanh", INEXACT, np.arctanh, lambda g, x, y: g / (1 - x * x))
logistic = define_unary("logistic", INEXACT, numerics.logistic, lambda g, x, y: g * (y * (1 - y)))
erf = define_unary("erf", FLOAT, special.erf, lambda g, x, y: g * special.erf_derivative(x))
erfc = define_unary("erfc", FLOAT, special.erfc, lambda g, x, y: -(g * special.erf_derivative(x)))
lgamma = define_unary("lgamma", FLOAT, special.lgamma, lambda g, x, y: g * x.digamma())
digamma = define_unary("digamma", FLOAT, special.digamma, lambda g, x, y: g * special.trigamma(x))
is_finite = define_unary("is_finite", INEXACT, np.isfinite, None, _bool_type)
not_ = define_unary("not", BITS, np.invert)
popcnt = define_unary("popcnt", INTEGER, numerics.popcnt, arithmetic=_WITH_ZEROS)
clz = define_unary(
    "clz", INTEGER, numerics.clz, arithmetic=Arithmetic("zero", counts_leading_zeros=True)
)
real = define_unary(
    "real", COMPLEX_ONLY, np.real, lambda g, x, y: g.complex(0), _real_type, linear_tangent
)
imag = define_unary(
    "imag", COMPLEX_ONLY, np.imag, lambda g, x, y: g.full(0).complex(-g), _real_type, linear_tangent
)
conj = define_unary(
    "conj", COMPLEX_ONLY, np.conj, lambda g, x, y: g.conj(), _same_type, linear_tangent
)

add = define_binary("add", ARITHMETIC, np.add, lambda g, x, y, z: (g, g), linear=((0, 1),))
sub = define_binary("sub", NUMERIC, np.subtract, lambda g, x, y, z: (g, -g), linear=((0, 1),))
mul = define_binary(
    "mul", ARITHMETIC, np.multiply, lambda g, x, y, z: (g * y, g * x), linear=((0,), (1,))
)
div = define_binary("div", NUMERIC, numerics.divide, _div, linear=((0,),), divides=True)
rem = define_binary(
    "rem", REAL, numerics.remainder, lambda g, x, y, z: (g, -(g * ((x - z) / y).round()))
)
pow_ = define_binary("pow", NUMERIC, numerics.power, _pow)
atan2 = define_binary("atan2", FLOAT, np.arctan2, _atan2)
maximum = define_binary(
    "maximum", ORDERED, numerics.maximum, _maximum, selection=select_extremum("max")
)
minimum = define_binary(
    "minimum", ORDERED, numerics.minimum, _minimum, selection=select_extremum("min")
)
and_ = define_binary("and", BITS, np.bitwise_and, selection=select_extremum("min", only_bool=True))
or_ = define_binary("or", BITS, np.bitwise_or, selection=select_extremum("max", only_bool=True))
xor = define_binary("xor", BITS, np.bitwise_xor)
shift_left = define_binary("shift_left", INTEGER, numerics.shift_left)
shift_right_logical = define_binary(
    "shift_right_logical", INTEGER, numerics.shift_right_logical, arithmetic=_WITH_ZEROS
)
shift_right_arithmetic = define_binary(
    "shift_right_arithmetic",
    INTEGER,
    numerics.shift_right_arithmetic,
    arithmetic=Arithmetic("sign"),
)
complex_ = define_binary(
    "complex",
    COMPLEX_PART,
    numerics.make_complex,
    lambda g, x, y, z: (g.real(), -g.imag()),
    _complex_type,
    linear_tangent,
)

eq = define_binary("eq", ANY_DTYPE, numerics.equal, None, _bool_type)
ne = define_binary("ne", ANY_DTYPE, numerics.not_equal, None, _bool_type)
lt = define_binary("lt", ORDERED, np.less, None, _bool_type)
le = define_binary("le", ORDERED, np.less_equal, None, _bool_type)
gt = define_binary("gt", ORDERED, np.greater, None, _bool_type)
ge = define_binary("ge", ORDERED, np.greater_equal, None, _bool_type)


def _nextafter_type(x: TensorType, y: TensorType, *, result: TensorType | None) -> TensorType:
    WIDE_FLOAT.check(x, y)
    return common_type(x, y)


nextafter = define_op(
    "nextafter",
    type=_nextafter_type,
    factors=elementwise_factors,
    # NumPy before version 2.5 returns x for two zeros of f16; C and all other types return y.
    reference=lambda x, y, *, result: np.where(x == y, y, np.nextafter(x, y)),
    vjp=zero_vjp,
    elementwise=True,
)
"""The adjacent floating-point number of `x` in the direction of `y`."""


def _erf_inv_type(x: TensorType, *, result: TensorType | None, as_xla: bool = False) -> TensorType:
    FLOAT.check(x)
    return x


def _erf_inv(x: object, *, result: TensorType, as_xla: bool = False) -> Any:
    compute = numerics.compute_in_f32(special.erf_inv_xla if as_xla else special.erf_inv)
    with np.errstate(all="ignore"):
        return numerics.round_to(compute(x), result.numpy)


def _erf_inv_vjp(b: Builder, g: Value, x: Value, y: Value, *, as_xla: bool = False) -> Cotangents:
    rule = vjp_from_formula(lambda g, x, y: g / special.erf_derivative(y))
    cotangents: Cotangents = rule(b, g, x, y)
    return cotangents


erf_inv = define_op(
    "erf_inv",
    type=_erf_inv_type,
    factors=elementwise_factors,
    reference=_erf_inv,
    vjp=_erf_inv_vjp,
    elementwise=True,
)
"""The number whose `erf` is `x`.

`as_xla` selects XLA's short polynomials for f32, whose error approaches 1e-5 near -1 and 1, so that
normal random numbers equal JAX's bit for bit.
"""


def _convert_type(x: TensorType, *, result: TensorType | None) -> TensorType:
    to = require_result_type(result)
    ARITHMETIC.check(x, to)
    if x.shape != to.shape:
        raise TypeError(f"keeps the shape, but {x} would become {to}; reshape or broadcast it")
    return to


def _convert_vjp(b: Builder, g: Value, x: Value, y: Value) -> Cotangents:
    source, to = x.type.dtype, y.type.dtype
    if source not in INEXACT.dtypes or to not in INEXACT.dtypes:
        return (None,)
    if to in COMPLEX and source not in COMPLEX:
        g = b.real(g)
    return (g if g.type == x.type else b.convert(g, result=x.type),)


convert = define_op(
    "convert",
    type=_convert_type,
    factors=elementwise_factors,
    reference=lambda x, *, result: numerics.convert(x, result),
    vjp=_convert_vjp,
    jvp=linear_tangent,
    elementwise=True,
    arithmetic=None,
)
"""The elements converted to another element type; see `numerics.convert`."""

stop_gradient = define_op(
    "stop_gradient",
    type=lambda x, *, result: x,
    factors=elementwise_factors,
    reference=lambda x, *, result: x,
    vjp=zero_vjp,
    linear=((0,),),
    elementwise=True,
    arithmetic=None,
)
"""`x` without a cotangent."""
