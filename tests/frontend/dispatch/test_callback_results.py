"""The result of a callback must have the declared type; otherwise the call raises an error."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import (
    InterpretError,
)
from shardir.frontend.errors import NumberRangeError

X = np.ones(3, np.float32)


@pytest.mark.parametrize("made", ["float16", "float64", "int32", "bool"])
def test_a_result_of_an_undeclared_type_is_an_error(made: str) -> None:
    declared = sd.ShapeDtypeStruct((3,), "float16" if made == "float64" else "float32")
    with pytest.raises(InterpretError) as caught:
        sd.pure_callback(lambda x: np.ones(3, made), declared, X)
    assert str(caught.value) == (
        f"lambda returned {made}[3], and {declared.abstract.type} is declared; "
        "convert the result, or declare its type"
    )


def test_wide_results_are_converted_to_the_declared_dtype() -> None:
    def made(result: Any, dtype: str) -> Any:
        return sd.pure_callback(lambda: result, sd.ShapeDtypeStruct((), dtype))

    assert made(np.float64(0.5), "float32") == made(0.5, "float16") == 0.5
    assert made(np.int64(7), "int32") == made(7, "uint8") == made(7, "float32") == 7
    with pytest.raises(
        InterpretError, match=r"^lambda returned float64\[\], and i32\[\] is declared; "
    ):
        made(1.5, "int32")
    with pytest.raises(
        NumberRangeError, match=r"^the result of lambda has the number 1099511627776, "
    ):
        made(np.int64(2**40), "int32")
    with sd.enable_x64(), pytest.raises(InterpretError, match="returned float64"):
        made(np.float64(0.5), "float32")
