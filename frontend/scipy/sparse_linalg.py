"""Iterative solvers of linear equations with the names of `jax.scipy.sparse.linalg`.

An operator is a square matrix or a function that multiplies by one; vectors are containers of
arrays. Derivatives of solutions follow from the equation, not from the iterations
(`lax.custom_linear_solve`).
"""

from functools import partial, reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.control_flow import custom_solves, loops
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import array_conversion, filling
from shardir.frontend.numpy.elementwise import complex_parts, float_parts, math_functions, selection
from shardir.frontend.numpy.linear_algebra import contraction, linalg
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.tracer_helpers import inspection
from shardir.frontend.numpy.tracer_helpers.product_precision import Precision
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import inexact_dtype, user_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import COMPLEX

__all__ = ["bicgstab", "cg", "gmres"]

LinearOperator: TypeAlias = UserFunction
Operator: TypeAlias = ArrayLike | LinearOperator
"""A square matrix, or a function that multiplies by one."""

SolverMethod: TypeAlias = UserFunction

_vdot = partial(contraction.vdot, precision=Precision.HIGHEST)
_tensordot = partial(contraction.tensordot, precision=Precision.HIGHEST)


@with_argument_errors
def cg(
    A: Operator, b: PyTree, x0: PyTree = None, *, tol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Operator | None = None,
) -> tuple[PyTree, None]:  # fmt: skip
    """Return (x, None) with A x = b by conjugate gradients; A is Hermitian positive definite.

    `b` is an array or a container of arrays, `A` a matrix or a function of such a container, `M` an
    approximate inverse of `A` of the same kinds, `x0` the first guess (by default zeros). The
    iteration ends when the norm of the residual is at most max(tol * norm(b), atol), or after
    `maxiter` steps (by default 10 times the number of unknowns). Raise `ArgumentError` if `x0` does
    not have the shapes of `b`.

    M. Hestenes and E. Stiefel, Methods of conjugate gradients for solving linear systems, 1952.
    """
    return _solve("cg", _conjugate_gradients, A, b, x0, tol, atol, maxiter, M, True)


@with_argument_errors
def bicgstab(
    A: Operator, b: PyTree, x0: PyTree = None, *, tol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Operator | None = None,
) -> tuple[PyTree, None]:  # fmt: skip
    """Return (x, None) with A x = b by stabilized biconjugate gradients; see `cg`.

    `A` is any invertible operator.

    H. van der Vorst, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG, 1992.
    """
    return _solve("bicgstab", _biconjugate_gradients, A, b, x0, tol, atol, maxiter, M, False)


@with_argument_errors
def gmres(
    A: Operator, b: PyTree, x0: PyTree = None, *, tol: float = 1e-5, atol: float = 0.0,
    restart: int = 20, maxiter: int | None = None, M: Operator | None = None,
    solve_method: str = "batched",
) -> tuple[PyTree, Tracer]:  # fmt: skip
    """Return (x, info) with A x = b by generalized minimal residuals; see `cg`.

    `info` is -1 if `x` contains NaN, as for an operator that maps the residual to 0, and 0
    otherwise, also if the iteration did not converge. `A` is any invertible operator. A subspace of
    `restart` vectors is built before each update of the solution; `maxiter` is the number of these
    cycles. The preconditioned residual is minimized. `solve_method` is accepted ("batched" or
    "incremental"): both give the result of "batched".

    Y. Saad and M. Schultz, GMRES: a generalized minimal residual algorithm, 1986.
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentError(
            with_location(
                f"solve_method of gmres is 'batched' or 'incremental', got {solve_method!r}"
            )
        )
    size = sum(leaf.size for leaf in map(array_conversion.asarray, tree.leaves(b)))
    method = partial(_minimal_residuals, restart=min(restart, size))
    x, _ = _solve("gmres", method, A, b, x0, tol, atol, maxiter, M, False)
    return x, selection.where(float_parts.isnan(_squared_norm(x)), -1, 0)


def _solve(
    name: str, method: SolverMethod, A: Operator, b: PyTree, x0: PyTree, tol: ArrayLike,
    atol: ArrayLike, maxiter: int | None, M: Operator | None, hermitian: bool,
) -> tuple[PyTree, None]:  # fmt: skip
    b = tree.map(_as_inexact, b)
    x0 = tree.map(filling.zeros_like, b) if x0 is None else x0
    if tree.structure(x0) != tree.structure(b) or _shapes(x0) != _shapes(b):
        raise ArgumentError(
            with_location(
                f"x0 of {name} is not like b: its shapes are {_shapes(x0)}, those of b "
                f"{_shapes(b)}; they must be containers of arrays of the same shapes"
            )
        )
    x0 = tree.map(lambda x, like: array_conversion.asarray(x).astype(like.dtype), x0, b)
    steps = 10 * sum(leaf.size for leaf in tree.leaves(b)) if maxiter is None else maxiter
    precondition = _operator(f"M of {name}", (lambda x: x) if M is None else M)

    def solve(matvec: LinearOperator, right: PyTree) -> PyTree:
        return method(matvec, right, x0, tol, atol, steps, precondition)

    kinds = {abstract_of(leaf).type.dtype for leaf in tree.leaves(b)}
    result = custom_solves.custom_linear_solve(
        _operator(f"A of {name}", A),
        b,
        solve,
        transpose_solve=solve,
        symmetric=hermitian and not kinds & set(COMPLEX),
    )
    return result, None


def _as_inexact(x: ArrayLike) -> Tracer:
    array = array_conversion.asarray(x)
    return array.astype(user_dtype(inexact_dtype(abstract_of(array).type.dtype)))


def _shapes(x: PyTree) -> list[tuple[int, ...]]:
    return [tuple(inspection.shape(leaf)) for leaf in tree.leaves(x)]


def _operator(what: str, given: Operator) -> LinearOperator:
    """Return the function that multiplies by a matrix, or the given function."""
    if callable(given):
        return given
    shape = abstract_of(given, what).type.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ArgumentError(
            with_location(f"{what} is a square matrix or a function, got an array of shape {shape}")
        )
    return partial(contraction.matmul, given, precision=Precision.HIGHEST)


def _axpy(x: PyTree, scale: Tracer, y: PyTree) -> PyTree:
    """Return x + scale * y."""
    return tree.map(lambda one, other: one + scale.astype(other.dtype) * other, x, y)


def _subtract(x: PyTree, y: PyTree) -> PyTree:
    return tree.map(lambda one, other: one - other, x, y)


def _inner_product(x: PyTree, y: PyTree) -> Tracer:
    """Return the inner product, with the first vector conjugated."""
    return reduce(add, map(_vdot, tree.leaves(x), tree.leaves(y)))


def _squared_norm(x: PyTree) -> Tracer:
    """Return the square of the norm, a real number."""
    return reduce(add, (_vdot(leaf, leaf).real for leaf in tree.leaves(x)))


def _squared_tolerance(b: PyTree, tol: ArrayLike, atol: ArrayLike) -> Tracer:
    """Return the square of the largest accepted norm of a residual."""
    square = _squared_norm(b)
    relative = complex_parts.square(array_conversion.asarray(tol, square.dtype)) * square
    return selection.maximum(
        relative, complex_parts.square(array_conversion.asarray(atol, square.dtype))
    )


def _safe_quotient(x: Tracer, y: Tracer) -> Tracer:
    """Return x / y, or 0 if y is 0."""
    return selection.where(y == 0, 0, x / selection.where(y == 0, 1, y))


def _conjugate_gradients(
    A: LinearOperator,
    b: PyTree,
    x0: PyTree,
    tol: ArrayLike,
    atol: ArrayLike,
    steps: int,
    M: LinearOperator,
) -> PyTree:
    bound = _squared_tolerance(b, tol, atol)

    def is_unconverged(state: PyTree) -> PyTree:
        _, residual, _, _, count = state
        return (_squared_norm(residual) > bound) & (count < steps)

    def step(state: PyTree) -> tuple[PyTree, ...]:
        x, residual, direction, gamma, count = state
        image = A(direction)
        alpha = gamma / _inner_product(direction, image)
        x, residual = _axpy(x, alpha, direction), _axpy(residual, -alpha, image)
        refined = M(residual)
        next_gamma = _inner_product(residual, refined)
        return x, residual, _axpy(refined, next_gamma / gamma, direction), next_gamma, count + 1

    residual = _subtract(b, A(x0))
    first = M(residual)
    return loops.while_loop(
        is_unconverged,
        step,
        (x0, residual, first, _inner_product(residual, first), dtypes.int32(0)),
    )[0]


def _biconjugate_gradients(
    A: LinearOperator,
    b: PyTree,
    x0: PyTree,
    tol: ArrayLike,
    atol: ArrayLike,
    steps: int,
    M: LinearOperator,
) -> PyTree:
    bound = _squared_tolerance(b, tol, atol)

    def is_unconverged(state: PyTree) -> PyTree:
        # `count` is negative after a breakdown, in which a step would divide by zero.
        _, residual, *_, count = state
        return (_squared_norm(residual) > bound) & (count < steps) & (count >= 0)

    def step(state: PyTree) -> tuple[PyTree, ...]:
        x, residual, shadow, direction, image, alpha, omega, rho, count = state
        next_rho = _inner_product(shadow, residual)
        beta = _safe_quotient(next_rho * alpha, rho * omega)
        direction = _axpy(residual, beta, _axpy(direction, -omega, image))
        refined = M(direction)
        image = A(refined)
        # NaN or infinity states a breakdown: the residual is not along the shadow residual.
        alpha = next_rho / _inner_product(shadow, image)
        half = _axpy(residual, -alpha, image)
        half_refined = M(half)
        half_image = A(half_refined)
        omega = _safe_quotient(
            _inner_product(half_image, half), _inner_product(half_image, half_image)
        )
        # If the first half step was sufficient, the second would only add rounding errors.
        omega = selection.where(_squared_norm(half) < bound, 0, omega)
        x = _axpy(_axpy(x, alpha, refined), omega, half_refined)
        residual = _axpy(half, -omega, half_image)
        broken = (next_rho == 0) | (alpha == 0) | ((omega == 0) & (_squared_norm(residual) > bound))
        return (x, residual, shadow, direction, image, alpha, omega, next_rho,
                selection.where(broken, -1, count + 1))  # fmt: skip

    residual = _subtract(b, A(x0))
    one = filling.ones_like(_inner_product(residual, residual))
    state = (
        x0,
        residual,
        residual,
        residual,
        tree.map(filling.zeros_like, residual),
        one,
        one,
        one,
        dtypes.int32(0),
    )
    # The first direction is the residual itself, independent of the quotient.
    state = (*state[:3], tree.map(filling.zeros_like, residual), *state[4:])
    return loops.while_loop(is_unconverged, step, state)[0]


def _minimal_residuals(
    A: LinearOperator,
    b: PyTree,
    x0: PyTree,
    tol: ArrayLike,
    atol: ArrayLike,
    rounds: int,
    M: LinearOperator,
    *,
    restart: int,
) -> PyTree:
    norm = math_functions.sqrt(_squared_norm(b))
    bound = selection.maximum(
        array_conversion.asarray(tol, norm.dtype) * norm, array_conversion.asarray(atol, norm.dtype)
    )

    def residual(x: PyTree) -> tuple[PyTree, Tracer]:
        rest = M(_subtract(b, A(x)))
        return rest, math_functions.sqrt(_squared_norm(rest))

    def is_unconverged(state: PyTree) -> PyTree:
        _, _, size, count = state
        return (size > bound) & (count < rounds)

    def cycle(state: PyTree) -> PyTree:
        x, rest, size, count = state
        basis = tree.map(
            lambda r: (
                filling.zeros((restart + 1, *r.shape), r.dtype)
                .at[0]
                .set(_safe_quotient(r, size.astype(r.dtype)))
            ),
            rest,
        )
        kind = _inner_product(rest, rest).dtype
        table = filling.zeros((restart + 1, restart), kind)
        basis, table = loops.fori_loop(0, restart, partial(_arnoldi_step, A, M), (basis, table))
        right = filling.zeros((restart + 1,), kind).at[0].set(size.astype(kind))
        weights = linalg.lstsq(table, right)[0]
        # The image of an invertible operator has a direction along the residual.
        is_singular = basic_reductions.all(weights == 0) & (size > bound)
        weights = selection.where(is_singular, np.nan, weights)
        x = tree.map(
            lambda old, v: old + _tensordot(weights.astype(v.dtype), v[:-1], axes=1),
            x,
            basis,
        )
        return (x, *residual(x), count + 1)

    return loops.while_loop(is_unconverged, cycle, (x0, *residual(x0), dtypes.int32(0)))[0]


def _arnoldi_step(A: LinearOperator, M: LinearOperator, k: Tracer, state: PyTree) -> PyTree:
    """Add the image of the k-th vector to an orthonormal basis (Arnoldi), and to the table.

    The orthogonalization is applied twice. A vector in the span of the basis becomes 0.
    """
    basis, table = state
    image = M(A(tree.map(lambda v: v[k], basis)))
    before = math_functions.sqrt(_squared_norm(image))
    column: Any = 0
    for _ in range(2):
        parts = reduce(
            add,
            (
                _tensordot(complex_parts.conj(v), w, axes=w.ndim)
                for v, w in zip(tree.leaves(basis), tree.leaves(image), strict=True)
            ),
        )
        image = tree.map(
            lambda w, v, parts=parts: w - _tensordot(parts.astype(v.dtype), v, axes=1),
            image,
            basis,
        )
        column = column + parts
    size = math_functions.sqrt(_squared_norm(image))
    size = selection.where(size <= dtypes.finfo(size.dtype).eps * before, 0, size)
    basis = tree.map(
        lambda v, w: v.at[k + 1].set(_safe_quotient(w, size.astype(w.dtype))), basis, image
    )
    column = column.at[k + 1].set(size.astype(column.dtype))
    return basis, table.at[:, k].set(column.astype(table.dtype))
