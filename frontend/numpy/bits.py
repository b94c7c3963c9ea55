"""Operations on the bits of integers and floats."""

from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import common, pointwise
from shardir.frontend.operands import align
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
