"""Factorizations by Householder reflections, which LAPACK packs into one matrix.

A reflection is H = 1 - tau v v^H. Its vector v is a column of the packed matrix below a row, with a
1 in that row; tau is such that H^H maps a vector to a real multiple of a unit vector (LAPACK Users'
Guide, 3rd edition, section 5.4). Matrices are the last two dimensions. The loops have a constant
number of iterations, so that reverse mode differentiates them.
"""

from typing import NamedTuple

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.lax.control_flow.loops import fori_loop
from shardir.frontend.numpy.creation import filling, ranges
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.linear_algebra import diagonals
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.linear_algebra.matrix_helpers import conjugate_transpose
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import emit_conjugate, is_complex
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer


class _Reflection(NamedTuple):
    """The reflection of a column: its vector as a column, its scale, and the stored column."""

    vector: Tracer
    tau: Tracer
    stored: Tracer


def reduce_to_hessenberg(x: Tracer) -> tuple[Tracer, Tracer]:
    """Return Q^H x Q, which is zero below the first subdiagonal, with the vectors of Q below it,
    and the scales of the reflections, as LAPACK's `gehrd`.
    """
    count = max(x.shape[-1] - 1, 0)
    taus = filling.zeros((*x.shape[:-2], count), x.dtype)

    def step(i: Tracer, carry: tuple[Tracer, Tracer]) -> tuple[Tracer, Tracer]:
        matrix, taus = carry
        made = _reflect(matrix, i, i + 1)
        new = _apply_left(made, matrix, adjoint=True)
        new = _apply_right(made, new, adjoint=False)
        column = ranges.arange(matrix.shape[-1])
        kept = selection.where(column == i, made.stored, matrix)
        return (
            as_tracer(selection.where(column > i, new, kept)),
            as_tracer(selection.where(ranges.arange(count) == i, made.tau[..., 0], taus)),
        )

    packed, taus = fori_loop(0, count, step, (x, taus))
    return packed, taus


def reduce_to_tridiagonal(x: Tracer, lower: bool) -> tuple[Tracer, Tracer, Tracer, Tracer]:
    """Return the tridiagonal form of Hermitian matrices with the vectors of the reflections, its
    diagonal, the diagonal beside it, and the scales, as LAPACK's `hetrd` of one triangle.

    The upper triangle is the lower one of the matrix with reversed rows and columns.
    """
    if not lower:
        packed, diagonal, beside, taus = reduce_to_tridiagonal(_reverse(x, 2), True)
        return _reverse(packed, 2), _reverse(diagonal, 1), _reverse(beside, 1), _reverse(taus, 1)
    size = x.shape[-1]
    row, column = ranges.arange(size)[:, None], ranges.arange(size)
    real = convert(as_tracer(complex_parts.real(x)), x.value.type.dtype)
    mirrored = selection.where(row > column, x, conjugate_transpose(x))
    packed, taus = reduce_to_hessenberg(as_tracer(selection.where(row == column, real, mirrored)))
    stored = selection.where(row >= column, packed, x)
    real = convert(as_tracer(complex_parts.real(packed)), x.value.type.dtype)
    stored = selection.where(row == column, real, stored)
    diagonal, beside = (
        complex_parts.real(diagonals.diagonal(packed, offset, -2, -1)) for offset in (0, -1)
    )
    return as_tracer(stored), as_tracer(diagonal), as_tracer(beside), taus


def _reverse(x: Tracer, count: int) -> Tracer:
    """Return `x` with its last dimensions in reversed order."""
    return as_tracer(reshaping.flip(x, tuple(range(-count, 0))))


def apply_reflections(
    packed: Tracer, taus: Tracer, x: Tracer, *, left: bool, adjoint: bool
) -> Tracer:
    """Return Q x, Q^H x, x Q or x Q^H, where Q is the product of all reflections in order."""
    count = taus.shape[-1]
    rows = ranges.arange(packed.shape[-2])[:, None]
    is_reversed = left != adjoint

    def step(i: Tracer, x: Tracer) -> Tracer:
        number = (count - 1) - i if is_reversed else i
        column = _column(packed, number)
        vector = selection.where(
            rows > number, column, convert(rows == number, column.value.type.dtype)
        )
        tau = selection.where(ranges.arange(count) == number, taus, 0).sum(-1, keepdims=True)
        made = _Reflection(as_tracer(vector), as_tracer(tau[..., None]), column)
        return (_apply_left if left else _apply_right)(made, x, adjoint=adjoint)

    result: Tracer = fori_loop(0, count, step, x)
    return result


def _reflect(matrix: Tracer, i: Tracer, pivot_row: Tracer) -> _Reflection:
    """Return the reflection that maps column `i` from `pivot_row` on to that row."""
    column = _column(matrix, i)
    dtype = column.value.type.dtype
    rows = ranges.arange(matrix.shape[-2])[:, None]
    is_pivot, is_below = rows == pivot_row, rows > pivot_row
    magnitude = largest_magnitude(selection.where(is_pivot | is_below, column, 0), -2)
    column = column / convert(magnitude, dtype)
    alpha = selection.where(is_pivot, column, 0).sum(-2, keepdims=True)
    tail = abs(selection.where(is_below, column, 0))
    size = abs(alpha)
    square = size * size + (tail * tail).sum(-2, keepdims=True)
    is_done = basic_reductions.max(tail, -2, keepdims=True, initial=0) == 0
    if is_complex(alpha):
        is_done = is_done & (complex_parts.imag(alpha) == 0)
    # The root has no derivative at 0, where its value is not used.
    norm = math_functions.sqrt(selection.where(is_done, 1, square))
    real = complex_parts.real(alpha)
    beta = selection.where(is_done, real, selection.where(real < 0, norm, -norm))
    beta = convert(as_tracer(beta), dtype)
    tau = selection.where(is_done, 0, (beta - alpha) / selection.where(is_done, 1, beta))
    scale = selection.where(is_done, 1, 1 / selection.where(is_done, 1, alpha - beta))
    scaled = selection.where(is_below, column * scale, 0)
    pivot = selection.where(is_pivot, beta * convert(magnitude, dtype), _column(matrix, i))
    stored = selection.where(is_below, scaled, pivot)
    vector = scaled + convert(is_pivot, dtype)
    return _Reflection(as_tracer(vector), as_tracer(tau), as_tracer(stored))


def largest_magnitude(x: ArrayLike, axis: int | tuple[int, ...]) -> Tracer:
    """Return the largest magnitude along `axis`, which is kept with size 1; 1 instead of 0.

    The squares of quotients by it neither overflow nor all underflow. It is a constant of
    differentiation, for formulas whose result does not depend on it.
    """
    largest = as_tracer(basic_reductions.max(abs(as_tracer(x)), axis, keepdims=True, initial=0))
    return emit("stop_gradient", as_tracer(selection.where(largest == 0, 1, largest)))


def _column(matrix: Tracer, i: Tracer) -> Tracer:
    """Return column `i` as a matrix of one column."""
    chosen = ranges.arange(matrix.shape[-1]) == i
    return as_tracer(selection.where(chosen, matrix, 0).sum(-1, keepdims=True))


def _apply_left(made: _Reflection, x: Tracer, *, adjoint: bool) -> Tracer:
    """Return H x, or H^H x."""
    along = exact_matmul(conjugate_transpose(made.vector), x)
    return as_tracer(x - _scale(made, adjoint) * exact_matmul(made.vector, along))


def _apply_right(made: _Reflection, x: Tracer, *, adjoint: bool) -> Tracer:
    """Return x H, or x H^H."""
    along = exact_matmul(x, made.vector)
    return as_tracer(
        x - _scale(made, adjoint) * exact_matmul(along, conjugate_transpose(made.vector))
    )


def _scale(made: _Reflection, adjoint: bool) -> Tracer:
    return emit_conjugate(made.tau) if adjoint and is_complex(made.tau) else made.tau
