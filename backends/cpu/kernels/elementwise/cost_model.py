"""The cost model of elementwise loops, for dividing work among workers and for recomputation."""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.kernels.elementwise.loop_axes import STRIDED, LoopArray, vector_layout
from shardir.backends.cpu.kernels.elementwise.loop_body import APPLY, REDUCE, LoopBody
from shardir.ir.types import NUMPY_DTYPES

NANOSECONDS_PER_BYTE = 0.035
"""Nanoseconds to load or store a byte of memory."""
CHEAP_OPS = frozenset(
    (
        "neg", "abs", "sign", "floor", "ceil", "round", "is_finite", "not", "real", "imag", "conj",
        "add", "sub", "mul", "maximum", "minimum", "and", "or", "xor", "shift_left",
        "shift_right_logical", "shift_right_arithmetic", "complex", "eq", "ne", "lt", "le", "gt",
        "ge", "select", "clamp", "convert", "stop_gradient", "popcnt", "clz", "nextafter",
        "bitcast",
    )
)  # fmt: skip
"""Operations of one or a few instructions."""
OP_NANOSECONDS = {
    "div": 0.06, "sqrt": 0.1, "rsqrt": 0.15, "rem": 0.5, "exp": 0.2, "exp2": 0.2, "log": 0.3,
    "tanh": 0.4, "logistic": 0.3, "pow": 2.0,
    "sum": 0.04, "prod": 0.04, "max": 0.08, "min": 0.08, "any": 0.02, "all": 0.02,
}  # fmt: skip


def step_nanoseconds(op: str, dtype: str) -> float:
    """Return the nanoseconds of an operation for one element."""
    size = NUMPY_DTYPES[dtype].itemsize
    each = 0.02 if op in CHEAP_OPS else OP_NANOSECONDS.get(op, 0.5)
    return each * max(1.0, size / 4)


def estimate_nanoseconds(
    body: LoopBody, size: int, arrays: Sequence[LoopArray], strides: Sequence[int] = ()
) -> float:
    """Estimate the nanoseconds of a nest of `size` elements; `strides` are along the vector
    axis."""
    each = sum(
        step_nanoseconds(step.op, step.dtype) for step in body.steps if step.kind in (APPLY, REDUCE)
    )
    moved = 0.0
    for array, stride in zip(arrays, strides or [0] * len(arrays), strict=True):
        if array.view is not None:
            distinct = prod(
                n for n, s in zip(array.view.shape, array.view.strides, strict=True) if s
            )
            moved += min(distinct, size) * array.unit_stride * NANOSECONDS_PER_BYTE
            if vector_layout(array, stride) == STRIDED:
                moved += size * 0.7
    return max(size * each, moved) + 0.3 * min(size * each, moved) + 20.0
