"""`custom_root` and `custom_linear_solve`, as operations."""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]
Solver = Callable[[Function, Any], Any]


def custom_root(
    f: Function,
    initial_guess: Any,
    solve: Solver,
    tangent_solve: Solver,
    has_aux: bool = False,
) -> Any:
    """`solve(f, initial_guess)`, a root of `f`, with the derivatives that a root has.

    `f` takes and returns something like `initial_guess`. `tangent_solve(g, y)` returns the `x` for
    which `g(x)` is `y`, where `g` is linear: the derivative of `f` at the root. For scalars that is
    `lambda g, y: y / g(1.0)`; it must be linear in `y`. With `has_aux`, `solve` returns the root
    and something else, which has no derivative. What `f` closes over has derivatives.
    """
    # Functions with derivatives of their own are made of operations such as those beside this.
    from shardir.frontend import solving

    return solving.root(f, initial_guess, solve, tangent_solve, has_aux)


def custom_linear_solve(
    matvec: Function,
    b: Any,
    solve: Solver,
    transpose_solve: Solver | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """`solve(matvec, b)`: the `x` for which `matvec(x)` is `b`, with the derivatives it has.

    `matvec` is linear, of something like `b`. `transpose_solve(vecmat, y)` solves with the
    transpose, which gradients need; `solve` serves when `matvec` is `symmetric`. With `has_aux`,
    both return the solution and something else, which has no derivative. What `matvec` closes over
    has derivatives: gradients of any order, and derivatives forward of these, but no derivative
    forward of one forward.
    """
    from shardir.frontend import solving

    return solving.linear(matvec, b, solve, transpose_solve, symmetric, has_aux)
