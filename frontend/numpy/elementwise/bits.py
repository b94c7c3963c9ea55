"""Bitwise operations, shifts, and common divisors of integers."""

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.loops import while_loop
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    common_kind,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import align, as_tracer, convert
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types_of_arrays
from shardir.ir.types import INTEGERS, UNSIGNED


@public()
def bitwise_and(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the bitwise and of bools or integers, elementwise."""
    return apply_elementwise("and", x, y)


@public()
def bitwise_or(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the bitwise or of bools or integers, elementwise."""
    return apply_elementwise("or", x, y)


@public()
def bitwise_xor(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the bitwise exclusive or of bools or integers, elementwise."""
    return apply_elementwise("xor", x, y)


@public()
def bitwise_not(x: ArrayLike, /) -> Tracer:
    """Return the bitwise complement of bools or integers, elementwise."""
    return apply_elementwise("not", x)


bitwise_invert = invert = bitwise_not


def _align_shift_operands(name: str, x: ArrayLike, y: ArrayLike) -> tuple[Tracer, Tracer]:
    dtype, _ = common_kind(x, y)
    if dtype not in INTEGERS and dtype != "bool":
        raise OperationTypeError(with_location(f"{name} takes integers, got {dtype}"))
    first, second = align(x, y, kind=("i32", False) if dtype == "bool" else None)
    return first, second


@public()
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Shift the bits of `x` left by `y`, elementwise; 0 if all bits are shifted out."""
    return apply_elementwise("shift_left", *_align_shift_operands("left_shift", x, y))


@public()
def right_shift(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Shift the bits of `x` right by `y`, elementwise; the sign is kept."""
    first, second = _align_shift_operands("right_shift", x, y)
    unsigned = first.value.type.dtype in UNSIGNED
    return apply_elementwise(
        "shift_right_logical" if unsigned else "shift_right_arithmetic", first, second
    )


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


@public()
def bitwise_count(x: ArrayLike, /) -> Tracer:
    """Return the number of set bits of the absolute value of an integer, elementwise, as uint8."""
    x = as_tracer(x)
    if x.value.type.dtype == "bool":
        return convert(x, "u8")
    if x.value.type.dtype not in INTEGERS:
        raise OperationTypeError(with_location(f"bitwise_count takes integers, got {x.value.type}"))
    size = x if x.value.type.dtype in UNSIGNED else emit_elementwise("abs", x)
    return convert(emit_elementwise("popcnt", size), "u8")


def _align_integers(name: str, x: ArrayLike, y: ArrayLike) -> tuple[Tracer, Tracer]:
    first, second = align(x, y)
    if first.value.type.dtype not in INTEGERS:
        raise OperationTypeError(with_location(f"{name} takes integers, got {first.value.type}"))
    return first, second


@public()
@strip_weak_types_of_arrays
def gcd(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """Return the greatest common divisor of integers, elementwise; gcd(0, 0) is 0."""
    return _common_divisor(*_align_integers("gcd", x1, x2))


@public()
@strip_weak_types_of_arrays
def lcm(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """Return the least common multiple of integers, elementwise; 0 if one of them is 0."""
    x, y = _align_integers("lcm", x1, x2)
    divisor = _common_divisor(x, y)
    zero = constant_like(x, 0)
    safe = emit_elementwise(
        "select", emit_elementwise("eq", divisor, zero), constant_like(x, 1), divisor
    )
    if x.value.type.dtype not in UNSIGNED:
        x, y = emit_elementwise("abs", x), emit_elementwise("abs", y)
    return emit_elementwise("mul", x, emit_elementwise("div", y, safe))


def _common_divisor(x: Tracer, y: Tracer) -> Tracer:
    """Apply Euclid's algorithm to all elements until every remainder is 0."""
    if x.value.type.dtype not in UNSIGNED:
        x, y = emit_elementwise("abs", x), emit_elementwise("abs", y)

    def has_remainder(pair: tuple[Tracer, Tracer]) -> Tracer:
        rest = emit_elementwise("ne", pair[1], constant_like(pair[1], 0))
        return emit("any", rest, dims=tuple(range(rest.ndim)))

    def step(pair: tuple[Tracer, Tracer]) -> tuple[Tracer, Tracer]:
        large, small = pair
        done = emit_elementwise("eq", small, constant_like(small, 0))
        rest = emit_elementwise(
            "rem", large, emit_elementwise("select", done, constant_like(small, 1), small)
        )
        return emit_elementwise("select", done, large, small), emit_elementwise(
            "select", done, small, rest
        )

    divisor: Tracer = while_loop(has_remainder, step, (x, y))[0]
    # The absolute value of the smallest integer is not representable and stays negative.
    return divisor if x.value.type.dtype in UNSIGNED else emit_elementwise("abs", divisor)
