"""Contractions as matrix products.

Any einsum of two operands is a batched matrix product between transposes: the factors of the
operands are grouped into batch, free and contracting ones, each group becomes one dimension, and
NumPy's `matmul` (BLAS) computes the product.
"""

from math import prod

import numpy as np

from shardir.backends.numpy.kernel_table import Kernel, kernels
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.types import NumpyArray
from shardir.ops import dot

Array = NumpyArray


@kernels.rule(dot)
def _dot_kernel(op: Op) -> Kernel:
    inputs, output = op.attrs["dims"].split("->")
    lhs, rhs = inputs.split(",")
    batch = "".join(c for c in output if c in lhs and c in rhs)
    rows = "".join(c for c in output if c in lhs and c not in rhs)
    columns = "".join(c for c in output if c in rhs and c not in lhs)
    inner = "".join(c for c in lhs if c in rhs and c not in output)
    summed_dims = [
        tuple(i for i, c in enumerate(term) if c not in output and c not in other)
        for term, other in ((lhs, rhs), (rhs, lhs))
    ]
    kept = ["".join(c for c in term if c in output or c in inner) for term in (lhs, rhs)]
    orders = [
        [kept[0].index(c) for c in batch + rows + inner],
        [kept[1].index(c) for c in batch + inner + columns],
    ]
    back = [(batch + rows + columns).index(c) for c in output]
    result_dtype = op.result.type.numpy
    # NumPy has no fast product in half precision; hardware accumulates in single precision.
    compute_dtype = np.dtype(np.float32) if op.result.type.dtype in NARROW_FLOATS else result_dtype

    def run(x: Array, y: Array) -> Array:
        x, y = x.astype(compute_dtype, copy=False), y.astype(compute_dtype, copy=False)
        x = (x.sum(summed_dims[0], dtype=compute_dtype) if summed_dims[0] else x).transpose(
            orders[0]
        )
        y = (y.sum(summed_dims[1], dtype=compute_dtype) if summed_dims[1] else y).transpose(
            orders[1]
        )
        b, r = len(batch), len(rows)
        shape = (*x.shape[: b + r], *y.shape[b + len(inner) :])
        m, k = prod(x.shape[b : b + r]), prod(x.shape[b + r :])
        n = prod(y.shape[b + len(inner) :])
        product: Array = np.matmul(
            x.reshape(*x.shape[:b], m, k), y.reshape(*y.shape[:b], k, n)
        ).reshape(shape)
        return product.transpose(back).astype(result_dtype, copy=False)

    return run
