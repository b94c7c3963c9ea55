"""Comparisons and logic: results are bool."""

from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import pointwise, truth


@public()
def equal(x: Any, y: Any, /) -> Any:
    """x == y, elementwise."""
    return pointwise("eq", x, y)


@public()
def not_equal(x: Any, y: Any, /) -> Any:
    """x != y, elementwise."""
    return pointwise("ne", x, y)


@public()
def less(x: Any, y: Any, /) -> Any:
    """x < y, elementwise."""
    return pointwise("lt", x, y)


@public()
def less_equal(x: Any, y: Any, /) -> Any:
    """x <= y, elementwise."""
    return pointwise("le", x, y)


@public()
def greater(x: Any, y: Any, /) -> Any:
    """x > y, elementwise."""
    return pointwise("gt", x, y)


@public()
def greater_equal(x: Any, y: Any, /) -> Any:
    """x >= y, elementwise."""
    return pointwise("ge", x, y)


@public()
def logical_and(x: Any, y: Any, /) -> Any:
    """Whether both are true (not zero), elementwise."""
    return pointwise("and", truth(x), truth(y))


@public()
def logical_or(x: Any, y: Any, /) -> Any:
    """Whether one or both are true (not zero), elementwise."""
    return pointwise("or", truth(x), truth(y))


@public()
def logical_xor(x: Any, y: Any, /) -> Any:
    """Whether exactly one is true (not zero), elementwise."""
    return pointwise("xor", truth(x), truth(y))


@public()
def logical_not(x: Any, /) -> Any:
    """Whether it is false (zero), elementwise."""
    return pointwise("not", truth(x))
