"""Matrix decompositions by NumPy; threads share the batch."""

from math import prod
from typing import Any

import numpy as np

from shardir.backends.base import Array
from shardir.backends.numpy.kernel_table import Kernel, kernels
from shardir.backends.numpy.threads import run_on_threads, split_range, thread_count
from shardir.ir.module import Op
from shardir.ir.operation import OPS

MATRIX_NANOSECONDS, MULTIPLY_ADD_NANOSECONDS = 2000, 10
"""Estimated nanoseconds for each matrix, and for each product of row, column and rank."""
MIN_PARALLEL_NANOSECONDS = 3_000_000
"""Estimated nanoseconds from which on threads share the batch."""
PIECES_PER_THREAD = 4
"""Pieces of the batch for each thread, which balance the load."""


@kernels.rule(
    *(OPS[name] for name in ("cholesky", "qr", "svd", "eigh", "eig", "pinv", "least_squares"))
)
def _compute_batches(op: Op) -> Kernel:
    types = tuple(value.type for value in op.results)
    reference: Any = op.spec.reference

    def compute_part(count: int | None, arrays: list[Array]) -> tuple[Array, ...]:
        """Apply the reference to `count` matrices, or to the whole batch if `count` is `None`."""
        stated = types
        if count is not None:
            inner = op.operands[0].type.rank - 2
            stated = tuple(type.with_shape((count, *type.shape[inner:])) for type in types)
        stated_result = stated if len(types) > 1 else stated[0]
        result = reference(*arrays, result=stated_result, **op.rule_arguments)
        return result if isinstance(result, tuple) else (result,)

    def compute(*arrays: Array) -> Any:
        outer = arrays[0].shape[:-2]
        count, (rows, columns) = prod(outer), arrays[0].shape[-2:]
        cost = count * (
            MATRIX_NANOSECONDS + MULTIPLY_ADD_NANOSECONDS * rows * columns * min(rows, columns)
        )
        if count < 2 or cost < MIN_PARALLEL_NANOSECONDS:
            found = compute_part(None, list(arrays))
            return found if len(types) > 1 else found[0]
        flat = [x.reshape(count, *x.shape[len(outer) :]) for x in arrays]
        outs: list[Any] = [
            np.empty((count, *type.shape[len(outer) :]), type.numpy) for type in types
        ]

        def run(piece: slice) -> None:
            result = compute_part(piece.stop - piece.start, [x[piece] for x in flat])
            for out, part in zip(outs, result, strict=True):
                out[piece] = part

        run_on_threads(
            run, list(split_range(count, -(-count // (PIECES_PER_THREAD * thread_count()))))
        )
        reshaped = tuple(out.reshape(type.shape) for out, type in zip(outs, types, strict=True))
        return reshaped if len(types) > 1 else reshaped[0]

    return compute
