"""Schur and Hessenberg forms, products with Q, and functions of matrices by their Schur form."""

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.control_flow.loops import fori_loop
from shardir.frontend.lax.slicing import dynamic_slice_in_dim, dynamic_update_slice_in_dim
from shardir.frontend.numpy.creation import diagonal_matrices, filling
from shardir.frontend.numpy.elementwise import (
    complex_parts,
    float_parts,
    math_functions,
    selection,
)
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.linear_algebra.householder import (
    apply_reflections,
    largest_magnitude,
    reduce_to_hessenberg,
)
from shardir.frontend.numpy.linear_algebra.matrix_helpers import (
    check_not_pivoting,
    conjugate_transpose,
    identity_like,
    machine_epsilon,
    promote_matrices,
    promote_square_matrices,
)
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import concatenation, padding
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import emit_conjugate, is_complex
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, broadcast_shapes, convert
from shardir.frontend.tracing.trace import emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import COMPLEX_OF


@public(static=("output",))
def schur(a: ArrayLike, output: str = "real") -> list[Tracer]:
    """Return T and unitary Z, in a list, with Z T Z^H = a, for square matrices.

    T is upper triangular if `a` is complex or `output` is "complex"; otherwise it has blocks of two
    rows for pairs of complex eigenvalues. There is no derivative. Raise `ArgumentError` for another
    `output`.
    """
    if not isinstance(output, str) or output not in ("real", "complex"):
        raise ArgumentError(
            with_location(f"the output of schur is {brief(output)}; it is 'real' or 'complex'")
        )
    (x,) = promote_square_matrices("schur", a)
    if output == "complex":
        x = _as_complex(x)
    return list(emit_results("schur", x, vectors=True))


def _as_complex(x: Tracer) -> Tracer:
    return convert(x, COMPLEX_OF.get(x.value.type.dtype, x.value.type.dtype))


@public(static=("check_finite",))
def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Tracer, Tracer]:
    """Return the complex Schur form, which is upper triangular, from the real one of `schur`.

    One rotation for each pair of rows removes the element below the diagonal (G. H. Golub and
    C. F. Van Loan, "Matrix computations", 7.4).
    """
    form, basis = promote_square_matrices("rsf2csf", T, Z)
    if basis.shape[-2:] != form.shape[-2:]:
        raise ShapeError(
            with_location(f"rsf2csf takes matrices of one size, got shapes {form.shape} and "
                          f"{basis.shape}")
        )  # fmt: skip
    batch = broadcast_shapes(form.shape[:-2], basis.shape[:-2])
    size = form.shape[-1]
    form, basis = (_as_complex(broadcast(each, (*batch, size, size))) for each in (form, basis))
    if size < 2:
        return form, basis

    def step(i: Tracer, carry: tuple[Tracer, Tracer]) -> tuple[Tracer, Tracer]:
        form, basis = carry
        start = size - 2 - i
        rotation = _rotation_to_triangle(
            dynamic_slice_in_dim(dynamic_slice_in_dim(form, start, 2, -2), start, 2, -1),
            machine_epsilon(form),
        )
        rows = exact_matmul(rotation, dynamic_slice_in_dim(form, start, 2, -2))
        form = dynamic_update_slice_in_dim(form, rows, start, -2)
        back = conjugate_transpose(rotation)
        columns = exact_matmul(dynamic_slice_in_dim(form, start, 2, -1), back)
        form = dynamic_update_slice_in_dim(form, columns, start, -1)
        turned = exact_matmul(dynamic_slice_in_dim(basis, start, 2, -1), back)
        return form, dynamic_update_slice_in_dim(basis, turned, start, -1)

    form, basis = fori_loop(0, size - 1, step, (form, basis))
    return diagonal_matrices.triu(form), basis


def _rotation_to_triangle(block: Tracer, epsilon: float) -> Tracer:
    """Return the unitary 2x2 matrices G with upper triangular G block G^H."""
    block = block / convert(largest_magnitude(block, (-2, -1)), block.value.type.dtype)
    a, b = block[..., 0, 0], block[..., 0, 1]
    c, d = block[..., 1, 0], block[..., 1, 1]
    is_small = abs(c) <= epsilon * (abs(a) + abs(d))
    half = (a - d) / 2
    root = math_functions.sqrt(half * half + b * c)
    # The eigenvalue minus d; the first one of a pair has a positive imaginary part.
    first = half + root
    length = math_functions.sqrt(abs(first) ** 2 + abs(c) ** 2)
    length = convert(as_tracer(selection.where(is_small, 1, length)), c.value.type.dtype)
    cosine = selection.where(is_small, 1, first / length)
    sine = selection.where(is_small, 0, c / length)
    top = concatenation.stack([complex_parts.conjugate(cosine), sine], -1)
    return as_tracer(concatenation.stack([top, concatenation.stack([-sine, cosine], -1)], -2))


@public(static=("calc_q", "overwrite_a", "check_finite"))
def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> PyTree:
    """Return H, and with `calc_q` unitary Q, with Q H Q^H = a, for square matrices.

    H is zero below the first diagonal below the main one.
    """
    (x,) = promote_square_matrices("hessenberg", a)
    packed, taus = reduce_to_hessenberg(x)
    form = diagonal_matrices.triu(packed, -1)
    if not check_flag("calc_q of hessenberg", calc_q):
        return form
    size = x.shape[-1]
    if size < 2:
        return form, identity_like(x, size)
    inner = apply_reflections(
        packed[..., 1:, :-1], taus, identity_like(x, size - 1), left=True, adjoint=False
    )
    widths = [(0, 0)] * (x.ndim - 2) + [(1, 0), (1, 0)]
    corner = convert(as_tracer(np.eye(size)[0] * np.eye(size)[0][:, None]), x.value.type.dtype)
    return form, padding.pad(inner, widths) + corner


@public(static=("mode", "pivoting", "conjugate", "overwrite_a", "overwrite_c"))
def qr_multiply(
    a: ArrayLike, c: ArrayLike, mode: str = "right", pivoting: bool = False,
    conjugate: bool = False, overwrite_a: bool = False, overwrite_c: bool = False,
) -> tuple[Tracer, Tracer]:  # fmt: skip
    """Return the product of `c` and Q of the QR decomposition of `a`, and R.

    The product is c Q, or Q c with the `mode` "left"; `conjugate` takes the complex conjugate of Q.
    Q has min(m, n) columns for matrices (m, n). A vector `c` is a row, or a column. Raise
    `ShapeError` for shapes that do not fit, and `ArgumentError` for `pivoting` and another mode.
    """
    if not isinstance(mode, str) or mode not in ("left", "right"):
        raise ArgumentError(
            with_location(f"the mode of qr_multiply is {brief(mode)}; it is 'left' or 'right'")
        )
    check_not_pivoting(pivoting)
    given = as_tracer(c)
    is_vector = given.ndim == 1
    if is_vector:
        given = given[:, None] if mode == "left" else given[None]
    x, other = promote_matrices("qr_multiply", a, given)
    rows, count = x.shape[-2], min(x.shape[-2:])
    size, word = (other.shape[-2], "rows") if mode == "left" else (other.shape[-1], "columns")
    if size != (count if mode == "left" else rows):
        raise ShapeError(
            with_location(
                f"qr_multiply of {x.shape}, whose Q has {count_noun(rows, 'row')} and "
                f"{count_noun(count, 'column')}, takes on "
                f"the {mode} a matrix with {count if mode == 'left' else rows} {word}, got {size}"
            )
        )
    q, r = emit_results("qr", x, full=False)
    if check_flag("conjugate of qr_multiply", conjugate) and is_complex(q):
        q = emit_conjugate(q)
    product = exact_matmul(q, other) if mode == "left" else exact_matmul(other, q)
    return product.reshape(-1) if is_vector else product, r


@with_argument_errors
def funm(A: ArrayLike, func: UserFunction, disp: bool = True) -> PyTree:
    """Return a function of a square matrix, which `func` computes of its eigenvalues, elementwise.

    The result is complex. Without `disp`, return also an estimate of the error in the 1-norm. The
    algorithm is the recurrence of Parlett for the Schur form (G. H. Golub and C. F. Van Loan,
    "Matrix computations", algorithm 9.1.1); it is inaccurate for eigenvalues that are almost equal.
    There is no derivative. Raise `ShapeError` unless `A` is one square matrix.
    """
    check_function("funm", func)
    result, error = _funm(A, func)
    return result if check_flag("disp of funm", disp) else (result, error)


@public(static=("func",), cached=False, name="funm")
def _funm(A: ArrayLike, func: UserFunction) -> tuple[Tracer, Tracer]:
    (x,) = promote_square_matrices("funm", A)
    if x.ndim != 2:
        raise ShapeError(with_location(f"funm takes one square matrix, got shape {x.shape}"))
    size = x.shape[0]
    form, basis = emit_results("schur", _as_complex(x), vectors=True)
    values = form[np.arange(size), np.arange(size)]
    of_values = as_tracer(call_user_function(func, "the function of funm", (values,)))
    if of_values.shape != (size,):
        raise ShapeError(
            with_location(
                f"the function of funm returned shape {of_values.shape} for {size} eigenvalues; it "
                "returns one number for each"
            )
        )
    of_values = convert(of_values, form.value.type.dtype)
    gaps = values[None] - values[:, None]
    column = np.arange(size)

    # Diagonal k of the result follows from the diagonals before it.
    def step(k: Tracer, result: Tracer) -> Tracer:
        summed = exact_matmul(form, result) - exact_matmul(result, form)
        # The elements beyond the diagonals that are computed are zero, and do not contribute.
        quotient = selection.where(gaps == 0, summed, summed / selection.where(gaps == 0, 1, gaps))
        return as_tracer(selection.where(column[None] - column[:, None] == k, quotient, result))

    start = selection.where(np.eye(size, dtype=bool), of_values, 0)
    result = fori_loop(1, max(size, 1), step, as_tracer(start))
    epsilon = machine_epsilon(form)
    strict = np.triu(np.ones((size, size), bool), 1)
    sizes = concatenation.concatenate([abs(gaps)[strict], abs(values[:1])])
    least = basic_reductions.min(sizes) if size else filling.ones(())
    norm = basic_reductions.max(
        basic_reductions.sum(abs(selection.where(strict, form, 0)), 0), initial=0
    )
    error = selection.maximum(epsilon, epsilon / selection.where(least == 0, epsilon, least) * norm)
    whole = exact_matmul(exact_matmul(basis, result), conjugate_transpose(basis))
    is_finite = basic_reductions.all(float_parts.isfinite(whole))
    return whole, as_tracer(selection.where(is_finite, selection.minimum(1, error), np.inf))
