"""Choosing between values, element by element."""

from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import choose, pointwise, truth


@public()
def maximum(x: Any, y: Any, /) -> Any:
    """The larger one, elementwise; NaN where either is."""
    return pointwise("maximum", x, y)


@public()
def minimum(x: Any, y: Any, /) -> Any:
    """The smaller one, elementwise; NaN where either is."""
    return pointwise("minimum", x, y)


def where(condition: Any, x: Any = None, y: Any = None, /, **options: Any) -> Any:
    """`x` where the condition is true (not zero), `y` where not; all three broadcast.

    With the condition alone, the indices where it is true: `nonzero(condition, **options)`.
    """
    if x is None and y is None:
        from shardir.frontend import numpy as snp

        return snp.nonzero(condition, **options)
    if x is None or y is None or options:
        raise OperationTypeError(
            point("where takes a condition, or a condition and two arrays to choose from")
        )
    return _where(condition, x, y)


@public()
def _where(condition: Any, x: Any, y: Any) -> Any:
    return choose(truth(condition), x, y)
