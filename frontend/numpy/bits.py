"""Operations on the bits of integers and floats."""

from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import common, like, pointwise, same
from shardir.frontend.operands import align, as_tracer, convert
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, UNSIGNED


@public()
def bitwise_and(x: Any, y: Any, /) -> Any:
    """The bits that both have, elementwise, of bools or integers."""
    return pointwise("and", x, y)


@public()
def bitwise_or(x: Any, y: Any, /) -> Any:
    """The bits that one or both have, elementwise, of bools or integers."""
    return pointwise("or", x, y)


@public()
def bitwise_xor(x: Any, y: Any, /) -> Any:
    """The bits that exactly one has, elementwise, of bools or integers."""
    return pointwise("xor", x, y)


@public()
def bitwise_not(x: Any, /) -> Any:
    """All bits turned over, elementwise, of bools or integers."""
    return pointwise("not", x)


bitwise_invert = invert = bitwise_not


def _shift(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    dtype, _ = common(x, y)
    if dtype not in INTEGERS and dtype != "bool":
        raise OperationTypeError(point(f"{name} takes integers, got {dtype}"))
    first, second = align(x, y, kind=("i32", False) if dtype == "bool" else None)
    return first, second


@public()
def left_shift(x: Any, y: Any, /) -> Any:
    """The bits of `x` moved up by `y` places, elementwise; 0 when all are moved out."""
    return pointwise("shift_left", *_shift("left_shift", x, y))


@public()
def right_shift(x: Any, y: Any, /) -> Any:
    """The bits of `x` moved down by `y` places, elementwise; a sign stays."""
    first, second = _shift("right_shift", x, y)
    unsigned = first.value.type.dtype in UNSIGNED
    return pointwise("shift_right_logical" if unsigned else "shift_right_arithmetic", first, second)


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


@public()
def bitwise_count(x: Any, /) -> Any:
    """How many bits of the size of an integer are set, elementwise, as uint8."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        return convert(x, "u8")
    if x.value.type.dtype not in INTEGERS:
        raise OperationTypeError(point(f"bitwise_count takes integers, got {x.value.type}"))
    size = x if x.value.type.dtype in UNSIGNED else same("abs", x)
    return convert(same("popcnt", size), "u8")


def _integers(name: str, x: Any, y: Any) -> tuple[Tracer, Tracer]:
    first, second = align(x, y)
    if first.value.type.dtype not in INTEGERS:
        raise OperationTypeError(point(f"{name} takes integers, got {first.value.type}"))
    return first, second


@public()
def gcd(x1: Any, x2: Any) -> Any:
    """The greatest common divisor, elementwise, of integers; gcd(0, 0) is 0."""
    return _common_divisor(*_integers("gcd", x1, x2))


@public()
def lcm(x1: Any, x2: Any) -> Any:
    """The least common multiple, elementwise, of integers; 0 where one is 0."""
    x, y = _integers("lcm", x1, x2)
    divisor = _common_divisor(x, y)
    zero = like(x, 0)
    safe = same("select", same("eq", divisor, zero), like(x, 1), divisor)
    if x.value.type.dtype not in UNSIGNED:
        x, y = same("abs", x), same("abs", y)
    return same("mul", x, same("div", y, safe))


def _common_divisor(x: Tracer, y: Tracer) -> Tracer:
    """Euclid's algorithm on all elements at once, until none has a rest."""
    from shardir.frontend.lax import while_loop

    if x.value.type.dtype not in UNSIGNED:
        x, y = same("abs", x), same("abs", y)

    def unfinished(pair: tuple[Tracer, Tracer]) -> Any:
        rest = same("ne", pair[1], like(pair[1], 0))
        return emit("any", rest, dims=tuple(range(rest.ndim)))

    def step(pair: tuple[Tracer, Tracer]) -> Any:
        large, small = pair
        done = same("eq", small, like(small, 0))
        rest = same("rem", large, same("select", done, like(small, 1), small))
        return same("select", done, large, small), same("select", done, small, rest)

    divisor: Tracer = while_loop(unfinished, step, (x, y))[0]
    # What divides the least number may be negative: that one stays so without its sign.
    return divisor if x.value.type.dtype in UNSIGNED else same("abs", divisor)
