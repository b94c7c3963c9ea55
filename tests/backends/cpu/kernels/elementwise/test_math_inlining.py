"""Inlined math functions in kernels give the bits of the library functions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from tests.backends.cpu.kernels.math.accuracy import F32_BOUNDS_ULP
from tests.backends.cpu.kernels.math.elementwise_runner import (
    have_equal_bits,
    run_operation,
    special_values,
)
from tests.backends.cpu.phase_runner import make_op, run_rule

Array = npt.NDArray[Any]
BINARY_FUNCTIONS = ("pow", "atan2", "rem")


def operands(count: int) -> list[Array]:
    """Return numbers of any magnitude, and ordinary numbers with one exceptional number per
    vector."""
    rng = np.random.default_rng(5)
    rare = np.resize(special_values("f32"), (3000,))
    made = []
    for _ in range(count):
        near = rng.normal(0, 2, 48000).astype(np.float32)
        near[rng.permutation(48000)[:3000]] = rng.permutation(rare)
        bits = rng.integers(0, 1 << 32, 4000, np.uint64).astype(np.uint32).view(np.float32)
        made.append(np.concatenate([near, bits]))
    return made


@pytest.mark.parametrize("op", F32_BOUNDS_ULP)
def test_inlined_functions_give_the_bits_of_the_library(op: str) -> None:
    given = operands(2 if op in BINARY_FUNCTIONS else 1)
    expected = run_operation(op, given, ["f32"] * len(given), "f32")
    operation = make_op(OPS[op], *[TensorType(each.shape, "f32") for each in given])
    (made,) = run_rule(lower_loop_nest, operation, given)
    assert have_equal_bits(made, expected).all()
