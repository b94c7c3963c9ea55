"""LU and Schur decompositions and triangular solves by the LAPACK that NumPy is linked with.

NumPy has no interface to `getrf`, `gees` or `trsm`. If they cannot be found, the reference
implementation computes the result one column or row at a time.
"""

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shardir.backends.base import Array
from shardir.backends.numpy.kernel_table import Kernel, kernels
from shardir.backends.numpy.lapack_routines import find_routine
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ops.linalg.matrices import widen


def _permutation_of_pivots(pivots: Sequence[int], rows: int) -> list[int]:
    """Return the source row of each row after row i was swapped with row `pivots[i]` in turn."""
    order = list(range(rows))
    for i, best in enumerate(pivots):
        order[i], order[best] = order[best], order[i]
    return order


@kernels.rule(OPS["lu"])
def _lu_kernel(op: Op) -> Kernel:
    result, places, permutation = (value.type for value in op.results)
    reference: Any = op.spec.reference

    def compute(x: Array) -> tuple[Array, Array, Array]:
        full = widen(x)
        getrf = find_routine("zgetrf" if full.dtype.kind == "c" else "dgetrf")
        # With infinities and NaNs, LAPACK implementations differ in the rows that they choose.
        if getrf is None or not full.size or not np.isfinite(full).all():
            found: tuple[Array, Array, Array] = reference(x, result=(result, places, permutation))
            return found
        rows, columns = x.shape[-2:]
        count, size = prod(x.shape[:-2]), min(rows, columns)
        # LAPACK expects column-major matrices.
        left = full.reshape(count, rows, columns).swapaxes(1, 2).copy()
        pivots = np.empty((count, size), getrf.integer)
        numbers = [np.array(n, getrf.integer) for n in (rows, columns, rows, 0)]
        m, n, step, info = (number.ctypes.data_as(ctypes.c_void_p) for number in numbers)
        for matrix, chosen in zip(left, pivots, strict=True):
            getrf.call(
                m, n, matrix.ctypes.data_as(ctypes.c_void_p), step,
                chosen.ctypes.data_as(ctypes.c_void_p), info,
            )  # fmt: skip
        pivots -= 1
        order = np.array(
            [_permutation_of_pivots(chosen, rows) for chosen in pivots.tolist()], np.int32
        )
        return (
            left.swapaxes(1, 2).reshape(x.shape).astype(result.numpy),
            pivots.astype(np.int32).reshape(places.shape),
            order.reshape(permutation.shape),
        )

    return compute


@kernels.rule(OPS["triangular_solve"])
def _triangular_solve_kernel(op: Op) -> Kernel:
    result, attrs = op.result.type, op.attrs
    reference: Any = op.spec.reference
    unit, transpose = bool(attrs["unit"]), attrs["transpose"]

    def compute(a: Array, y: Array) -> Array:
        trsm = find_routine("ztrsm" if a.dtype.kind == "c" else "dtrsm")
        if trsm is None or not y.size:
            found: Array = reference(a, y, result=result, **op.rule_arguments)
            return found
        left, right = np.ascontiguousarray(widen(a)), widen(y)
        right = np.ascontiguousarray(right)
        rows, columns = y.shape[-2:]
        # LAPACK sees the rows as columns, and so solves the transposed system.
        upper = bool(attrs["lower"])
        letters = (b"R", b"U" if upper else b"L", _TRANS_CODES[transpose], b"U" if unit else b"N")
        flags = [ctypes.c_char_p(letter) for letter in letters]
        numbers = [np.array(n, trsm.integer) for n in (columns, rows)]
        n, m = (number.ctypes.data_as(ctypes.c_void_p) for number in numbers)
        one = np.ones((), right.dtype)
        scale = one.ctypes.data_as(ctypes.c_void_p)
        pairs = zip(left.reshape(-1, rows, rows), right.reshape(-1, rows, columns), strict=True)
        for coefficients, matrix in pairs:
            trsm.call(
                *flags, n, m, scale, coefficients.ctypes.data_as(ctypes.c_void_p), m,
                matrix.ctypes.data_as(ctypes.c_void_p), n,
            )  # fmt: skip
        return right.astype(result.numpy, copy=False)

    return compute


_TRANS_CODES = {"no": b"N", "transpose": b"T", "adjoint": b"C"}


@kernels.rule(OPS["schur"])
def _schur_kernel(op: Op) -> Kernel:
    types = tuple(value.type for value in op.results)
    reference: Any = op.spec.reference

    def compute(x: Array) -> Any:
        full = widen(x)
        is_complex = full.dtype.kind == "c"
        gees = find_routine("zgees" if is_complex else "dgees")
        if gees is None or not full.size or not np.isfinite(full).all():
            stated = types if len(types) > 1 else types[0]
            return reference(x, result=stated, **op.rule_arguments)
        size = x.shape[-1]
        # LAPACK expects column-major matrices.
        forms = full.reshape(-1, size, size).swapaxes(1, 2).copy()
        bases = np.empty_like(forms)
        letters = [ctypes.c_char_p(b"V" if len(types) > 1 else b"N"), ctypes.c_char_p(b"N")]
        work = np.empty(GEES_WORK_COLUMNS * size, full.dtype)
        values = [np.empty(size, full.dtype) for _ in range(1 if is_complex else 2)]
        rest = [np.empty(size)] if is_complex else []
        numbers = [np.array(n, gees.integer) for n in (size, 0, len(work), 0)]
        order, chosen, count, info = (each.ctypes.data_as(ctypes.c_void_p) for each in numbers)
        for form, basis in zip(forms, bases, strict=True):
            gees.call(
                *letters, None, order, form.ctypes.data_as(ctypes.c_void_p), order, chosen,
                *(each.ctypes.data_as(ctypes.c_void_p) for each in values),
                basis.ctypes.data_as(ctypes.c_void_p), order,
                work.ctypes.data_as(ctypes.c_void_p), count,
                *(each.ctypes.data_as(ctypes.c_void_p) for each in rest), None, info,
            )  # fmt: skip
            if numbers[3]:
                form[:], basis[:] = np.nan, np.nan
        made = tuple(
            each.swapaxes(1, 2).reshape(x.shape).astype(type.numpy)
            for each, type in zip((forms, bases), types, strict=False)
        )
        return made if len(types) > 1 else made[0]

    return compute


GEES_WORK_COLUMNS = 8
"""The size of the workspace of `gees` relative to the rows of a matrix; it needs at least 3."""
