"""`custom_root` and `custom_linear_solve`."""

from collections.abc import Callable
from typing import TypeAlias

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.transforms import implicit_differentiation

UnaryFunction: TypeAlias = UserFunction
SolveFunction: TypeAlias = Callable[[UnaryFunction, PyTree], PyTree]


@traceback_boundary
def custom_root(
    f: UnaryFunction,
    initial_guess: ArrayLike,
    solve: SolveFunction,
    tangent_solve: SolveFunction,
    has_aux: bool = False,
) -> PyTree:
    """Return `solve(f, initial_guess)`, a root of `f`, with implicit derivatives.

    `f` maps containers like `initial_guess` to such containers. `tangent_solve(g, y)` returns `x`
    with `g(x)` = `y` for linear `g`, the derivative of `f` at the root. For scalars that is `lambda
    g, y: y / g(1.0)`; it must be linear in `y`. With `has_aux`, `solve` returns the root and an
    auxiliary value without derivative. Values that `f` closes over have derivatives.
    """
    return implicit_differentiation.solve_root(f, initial_guess, solve, tangent_solve, has_aux)


@traceback_boundary
def custom_linear_solve(
    matvec: UnaryFunction,
    b: PyTree,
    solve: SolveFunction,
    transpose_solve: SolveFunction | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> PyTree:
    """Return `solve(matvec, b)`, the `x` with `matvec(x)` = `b`, with implicit derivatives.

    `matvec` is linear. `transpose_solve(vecmat, y)` solves the transposed system, which gradients
    require; `solve` is used if `matvec` is `symmetric`. With `has_aux`, both return the solution
    and an auxiliary value without derivative. Values that `matvec` closes over have derivatives:
    gradients of any order, and forward-mode derivatives of these, but not forward-mode over
    forward-mode.
    """
    return implicit_differentiation.solve_linear(
        matvec, b, solve, transpose_solve, symmetric, has_aux
    )
