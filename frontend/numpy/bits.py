"""Bitwise operations, shifts, and common divisors of integers."""

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
    """Return the bitwise and of bools or integers, elementwise."""
    return pointwise("and", x, y)


@public()
def bitwise_or(x: Any, y: Any, /) -> Any:
    """Return the bitwise or of bools or integers, elementwise."""
    return pointwise("or", x, y)


@public()
def bitwise_xor(x: Any, y: Any, /) -> Any:
    """Return the bitwise exclusive or of bools or integers, elementwise."""
    return pointwise("xor", x, y)


@public()
def bitwise_not(x: Any, /) -> Any:
    """Return the bitwise complement of bools or integers, elementwise."""
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
    """Shift the bits of `x` left by `y`, elementwise; 0 if all bits are shifted out."""
    return pointwise("shift_left", *_shift("left_shift", x, y))


@public()
def right_shift(x: Any, y: Any, /) -> Any:
    """Shift the bits of `x` right by `y`, elementwise; the sign is kept."""
    first, second = _shift("right_shift", x, y)
    unsigned = first.value.type.dtype in UNSIGNED
    return pointwise("shift_right_logical" if unsigned else "shift_right_arithmetic", first, second)


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


@public()
def bitwise_count(x: Any, /) -> Any:
    """Return the number of set bits of the absolute value of an integer, elementwise, as uint8."""
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
    """Return the greatest common divisor of integers, elementwise; gcd(0, 0) is 0."""
    return _common_divisor(*_integers("gcd", x1, x2))


@public()
def lcm(x1: Any, x2: Any) -> Any:
    """Return the least common multiple of integers, elementwise; 0 if one of them is 0."""
    x, y = _integers("lcm", x1, x2)
    divisor = _common_divisor(x, y)
    zero = like(x, 0)
    safe = same("select", same("eq", divisor, zero), like(x, 1), divisor)
    if x.value.type.dtype not in UNSIGNED:
        x, y = same("abs", x), same("abs", y)
    return same("mul", x, same("div", y, safe))


def _common_divisor(x: Tracer, y: Tracer) -> Tracer:
    """Apply Euclid's algorithm to all elements until every remainder is 0."""
    from shardir.frontend.lax import while_loop

    if x.value.type.dtype not in UNSIGNED:
        x, y = same("abs", x), same("abs", y)

    def has_remainder(pair: tuple[Tracer, Tracer]) -> Any:
        rest = same("ne", pair[1], like(pair[1], 0))
        return emit("any", rest, dims=tuple(range(rest.ndim)))

    def step(pair: tuple[Tracer, Tracer]) -> Any:
        large, small = pair
        done = same("eq", small, like(small, 0))
        rest = same("rem", large, same("select", done, like(small, 1), small))
        return same("select", done, large, small), same("select", done, small, rest)

    divisor: Tracer = while_loop(has_remainder, step, (x, y))[0]
    # The absolute value of the smallest integer is not representable and stays negative.
    return divisor if x.value.type.dtype in UNSIGNED else same("abs", divisor)
