"""Running combinations: the bits of the reference, whatever lies how."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.native.moves.running import RULES
from shardir.opset import OPS
from shardir.types import NUMPY_DTYPES, TensorType
from tests.backends.cpu.native.moves.checking import (
    assert_same_bits,
    check,
    expected,
    operations,
)
from tests.backends.cpu.native.moves.layouts import random_of
from tests.backends.cpu.native.running import made_by, op_on


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=60)
@given(st.data())
def test_as_the_reference(name: str, data: st.DataObject) -> None:
    op = data.draw(operations([name]))
    known = op.name == "cumsum" or op.operands[0].type.dtype not in ("c64", "c128")
    assert check(data, RULES, op) == known or op.operands[0].type.size == 0


@pytest.mark.parametrize("name", sorted(RULES))
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "i32", "u8"])
@pytest.mark.parametrize("shape", [(100, 70), (3, 300), (17, 5, 33)])
def test_long_lines(name: str, dtype: str, shape: tuple[int, ...]) -> None:
    type = TensorType(shape, dtype)
    x = random_of(dtype, shape)
    if dtype in ("bf16", "f16", "f32", "f64"):
        x = np.random.default_rng(1).standard_normal(shape).astype(NUMPY_DTYPES[dtype])
    for dim in range(len(shape)):
        op = op_on(OPS[name], type, dim=dim, reverse=dim == 1)
        (out,) = made_by(RULES[name], op, [x])
        assert_same_bits(out, expected(op, [x])[0])
