"""Errors of window functions for invalid strides and padding."""

from typing import Any

import numpy as np
import pytest

from shardir.errors import OperationTypeError
from shardir.frontend.lax import api as lax

IMAGES, FILTERS = np.ones((2, 3, 8, 8), "f"), np.ones((4, 3, 3, 3), "f")


def convolved(strides: Any = (1, 1), padding: Any = "SAME", **options: Any) -> Any:
    return lax.conv_general_dilated(IMAGES, FILTERS, strides, padding, **options)


def pooled(window: Any = (2,), strides: Any = (1,), **options: Any) -> Any:
    return lax.reduce_window(np.ones(3, "f"), 0.0, lax.add, window, strides, "SAME", **options)


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: convolved((1,)), "window_strides must be 2 integers above 0, got (1,)"),
        (
            lambda: convolved(np.array("abc")),
            "window_strides must be 2 integers above 0, got array('abc', dtype='<U3')",
        ),
        (lambda: convolved((0, 1)), "window_strides must be 2 integers above 0, got (0, 1)"),
        (
            lambda: convolved(rhs_dilation=(1.5, 1)),
            "rhs_dilation must be 2 integers above 0, got (1.5, 1)",
        ),
        (
            lambda: convolved(padding=3),
            "padding 3 is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs",
        ),
        (
            lambda: pooled((1, 2)),
            "window_dimensions must be 1 integer above 0, got (1, 2)",
        ),
        (lambda: pooled(strides=()), "window_strides must be 1 integer above 0, got ()"),
        (
            lambda: pooled(base_dilation=(-1,)),
            "base_dilation must be 1 integer above 0, got (-1,)",
        ),
    ],
)
def test_invalid_arguments_are_errors(compute: Any, message: str) -> None:
    with pytest.raises(OperationTypeError) as caught:
        compute()
    first, *rest = str(caught.value).split("\n")
    assert first == message
    assert "test_window_reductions.py" in rest[0]
