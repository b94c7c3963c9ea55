"""Cholesky factors of positive definite matrices, from LU decompositions with scaled columns.

If L U = x for Hermitian x, then U is L^H with its rows multiplied by the diagonal of U, so L times
the square roots of the diagonal is the factor. No pivoting is needed.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from shardir.backends.cpu.native.data import SCRATCH_BYTES, Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.matrices.factoring import RATE, eliminate, outer
from shardir.backends.cpu.native.matrices.held import (
    Copying,
    Held,
    emit_substitute,
    emit_update,
    held_bytes,
    load,
    neighbours,
    row_bytes,
    store,
    wide,
)
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.loops import nest
from shardir.ir import Op


def cholesky_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Lower Cholesky decompositions of matrices that fit into scratch memory."""
    (x,), (result,) = operands, results
    rows = x.shape[-1]
    if x.size == 0:
        return []
    if held_bytes(rows, rows, x.dtype) + row_bytes(rows) > SCRATCH_BYTES:
        return None
    views = [outer(x, 2), outer(result, 2)]
    found = nest(views)
    longest_loop = max(found.loops, key=lambda loop: loop.extent, default=None)
    count, planes = prod(x.shape[:-2]), wide(x.dtype).planes
    work = rows * (rows * rows / RATE * planes**2 + 20.0) + 50.0
    each = -(
        -(longest_loop.extent if longest_loop else 1) // max(1, min(4 * context.workers, count))
    )
    grid = grid_of(views, found, None, longest_loop, 1, each)
    is_contiguous = neighbours(x), neighbours(result)
    name = (
        f"cholesky_{x.dtype}_{'n' if is_contiguous[0] else 's'}{'n' if is_contiguous[1] else 's'}"
    )
    kernel = grid_kernel(name, Form(2, extras=6), partial(_factored, x.dtype, is_contiguous))
    extra = (rows, *x.strides[-2:], *result.strides[-2:], row_bytes(rows))
    return [grid.phase(kernel, count * work, context.workers, "cholesky", extra)]


def _factored(dtype: str, is_contiguous: tuple[bool, bool], f: Function, block: Block) -> None:
    emit_update(f.module, dtype)
    emit_substitute(f.module, dtype, unit=True)
    numbers = wide(dtype)
    rows, *steps, row_step = map(block.extra, range(6))
    matrix = Held(block.scratch, row_step, rows * row_step)
    roots = f.offset(block.scratch, rows * row_step * numbers.planes)
    with f.loop(0, block.columns) as which:
        source, target = (
            f.offset(address, which * stride)
            for address, stride in zip(block.addresses, block.column_strides, strict=True)
        )
        Copying(f, dtype, is_contiguous[0]).bring(source, steps[:2], rows, rows, matrix)
        with f.loop(0, rows) as i:
            with f.loop(0, i) as j:
                lower = load(f, matrix.at(i, j), numbers, "double")
                store(f, [lower[0], *(-part for part in lower[1:])], matrix.at(j, i), numbers)
            for part in matrix.at(i, i).planes(numbers)[1:]:
                f.store(f.value(0.0, "double"), part, 8)
        eliminate(f, numbers, matrix, rows, rows)
        definite = f.variable("i1", 1)
        with f.loop(0, rows) as k:
            pivot = load(f, matrix.at(k, k), numbers, "double")[0]
            definite.set(definite.get() & pivot.is_("ogt", 0.0))
            f.store(f.intrinsic("sqrt", pivot), f.offset(roots, k, "double"), 8)
        # A single pivot that is not positive means that no factor exists.
        nan_or_zero = f.select(definite.get(), f.value(0.0, "double"), f.value(np.nan, "double"))
        with f.loop(0, rows) as i:
            _scaled(f, dtype, matrix, roots, i, rows, nan_or_zero)
        Copying(f, dtype, is_contiguous[1]).put(matrix, rows, rows, target, steps[2:])


def _scaled(
    f: Function, dtype: str, matrix: Held, roots: Value, i: Value, rows: Value, nan_or_zero: Value
) -> None:
    """Scale a row of the factor; `nan_or_zero` is NaN if there is no factor."""
    numbers = wide(dtype)
    with f.loop(0, i) as j:
        root = f.load(f.offset(roots, j, "double"), "double", 8)
        below = load(f, matrix.at(i, j), numbers, "double")
        store(f, [part * root + nan_or_zero for part in below], matrix.at(i, j), numbers)
    zero = [nan_or_zero] * (numbers.planes - 1)
    root = f.load(f.offset(roots, i, "double"), "double", 8)
    store(f, [root + nan_or_zero, *zero], matrix.at(i, i), numbers)
    with f.loop(i + 1, rows) as j:
        store(f, [nan_or_zero, *zero], matrix.at(i, j), numbers)


RULES: dict[str, Rule] = {"cholesky": cholesky_rule}
