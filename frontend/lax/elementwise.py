"""Elementwise operations under the names of `jax.lax`.

Unlike those of `shardir.numpy` they do not mix element types: arrays must agree, Python numbers
follow them. Shapes broadcast.
"""

from collections.abc import Callable
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.operands import align, as_tracer, broadcast, convert, is_number, kind_of
from shardir.frontend.promotion import dtype_of
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import TensorType


def _aligned(name: str, *xs: Any) -> tuple[Tracer, ...]:
    kinds = {kind_of(x)[0] for x in xs if not is_number(x)}
    if len(kinds) > 1:
        raise OperationTypeError(
            point(
                f"lax.{name} takes operands of one element type, got "
                f"{' and '.join(sorted(kinds))}; convert one with .astype, "
                "or use shardir.numpy, which promotes"
            )
        )
    return align(*xs)


def _unary(name: str, core: str = "") -> Callable[..., Any]:
    core = core or name

    @public()
    def unary(x: Any) -> Any:
        tracer = as_tracer(x)
        return emit(core, tracer, weak=tracer.weak_type)

    return _called(name, core, unary)


def _binary(name: str, core: str = "") -> Callable[..., Any]:
    core = core or name

    @public()
    def binary(x: Any, y: Any) -> Any:
        first, second = _aligned(name, x, y)
        return emit(core, first, second, weak=first.weak_type and second.weak_type)

    return _called(name, core, binary)


def _called(name: str, core: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The operation `{core}` of every element."
    return function


abs = _unary("abs")
neg = _unary("neg")
sign = _unary("sign")
floor = _unary("floor")
ceil = _unary("ceil")
is_finite = _unary("is_finite")
exp = _unary("exp")
exp2 = _unary("exp2")
expm1 = _unary("expm1")
log = _unary("log")
log1p = _unary("log1p")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
cbrt = _unary("cbrt")
logistic = _unary("logistic")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
tanh = _unary("tanh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
erf = _unary("erf")
erfc = _unary("erfc")
erf_inv = _unary("erf_inv")
lgamma = _unary("lgamma")
digamma = _unary("digamma")
real = _unary("real")
imag = _unary("imag")
conj = _unary("conj")
bitwise_not = _unary("bitwise_not", "not")
population_count = _unary("population_count", "popcnt")
clz = _unary("clz")

add = _binary("add")
sub = _binary("sub")
mul = _binary("mul")
div = _binary("div")
rem = _binary("rem")
pow = _binary("pow")
atan2 = _binary("atan2")
shift_left = _binary("shift_left")
shift_right_logical = _binary("shift_right_logical")
shift_right_arithmetic = _binary("shift_right_arithmetic")
nextafter = _binary("nextafter")
complex = _binary("complex")
eq = _binary("eq")
ne = _binary("ne")
lt = _binary("lt")
le = _binary("le")
gt = _binary("gt")
ge = _binary("ge")
max = _binary("max", "maximum")
min = _binary("min", "minimum")
bitwise_and = _binary("bitwise_and", "and")
bitwise_or = _binary("bitwise_or", "or")
bitwise_xor = _binary("bitwise_xor", "xor")


@public()
def square(x: Any) -> Any:
    """x times x."""
    tracer = as_tracer(x)
    return emit("mul", tracer, tracer, weak=tracer.weak_type)


@public(static=("y",))
def integer_pow(x: Any, y: int) -> Any:
    """x to an integer power known while tracing, by repeated multiplication."""
    base = as_tracer(x)
    result: Tracer | None = None
    power = -y if y < 0 else y
    while power:
        if power & 1:
            result = base if result is None else emit("mul", result, base)
        power >>= 1
        if power:
            base = emit("mul", base, base)
    if result is None:
        return emit("constant", value=1, result=base.value.type)
    return div(1, result) if y < 0 else result


@public(static=("rounding_method",))
def round(x: Any, rounding_method: Any = None) -> Any:
    """The nearest whole number; ties to the even one."""
    return emit("round", as_tracer(x))


@public()
def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Elements of `on_true` where `pred`, else of `on_false`. `pred` may be a scalar."""
    first, second = _aligned("select", on_true, on_false)
    which = convert(as_tracer(pred), "bool")
    return emit("select", which, first, second, weak=first.weak_type and second.weak_type)


@public()
def clamp(min: Any, x: Any, max: Any) -> Any:
    """`x` held between `min` and `max`, which may be scalars."""
    value = as_tracer(x)
    kind = (value.value.type.dtype, False)
    low, high = (
        broadcast(convert(as_tracer(bound), *kind), value.shape)
        if not is_number(bound)
        else convert(as_tracer(bound), *kind)
        for bound in (min, max)
    )
    return emit("clamp", low, value, high)


@public(static=("new_dtype",))
def convert_element_type(x: Any, new_dtype: Any) -> Any:
    """`x` with another element type, converted as C does."""
    return convert(as_tracer(x), dtype_of(new_dtype))


@public(static=("new_dtype",))
def bitcast_convert_type(x: Any, new_dtype: Any) -> Any:
    """The same bits as elements of another type; a type of another width adds or takes the last
    dimension."""
    tracer, name = as_tracer(x), dtype_of(new_dtype)
    old, new = (TensorType((), n).numpy.itemsize for n in (tracer.value.type.dtype, name))
    shape = tracer.shape
    if old > new:
        shape = (*shape, old // new)
    elif old < new:
        shape = shape[:-1]
    if (tracer.value.type.dtype, name) == ("u64", "u32"):  # as keys are stored; see the op
        tracer = emit("bitcast", tracer, result=tracer.value.type.with_dtype("i64"))
    return emit("bitcast", tracer, result=TensorType(shape, name))


@public()
def stop_gradient(x: Any) -> Any:
    """The same values, as constants of differentiation. Takes containers."""
    from shardir.frontend import tree

    def stopped(leaf: Any) -> Any:
        tracer = as_tracer(leaf)
        return emit("stop_gradient", tracer, weak=tracer.weak_type)

    return tree.map(stopped, x)
