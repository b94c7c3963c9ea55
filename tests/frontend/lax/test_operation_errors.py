"""Errors of `lax` operations, with their exact texts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.errors import AxisError, NotAnArrayError
from shardir.frontend.lax import api as lax
from tests.namespace import run

X = np.array([[0.5, -1.25, 3.0], [2.5, 0.0, -0.75]], np.float32)
WHOLE = np.array([[5, -3, 7], [0, 2, -8]], np.int32)


class Pair:
    """A class whose objects are no arrays."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __repr__(self) -> str:
        return "Pair"


FAULTS: list[tuple[Callable[..., Any], type[Exception], str]] = [
    (lambda x, i: lax.add(x, i), OperationTypeError,
     "lax.add takes operands of one element type, got f32 and i32; convert one with .astype, or "
     "use shardir.numpy, which promotes"),
    (lambda x, i: lax.clamp(i[0, 0], x, 1.0), OperationTypeError,
     "lax.clamp takes operands of one element type, got f32 and i32; convert one with .astype, or "
     "use snp.clip"),
    (lambda x, i: lax.exp(i), OperationTypeError,
     "exp: takes floating-point or complex operands, got i32[2, 3]"),
    (lambda x, i: lax.reduce_sum(x, (2,)), AxisError,
     "axis 2 is out of range for an array of rank 2"),
    (lambda x, i: lax.slice(x, (0, 0), (2, 4)), OperationTypeError,
     "slice from 0 up to 4 is not within dimension 1 of size 3"),
    (lambda x, i: lax.slice(x, (0,), (2,)), OperationTypeError,
     "slice takes a start, a limit and a stride for each of 2 dimensions"),
    (lambda x, i: lax.dynamic_slice(x, (i[0, 0],), (1, 1)), OperationTypeError,
     "dynamic_slice takes one start for each of 2 dimensions, got 1"),
    (lambda x, i: lax.dynamic_slice(x, (x[0, 0], 0), (1, 1)), OperationTypeError,
     "dynamic_slice starts at integers of rank 0, got f32[]"),
    (lambda x, i: lax.index_in_dim(x, 3), OperationTypeError,
     "index 3 is out of range for dimension 0 of shape (2, 3)"),
    (lambda x, i: lax.split(x, (1, 1), 1), OperationTypeError,
     "sizes (1, 1) do not add up to dimension 1 of shape (2, 3)"),
    (lambda x, i: lax.top_k(x, 4), OperationTypeError,
     "top_k cannot take 4 of dimension 1 of shape (2, 3)"),
    (lambda x, i: lax.dot(x, x), OperationTypeError,
     "dimension 1 of shape (2, 3) and dimension 0 of shape (2, 3) differ in size"),
    (lambda x, i: lax.dot(x[None], x), OperationTypeError,
     "lax.dot takes vectors and matrices, got shapes (1, 2, 3) and (2, 3); use snp.matmul or "
     "lax.dot_general"),
    (lambda x, i: lax.reduce_window((x, x), 0.0, lambda a, b: a, (1, 1)), OperationTypeError,
     "the operands of lax.reduce_window are PyTreeDef((*, *)), and the initial values "
     "PyTreeDef(*); pass an initial value for each operand, in the same containers"),
    (lambda x, i: lax.reduce_window((x, x[0]), (0.0, 0.0), lambda a, b: a, (1, 1)),
     OperationTypeError,
     "the operands of lax.reduce_window have one shape, got (2, 3) and (3,)"),
    (lambda x, i: lax.reduce_window((x, x), (0.0, x), lambda a, b: a, (1, 1)), OperationTypeError,
     "an initial value of lax.reduce_window is a scalar, got f32[2, 3]"),
    (lambda x, i: lax.reduce_window((x, x), (0.0, 0.0), lambda a, b: a[0], (1, 1)),
     OperationTypeError,
     "the computation of lax.reduce_window returns PyTreeDef(*), and its operands are "
     "PyTreeDef((*, *)); return one value for each operand"),
    (lambda x, i: lax.reduce_window(lax.full((70, 70), 0.0), 1.0, lax.add, (70, 70)),
     OperationTypeError,
     "reduce_window has a slice for each of 4900 positions of a window with this computation, and "
     "at most 4096; reduce one dimension at a time, or use lax.add, lax.mul, lax.max or lax.min"),
    (lambda x, i: lax.reduce(x, 0.0, Pair, (1,)), NotAnArrayError,
     "a result of the computation of lax.reduce is Pair of type Pair, which is not an array"),
    (lambda x, i: lax.reduce((x, x), (0.0, 0.0), lambda a, b: (a[0], "b"), (1,)), NotAnArrayError,
     "a result of the computation of lax.reduce is 'b' of type str, which is not an array"),
    (lambda x, i: lax.reduce_window(x, 0.0, Pair, (1, 2)), NotAnArrayError,
     "a result of the computation of lax.reduce_window is Pair of type Pair, which is not an "
     "array"),
    (lambda x, i: lax.reduce((x, x), (0.0, 0.0), lambda a, b: a[0], (1,)), OperationTypeError,
     "the computation of lax.reduce returns PyTreeDef(*), and its operands are PyTreeDef((*, *)); "
     "return one value for each operand"),
    (lambda x, i: lax.conv_general_dilated(x[None], x[None], (1,), "SAME", (2,)),
     OperationTypeError,
     "padding 'SAME' of a convolution with lhs_dilation (2,) is ambiguous; state (low, high) "
     "pairs, or call lax.conv_transpose"),
    (lambda x, i: lax.conv(x[None], x[None], (1,), "FULL"), OperationTypeError,
     "padding 'FULL' is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs"),
    (lambda x, i: lax.conv_general_dilated(x[None], x[None], (1,), "VALID",
                                           dimension_numbers=("NHC", "WIO", "NWC")),
     OperationTypeError,
     "dimension_numbers ('NHC', 'WIO', 'NWC') do not name 3 dimensions each; they are like "
     '("NHWC", "HWIO", "NHWC")'),
    (lambda x, i: lax.gather(x, i, lax.GatherDimensionNumbers((), (), ()), (1, 1), mode="wrap"),
     OperationTypeError,
     "mode 'wrap' is unknown; the modes are 'fill', 'drop', 'clip' and 'promise_in_bounds'"),
    (lambda x, i: lax.select_n(x, x, x), OperationTypeError,
     "select_n takes a bool for two cases or an i32 for any number, got f32[2, 3] for 2"),
    (lambda x, i: lax.concatenate([], 0), OperationTypeError,
     "concatenate takes at least one array"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), FAULTS)
def test_an_invalid_operand_has_an_exact_error(
    call: Any, kind: type[Exception], message: str
) -> None:
    computes: list[Callable[[], Any]] = [
        lambda: run(call, X, WHOLE), lambda: call(from_numpy(X), from_numpy(WHOLE))
    ]  # fmt: skip
    for compute in computes:
        with pytest.raises(kind) as caught:
            compute()
        first, *rest = str(caught.value).split("\n")
        assert first == message
        assert "test_operation_errors.py" in rest[0]
