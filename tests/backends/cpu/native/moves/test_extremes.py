"""Where extremes are: the first NaN, the first of equals."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.native.moves.extremes import RULES
from shardir.opset import OPS
from shardir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.native.moves.checking import check, expected, operations
from tests.backends.cpu.native.moves.layouts import random_of
from tests.backends.cpu.native.running import made_by, op_on

ORDERED = [name for name, dtype in NUMPY_DTYPES.items() if dtype.kind != "c" and name != "key"]


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=60)
@given(st.data())
def test_as_the_reference(name: str, data: st.DataObject) -> None:
    assert check(data, RULES, data.draw(operations([name])))


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("dtype", ORDERED)
@pytest.mark.parametrize("shape", [(150, 70), (20, 3000), (131,)])
def test_long_lines_of_few_values(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    plain = (random_of(dtype, shape), rng.integers(0, 2, shape).astype(NUMPY_DTYPES[dtype]))
    for x in plain:
        for dim in range(len(shape)):
            left = tuple(n for d, n in enumerate(shape) if d != dim)
            for to in ("i32", "i64", "u16") if dtype == "f32" else ("i32",):
                result = TensorType(left, to)
                op = op_on(OPS[name], TensorType(shape, dtype), dim=dim, result=result)
                (out,) = made_by(RULES[name], op, [x])
                np.testing.assert_array_equal(out, expected(op, [x])[0])
